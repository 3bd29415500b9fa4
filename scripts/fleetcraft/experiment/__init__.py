"""The experiment file, and the plan that follows from it.

Pure and quick: nothing here imports torch, touches a GPU or writes to disk, so that a dry run on a login node costs
next to nothing.
"""

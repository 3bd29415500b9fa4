"""The stages of a campaign, each a function of one job description.

A rule's script writes the description and hands over to the stage's tool chain (`launch`); there `__main__` runs the
stage. A stage computes only what the store lacks, checks what it made, and leaves a record of each artifact.
"""

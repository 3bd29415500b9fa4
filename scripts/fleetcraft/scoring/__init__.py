"""Scores of videos: the dimensions, and the code that computes each."""

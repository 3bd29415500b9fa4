"""Checkpoints on disk: whether one is whole and what its list of digests names, judged without loading anything."""

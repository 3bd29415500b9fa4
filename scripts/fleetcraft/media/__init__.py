"""Frames, videos and pictures of them."""

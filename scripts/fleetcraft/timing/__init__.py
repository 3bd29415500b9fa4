"""Timing that can be reported: the order of passes, and what else happened on the node meanwhile."""

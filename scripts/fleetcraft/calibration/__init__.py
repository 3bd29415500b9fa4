"""Calibration before scale: trials of whole tasks, the choice of a batch, the table that a campaign obeys."""

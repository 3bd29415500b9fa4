"""Fleetcraft: campaigns of video generation, from an experiment file to evidence."""

__version__ = "0.1.0"

"""Keys of videos and scores, for the jobs of a plan and for the evidence that they leave. `settings` are digests."""

from __future__ import annotations

from fleetcraft.ground.digests import key_of


def video_key(sample_id: str, settings: str) -> str:
    """Of what decode and encode, with these settings, make of a sample."""
    return key_of({"sample": sample_id, "settings": settings})


def score_key(video: str, baseline: str | None, settings: str) -> str:
    """Of a scorer's value for a video; `baseline` is the key of the video that it is compared with, if it is."""
    return key_of({"video": video, "baseline": baseline, "settings": settings})

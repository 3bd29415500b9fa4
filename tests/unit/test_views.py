"""The names of videos in an arm's view."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetcraft.experiment.video_names import video_name

prompts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=400)


def test_a_name_is_the_one_that_vbench_expects() -> None:
    assert video_name("a cat", 7, [3, 7]) == "a cat-1.mp4"


@given(prompt=prompts)
def test_every_prompt_has_a_name_that_a_filesystem_takes(prompt: str) -> None:
    name = video_name(prompt, 0, [0])
    assert len(name.encode()) <= 255
    assert "/" not in name
    assert name.endswith("-0.mp4")


def test_long_prompts_with_the_same_beginning_keep_apart() -> None:
    names = {video_name("x" * 300 + ending, 0, [0]) for ending in ("a", "b")}
    assert len(names) == 2

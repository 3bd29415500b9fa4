"""Figures: whatever they say is whole and hides nothing, and an arm looks the same in all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from fleetcraft.analysis import encoder_comparison, figures
from fleetcraft.analysis.drawing import colours_of, fitted
from fleetcraft.analysis.encoder_comparison import Compared
from fleetcraft.analysis.latency import measured
from fleetcraft.analysis.tables import Results
from fleetcraft.experiment.arms import Search
from fleetcraft.experiment.search import entrants, searches_in
from fleetcraft.ground.lines import broken
from fleetcraft.scoring.dimensions import DIMENSIONS
from fleetcraft.scoring.verifiers import VERIFIERS
from fleetcraft.timing.passes import PHASES

LONG = "first_block_cache_threshold-0.2_unipc_bfloat16_flash_attention.0"
WIDEST = "m" * 64
PROXY = "proxy-overall_consistency"
LABELS = {name: known.label for name, known in DIMENSIONS.items()} | {
    f"{name}-{kind}"[:64]: known.dimension(f"{name}-{kind}"[:64], 8, 1).label
    for kind, known in VERIFIERS.items()
    for name in ("by", LONG)
}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figure]]:
    """Figures as they would be saved."""
    found: list[Figure] = []
    for module in (figures, encoder_comparison):
        monkeypatch.setattr(module, "save", lambda figure, path: found.append(figure))
    yield found
    plt.close("all")


def names(count: int, name: str) -> list[str]:
    return [f"{number}{name}"[:64] for number in range(count)]


def results(arms: Sequence[str], dimension: str, searches: dict[str, dict[str, Any]] | None = None) -> Results:
    """Two prompts an arm, each arm dearer and better than the one before."""
    conditions = {arm: {"arm": {}} for arm in arms} | {
        arm: {"arm": {}, "search": search} for arm, search in (searches or {}).items()
    }
    dimensions = {dimension, *(search["verifier"] for search in (searches or {}).values())}
    prompts = [{"text": text, "dimensions": []} for text in "ab"]
    plan = {"baseline": arms[0], "conditions": conditions, "scorers": {name: {} for name in sorted(dimensions)}}
    made = Results(plan | {"prompts": prompts, "seeds": [0]})
    candidates = [
        one for name, search in searches_in(made.plan).items() for some in entrants(name, search) for one in some
    ]
    for place, arm in enumerate(dict.fromkeys([*conditions, *candidates])):
        for prompt in "ab":
            about = {"arm": arm, "prompt": prompt, "seed": 0, "sample": f"{arm} {prompt}"}
            video = {"sha256": "0", "key": "k", "bytes": 1, "encoder": {"codec": "x", "pixel_format": "y", "crf": 1}}
            made.add([{"kind": "latents", "work": {"flops_computed": 10 + place}, **about}])
            made.add([{"kind": "videos", **video, **about}])
            value = place / 10 + (prompt == "b")
            made.add(
                {"kind": "scores", "dimension": name, "video": "k", "value": value, **about} for name in dimensions
            )
    return made


def searching(arms: Sequence[str], verifiers: Sequence[str]) -> Results:
    """A search a verifier, in the last of the arms."""
    settings = {"candidates": 4, "rounds": [{"arm": arms[-1]}], "recommit": arms[0]}
    searches = {f"{place}{arms[0]}-found"[:64]: settings | {"verifier": name} for place, name in enumerate(verifiers)}
    return results(arms, verifiers[0], {arm: Search.model_validate(one).model_dump() for arm, one in searches.items()})


def is_whole(figure: Figure) -> bool:
    """Whether everything that is drawn, each letter of it, is inside of the picture."""
    figure.draw_without_rendering()
    # In inches, as is the size of the figure; and a hundredth for rounding.
    drawn, (width, height) = figure.get_tightbbox().padded(-0.01), figure.get_size_inches()
    return bool(drawn.x0 >= 0 and drawn.y0 >= 0 and drawn.x1 <= width and drawn.y1 <= height)


def overlapping(texts: Sequence[Text]) -> bool:
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    return any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def said(text: str) -> str:
    """Without line breaks."""
    return "".join(text.split())


@pytest.mark.parametrize("dimension", LABELS)
def test_the_label_of_every_dimension_is_whole_in_its_figure(drawn: list[Figure], dimension: str) -> None:
    figures.score_figure(results(["full"], dimension), dimension, LABELS[dimension], Path())
    (figure,) = drawn
    assert said(figure.axes[0].get_ylabel()) == said(LABELS[dimension])
    assert is_whole(figure)


def test_the_longest_labels_are_whole_in_the_figure_of_searches(drawn: list[Figure]) -> None:
    verifiers = sorted(LABELS, key=lambda name: len(LABELS[name]))[-8:]
    figures.search_figure(searching(["full"], verifiers), LABELS, Path())
    (figure,) = drawn
    assert {said(axes.get_ylabel()) for axes in figure.axes} == {said(LABELS[name]) for name in verifiers}
    assert is_whole(figure)


@pytest.mark.parametrize(("count", "name"), [(1, LONG), (2, WIDEST), (3, ""), (12, LONG)])
def test_names_of_arms_are_whole_and_apart_however_many_and_long_they_are(
    drawn: list[Figure], count: int, name: str
) -> None:
    arms = names(count, name)
    passes = [timed(arm) for arm in arms]
    figures.score_figure(results(arms, PROXY), PROXY, LABELS[PROXY], Path())
    figures.latency_figure(passes, arms, colours_of(arms), Path())
    figures.phases_figure(measured(passes), arms, Path())
    encoder_comparison.comparison_figure(both_encoders(arms[:2]), colours_of(arms), Path())
    for figure in drawn:
        assert is_whole(figure)
        assert not overlapping([*figure.axes[0].get_xticklabels(), *figure.axes[0].get_yticklabels()])
    assert [said(text.get_text()) for text in drawn[0].axes[0].get_xticklabels()] == arms


@pytest.mark.parametrize("verifiers", [1, 3])
@pytest.mark.parametrize(("count", "name"), [(1, ""), (3, LONG), (12, WIDEST)])
def test_the_legend_of_searches_hides_nothing_and_is_whole(
    drawn: list[Figure], count: int, name: str, verifiers: int
) -> None:
    made = searching(names(count, name), [PROXY, "ssim", f"by-{LONG}"[:64]][:verifiers])
    figures.search_figure(made, {**LABELS, f"by-{LONG}"[:64]: f"by-{LONG}: similarity"}, Path())
    (figure,) = drawn
    assert is_whole(figure)
    (legend,) = figure.legends
    others = [*(axes.get_tightbbox() for axes in figure.axes), *(text.get_window_extent() for text in figure.texts)]
    assert not any(legend.get_window_extent().overlaps(box) for box in others if box)
    assert all(axes.get_legend() is None for axes in figure.axes)
    assert {said(text.get_text()) for text in legend.get_texts()} >= set(made.arms)


def test_the_figure_of_searches_says_what_it_is_and_which_verifiers_are_proxies(drawn: list[Figure]) -> None:
    figures.search_figure(searching(["full", "draft"], [PROXY, "psnr"]), LABELS, Path())
    (figure,) = drawn
    assert figure.get_suptitle().startswith("Quality against compute")
    assert {axes.get_title(): "proxy" in axes.get_ylabel() for axes in figure.axes} == {
        f"by {PROXY}": True,
        "by psnr": False,
    }


def test_an_arm_has_one_colour_in_all_figures_of_a_campaign(drawn: list[Figure]) -> None:
    made = searching(["full", "half", "draft"], ["psnr"])
    colours = colours_of(made.arms)
    for about in [about for about in made.scores["psnr"] if about[0] == "full"]:
        made.scores["psnr"][about]["value"] = None
    figures.score_figure(made, "psnr", "psnr", Path())
    figures.search_figure(made, LABELS, Path())
    figures.latency_figure([timed("half"), timed("draft")], ["half", "draft"], colours, Path())
    encoder_comparison.comparison_figure(both_encoders(["draft"]), colours, Path())
    scores, searches, latency, encoders = drawn
    assert _dots(scores) == [colours[arm] for arm in made.arms if arm != "full"]
    assert {to_hex(line.get_color()) for line in searches.axes[0].get_lines()} == set(_dots(scores))
    assert _dots(latency) == [colours["half"], colours["draft"]]
    assert _dots(encoders) == [colours["draft"]]


def _dots(figure: Figure) -> list[str]:
    """The colours of the dots in the first panel, in their order."""
    dots = [one for one in figure.axes[0].collections if isinstance(one, PathCollection) and len(one.get_offsets())]
    return [to_hex(one.get_facecolor()[0][:3]) for one in dots]


def test_up_to_twenty_arms_are_told_apart_and_another_arm_changes_no_colour() -> None:
    colours = colours_of(names(20, ""))
    assert len(set(colours.values())) == 20
    assert colours.items() >= colours_of(names(12, "")).items()


def test_a_dimension_without_any_value_is_drawn_all_the_same(drawn: list[Figure]) -> None:
    made = results(["full"], "psnr")
    for record in made.scores["psnr"].values():
        record["value"] = None
    figures.score_figure(made, "psnr", LABELS["psnr"], Path())
    assert drawn[0].axes[0].get_title() == "psnr: 0 videos an arm"


def timed(arm: str) -> dict[str, Any]:
    """A record of a timed pass."""
    seconds = dict.fromkeys(PHASES, 1.0) | {"total": 4.0}
    about = {"kind": "timings", "arm": arm, "prompt": "a", "seed": 0, "round": 0, "warmup": False, "valid": True}
    return about | {"seconds": seconds}


def both_encoders(arms: Sequence[str]) -> Compared:
    """Videos in two encodings, whose scores are the same."""
    sides = {side: results(arms, PROXY) for side in ("declared", "compared")}
    measures = [
        {"of": side, "against": "frames", "mse": 2.0, "ssim": 0.5, "vmaf": None} for side in ("declared", "compared")
    ]
    return Compared.of(
        sides, [{"arm": arm, "prompt": prompt, "seed": 0, "measures": measures} for arm in arms for prompt in "ab"]
    )


@given(text=st.text("ab_- ", max_size=40), widest=st.integers(1, 12))
def test_a_text_that_is_broken_is_all_there_in_lines_that_fit(text: str, widest: int) -> None:
    lines = broken(text, widest, len).split("\n")
    assert said("".join(lines)) == said(text)
    assert all(len(line) <= widest for line in lines)


def test_names_are_broken_where_their_words_end() -> None:
    assert fitted("steps-50_guidance_5", 0.8) == "steps-50_\nguidance_5"

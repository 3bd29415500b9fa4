"""Tables of what models and arms cost, for `fleetcraft plan`."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from fleetcraft.cli.layout import columns, wrapped

if TYPE_CHECKING:
    from rich.table import Table

    from fleetcraft.experiment.plan import Plan

_INDENT = "  "

_GIB = 2**30


def cost_lines(plan: Plan) -> list[str]:
    """Tables of models, of the arms that they generate, and of weights; nothing where no arm is generated."""
    from fleetcraft.experiment.costs import arm_cost, model_cost, searched_flops

    arms = plan.experiment.generated
    if not arms:
        return []
    video, samples = plan.experiment.video, plan.samples_of_arm
    models = {name: model_cost(plan, name) for name in plan.models if name in plan.used_models}
    costs = {name: arm_cost(plan, arm, models[arm.model]) for name, arm in arms.items()}
    staging = video.width * video.height * video.frames * 3 * 4

    shapes = _table("model", "latents", "tokens", "text\ntokens", "decode\nGiB, about", "whole video\nGiB, float32")
    for name, model in models.items():
        shapes.add_row(
            name,
            "×".join(map(str, model.latents)),
            f"{model.tokens:,}",
            f"{model.text_tokens}",
            _short(model.decode_bytes / _GIB),
            _short(staging / _GIB),
        )
    compute = _table("arm", "forwards\na sample", "TFLOP\na forward", "PFLOP\na sample", "PFLOP\nin all")
    for name, cost in costs.items():
        compute.add_row(
            name,
            f"{cost.forwards} of {cost.rows}" if cost.rows > 1 else f"{cost.forwards}",
            _short(cost.forward_flops / 1e12),
            _short(cost.sample_flops / 1e15),
            _short(cost.sample_flops * samples / 1e15),
        )
    searched = searched_flops(plan, costs)
    for name, flops in searched.items():
        compute.add_row(name, "search", "", _short(flops / 1e15), _short(flops * samples / 1e15))
    total = samples * (sum(cost.sample_flops for cost in costs.values()) + sum(searched.values()))
    weights = _table(
        "weights", "dtype", "transformer\nGiB", "text encoder\nGiB", f"VAE ({plan.experiment.decode.dtype})\nGiB"
    )
    for (model_name, dtype), cost in {(arm.model, arm.dtype): costs[name] for name, arm in arms.items()}.items():
        sizes = (cost.weights[part] / _GIB for part in ("transformer", "text_encoder", "vae"))
        weights.add_row(model_name, dtype, *map(_short, sizes))
    return [
        *_lines(shapes),
        *wrapped(
            "Decode is an estimate of the device's memory at the peak of decoding: weights of the VAE and activations,"
            " without workspaces of convolutions. Whole video is what the host would hold of one that isn't streamed.",
            _INDENT,
        ),
        "",
        *_lines(compute),
        *wrapped(
            f"{_short(total / 1e15)} PFLOP for the campaign, if everything is computed: caches skip some of it. `of`"
            " says how many samples are in a forward where it is more than one, those of guidance included."
            + (
                " A search counts all candidates, and the winner where it is none of them; what arms have in common is"
                " made once."
                if searched
                else ""
            ),
            _INDENT,
        ),
        "",
        *_lines(weights),
        "",
    ]


def _table(first: str, *others: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, vertical="bottom", overflow="fold")
    for header in others:
        table.add_column(header, justify="left" if header == "dtype" else "right", vertical="bottom", no_wrap=True)
    return table


def _lines(table: Table) -> list[str]:
    """The table as plain lines, no wider than the terminal."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=columns() - len(_INDENT)).print(table)
    return [f"{_INDENT}{line.rstrip()}" for line in text.getvalue().splitlines() if line.strip()]


def _short(number: float) -> str:
    """Three digits that count, and all of those before the point."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}" if number >= 0.095 else f"{number:.1e}"

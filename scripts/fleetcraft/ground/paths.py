"""Every path of a campaign.

Scratch holds what can be made again and may be purged: the content-addressed store, which all campaigns under one
scratch root share, and a directory a campaign with its manifests, frames, logs and benchmarks. Work holds what must
last: plan, tables, figures, report, evidence.

Arguments may be Snakemake wildcards: `Paths(...).videos("{arm}", "{shard}")` is a pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SPOOLS = Path(".snakemake/spool")
"""Below the directory that campaigns run in: a spool each, named after the campaign, unless it is said otherwise."""


@dataclass(frozen=True)
class Paths:
    """The layout below the two roots, for the campaign `name`."""

    scratch_root: str
    work_root: str
    name: str

    @property
    def store(self) -> str:
        return f"{self.scratch_root}/store"

    @property
    def scratch(self) -> str:
        return f"{self.scratch_root}/{self.name}"

    @property
    def work(self) -> str:
        return f"{self.work_root}/{self.name}"

    # One a model
    def model(self, model: str) -> str:
        """The record of a model that was built or verified."""
        return f"{self.scratch}/models/{model}.jsonl"

    # One a shard
    def latents(self, arm: str, shard: str) -> str:
        """The manifest of a shard's latents."""
        return f"{self.scratch}/latents/{arm}/{shard}.jsonl"

    def frames(self, arm: str, shard: str) -> str:
        """The directory of a shard's decoded frames; temporary."""
        return f"{self.scratch}/frames/{arm}/{shard}"

    def videos(self, arm: str, shard: str) -> str:
        """The manifest of a shard's videos."""
        return f"{self.scratch}/videos/{arm}/{shard}.jsonl"

    def scores(self, arm: str, dimension: str, shard: str) -> str:
        """The manifest of a shard's scores in one dimension."""
        return f"{self.scratch}/scores/{arm}/{dimension}/{shard}.jsonl"

    def choices(self, arm: str, search_round: str, shard: str) -> str:
        """The manifest of what a round of a search has kept of a shard's candidates."""
        return f"{self.scratch}/choices/{arm}/{search_round}/{shard}.jsonl"

    def fidelity(self, arm: str, shard: str) -> str:
        """The manifest of what was measured of a shard's videos in two encodings."""
        return f"{self.scratch}/fidelity/{arm}/{shard}.jsonl"

    def views(self, arm: str) -> str:
        """The directory of links that give an arm's videos the names people and VBench expect."""
        return f"{self.scratch}/views/{arm}"

    def view_index(self, arm: str) -> str:
        """The table of what each link of `views` is."""
        return f"{self.scratch}/views/{arm}.csv"

    # One a campaign
    @property
    def plan(self) -> str:
        return f"{self.work}/plan.json"

    def table(self, name: str) -> str:
        return f"{self.work}/tables/{name}.csv"

    def vbench_results(self, arm: str) -> str:
        """An arm's results in VBench's own format."""
        return f"{self.work}/vbench/{arm}_eval_results.json"

    def score_figure(self, dimension: str) -> str:
        return f"{self.work}/figures/scores/{dimension}.png"

    def contact_sheet(self, arm: str) -> str:
        return f"{self.work}/figures/contact/{arm}.png"

    def candidate_sheet(self, arm: str) -> str:
        return f"{self.work}/figures/candidates/{arm}.png"

    @property
    def timings(self) -> str:
        """The manifest of timed passes."""
        return f"{self.scratch}/timings.jsonl"

    def calibration(self, arm: str, batch: str) -> str:
        """The record of a trial."""
        return f"{self.scratch}/calibration/{arm}/{batch}.jsonl"

    def figure(self, name: str) -> str:
        """A figure of the whole campaign."""
        return f"{self.work}/figures/{name}.png"

    @property
    def evidence(self) -> str:
        return f"{self.work}/evidence"

    @property
    def evidence_digest(self) -> str:
        """The one digest that stands for the whole evidence directory."""
        return f"{self.work}/evidence.sha256"

    @property
    def report(self) -> str:
        return f"{self.work}/report.html"

    # Of a comparison of encoders, beside the campaign's own
    def encoder_comparison(self, name: str) -> str:
        """A table, figure or file of records of the comparison of encoders."""
        return f"{self.work}/encoder_comparison/{name}"

    # One a job
    def log(self, rule: str, *parts: str) -> str:
        return "/".join([f"{self.scratch}/logs/{rule}", *parts]) + ".log"

    def benchmark(self, rule: str, *parts: str) -> str:
        return "/".join([f"{self.scratch}/benchmarks/{rule}", *parts]) + ".tsv"

"""Run one complete task of an arm at one batch, alone on its node."""

from pathlib import Path

from fleetcraft.experiment.config import plan_of
from fleetcraft.stages.calibrate import calibrate
from fleetcraft.stages.launch import explained, redirect_output

log = Path(snakemake.log[0])
redirect_output(log)
with explained():
    plan, runtime = plan_of(snakemake.config)
    calibrate(plan, snakemake.wildcards.arm, int(snakemake.wildcards.batch), log, runtime.toolchains)

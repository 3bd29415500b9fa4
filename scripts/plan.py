"""Write down what the campaign computes."""

import json
from pathlib import Path

from fleetcraft.ground.files import write_text
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    write_text(Path(snakemake.output[0]), json.dumps(plan.document(), indent=1, ensure_ascii=False) + "\n")

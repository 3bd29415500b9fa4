"""The JSON Schema of the experiment file, for editors; generated from the models, never edited."""

from __future__ import annotations

import json

from fleetcraft.experiment.models import Experiment


def schema_text() -> str:
    """The schema as `config/schema.json` holds it."""
    schema = Experiment.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"

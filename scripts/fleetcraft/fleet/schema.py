"""The JSON Schema of fleet files, for editors; generated from the models, never edited."""

from __future__ import annotations

import json

from fleetcraft.fleet.settings import FleetSettings


def schema_text() -> str:
    """The schema as `config/fleet.schema.json` holds it."""
    schema = FleetSettings.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"

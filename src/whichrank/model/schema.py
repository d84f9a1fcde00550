"""JSON Schema of the incident, for programs that read `incidents.jsonl` in other languages.

The file in `docs/reference/` is made by `python -m whichrank.model.schema > FILE`; a test says when it is out of date.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from whichrank.model.incident import SCHEMA, Incident


def incident_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `whichrank.incident/1`."""
    schema = msgspec.json.schema(Incident)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}


def incident_schema_text() -> str:
    """The schema as it stands in the docs."""
    return json.dumps(incident_schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(incident_schema_text())

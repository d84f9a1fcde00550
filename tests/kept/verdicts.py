"""What the analyzer says of a recorded run, each change of an incident, without the words for people.

Every line of JSON is of one tape: its name, and the incidents in the order in which they were said. What remains of an
incident is who, what, when and how sure: words may become better, and must not change that.
"""

from __future__ import annotations

import lzma
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from whichrank.model.incident import Incident
from whichrank.server.replay import changes
from whichrank.wire.tape import Tape

HERE = Path(__file__).parent
VERDICTS = HERE / "verdicts.jsonl"
TAPES = sorted((HERE / "tapes").glob("*.tape.xz"))


def name_of(tape: Path) -> str:
    """`demo-stop-0` of `demo-stop-0.tape.xz`."""
    return tape.name.removesuffix(".tape.xz")


def said_of(packed: Path) -> list[dict[str, Any]]:
    """Go through a tape, and take each change of an incident without its words."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "telemetry.tape"
        path.write_bytes(lzma.decompress(packed.read_bytes()))
        return [without_words(incident) for incident in changes(Tape(path), path)]


def without_words(incident: Incident) -> dict[str, Any]:
    """All of an incident but the sentences, the names of facts, and what to do next."""
    said: dict[str, Any] = msgspec.to_builtins(incident)
    for rank in (*said["culprits"], *said["candidates"]):
        del rank["why"], rank["clauses"]
    said["evidence"] = [
        [fact["value"], fact["unit"]] for fact in said["evidence"] if isinstance(fact["value"], int | float)
    ]
    if said["stage"]:
        del said["stage"]["op"]
    del said["next"], said["schema"]
    return said

"""What is done about something slow, in the folder of a run.

`mitigations.jsonl`: each action, why, and what it has gained. `mitigation.json`: how it is now. `mitigate.json`: what
somebody wants.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from whichrank.act.planner import Effect, Level
from whichrank.server.lines_file import MOST_BYTES, Lines, add_line
from whichrank.server.private_file import write_private
from whichrank.server.regular_file import open_regular
from whichrank.server.requests import MOST_OF_AN_ID, Requests

MITIGATIONS_FILE: Final = "mitigations.jsonl"
NOW_FILE: Final = "mitigation.json"
ASKED_FILE: Final = "mitigate.json"
Mode = Literal["advise", "ask", "auto"]
"""`advise`: what would help is said; `ask`: it is done if somebody says yes; `auto`: it is done."""


class MitigateAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody wants."""

    schema: Literal["whichrank.mitigate/1"] = "whichrank.mitigate/1"
    id: Annotated[str, Meta(max_length=MOST_OF_AN_ID)] = ""
    """By which who asks finds the answer."""
    what: Literal["apply", "revert", "checkpoint"]
    step: Annotated[int, Meta(ge=0)] = 0
    """The number of what is planned, or was done; of a checkpoint 0."""


class Mitigated(msgspec.Struct, frozen=True, kw_only=True):
    """One line: an action, or what was measured of the one before. Seconds, of an iteration if nothing else is said."""

    schema: Literal["whichrank.mitigation/1"] = "whichrank.mitigation/1"
    job: str = ""
    """Its name: the folder of a run may hold what was done in others."""
    at: datetime
    """UTC."""
    what: Literal["made", "advised", "asked", "measured", "undone", "saved", "refused"]
    """`asked`: it waits for a yes; `undone`: it could not be made, or is in force no more though nobody took it back;
    `saved`: a checkpoint was written; `refused`: it was wanted by hand and cannot be."""
    step: int = 0
    """Its number; of a measurement, that of what was measured."""
    level: int = 0
    """1: nothing, 2: other shares of the work, 3: other places for ranks."""
    why: str = ""
    changes: Literal["shares", "places"] = "shares"
    before: tuple[int, ...] = ()
    """Microbatches of each replica until then; of places the rank in each."""
    after: tuple[int, ...] = ()
    """And from then on."""
    impact_s: float = 0.0
    """What the slowness had cost by then."""
    overhead_s: float = 0.0
    """What the action costs, or took."""
    now_s: float = 0.0
    """What an iteration took."""
    predicted_s: float = 0.0
    measured_s: float | None = None
    """What it takes with it; of a line of what was measured."""
    request: str = ""
    """The id of what a user asked, if it is the answer."""
    problem: str = ""
    """Why it cannot be; of what was undone: what has become of it."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done next."""

    step: int
    level: int
    overhead_s: float
    """It is due when the slowness has cost as much."""
    predicted_s: float
    before: tuple[int, ...]
    after: tuple[int, ...]
    waits: bool = False
    """It is due, and not made until somebody says yes."""


class MitigationNow(msgspec.Struct, frozen=True, kw_only=True):
    """How it is now."""

    schema: Literal["whichrank.mitigation-now/1"] = "whichrank.mitigation-now/1"
    mode: Mode
    level: int
    steps: tuple[int, ...] = ()
    """Numbers of actions that are in force."""
    impact_s: float
    """What the present slowness has cost so far."""
    healthy_s: float
    """What an iteration takes while all is well."""
    now_s: float
    """And now."""
    plan: Planned | None = None


def of_effect(effect: Effect, step: int, at: datetime) -> Mitigated:
    """The line of what was measured."""
    return Mitigated(
        at=at, what="measured", step=step, level=int(effect.level), now_s=round(effect.before_s, 4),
        predicted_s=round(effect.predicted_s, 4), measured_s=round(effect.measured_s, 4),
    )  # fmt: skip


def add_mitigated(folder: Path, line: Mitigated) -> None:
    """Write a line.

    Raises:
        OSError: It cannot be written.
    """
    add_line(folder / MITIGATIONS_FILE, line)


def mitigated_from_now_on(folder: Path) -> Lines[Mitigated]:
    """What is done from now on."""
    lines = Lines(folder / MITIGATIONS_FILE, Mitigated)
    lines.skip()
    return lines


def mitigated_in(folder: Path, job: str) -> tuple[Mitigated, ...]:
    """What was done in a job."""
    return tuple(line for line in Lines(folder / MITIGATIONS_FILE, Mitigated).read() if line.job == job)


def mitigate_requests(folder: Path) -> Requests[MitigateAsked]:
    """What is wanted of the run that writes into a folder."""
    return Requests(folder, ASKED_FILE, MitigateAsked)


def write_now(folder: Path, now: MitigationNow | None) -> None:
    """Replace what it says of now; None: nothing is slow, and nothing is changed.

    Raises:
        OSError: It cannot be written.
    """
    if now is None:
        (folder / NOW_FILE).unlink(missing_ok=True)
        return
    part = folder / f"{NOW_FILE}.part"
    write_private(part, msgspec.json.encode(now))
    part.replace(folder / NOW_FILE)


_now = msgspec.json.Decoder(MitigationNow)


def read_now(folder: Path) -> MitigationNow | None:
    """How it is now; None if nothing is known."""
    try:
        with open_regular(folder / NOW_FILE) as file:
            return _now.decode(file.read(MOST_BYTES))
    except (OSError, ValueError):
        return None


def is_taken_back(line: Mitigated) -> bool:
    """Whether it makes all as it was."""
    return line.what == "made" and line.level == Level.IGNORE

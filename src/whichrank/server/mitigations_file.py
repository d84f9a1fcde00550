"""`mitigations.jsonl` in the folder of a run: what was done about something slow, why, and what it has gained."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from whichrank.act.planner import Effect
from whichrank.server.mitigations import Decided
from whichrank.server.private_file import open_private

MITIGATIONS_FILE: Final = "mitigations.jsonl"


class Mitigated(msgspec.Struct, frozen=True, kw_only=True):
    """One line: an action, or what was measured of the one before. Seconds, of an iteration if nothing else is said."""

    schema: Literal["whichrank.mitigation/1"] = "whichrank.mitigation/1"
    at: datetime
    """UTC."""
    what: Literal["made", "advised", "measured"]
    level: int
    """1: nothing, 2: other shares of the work."""
    why: str = ""
    before: tuple[int, ...] = ()
    """Microbatches of each replica until then."""
    after: tuple[int, ...] = ()
    """And from then on."""
    impact_s: float = 0.0
    """What the slowness had cost by then."""
    overhead_s: float = 0.0
    """What the action costs."""
    now_s: float
    """What an iteration took."""
    predicted_s: float
    measured_s: float | None = None
    """What it takes with it; of a line of what was measured."""


def of_action(decided: Decided, at: datetime) -> Mitigated:
    """The line of an action."""
    step = decided.action.step
    return Mitigated(
        at=at, what="made" if decided.is_made else "advised", level=int(step.level), why=step.why.name.lower(),
        before=decided.action.before, after=decided.action.after, impact_s=round(step.impact_s, 3),
        overhead_s=round(step.overhead_s, 3), now_s=round(step.iteration_s, 4), predicted_s=round(step.predicted_s, 4),
    )  # fmt: skip


def of_effect(effect: Effect, at: datetime) -> Mitigated:
    """The line of what was measured."""
    return Mitigated(
        at=at, what="measured", level=int(effect.level), now_s=round(effect.before_s, 4),
        predicted_s=round(effect.predicted_s, 4), measured_s=round(effect.measured_s, 4),
    )  # fmt: skip


def add_mitigated(folder: Path, line: Mitigated) -> None:
    """Write a line.

    Raises:
        OSError: It cannot be written.
    """
    with open_private(folder / MITIGATIONS_FILE) as file:
        file.seek(0, 2)
        file.write(msgspec.json.encode(line) + b"\n")

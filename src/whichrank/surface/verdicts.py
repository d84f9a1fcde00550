"""What is found in recordings: of a job's one attempt, or of each of several, the last one first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whichrank.surface.terminal import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from whichrank.intake.recording import Intake, Recording
    from whichrank.model.incident import Incident


@dataclass(frozen=True)
class Verdict:
    """What is found of one attempt.

    Attributes:
        number: Of the attempt, from 1.
        title: `attempt 2 of 3 (last)`; empty if there is one attempt only.
        incidents: In the order in which they began.
        recordings: In which they were found.
    """

    number: int
    title: str
    incidents: tuple[Incident, ...]
    recordings: tuple[Recording, ...] = ()

    @property
    def left_open(self) -> list[str]:
        """Where nothing is found, why the recordings may not show it."""
        return [] if self.incidents else [one.left_open for one in self.recordings if one.left_open]


def verdicts_of(intake: Intake) -> list[Verdict]:
    """The verdict on each attempt, the last one first."""
    attempts = [(intake.number, intake.recordings), *((one.number, one.recordings) for one in intake.earlier)]
    return [Verdict(number, intake.title_of(number), _found_in(those), those) for number, those in attempts]


def _found_in(recordings: Iterable[Recording]) -> tuple[Incident, ...]:
    from whichrank.server.analyze import analyze

    return tuple(incident for recording in recordings for incident in analyze(recording))


def show_verdict(verdict: Verdict) -> None:
    """The incidents of an attempt, or that there are none."""
    from whichrank.surface.cli.why import print_text

    if verdict.title:
        show(f"{verdict.title[0].upper()}{verdict.title[1:]}:", bold=True)
    if verdict.incidents:
        print_text(verdict.incidents)
        return
    end = "\n" if verdict.title else ""
    if verdict.left_open:
        show(f"This recording does not show which rank waits for which.{end}")
    else:
        show(f"Nobody waits for anybody in this recording, and no rank is slow.{end}")


def of_earlier(verdicts: Sequence[Verdict]) -> list[str]:
    """What else is to be said of the attempts before the last one, each with its title."""
    return [
        f"{one.title}: {text}"
        for one in verdicts[1:]
        for text in dict.fromkeys((*(r for recording in one.recordings for r in recording.remarks), *one.left_open))
    ]


def as_json(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Each attempt with its incidents, for JSON; empty if there is one attempt only."""
    return [{"attempt": one.number, "title": one.title, "incidents": one.incidents} for one in verdicts if one.title]

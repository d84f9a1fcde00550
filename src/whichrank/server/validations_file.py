"""`validate.json` and `validations.jsonl` in the folder of a run: what somebody asks for, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from whichrank.act.judgement import Judgement, SlowLink, SlowRank
from whichrank.model.rows import SIZES
from whichrank.server.lines_file import Lines, add_line
from whichrank.server.requests import MOST_OF_AN_ID, Requests

ASKED_FILE: Final = "validate.json"
RESULTS_FILE: Final = "validations.jsonl"
LONGEST_S: Final = 10.0
"""Training is never paused for longer, whatever is asked."""
MOST_SUSPECTS: Final = 1 << 16
MOST_SIZE: Final = 1 << 28
MOST_PROBLEMS: Final = 100
"""Ranks of which it is written why they could not be measured: of a large job one reason stands for all."""

Size = Annotated[int, Meta(ge=1, le=MOST_SIZE)]


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A validation that somebody wants."""

    schema: Literal["whichrank.validate/1"] = "whichrank.validate/1"
    id: Annotated[str, Meta(max_length=MOST_OF_AN_ID)] = ""
    """By which who asks finds the result; empty: nobody asks, an incident wants it."""
    suspects: Annotated[tuple[int, ...], Meta(max_length=MOST_SUSPECTS)] = ()
    """Ranks to be measured; all if there are none."""
    sizes: Annotated[tuple[Size, ...], Meta(max_length=SIZES)] = ()
    """Bytes of messages on links; those that fit the job if there are none."""
    longest_s: Annotated[float, Meta(gt=0, le=LONGEST_S)] = LONGEST_S
    why: Annotated[str, Meta(max_length=MOST_OF_AN_ID)] = ""
    """The id of the incident that it is for; empty: a user wants it."""


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    schema: Literal["whichrank.validation/1"] = "whichrank.validation/1"
    asked: Asked
    paused_s: float
    """How long training waited."""
    problem: str = ""
    """Why it was given up; empty if it was not."""
    slow_ranks: tuple[SlowRank, ...] = ()
    slow_links: tuple[SlowLink, ...] = ()
    sound_links: tuple[SlowLink, ...] = ()
    """That the job found slow and that are about as quick as the quicker half of the others, where one is slow."""
    unclear_links: tuple[SlowLink, ...] = ()
    """That the job found slow and that are slower than the quickest one, with nothing to show that they are slow."""
    problems: dict[int, str] = {}
    """By rank, why it could not be measured."""
    measured_ranks: int = 0
    measured_links: int = 0
    compared_links: int = 0
    """Of the measured ones those of which enough are alike."""
    missed_links: int = 0
    """That the job found slow and that were not measured."""
    left_out_links: int = 0
    """For which no time was left."""
    seen_from: float = 0.0
    """A rank that computes so many times as long would have been named; 0: too little was measured."""
    is_healthy: bool = False
    """Enough was measured, nothing is slow, and it was not given up."""

    @property
    def request(self) -> str:
        """The id of what was asked."""
        return self.asked.id


def validated(asked: Asked, judgement: Judgement, paused_s: float, problem: str, left_out_links: int) -> Validated:
    """What a judgement says, also one of what was measured until it was given up."""
    return Validated(
        asked=asked,
        paused_s=paused_s,
        problem=problem,
        left_out_links=left_out_links,
        slow_ranks=judgement.ranks,
        slow_links=judgement.links,
        sound_links=judgement.sound_links,
        unclear_links=judgement.unclear_links,
        problems=judgement.problems,
        measured_ranks=judgement.measured_ranks,
        measured_links=judgement.measured_links,
        compared_links=judgement.compared_links,
        missed_links=judgement.missed_links,
        seen_from=judgement.seen_from,
        is_healthy=judgement.is_healthy and not problem,
    )


def requests(folder: Path) -> Requests[Asked]:
    """What is asked of the run that writes into a folder."""
    return Requests(folder, ASKED_FILE, Asked)


def add_result(folder: Path, result: Validated) -> None:
    """Write down what came of one.

    Raises:
        OSError: It cannot be written.
    """
    add_line(folder / RESULTS_FILE, _within_bounds(result))


def results_from_now_on(folder: Path) -> Lines[Validated]:
    """What comes of validations from now on."""
    lines = Lines(folder / RESULTS_FILE, Validated)
    lines.skip()
    return lines


def _within_bounds(result: Validated) -> Validated:
    problems = dict(sorted(result.problems.items())[:MOST_PROBLEMS])
    return msgspec.structs.replace(result, problems=problems)

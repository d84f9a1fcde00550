"""`validate.json` and `validations.jsonl` in the folder of a run: what somebody asks for, and what came of it.

Whoever may write into the folder of a run may have its training paused for some seconds: it is the user's alone, and a
file of another user's is not obeyed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from whichrank.act.judgement import Judgement, SlowLink, SlowRank
from whichrank.errors import IncompleteDataError
from whichrank.model.rows import SIZES
from whichrank.server.private_file import open_private, write_private
from whichrank.server.regular_file import open_regular

ASKED_FILE: Final = "validate.json"
RESULTS_FILE: Final = "validations.jsonl"
LONGEST_S: Final = 10.0
"""Training is never paused for longer, whatever is asked."""
MOST_OF_AN_ID: Final = 64
MOST_SUSPECTS: Final = 1 << 16
MOST_SIZE: Final = 1 << 28
MOST_BYTES: Final = 1 << 22

Size = Annotated[int, Meta(ge=1, le=MOST_SIZE)]


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A validation that somebody wants."""

    schema: Literal["whichrank.validate/1"] = "whichrank.validate/1"
    id: Annotated[str, Meta(max_length=MOST_OF_AN_ID)] = ""
    """By which who asks finds the result."""
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
    problems: dict[int, str] = {}
    """By rank, why it could not be measured."""
    measured_ranks: int = 0
    measured_links: int = 0
    seen_from: float = 0.0
    """A rank that computes so many times as long would have been named; 0: too little was measured."""
    is_healthy: bool = False
    """Enough was measured, and nothing is slow."""


_asked = msgspec.json.Decoder(Asked)
_validated = msgspec.json.Decoder(Validated)


def validated(asked: Asked, judgement: Judgement, paused_s: float) -> Validated:
    """What a judgement says."""
    return Validated(
        asked=asked,
        paused_s=paused_s,
        slow_ranks=judgement.ranks,
        slow_links=judgement.links,
        problems=judgement.problems,
        measured_ranks=judgement.measured_ranks,
        measured_links=judgement.measured_links,
        seen_from=judgement.seen_from,
        is_healthy=judgement.is_healthy,
    )


def ask(folder: Path, asked: Asked) -> None:
    """Ask the run that writes into a folder.

    Raises:
        OSError: It cannot be written.
    """
    part = folder / f"{ASKED_FILE}.{os.getpid()}.part"
    write_private(part, msgspec.json.encode(asked))
    part.replace(folder / ASKED_FILE)


def take_asked(folder: Path) -> Asked | None:
    """What is asked for, once; None if it is nothing, or nothing that can be read."""
    path = folder / ASKED_FILE
    with contextlib.suppress(OSError, ValueError):
        with open_regular(path) as file:
            is_ours = os.fstat(file.fileno()).st_uid in (os.geteuid(), 0)
            content = file.read(MOST_BYTES)
        path.unlink()
        return _asked.decode(content) if is_ours else None
    return None


def add_result(folder: Path, result: Validated) -> None:
    """Write down what came of one.

    Raises:
        OSError: It cannot be written.
    """
    with open_private(folder / RESULTS_FILE) as file:
        file.write(msgspec.json.encode(result) + b"\n")


def results_in(folder: Path) -> list[Validated]:
    """Of all validations of a run.

    Raises:
        IncompleteDataError: The file cannot be read, or has a line that is none.
    """
    path = folder / RESULTS_FILE
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES)
        return [_validated.decode(line) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise IncompleteDataError(f"{path.name} cannot be read: {error}", where=str(path)) from error

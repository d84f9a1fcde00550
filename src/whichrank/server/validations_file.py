"""`validate.json` and `validations.jsonl` in the folder of a run: what somebody asks for, and what came of it.

The request lies there until it is answered. So two who ask do so one after the other, and who removes it takes it back.
Whoever may write into the folder of a run may have its training paused for some seconds: it is the user's alone, and a
link or a file of another user's is not obeyed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from whichrank.act.judgement import Judgement, SlowLink, SlowRank
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
"""Of a request, and of the file of results: of what would be more the older half goes."""
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


_asked = msgspec.json.Decoder(Asked)
_validated = msgspec.json.Decoder(Validated)


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


def ask(folder: Path, asked: Asked) -> None:
    """Ask the run that writes into a folder.

    Raises:
        FileExistsError: Somebody else asks; it must be answered first.
        OSError: It cannot be written.
    """
    part, path = folder / f"{ASKED_FILE}.{os.getpid()}.part", folder / ASKED_FILE
    write_private(part, msgspec.json.encode(asked))
    try:
        os.link(part, path)  # never in place of another one
    except PermissionError:  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


def asked_in(folder: Path) -> Asked | None:
    """What is asked for; None if it is nothing. What cannot be read, or is not the user's, is removed."""
    path = folder / ASKED_FILE
    try:
        with open_regular(path, follow=False) as file:
            if os.fstat(file.fileno()).st_uid in (os.geteuid(), 0):
                asked = _asked.decode(file.read(MOST_BYTES))
                if asked.id:
                    return asked
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        pass
    remove_request(folder)
    return None


def take_back(folder: Path, asked_id: str) -> None:
    """Ask no more, if the request there is this one."""
    asked = asked_in(folder)
    if asked is not None and asked.id == asked_id:
        remove_request(folder)


def remove_request(folder: Path) -> None:
    """Remove whatever is asked for."""
    with contextlib.suppress(OSError):
        (folder / ASKED_FILE).unlink()


def add_result(folder: Path, result: Validated) -> None:
    """Write down what came of one.

    Raises:
        OSError: It cannot be written.
    """
    line = msgspec.json.encode(_within_bounds(result)) + b"\n"
    path = folder / RESULTS_FILE
    with open_private(path) as file:
        if file.seek(0, os.SEEK_END) + len(line) <= MOST_BYTES:
            file.write(line)
            return
        file.seek(-(MOST_BYTES // 2), os.SEEK_END)
        kept = file.read().partition(b"\n")[2]
    part = folder / f"{RESULTS_FILE}.part"
    write_private(part, kept + line)
    part.replace(path)


def _within_bounds(result: Validated) -> Validated:
    problems = dict(sorted(result.problems.items())[:MOST_PROBLEMS])
    return msgspec.structs.replace(result, problems=problems)


class NewResults:
    """What comes of validations from now on.

    Args:
        folder: Of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS_FILE
        self._file, self._at = (0, 0), 0
        with contextlib.suppress(OSError, ValueError), open_regular(self._path, follow=False) as file:
            status = os.fstat(file.fileno())
            self._file, self._at = (status.st_dev, status.st_ino), status.st_size

    def read(self) -> list[Validated]:
        """Those that were written since the last call; lines that are none are left out."""
        with contextlib.suppress(OSError, ValueError), open_regular(self._path, follow=False) as file:
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) != self._file or status.st_size < self._at:
                self._file, self._at = (status.st_dev, status.st_ino), 0  # the older half is gone: all are read again
            file.seek(self._at)
            lines = file.read(MOST_BYTES).splitlines(keepends=True)
            whole = [line for line in lines if line.endswith(b"\n")]
            self._at += sum(map(len, whole))
            return [result for line in whole if (result := _decoded(line)) is not None]
        return []


def _decoded(line: bytes) -> Validated | None:
    try:
        return _validated.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None

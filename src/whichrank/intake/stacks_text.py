"""Stacks of processes as text: `py-spy dump`, and what Python's faulthandler writes. Who stands elsewhere than most?

A file is of one process, and its name says the rank. Compared are the functions of the main thread, without lines:
ranks that wait in one operation stand at one place, whatever iteration they are in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from whichrank.errors import FormatError
from whichrank.intake.plain_text import for_people
from whichrank.model.reports import Report, Told

MOST_BYTES: Final = 16 << 20
MOST_FRAMES: Final = 256
LEAST_ALIKE: Final = 2
"""Ranks that stand at one place, at the least, for another one to be compared with them."""
_PY_SPY: Final = re.compile(rb"(?:^|\n)Process \d{1,10}: .{0,4096}\nPython v\d")
_FAULT: Final = re.compile(
    rb"(?:^|\n)(?:Current thread|Thread) 0x[0-9a-f]{4,16}[^\n]{0,64} \(most recent call first\):\r?\n"
)
_THREAD: Final = re.compile(r'^Thread (\S{1,24}) \(([^)]{0,64})\)(?:: "([^"]{0,128})")?')
_FRAME: Final = re.compile(r"^ {4}(\S.{0,200}?) \(([^()]{1,400}?)(?::(\d{1,9}))?\)\s*$")
_BEGIN: Final = re.compile(r"^(Current thread|Thread) (0x[0-9a-f]{4,16})")
_FAULT_FRAME: Final = re.compile(r'^ {2}File "([^"]{1,400})", line (\d{1,9}) in (.{1,200})$')
Frame = tuple[str, str]
"""A function, and its place: `read (fsspec/spec.py:1900)` without the line, and with it."""


@dataclass(frozen=True)
class Stacks:
    """The main thread of a process, innermost frame first: each function with its file, and the same with the line."""

    frames: tuple[Frame, ...]


def is_stacks(head: bytes) -> bool:
    """Does something that begins like this look like it?"""
    return _PY_SPY.search(head) is not None or _FAULT.search(head) is not None


def read_stacks(data: bytes) -> Stacks:
    """The main thread's stack.

    Raises:
        FormatError: There is none.
    """
    lines = data.decode("utf-8", "replace").splitlines()
    frames = _of_py_spy(lines) if _PY_SPY.search(data) else _of_faulthandler(lines)
    if not frames:
        raise FormatError("it has no stack of a main thread")
    return Stacks(tuple(frames[:MOST_FRAMES]))


def _of_py_spy(lines: Iterable[str]) -> list[Frame]:
    """Of the thread that is called MainThread, else of the first."""
    threads: list[tuple[str, list[Frame]]] = []
    for line in lines:
        if found := _THREAD.match(line):
            threads.append((found.group(3) or "", []))
        elif threads and (found := _FRAME.match(line)):
            threads[-1][1].append(_frame(*found.groups()))
    main = [frames for name, frames in threads if name == "MainThread"]
    return (main or [frames for _, frames in threads] or [[]])[0]


def _of_faulthandler(lines: Iterable[str]) -> list[Frame]:
    """Of the thread that is written last: that is the main one, which was the first to begin."""
    threads: list[list[Frame]] = []
    for line in lines:
        if _BEGIN.match(line):
            threads.append([])
        elif threads and (found := _FAULT_FRAME.match(line)):
            file, number, name = found.groups()
            threads[-1].append(_frame(name, file, number))
    return threads[-1] if threads else []


def _frame(name: str, file: str, line: str | None) -> Frame:
    place = for_people(f"{name} ({file}{f':{line}' if line else ''})", 256)
    return f"{name} {file.rpartition('/')[2]}", place


def who_stands_elsewhere(stacks: Mapping[int, Stacks]) -> Report | None:
    """Ranks whose main thread stands elsewhere than those of more than half; None if there are none.

    Args:
        stacks: By rank.
    """
    at: dict[tuple[str, ...], list[int]] = {}
    for rank, one in sorted(stacks.items()):
        at.setdefault(tuple(function for function, _ in one.frames), []).append(rank)
    most = max(at.values(), key=len, default=[])
    others = sorted(set(stacks) - set(most))
    if not others or len(most) < LEAST_ALIKE or 2 * len(most) <= len(stacks):
        return None
    places = {stacks[rank].frames[0][1] for rank in others}
    text = places.pop() if len(places) == 1 else "another place"
    return Report(Told.ELSEWHERE, tuple(others), text, tuple(most), usual=stacks[most[0]].frames[0][1])

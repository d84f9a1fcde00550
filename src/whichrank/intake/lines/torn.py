"""Lines in which several have written at once: cut where another writer begins.

Example: `[rank2]:[E601 …] [Rank 2] Some NCCL [rank5]:[E601 …] … last completed NCCL work: 166.` is two pieces, and what
stands in the second is of rank 5. A number at the end of a piece that was cut may lack digits, so it is not believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from whichrank.intake.lines.hints import has_any

MOST_PIECE: Final = 1 << 14
_IN_BRACKETS: Final = (
    r"\[rank\d{1,7}\]:\s?(?:\[[A-Z](?:\d{3,4} \d\d:\d\d:\d\d[.\d]{0,12})? [\w./-]{1,96}:\d{1,6}\])?"
    r"|\[[EWIFC](?:\d{3,4} \d\d:\d\d:\d\d[.\d]{0,12})? ?[\w./-]{1,96}\.(?:cpp|hpp|cc|h|py):\d{1,6}\]"
    r"|\[\d{1,9},\d{1,7}\]<std(?:err|out)>:"
)
_OF_NCCL: Final = (
    r"(?<![\w.:-])[A-Za-z][\w.-]{0,127}:\d{1,10}:\d{1,10} \[\d{1,4}\] (?=\S{0,64} ?NCCL |[\w/.]{1,64}:\d{1,6} NCCL )"
)
_SAID: Final = ("srun: error: ", "slurmstepd: error: ", "NVRM: Xid ")
_BEGIN: Final = re.compile("|".join((_IN_BRACKETS, _OF_NCCL, *_SAID)))
_BEGIN_IN_BRACKETS: Final = re.compile(_IN_BRACKETS)
"""The same where nothing else can begin: what begins with one known character is searched for ten times as fast."""
HEAD: Final = re.compile(r"\[[EWIFC]\d{3,4} \d\d:\d\d:\d\d[.\d]{0,12} [\w./-]{1,96}\.(?:cpp|hpp|cc|h|py):\d{1,6}\] ")
"""What torch puts before a line: `[E601 03:00:00.25 file.cpp:632] `."""
_AFTER_HEAD: Final = ("[rank", "[E", "[W", "[I", "[F", "[C", "]<std")


def cut_at_writers(line: str) -> Iterator[tuple[str, bool, int]]:
    """The pieces of a line; whether another writer cut each short, and where a writer begins in each, -1: nowhere."""
    begins, ended = list[int](), -1
    for found in _begin_in(line).finditer(line):
        if found.start() > ended:  # else it is the next prefix of the same writer
            begins.append(found.start())
        ended = found.end()
    if len(begins) < 2:
        yield line[:MOST_PIECE], False, begins[0] if begins else -1
        return
    bounds = [0, *begins[1:], len(line)]
    for place in range(len(bounds) - 1):
        start, end = bounds[place], bounds[place + 1]
        is_cut = end < len(line) and not line[end - 1].isspace()
        yield line[start : min(end, start + MOST_PIECE)], is_cut, begins[place] - start


def may_begin_in(body: str) -> bool:
    """May another writer begin in what stands behind a head?"""
    return has_any(body, _AFTER_HEAD) or not _has_brackets_only(body)


def _begin_in(text: str) -> re.Pattern[str]:
    return _BEGIN_IN_BRACKETS if _has_brackets_only(text) else _BEGIN


def _has_brackets_only(text: str) -> bool:
    """Can no writer begin in a text but those whose begin is in brackets?"""
    if has_any(text, _SAID):
        return False
    if "NCCL " in text:
        at = text.find(" [")
        while at >= 0:
            if text[at - 1].isdecimal():  # host:pid:tid [0]
                return False
            at = text.find(" [", at + 1)
    return True

"""Lines in which several have written at once: cut where another writer begins.

Example: `[rank2]:[E601 …] [Rank 2] Some NCCL [rank5]:[E601 …] … last completed NCCL work: 166.` is two pieces, and what
stands in the second is of rank 5. A number at the end of a piece that was cut may lack digits, so it is not believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

MOST_PIECE: Final = 1 << 14
_BEGIN: Final = re.compile(
    r"(?:\[rank\d{1,7}\]:\s?)(?:\[[A-Z](?:\d{3,4} \d\d:\d\d:\d\d[.\d]{0,12})? [\w./-]{1,96}:\d{1,6}\])?"
    r"|\[[EWIFC](?:\d{3,4} \d\d:\d\d:\d\d[.\d]{0,12})? ?[\w./-]{1,96}\.(?:cpp|hpp|cc|h|py):\d{1,6}\]"
    r"|(?<![\w.:-])[A-Za-z][\w.-]{0,127}:\d{1,10}:\d{1,10} \[\d{1,4}\] (?=\S{0,64} ?NCCL |[\w/.]{1,64}:\d{1,6} NCCL )"
    r"|\[\d{1,9},\d{1,7}\]<std(?:err|out)>:"
    r"|srun: error: |slurmstepd: error: |NVRM: Xid "
)


def cut_at_writers(line: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a line, and whether another writer cut each short."""
    begins, ended = list[int](), -1
    for found in _BEGIN.finditer(line):
        if found.start() > ended:  # else it is the next prefix of the same writer
            begins.append(found.start())
        ended = found.end()
    if len(begins) < 2:
        yield line[:MOST_PIECE], False
        return
    bounds = [0, *begins[1:], len(line)]
    for place in range(len(bounds) - 1):
        start, end = bounds[place], bounds[place + 1]
        yield line[start : min(end, start + MOST_PIECE)], end < len(line) and not line[end - 1].isspace()


def first_writer(text: str) -> int:
    """Where the first writer in a text begins; -1 if none does."""
    found = _BEGIN.search(text)
    return found.start() if found else -1

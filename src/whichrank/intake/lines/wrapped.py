"""Lines that a terminal, a ticket or a mail program has cut at a width: found by their equal length, and joined again.

A line of exactly the greatest width goes on in the next one, and one that lacks its last character lost a blank there.
Where words were kept whole, a line that no writer has begun goes on from the one before. Both are believed only if more
lines are understood afterwards than before; so a rule of 80 signs in a healthy log changes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

SAMPLE_BYTES: Final = 1 << 20
LEAST_WIDTH, MOST_WIDTH = 60, 400
LEAST_FULL: Final = 3
"""Lines of the greatest width, at the least."""
_UNDERSTOOD: Final = re.compile(
    rb"caught collective operation timeout: WorkNCCL\(SeqNum=\d{1,18}, OpType=\w{1,64}[^()]{0,160}\(ms\)=\d{1,12}\) "
    rb"ran for "
    rb"\d{1,12} milliseconds|last enqueued (?:NCCL )?work: -?\d{1,18}, last completed (?:NCCL )?work: -?\d{1,18}"
    rb"|nranks \d{1,7} cudaDev \d{1,4}|opCount [0-9a-f]{1,16} sendbuff \S{1,20} recvbuff \S{1,20} count \d{1,18}"
    rb"|NVRM: Xid \(PCI:[0-9a-fA-F:.]{1,20}\): \d{1,4}, pid=\S{1,16} name=",
    re.IGNORECASE,
)
"""Whole sentences of writers, longer than a line may be."""
_BEGINS: Final = re.compile(
    rb"^(?:[^\s\[]{1,80} ?){0,2}?\[(?:rank|default)?\d{1,7}\]:|^\[[EWIF]|^\S{1,128}:\d{1,10}:\d{1,10} \[|^\d{1,6}: "
    rb"|^\d{4}-\d\d-\d\d|^[A-Z][a-z]{2} [ \d]\d "
    rb"|^\s*(?:time|host|rank|exitcode|error_file|traceback)\s{0,6}:|^\s*\[\d{1,4}\]:"
    rb"|^\s*$|^srun: |^slurmstepd: |^(?:Failures|Root Cause)|^Traceback|^\{"
)
_Lines = list[bytes]


def unwrapped(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of lines, joined where they had been wrapped."""
    blocks = iter(blocks)
    first = next(blocks, None)
    if first is None:
        return
    width = width_of(first[:SAMPLE_BYTES])
    if not width:
        yield first
        yield from blocks
        return
    kept: _Lines = []
    for block in (b for group in ((first,), blocks) for b in group):
        lines = kept + block.split(b"\n")
        kept = [lines.pop()]
        joined = _joined(lines, width)
        if joined:
            kept = [joined.pop(), *kept]
        yield b"\n".join((*joined, b""))
    yield b"\n".join(_joined(kept, width))


def width_of(sample: bytes) -> int:
    """The width at which these lines were cut: 0 if they were not, negative if words were kept whole."""
    lines = [line.rstrip(b"\r") for line in sample.split(b"\n")]
    widest = max(map(len, lines), default=0)
    if not LEAST_WIDTH <= widest <= MOST_WIDTH:
        return 0
    before = len(_UNDERSTOOD.findall(sample))
    found = {}
    if Counter(map(len, lines))[widest] >= LEAST_FULL:
        found[widest] = len(_UNDERSTOOD.findall(b"\n".join(_joined(lines, widest))))
    found[-widest] = len(_UNDERSTOOD.findall(b"\n".join(_joined(lines, -widest))))
    width = max(found, key=lambda one: (found[one], one))
    return width if found[width] > before else 0


def _joined(lines: _Lines, width: int) -> _Lines:
    return _cut_at_width(lines, width) if width > 0 else _kept_whole(lines, -width)


def _cut_at_width(lines: _Lines, width: int) -> _Lines:
    found: _Lines = []
    is_open = lacks = False
    for raw in lines:
        line = raw.rstrip(b"\r")
        if is_open or (lacks and not _BEGINS.match(line)):
            found[-1] += line if is_open else b" " + line
        else:
            found.append(line)
        is_open, lacks = len(line) == width, len(line) == width - 1
    return found


def _kept_whole(lines: _Lines, width: int) -> _Lines:
    found: _Lines = []
    before = 0
    for raw in lines:
        line = raw.rstrip(b"\r")
        if found and before > width // 2 and not _BEGINS.match(line):
            found[-1] += b" " + line.strip()
        else:
            found.append(line)
        before = len(line)
    return found

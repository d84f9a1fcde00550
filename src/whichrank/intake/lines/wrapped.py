"""Lines that a terminal, a ticket or a mail program has cut at a width: found by their equal length, and joined again.

A line of exactly the greatest width goes on in the next one, and one that lacks its last character lost a blank there.
Where words were kept whole, a line that no writer has begun goes on from the one before. Both are believed only if more
lines are understood afterwards than before; so a rule of 80 signs in a healthy log changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

SAMPLE_BYTES: Final = 1 << 20
LEAST_WIDTH, MOST_WIDTH = 60, 400
_UNDERSTOOD: Final = re.compile(
    rb"\[Rank \d{1,7}\] Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d{1,18}, OpType=\w{1,64}"
    rb"[^()\n]{0,120}\(ms\)=\d{1,12}\) ran for \d{1,12} milliseconds before timing out"
    rb"|\[PG [^\n\]]{1,160} Rank \d{1,7}\][^\n]{1,320}?last enqueued (?:NCCL )?work: -?\d{1,18}, last completed "
    rb"(?:NCCL )?work: -?\d{1,18}"
    rb"|Ranks? [\d, ]{1,4096} failed to pass monitoredBarrier in \d{1,12} ms"
    rb"|is running collective: CollectiveFingerPrint\([^\n]{1,320}?, but Rank \d{1,7} is running collective: "
    rb"CollectiveFingerPrint\([^\n]{1,64}?OpType=\w{1,64}[^\n]{1,320}\)\)"
    rb"|\[[\d, ]{1,65536}\] finished collective #\d{1,18}, but didn't join collective #\d{1,18} \(count from 1\)"
    rb"|\] NCCL INFO \w{1,32} comm 0x[0-9a-f]{1,16} rank \d{1,7} nranks \d{1,7} cudaDev \d{1,4} nvmlDev "
    rb"\d{1,4} busId "
    rb"[0-9a-f]{1,16}[^\n]{1,64}COMPLETE"
    rb"|opCount [0-9a-f]{1,16} sendbuff \S{1,20} recvbuff \S{1,20} count \d{1,18} datatype \d{1,3} op \d{1,3} root "
    rb"\d{1,7} "
    rb"comm \S{1,20} \[nranks=\d{1,7}\]"
    rb"|NVRM: Xid \(PCI:[0-9a-fA-F:.]{1,20}\): \d{1,4}, pid=\S{1,16} name="
    rb"|srun: error: \S{1,64}: tasks? [\d,-]{1,256}: \w{3}"
)
"""Whole sentences of writers, longer than a line may be."""
_BEGINS: Final = re.compile(
    rb"(?:[^\s\[]{1,80} "
    rb"?){0,2}?\[(?:rank|[a-z]{1,16})?\d{1,7}\]:|\[[EWIF]|\[(?:pod/)?[a-z0-9][\w.-]{0,99}/[\w.-]{1,64}\] "
    rb"|\[\d{1,9},\d{1,7}\]<std|\S{1,128}:\d{1,10}:\d{1,10} \[|\d{1,6}: |\d{4}-\d\d-\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:"
    rb"|\([A-Za-z_]\w{0,64} "
    rb"pid=|\s{0,8}(?:time|host|rank|exitcode|error_file|traceback)\s{0,6}:|\s{0,8}\[\d{1,4}\]:$|\s*$"
    rb"|srun: |slurmstepd: |(?:Failures|Root Cause)|Traceback|\{"
)
"""What begins a line, and goes on from none."""
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
    found = {width: len(_UNDERSTOOD.findall(b"\n".join(_joined(lines, width)))) for width in (widest, -widest)}
    width = max(found, key=lambda one: (found[one], one))
    return width if found[width] > before else 0


def _joined(lines: _Lines, width: int) -> _Lines:
    return _cut_at_width(lines, width) if width > 0 else _kept_whole(lines, -width)


def _cut_at_width(lines: _Lines, width: int) -> _Lines:
    found: _Lines = []
    is_open = lacks = False
    for raw in lines:
        line = raw.rstrip(b"\r")
        if (is_open or lacks) and not _BEGINS.match(line):
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

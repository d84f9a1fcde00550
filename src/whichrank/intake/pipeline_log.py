"""Logs of PipeMorph and of schedulers like it: a line for each forward and backward computation of a pipeline stage.

    [RANK1] Iteration 3
    [RANK1] F @ 29.21 (ms) to 61.05 (ms), cudaEventElapsed = 31.79 (ms)
    [RANK1] 4W @ 1200.2 (ms) to 1282.9 (ms), cudaEventElapsed = 82.7 (ms)

(wutianyuan1/PipeMorph, the logs of its artifact, commit 1b29165; other versions of it write `[Rank1] F @ 29.21 ms to
61.05 ms`, and have lines of sends and receives.) The number is that of the pipeline stage. Times are unix time or since
the begin of the iteration.

Most logs have no messages, so they are worked out: the n-th forward computation of a stage needs the n-th one of the
stage before it, and the n-th backward one that of the stage after it, in every schedule without interleaving. A stage
that does nothing before such a computation waits for that message. Without that a stage would be blamed for each
bubble. What a message takes is in that waiting, so a slow link does not show. Where stages do not have equally many of
each, nothing is worked out, and nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Final, NamedTuple

import numpy as np

from whichrank.errors import FormatError
from whichrank.intake.op_spans import Spans

MOST_RANK: Final = 1 << 16
MOST_ROWS: Final = 1 << 24
LEAST_LINES: Final = 3
"""That say what a file is: a text that explains them has fewer."""
LEAST_STEPS: Final = 2
MOST_MS: Final = 1e14
_NUMBER: Final = rb"\d{1,15}(?:\.\d{1,20})?"
_LINE: Final = re.compile(
    rb"\[rank(\d{1,6})\] (?:iteration (\d{1,9})\s|(F|B|\d{0,4}W|(?:SEND|RECV)_(?:FORWARD|BACKWARD)) @ {0,8}(" + _NUMBER
    + rb") (?:\(ms\)|ms) to {1,8}(" + _NUMBER + rb") (?:\(ms\)|ms)(?:,|\s|$))",
    re.IGNORECASE,
)  # fmt: skip
_NAMES: Final = {
    "F": "forward-compute", "B": "backward-compute", "W": "weight-compute", "SEND_FORWARD": "forward-send",
    "RECV_FORWARD": "forward-recv", "SEND_BACKWARD": "backward-send", "RECV_BACKWARD": "backward-recv",
}  # fmt: skip
FORWARD, BACKWARD = "forward-compute", "backward-compute"


class Row(NamedTuple):
    """One span, by its log's clock in milliseconds."""

    rank: int
    step: int
    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class PipelineLog:
    """What a file says."""

    rows: tuple[Row, ...]


def is_pipeline_log(head: bytes) -> bool:
    """Does something that begins like this look like one?"""
    if b" @ " not in head:
        return False
    return sum(1 for line in head.split(b"\n")[:64] if (found := _LINE.search(line)) and found.group(3)) >= LEAST_LINES


def read_pipeline_log(stream: IO[bytes]) -> PipelineLog:
    """The spans in a log.

    Raises:
        FormatError: It has none, or far too many.
    """
    rows = tuple(_rows(stream))
    if not rows:
        raise FormatError("it has no span that is known")
    return PipelineLog(rows)


def _rows(stream: IO[bytes]) -> Iterator[Row]:
    step: dict[int, int] = {}
    count = 0
    while line := stream.readline(1 << 12):
        found = _LINE.search(line)
        if not found or int(found.group(1)) >= MOST_RANK:
            continue
        rank, count = int(found.group(1)), count + 1
        if count > MOST_ROWS:
            raise FormatError(f"it has more than {MOST_ROWS:,} spans")
        if found.group(2):
            step[rank] = int(found.group(2))
            continue
        name = found.group(3).decode().upper().lstrip("0123456789")
        start_ms, end_ms = float(found.group(4)), float(found.group(5))
        if start_ms <= end_ms < MOST_MS:
            yield Row(rank, step.get(rank, 0), _NAMES[name], start_ms, end_ms)


def spans_of(logs: Iterable[PipelineLog]) -> Spans | None:
    """The table of spans of a job; None if it does not say who waits for whom.

    Args:
        logs: Of all stages, in any order.
    """
    of_step: dict[int, dict[int, list[Row]]] = {}
    written = set[tuple[int, int]]()
    for log in logs:
        of_log = {(row.rank, row.step) for row in log.rows}
        if written & of_log:
            return None  # two logs of one stage are of two runs
        written |= of_log
        for row in log.rows:
            of_step.setdefault(row.step, {}).setdefault(row.rank, []).append(row)
    stages = sorted(set().union(*(set(one) for one in of_step.values())))
    if stages != list(range(len(stages))) or len(stages) < 2:
        return None
    rows = [row for step in sorted(of_step) for row in _whole_step(of_step[step], len(stages))]
    if len({row.step for row in rows}) < LEAST_STEPS:
        return None
    names = sorted({row.name for row in rows})
    begin_ms: dict[int, float] = {}
    for row in rows:
        begin_ms[row.step] = min(begin_ms.get(row.step, np.inf), row.start_ms)
    rows.sort(key=lambda row: (row.rank, row.step, row.start_ms))
    rank, step = (np.array([getattr(row, name) for row in rows], np.int64) for name in ("rank", "step"))
    start_s = np.array([(row.start_ms - begin_ms[row.step]) / 1e3 for row in rows])
    lasted_s = np.array([(row.end_ms - row.start_ms) / 1e3 for row in rows])
    what = np.array([names.index(row.name) for row in rows], np.int64)
    return Spans(rank, np.zeros(len(rows), np.int64), rank, step, what, tuple(names), start_s, lasted_s)


def _whole_step(of_rank: dict[int, list[Row]], stages: int) -> list[Row]:
    """The spans of a step with its messages; empty if a stage lacks some."""
    counts = {tuple(sum(row.name == name for row in of_rank.get(n, ())) for name in (FORWARD, BACKWARD))
              for n in range(stages)}  # fmt: skip
    if len(counts) != 1 or 0 in next(iter(counts)):
        return []
    rows = [row for mine in of_rank.values() for row in sorted(mine, key=lambda row: row.start_ms)]
    if any(row.name.endswith(("send", "recv")) for row in rows):
        return rows
    return [*rows, *(row for mine in of_rank.values() for row in _messages(mine, stages - 1))]


def _messages(rows: Sequence[Row], last: int) -> Iterator[Row]:
    """What a stage receives before its computations, and sends after them."""
    rows = sorted(rows, key=lambda row: row.start_ms)
    free_ms = rows[0].start_ms
    for row in rows:
        is_forward = row.name == FORWARD
        name = "forward" if is_forward else "backward"
        has_before, has_after = row.rank > 0, row.rank < last
        if row.name in (FORWARD, BACKWARD) and (has_before if is_forward else has_after):
            yield Row(row.rank, row.step, f"{name}-recv", min(free_ms, row.start_ms), row.start_ms)
        if row.name in (FORWARD, BACKWARD) and (has_after if is_forward else has_before):
            yield Row(row.rank, row.step, f"{name}-send", row.end_ms, row.end_ms)
        free_ms = max(free_ms, row.end_ms)

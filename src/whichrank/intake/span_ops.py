"""Spans of a pipelined job as operations that need each other, for a what-if analysis.

Which needs which is not written in a table of spans, so it is read from when they were: an operation needs the latest
one of each stream of its worker that was over when it began. A stream is what is done one after the other: computing,
messages of one kind, collectives of one kind. A computation needs no message that its worker sent: nobody waits for the
end of a send. All that belong to one message, or to one collective, meet.

Other programs can leave a computation after a collective by chance; here that is taken for need.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.intake.op_spans import MESSAGES, ROUNDS, Spans
from whichrank.model.kinds import Kind
from whichrank.model.step_ops import StepOps

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

OVER_S: Final = 5e-4
"""Seconds by which the end of one span may lie behind the begin of the next that needs it: clocks of streams differ."""
PER_MICROBATCH: Final = ("forward-compute", "backward-compute")
_COMPUTING: Final = -1


def step_ops_of(spans: Spans) -> StepOps | None:
    """The operations of the steps that have the usual ones; None if no two have the same."""
    rows, steps = _alike(spans)
    if len(steps) < 2:
        return None
    first = rows[0]
    rank, what = spans.rank[first], spans.what[first]
    start_s, end_s = spans.start_s[rows], (spans.start_s + spans.lasted_s)[rows]
    number = _numbers(rank, what)
    meeting = _meetings(spans, first, number)
    before, after = _needs(spans.names, rank, what, np.median(start_s, axis=0), np.median(end_s, axis=0))
    counted = [spans.names.index(name) for name in PER_MICROBATCH if name in spans.names]
    return StepOps(
        rank=rank,
        replica=spans.dp[first],
        stage=spans.stage[first],
        what=what,
        microbatch=np.where(np.isin(what, counted), number, -1),
        names=spans.names,
        meeting=meeting,
        before=before,
        after=after,
        lasted_s=_alone_s(start_s, end_s, meeting),
        steps=steps,
    )


def _alike(spans: Spans) -> tuple[Ints, Ints]:
    """Rows of the steps that have the usual operations, by rank, name and time, (steps, n); and their numbers."""
    order = np.lexsort((spans.start_s, spans.what, spans.rank, spans.step))
    steps, first = np.unique(spans.step[order], return_index=True)
    key = spans.rank[order] * len(spans.names) + spans.what[order]
    kinds = [mine.tobytes() for mine in np.split(key, first[1:])]
    usual = Counter(kinds).most_common(1)[0][0]
    kept = [mine for mine, kind in zip(np.split(order, first[1:]), kinds, strict=True) if kind == usual]
    return np.stack(kept), steps[[kind == usual for kind in kinds]]


def _numbers(rank: Ints, what: Ints) -> Ints:
    """Of each operation how many of its name its worker did before it; they are sorted by rank and name."""
    opens = np.append(True, (np.diff(rank) != 0) | (np.diff(what) != 0))
    place = np.arange(len(rank))
    return np.asarray(place - np.maximum.accumulate(np.where(opens, place, 0)))


def _meetings(spans: Spans, rows: Ints, number: Ints) -> Ints:
    """Of each operation the meeting in which it takes part, -1 none."""
    dp, stage, what = spans.dp[rows], spans.stage[rows], spans.what[rows]
    stages = int(stage.max()) + 1
    key = np.full((len(rows), 4), -1, np.int64)
    for index, name in enumerate(spans.names):
        mine = np.flatnonzero(what == index)
        if name in MESSAGES:
            kind, side = MESSAGES[name]
            sender = stage[mine] if kind == Kind.SEND else (stage[mine] + side) % stages
            direction = int((kind == Kind.SEND) == (side > 0))
            key[mine] = np.stack((np.full(len(mine), direction), dp[mine], sender, number[mine]), axis=1)
        elif name in ROUNDS:
            role = ROUNDS[name][1]
            group = {"dp": stage[mine], "embedding": dp[mine], "world": np.zeros(len(mine), np.int64)}[role]
            key[mine] = np.stack((np.full(len(mine), 2 + index), group, number[mine], number[mine]), axis=1)
    meets = np.flatnonzero(key[:, 0] >= 0)
    meeting = np.full(len(rows), -1, np.int64)
    meeting[meets] = np.unique(key[meets], axis=0, return_inverse=True)[1].reshape(-1)
    return meeting


def _needs(names: tuple[str, ...], rank: Ints, what: Ints, start_s: Floats, end_s: Floats) -> tuple[Ints, Ints]:
    """Of each operation the latest one of each stream of its worker that was over when it began.

    What takes no time may be over when another one begins, and the other way round: only the earlier one is needed.
    """
    apart = np.array([name in MESSAGES or name in ROUNDS for name in names])
    sends = np.array([name in MESSAGES and MESSAGES[name][0] == Kind.SEND for name in names])
    stream = np.where(apart[what], what, _COMPUTING)
    before, after = list[Ints](), list[Ints]()
    for worker in np.unique(rank).tolist():
        mine = np.flatnonzero(rank == worker)
        mine = mine[np.lexsort((end_s[mine], start_s[mine]))]
        turn = np.arange(len(mine))
        for one in np.unique(stream[mine]).tolist():
            is_done = stream[mine] == one
            done, others = mine[is_done], mine[~is_done]
            before.append(done[:-1])
            after.append(done[1:])
            if one != _COMPUTING and sends[one]:
                continue
            over = np.maximum.accumulate(end_s[done])
            latest = np.searchsorted(over, start_s[others] + OVER_S, side="right") - 1
            latest = np.minimum(latest, np.searchsorted(turn[is_done], turn[~is_done]) - 1)
            before.append(done[latest[latest >= 0]])
            after.append(others[latest >= 0])
    return np.concatenate(before), np.concatenate(after)


def _alone_s(start_s: Floats, end_s: Floats, meeting: Ints) -> Floats:
    """Seconds of each operation, but for a transfer only those after the last of its meeting had begun, (steps, n)."""
    meets = np.flatnonzero(meeting >= 0)
    meets = meets[np.argsort(meeting[meets], kind="stable")]
    since_s = start_s.copy()
    if len(meets):
        first = np.flatnonzero(np.append(True, np.diff(meeting[meets]) != 0))
        begins_s = np.maximum.reduceat(start_s[:, meets], first, axis=1)
        since_s[:, meets] = begins_s[:, meeting[meets]]
    return np.asarray(np.maximum(end_s - since_s, 0.0))

"""Spans of operations of a pipelined job in a table, as the what-if study of stragglers published them (Parquet).

Each row is one operation of one worker in one step: what it was, when it began within the step and how long it took.
Of the ranks that share a layer (tensor parallelism) one is traced. Spans were taken on the device, so they say what no
host sees: computing apart from waiting.

Now and then a worker waits for something that was not traced: a pause at one place of the step in which all replicas of
a stage have one is taken for a barrier among them. A pause of one alone is its own time, as a slow data loader's is.

Columns: dp_rank, stage, rank, step, optype, start_ts, duration (seconds in the step), seq_id; others are not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.errors import FormatError
from whichrank.intake.communicators import comm_id_of
from whichrank.intake.reporting import SINCE_NS, batch_of, steps_among
from whichrank.model.kinds import Kind, is_message
from whichrank.model.signature import UNKNOWN_REDUCE_OP
from whichrank.model.telemetry import RECORD_REPORTED, Batch, CommInfo

MAGIC: Final = b"PAR1"
COLUMNS: Final = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration")
MOST_ROWS: Final = 1 << 26
MOST_PLACES: Final = 1 << 27
"""Of steps, workers and spans in a step, all of one stage."""
STEP_APART_NS: Final = 1000
PAUSE: Final = 0.005
"""Share of a step from which a pause matters."""
ALL_PAUSE_S: Final = 1e-3
_FORWARD, _BACKWARD = 1, -1
MESSAGES: Final = {
    "forward-send": (Kind.SEND, _FORWARD),
    "forward-recv": (Kind.RECV, -_FORWARD),
    "backward-send": (Kind.SEND, _BACKWARD),
    "backward-recv": (Kind.RECV, -_BACKWARD),
}
UNTRACED: Final = "untraced barrier"
_FAR_S: Final = 1e7
ROUNDS: Final = {
    UNTRACED: (Kind.BARRIER, "dp"),
    "params-all-gather": (Kind.ALL_GATHER, "dp"),
    "grads-reduce-scatter": (Kind.REDUCE_SCATTER, "dp"),
    "grads-all-reduce": (Kind.ALL_REDUCE, "dp"),
    "embedding-grads-all-reduce": (Kind.ALL_REDUCE, "embedding"),
    "optimizer-clip-main-grad": (Kind.ALL_REDUCE, "world"),
}
"""Collectives among workers that are traced. What else there is, is a worker's own time."""


@dataclass(frozen=True)
class Spans:
    """A table of spans, by worker and time.

    Attributes:
        rank: Global rank of each span's worker.
        dp: Its replica.
        stage: Its pipeline stage.
        step: Of the training.
        what: Index into `names`.
        names: Of operations.
        start_s: In the step.
        lasted_s: Seconds.
    """

    rank: NDArray[np.int64]
    dp: NDArray[np.int64]
    stage: NDArray[np.int64]
    step: NDArray[np.int64]
    what: NDArray[np.int64]
    names: tuple[str, ...]
    start_s: NDArray[np.float64]
    lasted_s: NDArray[np.float64]

    def workers(self) -> list[tuple[int, int, int]]:
        """Rank, replica and stage of each worker, by rank."""
        _, first = np.unique(self.rank, return_index=True)
        return [(int(self.rank[i]), int(self.dp[i]), int(self.stage[i])) for i in first.tolist()]


def read_parquet(data: bytes) -> Spans:
    """The spans in a Parquet file.

    Raises:
        FormatError: It is none, has other columns, or cannot be read here.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        mend = "pip install 'whichrank[recordings]'"
        raise FormatError("it is a Parquet file, which needs pyarrow", mend=mend) from error
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        missing = [name for name in COLUMNS if name not in file.schema_arrow.names]
        if missing:
            raise FormatError(f"it is a Parquet file without the column {missing[0]}, so no table of spans")
        if file.metadata.num_rows > MOST_ROWS:
            raise FormatError(f"it has more than {MOST_ROWS:,} rows")
        table = file.read(columns=list(COLUMNS))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"the Parquet file cannot be read: {error}") from error
    names, what = np.unique(np.array(table["optype"].to_pylist(), dtype=str), return_inverse=True)
    numbers = {name: table[name].to_numpy() for name in COLUMNS if name != "optype"}
    order = np.lexsort((numbers["start_ts"], numbers["step"], numbers["rank"]))
    whole = {name: numbers[name][order].astype(np.int64) for name in ("rank", "dp_rank", "stage", "step")}
    start_s, lasted_s = (numbers[name][order].astype(np.float64) for name in ("start_ts", "duration"))
    if not len(order) or not np.isfinite(start_s).all() or not np.isfinite(lasted_s).all() or lasted_s.min() < 0:
        raise FormatError("its table of spans is empty, or has times that are none")
    if whole["rank"].min() < 0 or whole["rank"].max() >= 1 << 20:
        raise FormatError("its table of spans has ranks that are none")
    return Spans(
        whole["rank"], whole["dp_rank"], whole["stage"], whole["step"], what.reshape(-1)[order].astype(np.int64),
        tuple(names.tolist()), start_s, lasted_s,
    )  # fmt: skip


def batches_of(spans: Spans) -> tuple[tuple[Batch, ...], float]:
    """What an agent beside each worker would have reported, and when all was over by the recording's clock."""
    spans = _with_barriers(spans)
    groups = _groups(spans.workers())
    reported = []
    latest_ns = 0
    for rank, dp, stage in spans.workers():
        mine = np.flatnonzero(spans.rank == rank)
        mine = mine[np.lexsort((spans.start_s[mine], spans.step[mine]))]
        records, end_ns = _records(spans, mine, groups, rank, dp, stage)
        reported.append((rank, records, end_ns))
        latest_ns = max(latest_ns, end_ns)
    world = max(rank for rank, _, _ in reported) + 1
    infos = list(groups.values())
    batches = tuple(batch_of(rank, world, infos, records, end_ns) for rank, records, end_ns in reported)
    return batches, (latest_ns + SINCE_NS) / 1e9


def _with_barriers(spans: Spans) -> Spans:
    """With a span for each untraced barrier: where all replicas of a stage pause at one place, in most of the steps."""
    order = np.lexsort((spans.start_s, spans.step, spans.rank))
    end_s = (spans.start_s + spans.lasted_s)[order]
    key = spans.rank[order] << 32 | spans.step[order]
    first = np.append(True, np.diff(key) != 0)
    number = np.cumsum(first) - 1
    place = np.arange(len(order)) - np.flatnonzero(first)[number]
    # The end of all spans before it in the same step: they may overlap.
    until_s = np.maximum.accumulate(end_s + number * _FAR_S) - number * _FAR_S
    before_s = np.where(first, spans.start_s[order], np.append(0.0, until_s[:-1]))
    pause_s = np.maximum(spans.start_s[order] - before_s, 0.0)
    step_s = float(np.median(until_s[np.append(first[1:], True)] - spans.start_s[order][first]))
    found: list[NDArray[np.int64]] = []
    for stage in np.unique(spans.stage).tolist():
        mine = np.flatnonzero((spans.stage[order] == stage) & ~first)
        workers, who = np.unique(spans.rank[order][mine], return_inverse=True)
        steps, when = np.unique(spans.step[order][mine], return_inverse=True)
        size = len(workers), len(steps), int(place[mine].max(initial=0)) + 1
        if prod(size) > MOST_PLACES:
            raise FormatError("its steps have too many spans to be compared")
        table = np.zeros(size)
        table[who.reshape(-1), when.reshape(-1), place[mine]] = pause_s[mine]
        matters = np.median(table.max(axis=0), axis=0) >= PAUSE * step_s
        shared = np.median(table.min(axis=0), axis=0) >= ALL_PAUSE_S
        places = np.flatnonzero(matters & shared)
        found.append(mine[np.isin(place[mine], places)])
    at = np.concatenate(found) if found else np.zeros(0, np.int64)
    rows = order[at]

    def joined(column: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((column, more))

    return Spans(
        joined(spans.rank, spans.rank[rows]), joined(spans.dp, spans.dp[rows]), joined(spans.stage, spans.stage[rows]),
        joined(spans.step, spans.step[rows]), joined(spans.what, np.full(len(rows), len(spans.names))),
        (*spans.names, UNTRACED), joined(spans.start_s, before_s[at]), joined(spans.lasted_s, pause_s[at]),
    )  # fmt: skip


def _groups(workers: list[tuple[int, int, int]]) -> dict[tuple[str, int], CommInfo]:
    """By what it is for and a number, each communicator among the workers."""
    members: dict[tuple[str, int], list[int]] = {}
    last = max(stage for _, _, stage in workers)
    for rank, dp, stage in sorted(workers, key=lambda worker: (worker[2], worker[1])):
        members.setdefault(("world", 0), []).append(rank)
        members.setdefault(("dp", stage), []).append(rank)
        members.setdefault(("pp", dp), []).append(rank)
        if stage in (0, last):
            members.setdefault(("embedding", dp), []).append(rank)
    found = {}
    for (kind, number), ranks in members.items():
        name = f"{kind}-{number}"
        comm_id = comm_id_of((name, tuple(ranks)))
        found[kind, number] = CommInfo(comm_id, name, kind, "spans", len(ranks), 0, ranks)
    return found


def _records(
    spans: Spans, mine: NDArray[np.int64], groups: dict[tuple[str, int], CommInfo], rank: int, dp: int, stage: int
) -> tuple[NDArray[Any], int]:
    """Operations and steps of a worker on a clock of its own, in which its steps follow each other at once."""
    steps = np.unique(spans.step[mine])
    of = np.searchsorted(steps, spans.step[mine])
    start_s, end_s = spans.start_s[mine], spans.start_s[mine] + spans.lasted_s[mine]
    first_s, last_s = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    np.minimum.at(first_s, of, start_s)
    np.maximum.at(last_s, of, end_s)
    lengths_ns = ((last_s - first_s) * 1e9).astype(np.int64) + STEP_APART_NS
    begins_ns = np.concatenate(([0], np.cumsum(lengths_ns))) + 10**9
    at_ns = begins_ns[of] + ((start_s - first_s[of]) * 1e9).astype(np.int64)
    until_ns = begins_ns[of] + ((end_s - first_s[of]) * 1e9).astype(np.int64)
    place: dict[int, tuple[int, CommInfo, int]] = {}
    for number, name in enumerate(spans.names):
        known = _place(name, groups, dp, stage, rank)
        if known is not None:
            place[number] = known
    is_op = np.isin(spans.what[mine], list(place))
    ops = np.flatnonzero(is_op)
    reported = np.zeros(len(ops), RECORD_REPORTED)
    reported["rank"], row = rank, reported["row"]
    row["reduce_op"] = UNKNOWN_REDUCE_OP
    for number, (kind, info, peer) in place.items():
        these = np.flatnonzero(spans.what[mine][ops] == number)
        reported["comm"][these] = info.comm_id
        row["kind"][these], row["peer"][these] = kind, peer
    row["t_issue_ns"], row["t_end_ns"] = at_ns[ops], until_ns[ops]
    # Of operations at the same time only what each adds to those before it.
    covered_ns = np.append(0, np.maximum.accumulate(until_ns[ops])[:-1])
    row["wait_us"] = np.clip((until_ns[ops] - np.maximum(at_ns[ops], covered_ns)) // 1000, 0, 0xFFFFFFFF)
    row["counter"] = _counters(reported["comm"], row)
    row["count"], row["dtype"] = 1, 6
    return steps_among(reported, rank, begins_ns), int(begins_ns[-1])


def _place(
    name: str, groups: dict[tuple[str, int], CommInfo], dp: int, stage: int, rank: int
) -> tuple[int, CommInfo, int] | None:
    """Kind, communicator and peer of an operation of this name; None if it is the worker's own time."""
    if name in MESSAGES:
        kind, side = MESSAGES[name]
        info = groups["pp", dp]
        peer = info.members.index(rank) + side
        return (int(kind), info, peer) if 0 <= peer < info.size else None
    if name not in ROUNDS:
        return None
    kind, role = ROUNDS[name]
    key = (role, {"dp": stage, "embedding": dp, "world": 0}[role])
    info = groups[key]
    return (int(kind), info, -1) if rank in info.members and info.size > 1 else None


def _counters(comm: NDArray[Any], row: NDArray[Any]) -> NDArray[np.int64]:
    """Collectives count by communicator, messages by direction and peer, in the order of issue."""
    sent = is_message(row["kind"])
    key = np.stack((comm.astype(np.int64), np.where(sent, row["kind"], 0), np.where(sent, row["peer"], -1)))
    _, of = np.unique(key, axis=1, return_inverse=True)
    of = of.reshape(-1)
    order = np.argsort(of, kind="stable")
    first = np.searchsorted(of[order], of[order], side="left")
    counter = np.empty(len(of), np.int64)
    counter[order] = np.arange(len(of)) - first + 1
    return counter

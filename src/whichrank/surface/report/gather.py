"""What a report shows of a job, taken from an analyzer while it is fed: numbers and names, no words for people.

Operations are kept as columns. Of a large job not all fit on a page: then those of the latest seconds are kept, of the
ranks that an incident is about, and of others as far as there is room.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.analyzer import Analyzer
from whichrank.analyzer.who_waits import Waiting, who_waits
from whichrank.model.incident import Incident, Spent
from whichrank.model.links import LinkRate
from whichrank.model.rows import Kind
from whichrank.model.telemetry import Batch, Stack

MOST_SPANS: Final = 120_000
MOST_ITERATIONS: Final = 64
MOST_OPERATIONS: Final = 40
MOST_STACKS: Final = 64
AFTER_S: Final = 1.0
"""Of the lanes, behind the last thing that happened."""

SPAN: Final = np.dtype(
    [("rank", "i4"), ("comm", "i4"), ("kind", "u1"), ("open", "?"), ("counter", "i8"), ("start_s", "f8"),
     ("end_s", "f8"), ("waited_s", "f8")]
)  # fmt: skip
"""An operation of a rank; `open`: it has not ended."""


@dataclass(frozen=True)
class Operations:
    """Operations of one sort: kind, size and communicators that are described alike.

    Attributes:
        comm: What the communicators are for.
        kind: Of the operations.
        count: How many.
        total_s: Of all of them, over all ranks.
        median_s: Of one.
        longest_s: Of one.
        longest_rank: Whose that was.
        waited_s: Of all, as far as threads were blocked.
    """

    comm: str
    kind: str
    count: int
    total_s: float
    median_s: float
    longest_s: float
    longest_rank: int
    waited_s: float


@dataclass(frozen=True)
class Gathered:
    """What a page is made of.

    Attributes:
        job: Its name.
        world_size: Ranks.
        hosts: By rank, where that is known.
        incidents: The last word on each.
        rounds: Of each incident, communicator and counter of the operation in which it shows; None where it has none.
        waits: Who waits for whom at the end.
        spans: Rows of SPAN, on the analyzer's clock.
        comms: Names of communicators, by number.
        operations: The sorts of operations that took longest.
        ranks: Rows of the heat map.
        iterations: Columns of the heat map.
        own_s: Seconds of each rank's own in each iteration.
        blocked_s: The rest.
        times: Where the latest iterations went.
        links: Rates from rank to rank.
        stacks: Of ranks.
        utc_offset_s: From the analyzer's clock to UTC; None if that is not known.
    """

    job: str
    world_size: int
    hosts: dict[int, str]
    incidents: tuple[Incident, ...]
    rounds: tuple[tuple[int, int] | None, ...]
    waits: tuple[Waiting, ...]
    spans: NDArray[Any]
    comms: tuple[str, ...]
    operations: tuple[Operations, ...]
    ranks: NDArray[np.int64]
    iterations: NDArray[np.int64]
    own_s: NDArray[np.float64]
    blocked_s: NDArray[np.float64]
    times: tuple[Spent, ...]
    links: tuple[LinkRate, ...]
    stacks: dict[int, list[Stack]]
    utc_offset_s: float | None


class Gatherer:
    """Keeps what an analyzer is told.

    Args:
        analyzer: Is fed by whoever has this; tell `see` of each batch afterwards.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._spans: list[NDArray[Any]] = []
        self._kept = 0

    def see(self, batch: Batch) -> None:
        """A batch that the analyzer was fed just now."""
        rows = batch.record_rows()
        rows = rows[rows["row"]["kind"] < Kind.STEP]
        state = self._analyzer.state
        comm = state.comm_index(rows["comm"])
        known = (comm >= 0) & (rows["rank"] >= 0) & (rows["rank"] < state.ranks.size)
        rows, comm = rows[known], comm[known]
        if not len(rows):
            return
        spans = np.zeros(len(rows), SPAN)
        row, offset_s = rows["row"], state.ranks.offset_s[rows["rank"]]
        for name in ("kind", "counter"):
            spans[name] = row[name]
        spans["rank"], spans["comm"] = rows["rank"], comm
        spans["start_s"] = row["t_issue_ns"] / 1e9 + offset_s
        spans["end_s"] = row["t_end_ns"] / 1e9 + offset_s
        spans["waited_s"] = row["wait_us"] / 1e6
        self._spans.append(spans)
        self._kept += len(spans)
        if self._kept > 8 * MOST_SPANS:
            self._spans = [_latest(np.concatenate(self._spans), 4 * MOST_SPANS)]
            self._kept = len(self._spans[0])

    def gathered(self, job: str, incidents: Iterable[Incident], now_s: float, utc_offset_s: float | None) -> Gathered:
        """What is known at the end.

        Args:
            job: Its name.
            incidents: The last word on each.
            now_s: The analyzer's time.
            utc_offset_s: From that to UTC, None if it is not known.
        """
        analyzer, state = self._analyzer, self._analyzer.state
        incidents = tuple(incidents)
        picture = state.picture(now_s)
        spans = np.concatenate([*self._spans, self._open_spans(picture.ops, now_s)])
        window = analyzer.slowness.iterations.window(np.flatnonzero(picture.present), np.inf, 1)
        about = {c.rank for i in incidents for c in (*i.culprits, *i.candidates)}
        operations = self._operations(spans)
        last = slice(-MOST_ITERATIONS, None)
        return Gathered(
            job=job,
            world_size=state.ranks.size,
            hosts={rank: host for rank, host in state.host.items() if host},
            incidents=incidents,
            rounds=tuple(map(self._round, incidents)),
            waits=who_waits(analyzer.diagnosis, picture),
            spans=_fitting(spans, about),
            comms=tuple(state.comm_name(comm) for comm in range(len(state.info))),
            operations=operations,
            ranks=window.ranks if window else np.zeros(0, np.int64),
            iterations=window.iteration[last] if window else np.zeros(0, np.int64),
            own_s=window.own_s[:, last] if window else np.zeros((0, 0)),
            blocked_s=(window.total_s - window.own_s)[:, last] if window else np.zeros((0, 0)),
            times=analyzer.times,
            links=analyzer.links,
            stacks={rank: told[1] for rank, told in sorted(state.stacks.items())[:MOST_STACKS]},
            utc_offset_s=utc_offset_s,
        )

    def _round(self, incident: Incident) -> tuple[int, int] | None:
        comm_id, _, counter = (incident.op.trace_id or "" if incident.op else "").partition("-")
        if not counter:
            return None
        comm = int(self._analyzer.state.comm_index(np.array([int(comm_id, 16)], np.uint64))[0])
        return (comm, int(counter)) if comm >= 0 else None

    @staticmethod
    def _open_spans(ops: NDArray[Any], now_s: float) -> NDArray[Any]:
        """What is still under way, up to now."""
        ops = ops[~ops["failed"]]
        spans = np.zeros(len(ops), SPAN)
        for name in ("rank", "comm", "kind", "counter"):
            spans[name] = ops[name]
        spans["open"], spans["start_s"], spans["end_s"] = True, ops["issue_s"], now_s
        return spans

    def _operations(self, spans: NDArray[Any]) -> tuple[Operations, ...]:
        """The sorts that took longest in all."""
        spans = spans[~spans["open"]]
        if not len(spans):
            return ()
        names = [self._analyzer.state.comm_name(comm) for comm in range(len(self._analyzer.state.info))]
        kinds = {name: number for number, name in enumerate(dict.fromkeys(names))}
        sort = np.array([kinds[name] for name in names], np.int64)[spans["comm"]] << 8 | spans["kind"]
        lasted_s = spans["end_s"] - spans["start_s"]
        found = []
        for value in np.unique(sort).tolist():
            mine = np.flatnonzero(sort == value)
            longest = mine[int(np.argmax(lasted_s[mine]))]
            found.append(
                Operations(
                    comm=list(kinds)[value >> 8], kind=Kind(value & 0xFF).name.lower(), count=len(mine),
                    total_s=float(lasted_s[mine].sum()), median_s=float(np.median(lasted_s[mine])),
                    longest_s=float(lasted_s[longest]), longest_rank=int(spans["rank"][longest]),
                    waited_s=float(spans["waited_s"][mine].sum()),
                )
            )  # fmt: skip
        return tuple(sorted(found, key=lambda one: -one.total_s)[:MOST_OPERATIONS])


def _latest(spans: NDArray[Any], most: int) -> NDArray[Any]:
    """Those that ended last."""
    if len(spans) <= most:
        return spans
    return spans[np.argpartition(spans["end_s"], len(spans) - most)[-most:]]


def _fitting(spans: NDArray[Any], about: set[int]) -> NDArray[Any]:
    """As many as a page takes: those of the ranks in question, of the others the latest ones."""
    if len(spans) <= MOST_SPANS:
        return spans
    mine = np.isin(spans["rank"], list(about)) | spans["open"]
    own = _latest(spans[mine], MOST_SPANS // 2)
    return np.concatenate((own, _latest(spans[~mine], MOST_SPANS - len(own))))

"""A trace for Perfetto (and chrome://tracing): a process for each rank, tracks for each communicator, arrows.

The format is Chrome's JSON of trace events. Times are whole microseconds from the first operation: readers turn
fractions into nanoseconds by multiplying and cutting, after which slices that touch may overlap. An operation that has
not ended has a beginning and no end, as the format has it, so nobody can take its length from the file. An arrow leads
through the operations of a round in the order in which ranks have entered, so it ends at the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np

from whichrank.model.incident import Incident
from whichrank.model.kinds import is_collective
from whichrank.model.picture import Ints
from whichrank.model.signature import op_name
from whichrank.surface.export.tracks import tracks_of
from whichrank.surface.report.gather import Gathered
from whichrank.surface.report.spans import Spans
from whichrank.verdict.words.text import headline

MOST_ARROWS: Final = 1 << 16
"""Operations with an arrow: more are of no help, and slow."""
AT_ONCE: Final = 8192
"""Events that are encoded at a time."""
NO_END: Final = "not known: a recording of this kind does not say when it was made"
INCIDENTS_PID: Final = 1 << 30
"""The process that the incidents are on; no rank has that number."""

Event = dict[str, Any]


def trace_of(gathered: Gathered) -> Iterator[bytes]:
    """The trace as JSON, piece by piece."""
    trace = _Trace(gathered)
    yield b'{"traceEvents":['
    events = iter(trace.events())
    before = b""
    while some := list(islice(events, AT_ONCE)):
        yield before + b",\n".join(map(msgspec.json.encode, some))
        before = b",\n"
    about = {"job": gathered.job} | ({"missing": gathered.missing} if gathered.missing else {})
    yield b'],"displayTimeUnit":"ms","otherData":' + msgspec.json.encode(about) + b"}\n"


@dataclass(frozen=True)
class _Trace:
    """A trace while it is made.

    Attributes:
        gathered: What it shows.
    """

    gathered: Gathered

    @cached_property
    def spans(self) -> Spans:
        """By the time of their beginning; those that last longer first."""
        spans = self.gathered.spans
        ordered: Spans = spans[np.lexsort((-spans["end_s"], spans["start_s"]))]
        return ordered

    @cached_property
    def zero_s(self) -> float:
        """When the trace begins, on the analyzer's clock."""
        return float(self.spans["start_s"][0]) if len(self.spans) else 0.0

    @cached_property
    def start_us(self) -> Ints:
        """Of each operation."""
        return self.us(self.spans["start_s"])

    @cached_property
    def end_us(self) -> Ints:
        """Of each operation."""
        return self.us(self.spans["end_s"])

    @cached_property
    def tid(self) -> Ints:
        """The thread of each operation: a number for each communicator and track of it."""
        track = tracks_of(self.spans, self.start_us, self.end_us, self.spans["open"])
        return np.asarray(track * len(self.gathered.comms) + self.spans["comm"] + 1, np.int64)

    def us(self, at_s: Any) -> Ints:
        """Whole microseconds from the beginning."""
        return np.floor((np.asarray(at_s) - self.zero_s) * 1e6 + 1e-3).astype(np.int64)

    def events(self) -> Iterable[Event]:
        """All events, what they need to be understood first."""
        yield from self._names()
        yield from self._operations()
        yield from self._arrows()
        yield from self._incidents()

    def _names(self) -> Iterator[Event]:
        for rank in np.unique(self.spans["rank"]).tolist():
            host = self.gathered.hosts.get(rank, "")
            name = f"rank {rank}" + (f" ({host})" if host else "")
            yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}}
            yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
        comms = self.gathered.comms
        lanes = np.unique(np.stack((self.spans["rank"].astype(np.int64), self.tid), axis=1), axis=0)
        for rank, tid in lanes.tolist():
            track, comm = divmod(tid - 1, len(comms))
            name = comms[comm] + (f" (at the same time, {track + 1})" if track else "")
            yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": name}}
            index = {"sort_index": comm * (1 << 16) + track}
            yield {"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": tid, "args": index}

    def _operations(self) -> Iterator[Event]:
        columns = (self.spans[name].tolist() for name in ("rank", "kind", "counter", "open", "waited_s", "start_s"))
        end_s = self.gathered.end_s
        times = (self.tid.tolist(), self.start_us.tolist(), self.end_us.tolist())
        for rank, kind, counter, is_open, waited_s, start_s, tid, start, end in zip(*columns, *times, strict=True):
            event = {"name": op_name(kind, counter), "pid": rank, "tid": tid, "ts": start}
            if is_open:
                lasted = NO_END if end_s is None else f"{end_s - start_s:.3f} s until the end of the recording"
                yield {"ph": "B", "cat": "open", **event, "args": {"has_ended": False, "lasted": lasted}}
            else:
                args = {"blocked_s": round(waited_s, 6), "has_ended": True}
                yield {"ph": "X", "cat": "operation", **event, "dur": end - start, "args": args}

    def _arrows(self) -> Iterator[Event]:
        """Through each round that several ranks were in, in the order in which they entered."""
        rows = np.flatnonzero(is_collective(self.spans["kind"]))[-MOST_ARROWS:]
        spans = self.spans[rows]
        order = np.lexsort((self.start_us[rows], spans["kind"], spans["counter"], spans["comm"]))
        rows, spans = rows[order], spans[order]
        if not len(spans):
            return
        same = np.ones(len(spans), np.bool_)
        same[0] = False
        for name in ("comm", "counter", "kind"):
            same[1:] &= spans[name][1:] == spans[name][:-1]
        number = np.cumsum(~same).tolist()
        last = np.append(~same[1:], True).tolist()
        for row, round_, follows, ends in zip(rows.tolist(), number, same.tolist(), last, strict=True):
            if not follows and ends:
                continue
            phase = "s" if not follows else "f" if ends else "t"
            event = {"ph": phase, "id": round_, "name": "round", "cat": "round", "ts": int(self.start_us[row])}
            where = {"pid": int(self.spans["rank"][row]), "tid": int(self.tid[row])}
            yield event | where | ({"bp": "e"} if ends else {})

    def _incidents(self) -> Iterator[Event]:
        """A mark for each where it began, on a track of their own, if it is known when that was."""
        offset_s = self.gathered.utc_offset_s
        marks = [one for one in self.gathered.incidents if one.onset is not None]
        if not marks or (offset_s is None and len(self.spans)):
            return
        about = {"pid": INCIDENTS_PID, "tid": 1}
        yield {"ph": "M", "name": "process_name", "pid": INCIDENTS_PID, "args": {"name": "incidents"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": INCIDENTS_PID, "args": {"sort_index": -1}}
        yield {"ph": "M", "name": "thread_name", **about, "args": {"name": "where they began"}}
        first_s = min(one.onset.timestamp() for one in marks if one.onset is not None)
        zero_s = first_s if offset_s is None else self.zero_s + offset_s
        for one in marks:
            yield {
                "ph": "i",
                "s": "g",
                "name": headline(one),
                **about,
                "ts": _since_us(one, zero_s),
                "args": _said(one),
            }


def _since_us(incident: Incident, zero_s: float) -> int:
    return max(0, round((incident.onset.timestamp() - zero_s) * 1e6)) if incident.onset is not None else 0


def _said(incident: Incident) -> Event:
    return {"id": incident.id, "status": incident.status, "ended": incident.ended, "onset": incident.onset}

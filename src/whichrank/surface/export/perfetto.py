"""A trace for Perfetto (and chrome://tracing): a process for each rank, a lane for each communicator, arrows.

The format is Chrome's JSON of trace events; times are microseconds from the first operation. An arrow leads through the
operations of a round in the order in which ranks have entered, so it ends at the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from whichrank.model.rows import Kind
from whichrank.model.signature import op_name
from whichrank.surface.report.gather import Gathered
from whichrank.surface.text import headline

MOST_ARROWS: Final = 1 << 16
"""Operations with an arrow: more are of no help, and slow."""


def trace_of(gathered: Gathered) -> bytes:
    """The trace as JSON."""
    events = [*_names(gathered), *_operations(gathered), *_arrows(gathered), *_incidents(gathered)]
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"job": gathered.job}})


def _names(gathered: Gathered) -> Iterator[dict[str, Any]]:
    for rank in np.unique(gathered.spans["rank"]).tolist():
        host = gathered.hosts.get(rank, "")
        name = f"rank {rank}" + (f" ({host})" if host else "")
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
    lanes = np.unique(gathered.spans[["rank", "comm"]])
    for rank, comm in lanes.tolist():
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": comm, "args": {"name": gathered.comms[comm]}}


def _operations(gathered: Gathered) -> Iterator[dict[str, Any]]:
    spans = gathered.spans
    zero_s = _zero_s(gathered)
    start_us = np.round((spans["start_s"] - zero_s) * 1e6, 3).tolist()
    lasted_us = np.round((spans["end_s"] - spans["start_s"]) * 1e6, 3).tolist()
    columns = (spans[name].tolist() for name in ("rank", "comm", "kind", "counter", "open", "waited_s"))
    for rank, comm, kind, counter, is_open, waited_s, at, lasted in zip(*columns, start_us, lasted_us, strict=True):
        yield {
            "ph": "X", "name": op_name(kind, counter), "cat": "open" if is_open else "operation", "pid": rank,
            "tid": comm, "ts": at, "dur": lasted, "args": {"blocked_s": round(waited_s, 6), "has_ended": not is_open},
        }  # fmt: skip


def _arrows(gathered: Gathered) -> Iterator[dict[str, Any]]:
    """Through each round that several ranks were in, in the order in which they entered."""
    spans = gathered.spans[gathered.spans["kind"] < Kind.SEND]
    order = np.lexsort((spans["start_s"], spans["kind"], spans["counter"], spans["comm"]))[-MOST_ARROWS:]
    spans = spans[order]
    if not len(spans):
        return
    same = np.ones(len(spans), np.bool_)
    same[0] = False
    for name in ("comm", "counter", "kind"):
        same[1:] &= spans[name][1:] == spans[name][:-1]
    number = np.cumsum(~same)
    last = np.append(~same[1:], True)
    zero_s = _zero_s(gathered)
    for span, round_, follows, ends in zip(spans, number.tolist(), same.tolist(), last.tolist(), strict=True):
        if not follows and ends:
            continue
        phase = "s" if not follows else "f" if ends else "t"
        at = round((float(span["start_s"]) - zero_s) * 1e6 + 0.001, 3)
        event = {"ph": phase, "id": round_, "name": "round", "cat": "round", "ts": at}
        yield event | {"pid": int(span["rank"]), "tid": int(span["comm"])} | ({"bp": "e"} if ends else {})


def _incidents(gathered: Gathered) -> Iterator[dict[str, Any]]:
    """A mark for each where it began, if it is known when that was."""
    if gathered.utc_offset_s is None:
        return
    for incident in gathered.incidents:
        if incident.onset is not None:
            at_s = incident.onset.timestamp() - gathered.utc_offset_s - _zero_s(gathered)
            yield {"ph": "i", "s": "g", "name": headline(incident), "ts": round(at_s * 1e6), "pid": 0, "tid": 0}


def _zero_s(gathered: Gathered) -> float:
    return float(gathered.spans["start_s"].min()) if len(gathered.spans) else 0.0

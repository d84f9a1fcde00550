"""Operations as rows: JSON for programs, CSV for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np

from whichrank.model.kinds import Kind
from whichrank.surface.report.gather import Gathered

COLUMNS: Final = (
    "rank",
    "host",
    "communicator",
    "operation",
    "number",
    "start_s",
    "lasted_s",
    "blocked_s",
    "has_ended",
)
AT_ONCE: Final = 8192
"""Rows that are encoded at a time."""


def csv_of(gathered: Gathered) -> Iterator[bytes]:
    """A line for each operation, under a line of names, piece by piece."""
    rows: Iterator[tuple[Any, ...]] = _rows(gathered)
    some: list[tuple[Any, ...]] = [COLUMNS]
    while some:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in some)
        yield text.getvalue().encode()
        some = list(islice(rows, AT_ONCE))


def _cell(value: Any) -> Any:
    """No formula, whatever a job calls its groups."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def json_of(gathered: Gathered) -> Iterator[bytes]:
    """Incidents, and operations as objects, piece by piece."""
    about = {"job": gathered.job, "ranks": gathered.world_size, "incidents": gathered.incidents}
    about |= {"layout": gathered.layout.name} if gathered.layout.name else {}
    about |= {"missing": gathered.missing} if gathered.missing else {}
    yield msgspec.json.encode(about)[:-1] + b',"operations":['
    rows = _rows(gathered)
    before = b""
    while some := list(islice(rows, AT_ONCE)):
        yield before + b",".join(msgspec.json.encode(dict(zip(COLUMNS, row, strict=True))) for row in some)
        before = b","
    yield b"]}\n"


def _rows(gathered: Gathered) -> Iterator[tuple[Any, ...]]:
    """By rank and start; seconds from the first operation.

    What has not ended lasted until the end of the recording at least. Where nothing says when that was, as in dumps, it
    has no length. A recording that has no times has none here. How long a rank was blocked only a live run says.
    """
    spans = gathered.spans
    zero_s = float(spans["start_s"].min()) if len(spans) else 0.0
    names = {int(kind): kind.name.lower() for kind in Kind}
    for span in spans[np.lexsort((spans["start_s"], spans["rank"]))]:
        rank = int(span["rank"])
        has_end = gathered.has_times and (not span["open"] or gathered.end_s is not None)
        yield (
            rank, gathered.hosts.get(rank, ""), gathered.comms[span["comm"]], names[int(span["kind"])],
            int(span["counter"]), round(float(span["start_s"]) - zero_s, 6) if gathered.has_times else None,
            round(float(span["end_s"] - span["start_s"]), 6) if has_end else None,
            round(float(span["waited_s"]), 6) if gathered.end_s is not None else None, not span["open"],
        )  # fmt: skip

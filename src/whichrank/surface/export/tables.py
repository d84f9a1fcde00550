"""Operations as rows: JSON for programs, CSV for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from whichrank.model.rows import Kind
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


def csv_of(gathered: Gathered) -> bytes:
    """A line for each operation, under a line of names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(value) for value in row] for row in _rows(gathered))
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """No formula, whatever a job calls its groups."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def json_of(gathered: Gathered) -> bytes:
    """Incidents, and operations as objects."""
    operations = [dict(zip(COLUMNS, row, strict=True)) for row in _rows(gathered)]
    return msgspec.json.encode(
        {"job": gathered.job, "ranks": gathered.world_size, "incidents": gathered.incidents, "operations": operations}
    )


def _rows(gathered: Gathered) -> Iterator[tuple[Any, ...]]:
    """By rank and start; seconds from the first operation."""
    spans = gathered.spans
    zero_s = float(spans["start_s"].min()) if len(spans) else 0.0
    names = {int(kind): kind.name.lower() for kind in Kind}
    for span in spans[spans["rank"].argsort(kind="stable")] if len(spans) else spans:
        rank = int(span["rank"])
        yield (
            rank, gathered.hosts.get(rank, ""), gathered.comms[span["comm"]], names[int(span["kind"])],
            int(span["counter"]), round(float(span["start_s"]) - zero_s, 6),
            round(float(span["end_s"] - span["start_s"]), 6), round(float(span["waited_s"]), 6), not span["open"],
        )  # fmt: skip

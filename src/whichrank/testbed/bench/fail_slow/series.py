"""A series of iteration times with its true change points, and the file of recorded ones: a line of JSON for each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from whichrank.errors import UsageError
from whichrank.testbed.bench.results_file import read_results

FILE_NAME: Final = "fail-slow-series.jsonl"
"""In the folder of `--record`."""


class Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values of one rank, or of one simulation, in order.

    Attributes:
        name: Of the series, alone in its source.
        kind: What was done: `healthy`, `cpu-contention`, `step`, ...
        values: Seconds of each iteration, or whatever an annotated series is of.
        changes: The numbers of the first values of new levels: of the first iteration that ended after a fault was set
            or taken away.
        begins: Of changes that are gradual: when each begins, so that it may be reported from then on. Empty if all are
            sharp.
        run: The run of the lab that it is of; its ranks share what happens to it. Empty for other sources.
        magnitude: How strong the fault was, in the words of the fault.
        others_cores: Cores that programs outside of the run took around the end of each iteration. Empty for other
            sources.
        schema: Of the line.
    """

    name: str
    kind: str
    values: list[float]
    changes: list[int]
    begins: list[int] = []
    run: str = ""
    magnitude: str = ""
    others_cores: list[float] = []
    schema: str = "whichrank.fail-slow-series/1"


def read_series(folder: Path) -> list[Series]:
    """The series that `--record` has written.

    Raises:
        UsageError: There are none, or they cannot be read.
        FormatError: A line is no series.
    """
    path = folder / FILE_NAME
    found = read_results(path, msgspec.json.Decoder(Series).decode)
    if not found:
        what = "there are no recorded series"
        raise UsageError(what, where=str(path), mend="whichrank bench fail-slow --record FOLDER --runs 50")
    return found

"""Series that people have annotated: from the Turing Change Point Dataset of the Alan Turing Institute.

They are no iteration times: quality of products, a drill hole, a runner. Each was annotated by five people, who do not
agree. Nothing of them is in this repository; `--annotated FOLDER` names a folder with `annotations.json`
(`{series: {annotator: [places]}}`) and a file `SERIES.json` for each series.

A place counts as found if an annotator has one within `MARGIN` values (van den Burg and Williams, 2020). Precision is
counted against all annotators together, recall is the mean over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichrank.errors import UsageError

MARGIN: Final = 5
"""Values to either side, as in the benchmark of that data set."""
_ANNOTATIONS: Final = "annotations.json"


class Annotated(NamedTuple):
    """A series and where people say it changes.

    Attributes:
        values: Its first dimension, (n,).
        places: By annotator.
    """

    name: str
    values: NDArray[np.float64]
    places: list[list[int]]


class Agreement(NamedTuple):
    """How far a method agrees with people.

    Attributes:
        reported: Places that the method reports.
        right: Those that an annotator has too.
        recall: Share of an annotator's places that are found, mean over those who have any; None if nobody has.
    """

    reported: int
    right: int
    recall: float | None


def read_annotated(folder: Path) -> list[Annotated]:
    """All series of a folder.

    Raises:
        UsageError: It holds none, or something else.
    """
    try:
        annotations = msgspec.json.decode((folder / _ANNOTATIONS).read_bytes(), type=dict[str, dict[str, list[int]]])
        return list(_series(folder, annotations))
    except OSError as error:
        what = f"the annotated series cannot be read: {error.strerror}"
        raise UsageError(what, where=str(error.filename), mend="--annotated FOLDER") from error
    except (msgspec.DecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise UsageError(
            f"these are no annotated series: {error}", where=str(folder), mend="--annotated FOLDER"
        ) from error


def _series(folder: Path, annotations: dict[str, dict[str, list[int]]]) -> Iterator[Annotated]:
    for name, places in annotations.items():
        content: Any = msgspec.json.decode((folder / f"{Path(name).name}.json").read_bytes())
        values = np.array(content["series"][0]["raw"], np.float64)
        yield Annotated(name, values, list(places.values()))


def agreement(annotated: Annotated, reported: Sequence[int]) -> Agreement:
    """Compare the places that a method reports with those of the annotators."""
    found = [
        sum(any(abs(place - at) <= MARGIN for at in reported) for place in places) / len(places)
        for places in annotated.places
        if places
    ]
    everybody = [place for places in annotated.places for place in places]
    right = sum(any(abs(place - at) <= MARGIN for place in everybody) for at in reported)
    return Agreement(len(reported), right, sum(found) / len(found) if found else None)

"""`times.json` in the folder of a run, for `whichrank watch`: where iterations went, and how long they took.

And what went between nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from whichrank.model.changes import LevelChange
from whichrank.model.incident import Spent
from whichrank.model.links import LinkRate
from whichrank.server.regular_file import open_regular

TIMES_FILE: Final = "times.json"
MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Times:
    """What is known of the time of a job.

    Attributes:
        ranks: Where the latest iterations of each went.
        links: What goes between nodes, the slowest first.
        changes: From when on iterations took longer, or less long, in order.
    """

    ranks: tuple[Spent, ...] = ()
    links: tuple[LinkRate, ...] = ()
    changes: tuple[LevelChange, ...] = ()

    @property
    def are_known(self) -> bool:
        """Whether anything is."""
        return bool(self.ranks or self.links or self.changes)

    def by_rank(self) -> dict[int, Spent]:
        """Where the latest iterations of each rank went."""
        return {spent.rank: spent for spent in self.ranks}


class _Content(msgspec.Struct, frozen=True):
    schema: Literal["whichrank.times/1"]
    ranks: tuple[Spent, ...] = ()
    links: tuple[LinkRate, ...] = ()
    changes: tuple[LevelChange, ...] = ()


_decoder = msgspec.json.Decoder(_Content)


def encode_times(times: Times) -> bytes:
    """The content of the file."""
    return msgspec.json.encode(_Content("whichrank.times/1", times.ranks, times.links, times.changes))


def read_times(folder: Path) -> Times:
    """Nothing is known if there is no such file, or another one of that name."""
    path = folder / TIMES_FILE
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return Times()
        times = _decoder.decode(content)
        return Times(times.ranks, times.links, times.changes)
    except (OSError, ValueError, msgspec.DecodeError):
        return Times()

"""`times.json` in the folder of a run, for `whichrank watch`: where iterations went, and what went between nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from whichrank.model.incident import Spent
from whichrank.model.links import LinkRate
from whichrank.server.regular_file import open_regular

TIMES_FILE: Final = "times.json"
MOST_BYTES: Final = 1 << 20


class _Times(msgspec.Struct, frozen=True):
    schema: Literal["whichrank.times/1"]
    ranks: tuple[Spent, ...] = ()
    links: tuple[LinkRate, ...] = ()
    """Slowest first."""


_decoder = msgspec.json.Decoder(_Times)


def encode_times(times: tuple[Spent, ...], links: tuple[LinkRate, ...] = ()) -> bytes:
    """The content of the file."""
    return msgspec.json.encode(_Times("whichrank.times/1", times, links))


def read_times(folder: Path) -> tuple[dict[int, Spent], tuple[LinkRate, ...]]:
    """By rank, and links; both empty if there is no such file, or another one of that name."""
    path = folder / TIMES_FILE
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return {}, ()
        times = _decoder.decode(content)
        return {spent.rank: spent for spent in times.ranks}, times.links
    except (OSError, ValueError, msgspec.DecodeError):
        return {}, ()

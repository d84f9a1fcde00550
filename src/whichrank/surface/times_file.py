"""`times.json` in the folder of a run: where the latest iterations of each rank went, for `whichrank watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from whichrank.model.incident import Spent

TIMES_FILE: Final = "times.json"
MOST_BYTES: Final = 1 << 20


class _Times(msgspec.Struct, frozen=True):
    schema: Literal["whichrank.times/1"]
    ranks: tuple[Spent, ...]


_decoder = msgspec.json.Decoder(_Times)


def encode_times(times: tuple[Spent, ...]) -> bytes:
    """The content of the file."""
    return msgspec.json.encode(_Times("whichrank.times/1", times))


def read_times(folder: Path) -> dict[int, Spent]:
    """By rank; empty if there is no such file, or another one of that name."""
    path = folder / TIMES_FILE
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return {}
        return {spent.rank: spent for spent in _decoder.decode(content).ranks}
    except (OSError, ValueError, msgspec.DecodeError):
        return {}

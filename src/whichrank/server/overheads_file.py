"""What actions have cost in earlier jobs of this user on this machine: so the first one of the next job is judged.

`overheads.json`, beside the built sensors. Nothing depends on it: without it, or if it says nonsense, it is guessed.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from whichrank.errors import WhichrankError
from whichrank.sensors.c10d import safe_cache_folder
from whichrank.server.private_file import make_private, write_private
from whichrank.server.regular_file import open_regular

FILE_NAME: Final = "overheads.json"
MOST_BYTES: Final = 1 << 12


class Overheads(msgspec.Struct, frozen=True, kw_only=True):
    """What is known."""

    schema: Literal["whichrank.overheads/1"] = "whichrank.overheads/1"
    handed_bytes_per_s: Annotated[float, Meta(gt=0)] | None = None
    """The state of a rank over the time for which training stood still, when places were changed last."""


def read_overheads() -> Overheads:
    """As they were written last; nothing if that is not known."""
    with contextlib.suppress(OSError, ValueError, WhichrankError), open_regular(_path()) as file:
        return msgspec.json.decode(file.read(MOST_BYTES), type=Overheads)
    return Overheads()


def write_overheads(overheads: Overheads) -> None:
    """Keep them for the next job; where they cannot be written they are not kept."""
    with contextlib.suppress(OSError, WhichrankError):
        path = _path()
        make_private(path.parent)
        part = path.with_name(f"{FILE_NAME}.part")
        write_private(part, msgspec.json.encode(overheads))
        part.replace(path)


def _path() -> Path:
    return safe_cache_folder() / FILE_NAME

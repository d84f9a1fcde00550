"""A hash that is the same on every machine and in every process: keys that travel, or that shards compare.

Python's own `hash` of a text differs from process to process.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

_BYTES: Final = 8


def stable_hash(*parts: str | int | NDArray[np.int64]) -> int:
    """63 bits of all parts, in their order; a positive number that an int64 holds.

    Example: `stable_hash("dp", np.array([0, 2]))` is another one than that of `("dp0", np.array([2]))`, since each part
    is hashed with its length.
    """
    state = hashlib.blake2b(digest_size=_BYTES)
    for part in parts:
        if isinstance(part, str):
            content = part.encode()
        elif isinstance(part, int):
            content = part.to_bytes(2 * _BYTES, "little", signed=True)
        else:
            content = part.astype("<i8").tobytes()
        state.update(len(content).to_bytes(_BYTES, "little") + content)
    return int.from_bytes(state.digest(), "little") >> 1

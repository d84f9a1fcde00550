"""Communicators of recordings: by name and members, since names recur."""

from __future__ import annotations

import hashlib

Key = tuple[str, tuple[int, ...]]
"""Name and members."""


def comm_id_of(key: Key) -> int:
    """A number for a communicator: the same for the same name and members, never 0."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little") >> 1 | 1

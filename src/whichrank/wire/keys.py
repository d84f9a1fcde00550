"""The key of a job: whoever has it may report to the job's analyzer over TCP, and nobody else may.

One secret of 64 hexadecimal digits, so that a launcher can make it beforehand and hand it to all nodes. Both pairs of
keys that CURVE asks for, the analyzer's and the agents', are made from it; the key itself never crosses the network.

Example: `openssl rand -hex 32` makes one.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

import zmq
from zmq.utils import z85

VARIABLE: Final = "WHICHRANK_KEY"
"""In which a process is given the key."""
_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")


class Pair(NamedTuple):
    """Of CURVE, as ZeroMQ takes them: 40 characters each (Z85)."""

    public: bytes
    secret: bytes


def new_key() -> str:
    """A key that nobody can guess."""
    return os.urandom(32).hex()


def is_key(text: str) -> bool:
    """Whether it is written like a key."""
    return bool(_KEY.fullmatch(text))


def analyzer_pair(key: str) -> Pair:
    """The keys by which an analyzer proves to agents that it has the job's key."""
    return _pair(key, b"analyzer")


def agent_pair(key: str) -> Pair:
    """The keys by which agents prove to the analyzer that they have the job's key."""
    return _pair(key, b"agent")


def _pair(key: str, whose: bytes) -> Pair:
    import hashlib  # with it comes OpenSSL: 3 MiB, of which an agent without a key has no use

    secret = z85.encode(hashlib.blake2b(bytes.fromhex(key), digest_size=32, person=whose).digest())
    return Pair(zmq.curve_public(secret), secret)

"""Where an analyzer listens, as text."""

from __future__ import annotations

import re
from typing import Final

from whichrank.errors import UsageError
from whichrank.model.plain_text import without_key

LOOPBACK: Final = "127.0.0.1"
DEFAULT_PORT: Final = 29480
_FROM_HERE_ONLY: Final = re.compile(r"tcp://(127\.|\[::1\])")


class AddressInUseError(UsageError):
    """Something else listens at the address at which an analyzer was to listen."""


def is_from_here_only(bound: str) -> bool:
    """Whether no other machine reaches this address, as a host name in /etc/hosts may turn out."""
    return bool(_FROM_HERE_ONLY.match(bound))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def full_address(text: str) -> str:
    """An address as ZeroMQ wants it, from `HOST:PORT`, `HOST`, `PORT`, `tcp://HOST:PORT` or `ipc://PATH`.

    Raises:
        UsageError: It is none of these.
    """
    if text.startswith("ipc://") and len(text) > len("ipc://"):
        return text
    place = text.removeprefix("tcp://")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = ("", place) if _is_number(place) else (place, str(DEFAULT_PORT))
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    is_wrong = "://" in place or "/" in place or not _is_number(port) or int(port) > 65535 or is_bare_ipv6
    if is_wrong or not place or without_key(place) != place:
        raise UsageError(
            f"'{without_key(text)}' is no address",
            where="--serve, --join or --connect",
            mend=f"write HOST:PORT, for instance {LOOPBACK}:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}",
        )
    return f"tcp://{host or LOOPBACK}:{port}"

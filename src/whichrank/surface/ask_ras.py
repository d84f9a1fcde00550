"""Asks NCCL's RAS of a running job for its status over TCP: JSON since NCCL 2.28.7, text of older ones.

RAS listens in every process of a job on one address, `localhost:28028` unless NCCL_RAS_ADDR says another. It closes the
connection when it has said all. What comes is bounded in length and time.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Final

from whichrank.errors import FormatError, IncompleteDataError, UsageError
from whichrank.intake.ras import Ras, read_ras
from whichrank.intake.ras_text import is_ras_text, read_ras_text

PORT: Final = 28028
MOST_BYTES: Final = 64 << 20
CHUNK_BYTES: Final = 1 << 16
JSON: Final = b"SET FORMAT json\nSTATUS\n"
TEXT: Final = b"VERBOSE STATUS\n"


def place_of(text: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        UsageError: It is none.
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, PORT
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"'{text}' is no HOST:PORT", mend=f"whichrank ras localhost:{PORT}")
    return host.strip("[]"), int(port)


def ask(place: tuple[str, int], timeout_s: float, what: bytes = JSON) -> bytes:
    """One answer, as it came.

    Raises:
        IncompleteDataError: Nobody answers there, or not in time.
    """
    where = f"{place[0]}:{place[1]}"
    try:
        with socket.create_connection(place, timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(what)
            return _all_from(connection, time.monotonic() + timeout_s)
    except TimeoutError as error:
        raise IncompleteDataError(f"RAS at {where} does not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise IncompleteDataError(
            f"RAS does not answer at {where}: {error.strerror or error}",
            mend="ask on a node of the job (NCCL 2.24 or newer); NCCL_RAS_ADDR in its environment says where",
        ) from error


def _all_from(connection: socket.socket, until_s: float) -> bytes:
    data = bytearray()
    while chunk := connection.recv(CHUNK_BYTES):
        data += chunk
        if len(data) > MOST_BYTES:
            raise FormatError(f"RAS says more than {MOST_BYTES >> 20} MiB")
        if time.monotonic() > until_s:
            raise TimeoutError
    return bytes(data)


def polls(place: tuple[str, int], count: int, every_s: float, timeout_s: float) -> Iterator[Ras]:
    """Several looks at a job.

    Raises:
        IncompleteDataError: See `ask`.
        FormatError: It says something else.
    """
    for number in range(count):
        if number:
            time.sleep(every_s)
        yield _snapshot(place, timeout_s)


def _snapshot(place: tuple[str, int], timeout_s: float) -> Ras:
    data = ask(place, timeout_s)
    begin = data.find(b"{")
    if begin >= 0:
        return read_ras(data[begin:])
    text = ask(place, timeout_s, TEXT)  # NCCL is older than 2.28.7
    if not is_ras_text(text):
        raise FormatError(f"what answers at {place[0]}:{place[1]} is not NCCL's RAS")
    return read_ras_text(text).polls[-1]

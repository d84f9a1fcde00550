"""The bytes on the wire: six bytes that say what follows, then MessagePack of a `Batch`, a `Request` or a `Farewell`.

    magic "WRE" · kind (B, R or F) · format as two bytes, little endian · MessagePack

Nothing that arrives is believed. The length is bounded before anything is decoded (msgspec itself allocates no more
than the message has bytes), columns must hold whole rows, and lists and texts have limits. So a hostile message costs
one sentence, not memory.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from whichrank.errors import EnvelopeFormatError
from whichrank.model.telemetry import (
    COMM_ROW,
    INFLIGHT_TOLD,
    PAIR_ROW,
    RANK_ROW,
    RATE_ROW,
    RECORD_TOLD,
    SPLITS_TOLD,
    TCP_ROW,
    VERSION,
    WAIT_TOLD,
    Batch,
    Request,
)

MAGIC: Final = b"WRE"
MOST_BYTES: Final = 64 << 20
MOST_TEXT: Final = 1 << 16
MOST_NAME: Final = 256
MOST_EVENTS: Final = 1 << 14
MOST_COMMUNICATORS: Final = 1 << 16

_ROW_BYTES: Final = {
    "ranks": RANK_ROW.itemsize,
    "comms": COMM_ROW.itemsize,
    "pairs": PAIR_ROW.itemsize,
    "inflight": INFLIGHT_TOLD.itemsize,
    "waits": WAIT_TOLD.itemsize,
    "records": RECORD_TOLD.itemsize,
    "rates": RATE_ROW.itemsize,
    "connections": TCP_ROW.itemsize,
    "splits": SPLITS_TOLD.itemsize,
}


class Farewell(msgspec.Struct, frozen=True):
    """The last message of an agent: all that it had was sent before."""

    agent: str


Message = Batch | Request | Farewell

_KINDS: Final[dict[bytes, type[Any]]] = {b"B": Batch, b"R": Request, b"F": Farewell}
_PREFIX: Final[dict[type[Any], bytes]] = {
    kind: MAGIC + letter + VERSION.to_bytes(2, "little") for letter, kind in _KINDS.items()
}
_PREFIX_BYTES: Final = 6
_DECODERS: Final = {letter: msgspec.msgpack.Decoder(kind) for letter, kind in _KINDS.items()}
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """The message as bytes.

    Raises:
        EnvelopeFormatError: It is longer than a receiver would take.
    """
    data = _PREFIX[type(message)] + _encoder.encode(message)
    _refuse_long(len(data))
    return data


def decode(data: bytes | memoryview) -> Message:
    """The message in `data`, checked.

    Raises:
        EnvelopeFormatError: It is no message of the version that this whichrank knows.
    """
    _refuse_long(len(data))
    letter = _checked_prefix(bytes(data[:_PREFIX_BYTES]))
    try:
        message: Message = _DECODERS[letter].decode(data[_PREFIX_BYTES:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EnvelopeFormatError(f"the message cannot be read: {error}") from error
    if isinstance(message, Batch):
        _check_batch(message)
    elif isinstance(message, Farewell):
        _check_text("agent", message.agent, MOST_NAME)
    else:
        _check_request(message)
    return message


def _refuse_long(length: int) -> None:
    if length > MOST_BYTES:
        raise EnvelopeFormatError(f"the message has {length:,} bytes, and {MOST_BYTES:,} are allowed")


def _checked_prefix(prefix: bytes) -> bytes:
    if len(prefix) < _PREFIX_BYTES or prefix[:3] != MAGIC or prefix[3:4] not in _KINDS:
        raise EnvelopeFormatError("the message is not from whichrank")
    version = int.from_bytes(prefix[4:], "little")
    if version != VERSION:
        age = "newer" if version > VERSION else "older"
        raise EnvelopeFormatError(
            f"the message has format {version}, {age} than the {VERSION} that this whichrank reads",
            mend="use one whichrank on all machines: pip install --upgrade whichrank",
        )
    return prefix[3:4]


def _check_batch(batch: Batch) -> None:
    for name, row_bytes in _ROW_BYTES.items():
        length = len(getattr(batch, name))
        if length % row_bytes:
            raise EnvelopeFormatError(f"column '{name}' has {length:,} bytes, which is no multiple of {row_bytes}")
    for name in ("job", "agent", "host", "node"):
        _check_text(name, getattr(batch, name), MOST_NAME)
    for name in ("name", "run_id"):
        _check_text(name, getattr(batch.launch, name), MOST_NAME)
    if len(batch.events) > MOST_EVENTS or len(batch.comm_info) > MOST_COMMUNICATORS:
        raise EnvelopeFormatError(
            f"the batch has {len(batch.events):,} events and {len(batch.comm_info):,} communicators, which is too many"
        )
    for event in batch.events:
        _check_text("event", event.text, MOST_TEXT)
        if event.probe:
            _check_text("probe", event.probe.target, MOST_NAME)
    for info in batch.comm_info:
        if info.members and len(info.members) != info.size:
            raise EnvelopeFormatError(f"a communicator of {info.size:,} ranks lists {len(info.members):,}")


def _check_request(request: Request) -> None:
    if (asked := len(request.stacks_of) + len(request.profiles_of)) > MOST_EVENTS:
        raise EnvelopeFormatError(f"the request asks for {asked:,} stacks, more than {MOST_EVENTS:,}")
    if len(request.probe) > MOST_EVENTS:
        raise EnvelopeFormatError(f"the request asks for {len(request.probe):,} probes, more than {MOST_EVENTS:,}")
    for target in request.probe:
        _check_text("probe", target, MOST_NAME)
    if other := request.another_job:
        for text in (other.job, other.theirs, other.ours):
            _check_text("another_job", text, MOST_NAME)


def _check_text(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise EnvelopeFormatError(f"'{name}' has {len(text):,} characters, and {most:,} are allowed")

"""The bytes on the wire: six bytes that say what follows, then MessagePack of a `Batch`, a `Reply` or a `Farewell`.

    magic "WRE" · kind (B, R or F) · format as two bytes, little endian · MessagePack

Nothing that arrives is believed. The length is bounded before anything is decoded (msgspec itself allocates no more
than the message has bytes), columns must hold whole rows, and lists and texts have limits. So a hostile message costs
one sentence, not memory.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Final

import msgspec

from whichrank.errors import EnvelopeFormatError
from whichrank.model.commands import HoldGate, Leave, PlaceOut, ProbePaths, Reply, SampleThreads, ShareOut, TakeStacks
from whichrank.model.rows import PASSES, SIZES
from whichrank.model.telemetry import (
    COMM_ROW,
    GATE_REPORTED,
    INFLIGHT_REPORTED,
    PAIR_ROW,
    PLACES_REPORTED,
    RANK_ROW,
    RATE_ROW,
    RECORD_REPORTED,
    SHARES_REPORTED,
    SPLITS_REPORTED,
    TCP_ROW,
    VERSION,
    WAIT_REPORTED,
    Batch,
)

MAGIC: Final = b"WRE"
REPLY_VERSION: Final = 7
"""Of a `Reply`; that of the others is `VERSION`, which tapes have too."""
MOST_BYTES: Final = 16 << 20
"""More than an agent puts into a batch. Whoever sends more is cut off by ZeroMQ, so rubbish cannot fill the memory."""
MOST_TEXT: Final = 1 << 16
MOST_NAME: Final = 256
MOST_EVENTS: Final = 1 << 14
MOST_COMMUNICATORS: Final = 1 << 16
MOST_COMMANDS: Final = 256
"""In a reply, and numbers of them in a batch."""

_ROW_BYTES: Final = {
    "ranks": RANK_ROW.itemsize,
    "comms": COMM_ROW.itemsize,
    "pairs": PAIR_ROW.itemsize,
    "inflight": INFLIGHT_REPORTED.itemsize,
    "waits": WAIT_REPORTED.itemsize,
    "records": RECORD_REPORTED.itemsize,
    "rates": RATE_ROW.itemsize,
    "connections": TCP_ROW.itemsize,
    "splits": SPLITS_REPORTED.itemsize,
    "gates": GATE_REPORTED.itemsize,
    "shares": SHARES_REPORTED.itemsize,
    "places": PLACES_REPORTED.itemsize,
}


class Farewell(msgspec.Struct, frozen=True):
    """The last message of an agent: all that it had was sent before."""

    agent: str


Message = Batch | Reply | Farewell

_KINDS: Final[dict[bytes, type[Any]]] = {b"B": Batch, b"R": Reply, b"F": Farewell}
_FORMAT: Final = {b"B": VERSION, b"R": REPLY_VERSION, b"F": VERSION}
_PREFIX: Final[dict[type[Any], bytes]] = {
    kind: MAGIC + letter + _FORMAT[letter].to_bytes(2, "little") for letter, kind in _KINDS.items()
}
_PREFIX_BYTES: Final = 6
_ROOM: Final = 1 << 15
"""Of a message beside its records; it grows if that is not enough."""
_DECODERS: Final = {letter: msgspec.msgpack.Decoder(kind) for letter, kind in _KINDS.items()}
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytearray:
    """The message as bytes.

    Raises:
        EnvelopeFormatError: It is longer than a receiver would take.
    """
    # Room for the records at once: a buffer that grows to them takes half as much again.
    data = bytearray(_ROOM + len(message.records) if isinstance(message, Batch) else _ROOM)
    data[:_PREFIX_BYTES] = _PREFIX[type(message)]
    _encoder.encode_into(message, data, _PREFIX_BYTES)
    _refuse_long(len(data))
    return data


def decode(data: bytes | bytearray | memoryview) -> Message:
    """The message in `data`, checked.

    Raises:
        EnvelopeFormatError: It is no message of the version that this whichrank knows.
    """
    _refuse_long(len(data))
    letter = _checked_prefix(bytes(data[:_PREFIX_BYTES]))
    try:
        message: Message = _DECODERS[letter].decode(memoryview(data)[_PREFIX_BYTES:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EnvelopeFormatError(f"the message cannot be read: {error}") from error
    if isinstance(message, Batch):
        _check_batch(message)
    elif isinstance(message, Farewell):
        _check_text("agent", message.agent, MOST_NAME)
    else:
        _check_reply(message)
    return message


def _refuse_long(length: int) -> None:
    if length > MOST_BYTES:
        raise EnvelopeFormatError(f"the message has {length:,} bytes, and {MOST_BYTES:,} are allowed")


def _checked_prefix(prefix: bytes) -> bytes:
    if len(prefix) < _PREFIX_BYTES or prefix[:3] != MAGIC or prefix[3:4] not in _KINDS:
        raise EnvelopeFormatError("the message is not from whichrank")
    version, ours = int.from_bytes(prefix[4:], "little"), _FORMAT[prefix[3:4]]
    if version != ours:
        age = "newer" if version > ours else "older"
        raise EnvelopeFormatError(
            f"the message has format {version}, {age} than the {ours} that this whichrank reads",
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
    _check_count("obeyed", batch.obeyed, MOST_COMMANDS)
    for event in batch.events:
        _check_text("event", event.text, MOST_TEXT)
        if event.probe:
            _check_text("probe", event.probe.target, MOST_NAME)
    for info in batch.comm_info:
        if info.members and len(info.members) != info.size:
            raise EnvelopeFormatError(f"a communicator of {info.size:,} ranks lists {len(info.members):,}")


def _check_reply(reply: Reply) -> None:
    if len(reply.commands) > MOST_COMMANDS:
        raise EnvelopeFormatError(f"the reply has {len(reply.commands):,} commands, more than {MOST_COMMANDS:,}")
    for command in reply.commands:
        order = command.order
        if isinstance(order, TakeStacks | SampleThreads):
            _check_count("ranks", order.ranks, MOST_EVENTS)
        elif isinstance(order, ProbePaths):
            _check_count("addresses", order.addresses, MOST_EVENTS)
            for address in order.addresses:
                _check_text("address", address, MOST_NAME)
        elif isinstance(order, HoldGate):
            _check_count("at_ordinals", order.at_ordinals, MOST_EVENTS)
            _check_count("tests", order.tests, MOST_EVENTS)
            for test in order.tests:
                _check_count("sizes", test.sizes, SIZES)
                _check_count("passes", test.passes, PASSES)
        elif isinstance(order, ShareOut):
            _check_count("shares", order.shares, MOST_EVENTS)
        elif isinstance(order, PlaceOut):
            _check_count("places", order.places, MOST_EVENTS)
        elif isinstance(order, Leave):
            for text in (order.because.job, order.because.theirs, order.because.ours):
                _check_text("because", text, MOST_NAME)


def _check_count(name: str, items: Sized, most: int) -> None:
    if len(items) > most:
        raise EnvelopeFormatError(f"'{name}' has {len(items):,} items, and {most:,} are allowed")


def _check_text(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise EnvelopeFormatError(f"'{name}' has {len(text):,} characters, and {most:,} are allowed")

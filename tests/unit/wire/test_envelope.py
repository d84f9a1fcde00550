"""The envelope: what is encoded comes back, and what is not ours costs one sentence."""

from __future__ import annotations

import tracemalloc
from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichrank.errors import EnvelopeFormatError
from whichrank.model import telemetry
from whichrank.model.commands import (
    Command,
    HoldGate,
    Leave,
    Order,
    Pace,
    Place,
    PlaceOut,
    ProbePaths,
    RankTest,
    Reply,
    ReportAgain,
    SampleThreads,
    Share,
    ShareOut,
    TakeStacks,
)
from whichrank.model.telemetry import AnotherJob, Batch, CommInfo, Event, Stack
from whichrank.wire.envelope import MOST_BYTES, Farewell, Message, decode, encode

COLUMNS = {
    "ranks": telemetry.RANK_ROW,
    "comms": telemetry.COMM_ROW,
    "pairs": telemetry.PAIR_ROW,
    "inflight": telemetry.INFLIGHT_REPORTED,
    "waits": telemetry.WAIT_REPORTED,
    "records": telemetry.RECORD_REPORTED,
    "rates": telemetry.RATE_ROW,
    "connections": telemetry.TCP_ROW,
    "splits": telemetry.SPLITS_REPORTED,
}


def batch(**changes: object) -> Batch:
    values: dict[str, object] = {
        "version": 1,
        "job": "job",
        "agent": "host:1",
        "host": "host",
        "sequence": 1,
        "sent_ns": 2,
        "sent_realtime_ns": 3,
        "delay_bound_ns": -1,
        "node_ranks": 1,
    }
    return Batch(**(values | changes))  # type: ignore[arg-type]


FULL = batch(
    **{name: np.ones(3, dtype).tobytes() for name, dtype in COLUMNS.items()},
    comm_info=[CommInfo(5, "tp", "tensor", "gloo", 2, 1, [0, 1]), CommInfo(6, "x", "", "", 9, 1, [])],
    events=[Event("stacks", 1, 2, 3, stacks=[Stack("MainThread", True, False, ["f (a.py:1)"])])],
)


ORDERS: list[Order] = [
    ShareOut(3, (Share(1, 5, 2), Share(2, 0, 1))), PlaceOut(2, (Place(1, 0), Place(0, 1)), saves=True),
    Pace(closely=True), TakeStacks((1, 2)), SampleThreads((3,), 2.0), ProbePaths(("10.0.0.1:29400",)), ReportAgain(),
    Leave(AnotherJob("b", "rank", "3", "")),
    HoldGate(5, 9, longest_s=2.5, at_step=7, tests=(RankTest(1, 3, 3, 3, 1 << 63, (1, 2), ((0, True), (-1, False))),)),
]  # fmt: skip
REPLY = Reply(4, 7, resend=True, commands=tuple(Command(1 << 50 | i, order) for i, order in enumerate(ORDERS)))


@pytest.mark.parametrize("message", [FULL, batch(), REPLY, Farewell("host:1")])
def test_round_trip(message: Message) -> None:
    assert decode(encode(message)) == message
    assert decode(memoryview(encode(message))) == message


def test_columns_come_back_as_rows() -> None:
    back = decode(encode(FULL))
    assert isinstance(back, Batch)
    assert back.rank_rows()["rank"].tolist() == [1, 1, 1]
    assert back.record_rows()["row"]["counter"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "data", [b"", b"W", b"WRE", b"WREB", b"XXXB\1\0\x80", b"WREZ\1\0\x80", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_what_is_not_ours_is_refused(data: bytes) -> None:
    with pytest.raises(EnvelopeFormatError, match="not from whichrank"):
        decode(data)


@pytest.mark.parametrize(("version", "age"), [(b"\3\0", "newer"), (b"\1\0", "older")])
def test_other_version_is_refused(version: bytes, age: str) -> None:
    data = encode(FULL)
    with pytest.raises(EnvelopeFormatError, match=f"{age} than the 2") as refusal:
        decode(data[:4] + version + data[6:])
    assert "pip install" in refusal.value.mend


@pytest.mark.parametrize("name", COLUMNS)
def test_half_a_row_is_refused(name: str) -> None:
    data = encode(msgspec.structs.replace(FULL, **{name: getattr(FULL, name)[:-1]}))
    with pytest.raises(EnvelopeFormatError, match=f"column '{name}'"):
        decode(data)


def test_too_long_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(EnvelopeFormatError, match="bytes, and"):
        decode(bytes(MOST_BYTES + 1))
    with pytest.raises(EnvelopeFormatError, match="bytes, and"):
        encode(batch(records=bytes(MOST_BYTES)))


@pytest.mark.parametrize(
    "changes",
    [
        {"agent": "x" * 300},
        {"events": [Event("note", 0, 0, 0, "x" * 100_000)]},
        {"events": [Event("note", 0, 0, 0)] * 20_000},
        {"comm_info": [CommInfo(1, "", "", "", 3, 1, [0, 1])]},
    ],
)
def test_unbounded_lists_and_texts_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(EnvelopeFormatError):
        decode(encode(batch(**changes)))


def test_every_order_is_there() -> None:
    assert {type(order) for order in ORDERS} == set(get_args(Order))


@pytest.mark.parametrize(
    "orders",
    [
        [ProbePaths(("x" * 300,))],
        [ProbePaths(("x",) * 20_000)],
        [TakeStacks((1,) * 20_000)],
        [Leave(AnotherJob("x" * 300, "rank", "", ""))],
        [HoldGate(1, 1, at_ordinals=((0, 1),) * 20_000)],
        [ShareOut(1, (Share(0, 0, 1),) * 20_000)],
        [HoldGate(1, 1, tests=(RankTest(0, 1, 1, 3),) * 20_000)],
        [HoldGate(1, 1, tests=(RankTest(0, 1, 3, 3, 7, (1,) * 5, ()),))],
        [HoldGate(1, 1, tests=(RankTest(0, 1, 3, 3, 7, (1,), ((1, True),) * 9),))],
        [ReportAgain()] * 300,
    ],
)
def test_unbounded_commands_are_refused(orders: list[Order]) -> None:
    with pytest.raises(EnvelopeFormatError, match=r"allowed|more than"):
        decode(encode(Reply(4, 7, commands=tuple(Command(i, order) for i, order in enumerate(orders)))))


def test_a_batch_gives_few_commands_back() -> None:
    with pytest.raises(EnvelopeFormatError, match="obeyed"):
        decode(encode(batch(obeyed=tuple(range(300)))))


@pytest.mark.parametrize(
    "length", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
)
@pytest.mark.parametrize("field", ["", "ranks", "events", "job", "comm_info"])
def test_hostile_length_allocates_nothing(length: bytes, field: str) -> None:
    # GIVEN a list, map, bytes or text that claims four thousand million entries
    body = b"\x81" + msgspec.msgpack.encode(field) + length if field else length
    tracemalloc.start()
    try:
        with pytest.raises(EnvelopeFormatError):
            decode(b"WREB\1\0" + body)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@settings(deadline=None, max_examples=300)
@given(
    flips=st.lists(st.tuples(st.integers(0, len(encode(FULL)) - 1), st.integers(0, 255)), max_size=8),
    size=st.one_of(st.none(), st.integers(0, len(encode(FULL)))),
)
def test_flipped_and_cut(flips: list[tuple[int, int]], size: int | None) -> None:
    data = bytearray(encode(FULL))
    for at, value in flips:
        data[at] = value
    message_or_refusal(bytes(data[:size]))


@settings(deadline=None, max_examples=300)
@given(kind=st.sampled_from(b"BRF"), body=st.binary(max_size=400))
def test_any_body(kind: int, body: bytes) -> None:
    message_or_refusal(b"WRE" + bytes([kind]) + b"\1\0" + body)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(EnvelopeFormatError):
        decode(b"WREB\1\0\x81\xa1x" + b"\x91" * 100_000)


def message_or_refusal(data: bytes) -> None:
    try:
        message = decode(data)
    except EnvelopeFormatError as error:
        assert "\n" not in error.what  # noqa: PT017
        return
    if isinstance(message, Batch):
        for rows in (message.rank_rows, message.comm_rows, message.pair_rows, message.inflight_rows, message.wait_rows):
            rows()
        message.record_rows()

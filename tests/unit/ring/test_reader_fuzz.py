"""Whatever a ring file holds, reading it ends in rows or in one `RingFormatError`, without much memory."""

from __future__ import annotations

import tracemalloc
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st
from ring_writer import SEND, RingWriter

from whichrank.errors import RingFormatError
from whichrank.ring.layout import RING
from whichrank.ring.reader import RingReader

# Bytes before the records and the members: the part in which a flip changes what is read, not just a value.
INTERESTING = RING.fields["members"][1] if RING.fields else 0
MOST_BYTES = 8 << 20


@cache
def real_ring() -> bytes:
    with TemporaryDirectory() as folder:
        writer = RingWriter(Path(folder) / "1.ring", 0, 4)
        comms = [writer.comm("dp", [0, 1, 2, 3]), writer.comm("odd", [0, 1, 3])]
        for comm in comms:
            writer.op(comm, 5)
            writer.wait(writer.begin(comm))
            writer.begin(comm, SEND, peer=1)
        return writer.path.read_bytes()


def read_all(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "1.ring"
        path.write_bytes(content)
        try:
            with RingReader(path) as reader:
                snapshot = reader.snapshot()
                for comm in snapshot.comms:
                    assert len(reader.members(comm)) <= max(int(comm["size"]), 0)
                reader.records()
                reader.records()
        except RingFormatError as error:
            assert "\n" not in error.what  # noqa: PT017


@settings(deadline=None, max_examples=100)
@given(
    flips=st.lists(st.tuples(st.integers(0, INTERESTING - 1), st.integers(0, 255)), max_size=30),
    size=st.one_of(st.none(), st.integers(0, RING.itemsize)),
)
def test_flipped_and_cut(flips: list[tuple[int, int]], size: int | None) -> None:
    content = bytearray(real_ring())
    for at, value in flips:
        content[at] = value
    read_all(bytes(content[:size]))


@settings(deadline=None, max_examples=50)
@given(
    words=st.lists(st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", b"\1" * 8]), min_size=1, max_size=16)
)
def test_hostile_numbers_everywhere(words: list[bytes]) -> None:
    # GIVEN a ring with a true start and hostile numbers behind it
    start = real_ring()[:24]
    pattern = b"".join(words)
    content = (start + pattern * (RING.itemsize // len(pattern) + 1))[: RING.itemsize]
    tracemalloc.start()
    try:
        read_all(content)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@settings(deadline=None, max_examples=100)
@given(content=st.binary(max_size=4096))
def test_any_bytes(content: bytes) -> None:
    read_all(content)

"""The ring reader against rings that the native library writes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from ring_writer import SEND, RingWriter

from whichrank.errors import RingFormatError
from whichrank.model.codes import Flag, Status
from whichrank.model.rows import RECORD
from whichrank.ring.layout import MEMBERS, RECORDS, RING, VERSION
from whichrank.ring.reader import RingReader


@pytest.fixture
def writer(tmp_path: Path) -> RingWriter:
    return RingWriter(tmp_path / "1.ring", rank=3, world=8)


def patch(path: Path, field: str, value: bytes, inside: int = 0) -> None:
    assert RING.fields is not None
    with path.open("r+b") as file:
        file.seek(RING.fields[field][1] + inside)
        file.write(value)


def test_snapshot_says_what_is_going_on(writer: RingWriter) -> None:
    # GIVEN a rank with a finished op, one it waits for, and a send
    comm = writer.comm("tp", [2, 3, 4, 5], group_rank=1, desc="tensor")
    writer.op(comm)
    op = writer.begin(comm, count=1000, flags=Flag.ASYNC)
    writer.issued(op)
    writer.wait(op)
    writer.begin(comm, SEND, peer=2, tag=7)
    # WHEN the ring is read
    with RingReader(writer.path) as reader:
        snapshot = reader.snapshot()
        members = reader.members(snapshot.comms[0])
    # THEN every table says its part
    assert snapshot.header["rank"][0] == 3
    assert snapshot.header["world_size"][0] == 8
    assert snapshot.header["pid"][0] == os.getpid()
    assert snapshot.comms[["issued", "done", "completed"]].tolist() == [(2, 1, 1)]
    assert snapshot.comms["name"][0] == b"tp"
    assert snapshot.comm_slots.tolist() == [comm]
    assert members == [2, 3, 4, 5]
    assert sorted(snapshot.inflight[["counter", "state", "count"]].tolist()) == [(1, 1, 4), (2, 2, 1000)]
    assert snapshot.waits[["counter", "how"]].tolist() == [(2, 1)]
    assert snapshot.pairs[["peer", "tag", "issued", "kind"]].tolist() == [(2, 7, 1, SEND)]
    assert snapshot.read_ns >= op.t_issue_ns


def test_ended_things_leave_the_snapshot(writer: RingWriter) -> None:
    comm = writer.comm("dp", [0, 1])
    op = writer.begin(comm)
    row = writer.wait(op)
    writer.unwait(op, row)
    writer.end(op)
    with RingReader(writer.path) as reader:
        snapshot = reader.snapshot()
    assert (snapshot.inflight.size, snapshot.waits.size, snapshot.comms.size) == (0, 0, 1)


def test_row_that_is_being_written_is_left_out(writer: RingWriter) -> None:
    # GIVEN an in-flight row and a communicator whose versions are odd
    comm = writer.comm("dp", [0, 1])
    writer.begin(comm)
    patch(writer.path, "inflight", (7).to_bytes(4, "little"))
    patch(writer.path, "comm", (3).to_bytes(4, "little"))
    with RingReader(writer.path) as reader:
        snapshot = reader.snapshot()
    assert (snapshot.inflight.size, snapshot.comms.size) == (0, 0)


def test_all_communicators_are_found(writer: RingWriter) -> None:
    slots = [writer.comm(f"c{i}", [0, i + 1]) for i in range(256)]
    assert writer.comm("one too many", [0, 1]) == -1
    with RingReader(writer.path) as reader:
        snapshot = reader.snapshot()
    assert snapshot.comm_slots.tolist() == slots
    assert snapshot.header["dropped_comms"][0] == 1


def test_closed_communicator_is_reported_as_closed(writer: RingWriter) -> None:
    slot = writer.comm("dp", [0, 1])
    writer.close_comm(slot)
    with RingReader(writer.path) as reader:
        assert reader.snapshot().comms["state"].tolist() == [2]


@pytest.mark.parametrize(
    "members", [[0], [5], [0, 1, 2, 3], [1, 3, 5, 7], [7, 5, 3, 1], [0, 1, 4, 5], [3, 0, 2], list(range(0, 4096, 3))]
)
def test_members(writer: RingWriter, members: list[int]) -> None:
    writer.comm("c", members)
    with RingReader(writer.path) as reader:
        assert reader.members(reader.snapshot().comms[0]) == members


def test_members_that_are_not_known(writer: RingWriter) -> None:
    writer.comm("c", [0, 1], known=False)
    with RingReader(writer.path) as reader:
        assert reader.members(reader.snapshot().comms[0]) == []


@pytest.mark.parametrize(
    ("size", "first", "stride", "at"),
    [
        (0xFFFFFFFF, 0, 1, -1),
        (0xFFFFFFFF, 0, 1, 0),
        (10, 0, 1, MEMBERS - 9),
        (10, 0, 1, -3),
        (2, 0x7FFFFFFF, 1, -1),
        (2, 0, -1, -1),
        (3, 4, 0, -1),
        (0, 0, 1, -1),
    ],
)
def test_hostile_members_are_not_believed(writer: RingWriter, size: int, first: int, stride: int, at: int) -> None:
    writer.comm("c", [0, 1])
    with RingReader(writer.path) as reader:
        comm = reader.snapshot().comms.copy()
        comm["size"], comm["first"], comm["stride"], comm["members_at"] = size, first, stride, at
        assert reader.members(comm[0]) == []


def test_records_come_once_and_in_order(writer: RingWriter) -> None:
    comm = writer.comm("dp", [0, 1])
    with RingReader(writer.path) as reader:
        assert reader.records().size == 0
        writer.op(comm, 10)
        first = reader.records(limit=4)
        rest = reader.records()
        writer.end(writer.begin(comm), Status.FAILED)
        last = reader.records()
    assert first["counter"].tolist() == [1, 2, 3, 4]
    assert rest["counter"].tolist() == [5, 6, 7, 8, 9, 10]
    assert last["status"].tolist() == [Status.FAILED]
    assert reader.lost == 0


def test_every_record_is_delivered_or_lost(writer: RingWriter) -> None:
    # GIVEN a reader that is slower than the writer, now and then by more than a whole ring
    comm = writer.comm("dp", [0, 1])
    delivered = written = 0
    with RingReader(writer.path) as reader:
        for burst in (10, RECORDS, 1, RECORDS + 5, 3 * RECORDS + 77, 0, 100):
            writer.op(comm, burst)
            written += burst
            records = reader.records()
            delivered += records.size
            # THEN what comes is the newest, without a gap
            assert np.array_equal(records["counter"], np.arange(written - records.size + 1, written + 1))
            assert delivered + reader.lost == written
    assert reader.lost == 5 + 2 * RECORDS + 77


def test_late_reader_begins_with_what_the_ring_holds(writer: RingWriter) -> None:
    writer.op(writer.comm("dp", [0, 1]), RECORDS + 100)
    with RingReader(writer.path) as reader:
        assert reader.opened_at == 100
        assert reader.records().size == RECORDS
        assert reader.lost == 0


def test_unfinished_record_is_waited_for_once(writer: RingWriter) -> None:
    # GIVEN three records, the second still being written
    comm = writer.comm("dp", [0, 1])
    writer.op(comm, 3)
    second = RECORD.itemsize
    patch(writer.path, "record", (3).to_bytes(8, "little"), second)
    with RingReader(writer.path) as reader:
        # THEN the first comes; WHEN it is finished by the next call, it and the third come
        assert reader.records()["counter"].tolist() == [1]
        patch(writer.path, "record", (4).to_bytes(8, "little"), second)
        assert reader.records()["counter"].tolist() == [2, 3]
        assert reader.lost == 0


def test_record_that_is_never_finished_is_lost(writer: RingWriter) -> None:
    comm = writer.comm("dp", [0, 1])
    writer.op(comm, 3)
    patch(writer.path, "record", (3).to_bytes(8, "little"), RECORD.itemsize)
    with RingReader(writer.path) as reader:
        assert reader.records()["counter"].tolist() == [1]
        assert reader.records()["counter"].tolist() == [3]
        assert reader.lost == 1
        writer.op(comm)
        assert reader.records()["counter"].tolist() == [4]


@pytest.mark.parametrize("size", [0, 1, 23, 24, 992, 100_000, RING.itemsize - 1])
def test_short_file_is_refused(writer: RingWriter, size: int) -> None:
    os.truncate(writer.path, size)
    with pytest.raises(RingFormatError, match="cut short"):
        RingReader(writer.path)


@pytest.mark.parametrize(("version", "age"), [(VERSION + 1, "newer"), (VERSION - 1, "older")])
def test_other_version_is_refused(writer: RingWriter, version: int, age: str) -> None:
    patch(writer.path, "header", version.to_bytes(4, "little"), 8)
    with pytest.raises(RingFormatError, match=f"format {version}, {age} than the {VERSION}") as refusal:
        RingReader(writer.path)
    assert "pip install" in refusal.value.mend


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.ring"
    path.write_bytes(b"something else" * 100_000)
    with pytest.raises(RingFormatError, match="does not begin as a ring"):
        RingReader(path)


def test_other_size_is_refused(writer: RingWriter) -> None:
    patch(writer.path, "header", (1 << 40).to_bytes(8, "little"), 16)
    with pytest.raises(RingFormatError, match="says that it has"):
        RingReader(writer.path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.ring")
    with pytest.raises(RingFormatError, match="no file"):
        RingReader(tmp_path / "1.ring")
    (tmp_path / "2.ring").symlink_to(tmp_path / "1.ring")
    with pytest.raises(OSError, match="symbolic"):
        RingReader(tmp_path / "2.ring")


@pytest.mark.parametrize("size", [0, 500, 100_000, 300_000])
def test_truncation_under_the_reader_is_one_sentence(writer: RingWriter, size: int) -> None:
    # GIVEN an open reader, WHEN the file is cut
    writer.op(writer.comm("dp", [0, 1]), 10)
    with RingReader(writer.path) as reader:
        os.truncate(writer.path, size)
        # THEN nothing crashes, and each way of reading says it in one sentence or still has what it needs
        for read in (reader.snapshot, reader.records, reader.header):
            try:
                read()
            except RingFormatError as error:
                assert error.what == "the ring was cut short while it was read"  # noqa: PT017


def test_overwritten_ring_is_refused_at_the_next_snapshot(writer: RingWriter) -> None:
    with RingReader(writer.path) as reader:
        patch(writer.path, "header", bytes(1000))
        with pytest.raises(RingFormatError, match="overwritten"):
            reader.snapshot()


def test_replaced_file_is_noticed(writer: RingWriter) -> None:
    with RingReader(writer.path) as reader:
        assert not reader.is_replaced()
        writer.path.unlink()
        assert not reader.is_replaced()
        writer.path.write_bytes(b"new")
        assert reader.is_replaced()


@pytest.mark.parametrize("ended", [False, True])
def test_first_send_after_a_snapshot_without_any_is_seen(writer: RingWriter, ended: bool) -> None:
    # GIVEN a rank that had no send or receive at the first snapshot, so that the table of pairs is left out
    comm = writer.comm("pp", [0, 1])
    with RingReader(writer.path) as reader:
        assert reader.snapshot().pairs.size == 0
        # WHEN one is begun, or has ended already and left a record
        op = writer.begin(comm, SEND, peer=1)
        if ended:
            writer.end(op)
            reader.snapshot()
            assert reader.records().size == 1
        # THEN the next snapshot has its counters
        assert reader.snapshot().pairs[["issued", "done"]].tolist() == [(1, int(ended))]

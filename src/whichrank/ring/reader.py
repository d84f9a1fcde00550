"""Reads one ring file from outside, while its process runs, is stopped, or is dead.

Why `pread` and no mmap: a file that is truncated under a mapping kills the reader with SIGBUS; a short `pread` is an
error that can be reported. The reader never trusts what it reads: every offset and length is held against the
layout before it is used, and nothing is allocated by a number from the file.

Consistency. Table rows are read twice, see `tables`. Records follow the protocol of their `seq`: the record of ticket i
is valid if `seq == 2 * i + 2`, and was not overwritten while we read it if the head is still within one ring of i.
So every ticket is delivered or counted as lost, never both, never neither.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.errors import RingFormatError
from whichrank.model.codes import SPLITS
from whichrank.model.kinds import Kind
from whichrank.model.rows import COMM, CONNECTION, HEADER, PLACES, RECORD, SHARES, SPLITS_ROW
from whichrank.ring.layout import COMMS, CONNECTIONS, MAGIC, MEMBERS, RECORDS, RING, SPLIT_ROWS, VERSION
from whichrank.ring.tables import RingSnapshot, Rows, Scratch, offset, same_pair, unchanged

__all__ = ["RingReader", "RingSnapshot", "Rows", "Scratch"]

MOST_MEMBERS: Final = 1 << 20
"""A communicator that claims more is not believed."""
MOST_RANK: Final = (1 << 31) - 1

_MEMBERS_RANGE: Final = -1
_NO_PLACES: Final = np.empty(0, np.intp)
_COMM_CHUNK: Final = 8
_CONNECTION_CHUNK: Final = 32
_SEND: Final = int(Kind.SEND)  # Python 3.11 looks members of an enum up anew each time, at a microsecond
_RANK_BEHIND: Final = "mount or copy the whole file; a ring is removed by `whichrank run` when its process is gone"


_COMM_AT, _MEMBERS_AT, _RECORD_AT = offset("comm"), offset("members"), offset("record")
_CONNECTION_AT, _SPLITS_AT = offset("connection"), offset("splits")
_SHARES_AT, _PLACES_AT = offset("shares"), offset("places")
_STEP_TID_AT = offset("step_tid")
_HEAD_AT = offset("head", HEADER)


class RingReader:
    """Reads the ring at `path`; close it, or use it in a `with`.

    Args:
        path: The file `<pid>.ring`.
        scratch: Working memory, which readers of one thread may share.

    Attributes:
        lost: Records that were overwritten, or never finished, before they could be read; counted from `opened_at`.
        opened_at: Ticket of the first record that this reader can deliver.

    Raises:
        RingFormatError: The file is too short, foreign, or of another version.
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path, scratch: Scratch | None = None) -> None:
        self.path = path
        self._scratch = scratch or Scratch()
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            self._refuse_foreign()
            self._cursor = max(0, self._head() - RECORDS)
        except BaseException:
            os.close(self._fd)
            raise
        self._missing = -1
        self._has_pairs = True  # at the first snapshot; then only if there are any, since their table is the largest
        self.opened_at = self._cursor
        self.lost = 0

    def __enter__(self) -> RingReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def fileno(self) -> int:
        """The open file, for who reads it too."""
        return self._fd

    def is_replaced(self) -> bool:
        """Whether another file lies at the path now."""
        try:
            there, ours = self.path.stat(), os.fstat(self._fd)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def header(self) -> Rows:
        """The header alone, one row of HEADER.

        Raises:
            RingFormatError: The file was cut short.
        """
        return np.frombuffer(self._read(HEADER.itemsize, 0), HEADER)

    def step_tid(self) -> int:
        """The thread that made the latest optimizer step; 0 none, or it cannot be read any more."""
        try:
            return int.from_bytes(os.pread(self._fd, 4, _STEP_TID_AT), "little")
        except OSError:
            return 0

    def snapshot(self) -> RingSnapshot:
        """A consistent copy of header and tables.

        Raises:
            RingFormatError: The file was cut short while it was read.
        """
        scratch = self._scratch
        self._read_into(scratch.first if self._has_pairs else scratch.first_without_pairs)
        inflight = scratch.inflight["state"].nonzero()[0]
        waits = scratch.waits["tid"].nonzero()[0]
        if not self._has_pairs and (scratch.inflight["kind"] >= _SEND).any():
            self._has_pairs = True
            self._read_into(scratch.first)
        pairs = scratch.pairs["issued"].nonzero()[0] if self._has_pairs else _NO_PLACES
        if inflight.size or waits.size or pairs.size:
            self._read_into(*scratch.second_reading(inflight, waits, pairs))
            inflight = unchanged(inflight, scratch.inflight, scratch.inflight_again)
            waits = unchanged(waits, scratch.waits, scratch.waits_again)
            pairs = same_pair(pairs, scratch.pairs, scratch.pairs_again)
        self._has_pairs = bool(pairs.size)
        header, frame = scratch.header.copy(), scratch.frame.copy()
        if header["magic"][0] != MAGIC:
            raise RingFormatError("the ring was overwritten by something else", where=str(self.path))
        comms, comm_slots = self._comms()
        return RingSnapshot(
            time.monotonic_ns(),
            header,
            comms,
            comm_slots,
            scratch.inflight[inflight],
            inflight,
            scratch.waits[waits],
            scratch.pairs[pairs],
            frame,
            int(scratch.splits_head[0]),
        )

    @property
    def cursor(self) -> int:
        """How many records of the ring were read or given up."""
        return self._cursor

    def backlog(self) -> int:
        """How many records have come since.

        Raises:
            RingFormatError: The file was cut short while it was read.
        """
        return self._head() - self._cursor

    def records(self, limit: int = RECORDS) -> Rows:
        """Completed records that are new since the last call, oldest first, `limit` at most.

        A record that its writer has not finished is waited for until the next call, then counted as lost.

        Raises:
            RingFormatError: The file was cut short while it was read.
        """
        head = self._head()
        self._forget_before(head - RECORDS)
        count = min(head - self._cursor, limit, RECORDS)
        if count <= 0:
            return np.empty(0, RECORD)
        start = self._cursor
        rows = np.frombuffer(self._record_bytes(start, count), RECORD)
        expected = np.arange(2 * start + 2, 2 * (start + count) + 2, 2, dtype=np.uint64)
        # What may have been overwritten under our eyes is given up, whatever it looks like.
        stale = min(max(0, self._head() - RECORDS - start), count)
        self._forget_before(start + stale)
        rows, expected = rows[stale:], expected[stale:]
        self._has_pairs = self._has_pairs or bool((rows["kind"] >= _SEND).any())
        wrong = np.flatnonzero(rows["seq"] != expected)
        if not wrong.size:
            self._cursor = start + count
            return rows
        return self._without(rows, expected, wrong)

    def connections(self) -> Rows:
        """Rows of CONNECTION, open and closed; empty where the socket sensor is not loaded.

        Free ones are taken from the lowest and are never free again, so the first free one ends the table.

        Raises:
            RingFormatError: The file was cut short while it was read.
        """
        return self._used(CONNECTION, _CONNECTION_AT, CONNECTIONS, _CONNECTION_CHUNK)[0]

    def splits(self) -> Rows:
        """Rows of SPLITS_ROW: what the latest all-to-alls send to each member and expect of it, in no order.

        Raises:
            RingFormatError: The file was cut short while it was read.
        """
        rows, again = (
            np.frombuffer(self._read(SPLIT_ROWS * SPLITS_ROW.itemsize, _SPLITS_AT), SPLITS_ROW) for _ in range(2)
        )
        whole = (rows["seq"] > 0) & (rows["seq"] & 1 == 0) & (rows["seq"] == again["seq"])
        whole &= rows["splits"] <= SPLITS
        kept: Rows = rows[whole]
        return kept

    def shares(self) -> np.void:
        """One row of SHARES.

        Raises:
            RingFormatError: The file was cut short while it was read.
        """
        row: np.void = np.frombuffer(self._read(SHARES.itemsize, _SHARES_AT), SHARES)[0]
        return row

    def places(self) -> np.void:
        """One row of PLACES.

        Raises:
            RingFormatError: The file was cut short while it was read.
        """
        row: np.void = np.frombuffer(self._read(PLACES.itemsize, _PLACES_AT), PLACES)[0]
        return row

    def members(self, comm: np.void) -> list[int]:
        """Global ranks of a row of COMM, by group rank; empty if they are not known or not believable.

        Raises:
            RingFormatError: The file was cut short while it was read.
        """
        size, at = int(comm["size"]), int(comm["members_at"])
        first, stride = int(comm["first"]), int(comm["stride"])
        if not 0 < size <= MOST_MEMBERS:
            return []
        if at == _MEMBERS_RANGE:
            last = first + stride * (size - 1)
            if not (0 <= first <= MOST_RANK and 0 <= last <= MOST_RANK) or (stride == 0 and size > 1):
                return []
            return [first + stride * i for i in range(size)]
        if at < 0 or at + size > MEMBERS:
            return []
        listed = np.frombuffer(self._read(size * 4, _MEMBERS_AT + at * 4), "i4")
        return [] if (listed < 0).any() else [int(rank) for rank in listed]

    def _comms(self) -> tuple[Rows, NDArray[np.intp]]:
        """Slots are given out from the lowest and never become free again, so the first free one ends the table."""
        return self._used(COMM, _COMM_AT, COMMS, _COMM_CHUNK)

    def _used(self, dtype: np.dtype[np.void], start: int, count: int, chunk: int) -> tuple[Rows, NDArray[np.intp]]:
        """Rows of a table that were whole at both readings, and their places; it is read up to the first free row."""
        content = b""
        while len(content) < count * dtype.itemsize:
            content += self._read(chunk * dtype.itemsize, start + len(content))
            rows = np.frombuffer(content, dtype)
            if not rows["version"][-chunk:].all():
                break
        used = rows["state"].nonzero()[0]
        if used.size:
            again = np.frombuffer(self._read((int(used[-1]) + 1) * dtype.itemsize, start), dtype)
            used = unchanged(used, rows, again)
        return rows[used], used

    def _without(self, rows: Rows, expected: NDArray[np.uint64], wrong: NDArray[np.intp]) -> Rows:
        """Leave out what was overwritten or given up; stop before what may still be finished."""
        start, end = int(expected[0]) // 2 - 1, len(rows)
        for place in wrong:
            ticket = start + int(place)
            overwritten = int(rows["seq"][place]) > int(expected[place])
            if not overwritten and ticket > self._missing:
                end, self._missing = int(place), start + len(rows) - 1
                break
            self.lost += 1
        self._cursor = start + end
        valid: Rows = rows[:end][rows["seq"][:end] == expected[:end]]
        return valid

    def _forget_before(self, ticket: int) -> None:
        if ticket > self._cursor:
            self.lost += ticket - self._cursor
            self._cursor = ticket

    def _record_bytes(self, start: int, count: int) -> bytes:
        place = start % RECORDS
        until_end = min(count, RECORDS - place)
        content = self._read(until_end * RECORD.itemsize, _RECORD_AT + place * RECORD.itemsize)
        if until_end < count:
            content += self._read((count - until_end) * RECORD.itemsize, _RECORD_AT)
        return content

    def _head(self) -> int:
        head = int.from_bytes(self._read(8, _HEAD_AT), "little")
        if head > 1 << 62:
            raise RingFormatError(f"the ring counts {head} records, which cannot be", where=str(self.path))
        return head

    def _refuse_foreign(self) -> None:
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            raise RingFormatError("this is no file, so it is no ring", where=str(self.path))
        start = os.pread(self._fd, 24, 0)
        magic, version = int.from_bytes(start[:8], "little"), int.from_bytes(start[8:12], "little")
        if len(start) == 24 and magic != MAGIC and (magic or status.st_size >= RING.itemsize):
            raise RingFormatError("the file does not begin as a ring does", where=str(self.path))
        if magic == MAGIC and version != VERSION:
            age = "newer" if version > VERSION else "older"
            raise RingFormatError(
                f"the ring has format {version}, {age} than the {VERSION} that this whichrank reads",
                where=str(self.path),
                mend="use one whichrank for the job and for its agent: pip install --upgrade whichrank",
            )
        reported = int.from_bytes(start[16:24], "little")
        if status.st_size < RING.itemsize:
            what = f"the ring is cut short: {status.st_size:,} of {RING.itemsize:,} bytes"
            raise RingFormatError(what, where=str(self.path), mend=_RANK_BEHIND)
        if reported != RING.itemsize:
            what = f"the ring says that it has {reported:,} bytes, and one of its format has {RING.itemsize:,}"
            raise RingFormatError(what, where=str(self.path))

    def _read(self, size: int, at: int) -> bytes:
        content = os.pread(self._fd, size, at)
        if len(content) != size:
            raise RingFormatError("the ring was cut short while it was read", where=str(self.path), mend=_RANK_BEHIND)
        return content

    def _read_into(self, buffer: bytearray | memoryview, at: int = 0) -> None:
        if os.preadv(self._fd, [buffer], at) != len(buffer):
            raise RingFormatError("the ring was cut short while it was read", where=str(self.path), mend=_RANK_BEHIND)

"""What must not be lost between two snapshots: records, events and communicators, until the analyzer has them.

States are made afresh for every batch, so losing one loses nothing. What is reported once stays here, first unsent,
then unanswered; it is bounded, the oldest go first, and every record that goes is counted for its rank.

Records are many: eight ranks with a thousand operations a second each make 73 MiB in two minutes, and an agent may
take 50. So what a snapshot could not say is put by, packed to a tenth. While every snapshot is sent nothing is
packed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from whichrank.model.commands import Reply
from whichrank.model.telemetry import RECORD_REPORTED, Batch, CommInfo, Event
from whichrank.ring.reader import Rows
from whichrank.wire.packed import pack, unpack
from whichrank.wire.transport import FIRST_CREDIT

MOST_PUT_BY_BYTES: Final = 7 << 20
"""Of unsent records, packed: a million."""
PUT_BY_AT_ONCE: Final = 4096
"""Records that are packed together, and sent together: enough to repeat themselves."""
MOST_EVENTS: Final = 1024
MOST_RECORDS_PER_BATCH: Final = 32_768
PORTION: Final = 8192
"""Of more records a part goes before the states, in a batch of its own: buffers stay small, and an agent keeps them."""
MOST_EVENTS_PER_BATCH: Final = 256
MOST_EVENT_BYTES_PER_BATCH: Final = 2 << 20
"""Encoded. What a receiver takes is bounded (`wire.envelope.MOST_BYTES`); 16 ranks with 30 threads each have 1 MiB."""
MOST_MEMBERS_PER_BATCH: Final = 1 << 18
"""Of all communicators that are reported in it."""
RESEND_AFTER_NS: Final = 3_000_000_000

_STATES: Final = ("ranks", "comms", "pairs", "inflight", "waits", "rates", "connections", "splits")
_NO_STATES: Final = dict.fromkeys(_STATES, b"")
_Item = TypeVar("_Item")


class _Unanswered(NamedTuple):
    batch: Batch
    sent_ns: int


class _PutBy(NamedTuple):
    packed: bytes
    of_rank: Counter[int]
    """How many records of each rank."""


class Outbox:
    """Unsent and unanswered items of one agent.

    Attributes:
        dropped_records: By rank.
        dropped_events: All of them.
    """

    def __init__(self) -> None:
        self.dropped_records: Counter[int] = Counter()
        self.dropped_events = 0
        self.round_trip_ns = -1
        self._records: deque[Rows] = deque()
        self._record_count = 0
        self._put_by: deque[_PutBy] = deque()  # older than all of `_records`
        self._put_by_bytes = 0
        self._unpacked = b""  # the first of `_put_by`, once it was to be sent
        self._events: deque[Event] = deque()
        self._comms: dict[int, CommInfo] = {}
        self._unreported: dict[int, CommInfo] = {}
        self._unanswered: OrderedDict[int, _Unanswered] = OrderedDict()
        self._sequence = 0
        self._credit = FIRST_CREDIT
        self._heard = True

    def add_records(self, rows: Rows) -> None:
        """Rows of RECORD_REPORTED of one rank."""
        if rows.size:
            self._records.append(rows)
            self._record_count += rows.size
        while self._record_count > MOST_RECORDS_PER_BATCH:
            self._put_oldest_by()

    def put_by(self) -> None:
        """Pack what is unsent: it was not reported now and may have to wait for long."""
        while self._record_count >= PUT_BY_AT_ONCE:
            self._put_oldest_by()

    def add_event(self, event: Event) -> None:
        """Something to be reported once."""
        self._events.append(event)
        if len(self._events) > MOST_EVENTS:
            self._events.popleft()
            self.dropped_events += 1

    def knows(self, comm_id: int) -> bool:
        """Whether this communicator was reported, or is about to be, with its members if they are known."""
        return comm_id in self._comms

    def add_comm(self, info: CommInfo) -> None:
        """A communicator that was seen for the first time."""
        self._comms[info.comm_id] = self._unreported[info.comm_id] = info.shortened()

    def may_send(self) -> bool:
        """Whether credit is left."""
        return len(self._unanswered) < self._credit

    def is_behind(self) -> bool:
        """Whether records were put by."""
        return bool(self._put_by)

    def may_catch_up(self) -> bool:
        """Whether there are older records than the next snapshot's, and credit for more than that.

        Records that were put by go first. The rest goes too, but for a portion: else the records of the next snapshot
        would be more than a batch holds, those would be put by in turn, and the agent would stay behind for ever.
        """
        return (self.is_behind() or self._record_count > PORTION) and len(self._unanswered) < self._credit - 1

    def has_waited_ns(self, now_ns: int) -> int:
        """For how long the oldest batch has not been answered; 0 if all were."""
        oldest = next(iter(self._unanswered.values()), None)
        return now_ns - oldest.sent_ns if oldest else 0

    def is_empty(self) -> bool:
        """Nothing that is reported once is unsent or unanswered."""
        return self.is_sent() and not self._unanswered

    def is_sent(self) -> bool:
        """Nothing that is reported once is unsent; answers may be outstanding."""
        return not (self._put_by or self._records or self._events or self._unreported)

    def has_a_portion(self) -> bool:
        """Whether there are records for a batch of their own, and credit for it and for the states behind it."""
        return not self._put_by and self._record_count > PORTION and len(self._unanswered) < self._credit - 1

    def fill(self, states: Batch, *, portion: bool = False) -> Batch:
        """The states with the next sequence and as much of what is reported once as a batch, or a portion, may hold.

        It takes nothing out; call `sent` when the transport has taken the batch.
        """
        return msgspec.structs.replace(
            states,
            sequence=self._sequence + 1,
            records=self._oldest_records(PORTION if portion else MOST_RECORDS_PER_BATCH),
            comm_info=_that_fit(self._unreported.values(), _member_count, MOST_MEMBERS_PER_BATCH),
            events=_that_fit(islice(self._events, MOST_EVENTS_PER_BATCH), _encoded_bytes, MOST_EVENT_BYTES_PER_BATCH),
        )

    def sent(self, batch: Batch, now_ns: int) -> None:
        """The transport has taken this batch of `fill`."""
        self._sequence = batch.sequence
        if self._put_by:
            self._take_put_by()
        else:
            self._take_records(len(batch.records) // RECORD_REPORTED.itemsize)
        for _ in batch.events:
            self._events.popleft()
        for info in batch.comm_info:
            self._unreported.pop(info.comm_id, None)
        once = msgspec.structs.replace(batch, **_NO_STATES)
        self._unanswered[batch.sequence] = _Unanswered(once, now_ns)

    def to_resend(self, now_ns: int) -> list[Batch]:
        """What was sent and not answered for too long, oldest first and without its states, which are old.

        Where nobody has answered since the last time, one batch is enough to find out whether somebody does now: a
        transport may take and keep all that it is given.
        """
        due = [s for s, entry in self._unanswered.items() if now_ns - entry.sent_ns >= RESEND_AFTER_NS]
        if not due or due[0] != next(iter(self._unanswered)):
            return []
        if not self._heard:
            del due[1:]
        self._heard = False
        for sequence in due:
            self._unanswered[sequence] = self._unanswered[sequence]._replace(sent_ns=now_ns)
        return [self._unanswered[sequence].batch for sequence in due]

    def heard(self, reply: Reply, now_ns: int) -> None:
        """An answer has come: it acknowledges everything up to its sequence."""
        self._credit = max(1, reply.credit)
        self._heard = True
        if answered := self._unanswered.get(reply.acknowledged):
            self.round_trip_ns = now_ns - answered.sent_ns
        done = [sequence for sequence in self._unanswered if sequence <= reply.acknowledged]
        for sequence in reversed(done):  # what is reported again goes in front
            entry = self._unanswered.pop(sequence)
            if reply.resend and sequence < reply.acknowledged:
                self._again(entry.batch)
        if reply.resend:
            self.report_again()

    def report_again(self) -> None:
        """Send all communicators again: what was sent before was not taken."""
        self._unreported.update(self._comms)

    def delay_bound_ns(self, now_ns: int) -> int:
        """Upper bound of how long a batch travels now; -1 before the first answer."""
        waiting_ns = [now_ns - entry.sent_ns for entry in self._unanswered.values()]
        return max([self.round_trip_ns, *waiting_ns]) if self.round_trip_ns >= 0 else -1

    def _oldest_records(self, most: int) -> bytes:
        if self._put_by:
            self._unpacked = self._unpacked or unpack(self._put_by[0].packed)
            return self._unpacked
        chosen, count = list[Rows](), 0
        for rows in self._records:
            if count and count + rows.size > most:
                break
            chosen.append(rows)
            count += rows.size
        records = b"".join([rows.data for rows in chosen])
        if chosen:  # kept once: they are many bytes
            for _ in chosen:
                self._records.popleft()
            self._records.appendleft(np.frombuffer(records, RECORD_REPORTED))
        return records

    def _take_records(self, count: int) -> list[Rows]:
        """Take out so many of the oldest that are not put by."""
        taken: list[Rows] = []
        self._record_count -= count
        while count > 0:
            rows = self._records.popleft()
            if rows.size > count:
                self._records.appendleft(rows[count:])
            taken.append(rows[:count])
            count -= taken[-1].size
        return taken

    def _take_put_by(self) -> _PutBy:
        oldest = self._put_by.popleft()
        self._put_by_bytes -= len(oldest.packed)
        self._unpacked = b""
        return oldest

    def _put_oldest_by(self) -> None:
        taken = self._take_records(min(self._record_count, PUT_BY_AT_ONCE))
        of_rank: Counter[int] = Counter()
        for rows in taken:
            of_rank.update(rows["rank"].tolist())
        self._put_by.append(_PutBy(pack(b"".join([rows.data for rows in taken])), of_rank))
        self._put_by_bytes += len(self._put_by[-1].packed)
        while self._put_by_bytes > MOST_PUT_BY_BYTES:
            self.dropped_records.update(self._take_put_by().of_rank)

    def _again(self, batch: Batch) -> None:
        """The analyzer is a new one and has heard a later batch first."""
        rows = batch.record_rows()
        if rows.size:
            packed = _PutBy(pack(batch.records), Counter(rows["rank"].tolist()))
            self._put_by.appendleft(packed)
            self._put_by_bytes += len(packed.packed)
            self._unpacked = b""
        self._events.extendleft(reversed(batch.events))


def _that_fit(items: Iterable[_Item], size_of: Callable[[_Item], int], most: int) -> list[_Item]:
    """The first items whose sizes add up to `most`; the first one in any case."""
    taken: list[_Item] = []
    total = 0
    for item in items:
        total += size_of(item)
        if taken and total > most:
            break
        taken.append(item)
    return taken


def _member_count(info: CommInfo) -> int:
    return len(info.members)


def _encoded_bytes(event: Event) -> int:
    return len(msgspec.msgpack.encode(event))

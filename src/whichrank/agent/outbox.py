"""What must not be lost between two looks: records, events and communicators, until the analyzer has them.

States are made afresh for every batch, so losing one loses nothing. What is told once stays here, first unsent, then
unanswered; it is bounded, the oldest go first, and every record that goes is counted for its rank.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Final, NamedTuple

import msgspec

from whichrank.model.telemetry import RECORD_TOLD, Batch, CommInfo, Event, Request
from whichrank.ring.reader import Rows
from whichrank.wire.transport import FIRST_CREDIT

MOST_RECORDS: Final = 65_536
"""Unsent records that are kept: 5 MiB."""
MOST_EVENTS: Final = 1024
MOST_RECORDS_PER_BATCH: Final = 32_768
MOST_EVENTS_PER_BATCH: Final = 256
RESEND_AFTER_NS: Final = 3_000_000_000


class _Unanswered(NamedTuple):
    batch: Batch
    sent_ns: int


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
        self._events: deque[Event] = deque()
        self._comms: dict[int, CommInfo] = {}
        self._untold: dict[int, CommInfo] = {}
        self._unanswered: OrderedDict[int, _Unanswered] = OrderedDict()
        self._sequence = 0
        self._credit = FIRST_CREDIT

    def add_records(self, rows: Rows) -> None:
        """Rows of RECORD_TOLD of one rank."""
        if rows.size:
            self._records.append(rows)
            self._record_count += rows.size
        while self._record_count > MOST_RECORDS:
            oldest = self._records.popleft()
            self._record_count -= oldest.size
            self.dropped_records[int(oldest["rank"][0])] += oldest.size

    def add_event(self, event: Event) -> None:
        """Something to be told once."""
        self._events.append(event)
        if len(self._events) > MOST_EVENTS:
            self._events.popleft()
            self.dropped_events += 1

    def knows(self, comm_id: int) -> bool:
        """Whether this communicator was told, or is about to be, with its members if they are known."""
        return comm_id in self._comms

    def add_comm(self, info: CommInfo) -> None:
        """A communicator that was seen for the first time."""
        self._comms[info.comm_id] = self._untold[info.comm_id] = info

    def may_send(self) -> bool:
        """Whether credit is left."""
        return len(self._unanswered) < self._credit

    def is_empty(self) -> bool:
        """Nothing that is told once is unsent or unanswered."""
        return not (self._records or self._events or self._untold or self._unanswered)

    def is_sent(self) -> bool:
        """Nothing that is told once is unsent; answers may be outstanding."""
        return not (self._records or self._events or self._untold)

    def fill(self, states: Batch) -> Batch:
        """The states with the next sequence and as much of what is told once as a batch may hold.

        It changes nothing; call `sent` when the transport has taken the batch.
        """
        records, count = [], 0
        for rows in self._records:
            if count and count + rows.size > MOST_RECORDS_PER_BATCH:
                break
            records.append(rows)
            count += rows.size
        return msgspec.structs.replace(
            states,
            sequence=self._sequence + 1,
            records=b"".join([rows.data for rows in records]),
            comm_info=list(self._untold.values()),
            events=[self._events[i] for i in range(min(len(self._events), MOST_EVENTS_PER_BATCH))],
        )

    def sent(self, batch: Batch, now_ns: int) -> None:
        """The transport has taken this batch of `fill`."""
        self._sequence = batch.sequence
        left = len(batch.records) // RECORD_TOLD.itemsize
        while left:
            rows = self._records.popleft()
            left -= rows.size
            self._record_count -= rows.size
        for _ in batch.events:
            self._events.popleft()
        self._untold.clear()
        once = msgspec.structs.replace(batch, ranks=b"", comms=b"", pairs=b"", inflight=b"", waits=b"", rates=b"")
        self._unanswered[batch.sequence] = _Unanswered(once, now_ns)

    def to_resend(self, now_ns: int) -> list[Batch]:
        """What was sent and not answered for too long, oldest first and without its states, which are old."""
        if not self._unanswered:
            return []
        if now_ns - next(iter(self._unanswered.values())).sent_ns < RESEND_AFTER_NS:
            return []
        batches = [entry.batch for entry in self._unanswered.values()]
        for sequence, entry in self._unanswered.items():
            self._unanswered[sequence] = entry._replace(sent_ns=now_ns)
        return batches

    def heard(self, request: Request, now_ns: int) -> None:
        """An answer has come: it acknowledges everything up to its sequence."""
        self._credit = max(1, request.credit)
        if answered := self._unanswered.get(request.acknowledged):
            self.round_trip_ns = now_ns - answered.sent_ns
        done = [sequence for sequence in self._unanswered if sequence <= request.acknowledged]
        for sequence in done:
            entry = self._unanswered.pop(sequence)
            if request.retell and sequence < request.acknowledged:
                self._again(entry.batch)
        if request.retell:
            self._untold.update(self._comms)

    def delay_bound_ns(self, now_ns: int) -> int:
        """Upper bound of how long a batch travels now; -1 before the first answer."""
        waiting_ns = [now_ns - entry.sent_ns for entry in self._unanswered.values()]
        return max([self.round_trip_ns, *waiting_ns]) if self.round_trip_ns >= 0 else -1

    def _again(self, batch: Batch) -> None:
        """The analyzer is a new one and has heard a later batch first."""
        rows = batch.record_rows()
        if rows.size:
            self._records.appendleft(rows)
            self._record_count += rows.size
        self._events.extendleft(reversed(batch.events))

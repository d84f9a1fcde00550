"""What is told once is told once, whatever happens on the way."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.agent import outbox as outbox_module
from whichrank.agent.outbox import MOST_EVENTS, MOST_RECORDS, RESEND_AFTER_NS, Outbox
from whichrank.model.telemetry import RECORD_TOLD, Batch, CommInfo, Event, Request
from whichrank.ring.reader import Rows

STATES = Batch(1, "job", "a:1", "host", 0, 0, 0, -1, 1, ranks=b"states")


def records(count: int, rank: int = 0, first: int = 1) -> Rows:
    rows = np.zeros(count, RECORD_TOLD)
    rows["rank"] = rank
    rows["row"]["counter"] = np.arange(first, first + count)
    return rows


def event(text: str) -> Event:
    return Event("note", 0, 0, 0, text)


def counters(batch: Batch) -> list[int]:
    return [int(counter) for counter in batch.record_rows()["row"]["counter"]]


def send(outbox: Outbox, now_ns: int = 0) -> Batch:
    batch = outbox.fill(STATES)
    outbox.sent(batch, now_ns)
    return batch


def test_told_once() -> None:
    outbox = Outbox()
    outbox.add_records(records(2))
    outbox.add_event(event("a"))
    outbox.add_comm(CommInfo(1, "tp", "", "", 1, 1, [0]))
    first, second = send(outbox), send(outbox)
    assert (first.sequence, counters(first), len(first.events), len(first.comm_info)) == (1, [1, 2], 1, 1)
    assert (second.sequence, counters(second), second.events, second.comm_info) == (2, [], [], [])
    assert outbox.knows(1)


def test_batch_that_nobody_took_changes_nothing() -> None:
    outbox = Outbox()
    outbox.add_records(records(2))
    outbox.fill(STATES)
    assert counters(send(outbox)) == [1, 2]


def test_credit() -> None:
    outbox = Outbox()
    assert outbox.may_send()
    send(outbox)
    send(outbox)
    assert not outbox.may_send()
    outbox.heard(Request(3, 1), 0)
    assert outbox.may_send()
    send(outbox)
    assert outbox.may_send()
    send(outbox)
    assert not outbox.may_send()
    # however little credit is given, one batch may go when all are answered
    outbox.heard(Request(0, 4), 0)
    assert outbox.may_send()


def test_unanswered_is_sent_again_without_states() -> None:
    outbox = Outbox()
    outbox.add_records(records(2))
    send(outbox, now_ns=10)
    assert outbox.to_resend(10 + RESEND_AFTER_NS - 1) == []
    (again,) = outbox.to_resend(10 + RESEND_AFTER_NS)
    assert (again.sequence, counters(again), again.ranks) == (1, [1, 2], b"")
    assert outbox.to_resend(11 + RESEND_AFTER_NS) == []
    assert not outbox.is_empty()
    outbox.heard(Request(1, 1), 20)
    assert outbox.is_empty()
    assert outbox.to_resend(10 * RESEND_AFTER_NS) == []


def test_new_analyzer_hears_what_the_old_one_may_not_have_told() -> None:
    # GIVEN two batches, the second of which a new analyzer hears first
    outbox = Outbox()
    outbox.add_comm(CommInfo(1, "tp", "", "", 1, 1, [0]))
    outbox.add_records(records(2))
    outbox.add_event(event("a"))
    send(outbox)
    outbox.add_records(records(2, first=3))
    send(outbox)
    outbox.heard(Request(4, 2, retell=True), 0)
    # THEN the next batch has the first one's items, not the second's, and all communicators
    batch = send(outbox)
    assert (batch.sequence, counters(batch), [e.text for e in batch.events]) == (3, [1, 2], ["a"])
    assert [info.comm_id for info in batch.comm_info] == [1]


def test_records_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox()
    for rank in range(3):
        outbox.add_records(records(MOST_RECORDS // 2, rank))
    assert outbox.dropped_records == {0: MOST_RECORDS // 2}
    # and a batch holds a part of them at a time
    monkeypatch.setattr(outbox_module, "MOST_RECORDS_PER_BATCH", 10)
    outbox = Outbox()
    for burst in (6, 6, 20, 1):
        outbox.add_records(records(burst))
    assert [len(counters(send(outbox))) for _ in range(4)] == [6, 6, 20, 1]


def test_events_are_bounded_and_counted() -> None:
    outbox = Outbox()
    for number in range(MOST_EVENTS + 5):
        outbox.add_event(event(str(number)))
    assert outbox.dropped_events == 5
    assert send(outbox).events[0].text == "5"


def test_delay_bound_grows_while_nobody_answers() -> None:
    outbox = Outbox()
    assert outbox.delay_bound_ns(0) == -1
    send(outbox, now_ns=100)
    outbox.heard(Request(4, 1), 150)
    assert outbox.delay_bound_ns(150) == 50
    send(outbox, now_ns=200)
    assert outbox.delay_bound_ns(1000) == 800


def test_answer_to_an_unknown_sequence_is_no_error() -> None:
    outbox = Outbox()
    outbox.heard(Request(4, 99), 0)
    assert outbox.round_trip_ns == -1

"""What is reported once is reported once, whatever happens on the way."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.agent import outbox as outbox_module
from whichrank.agent.outbox import MOST_EVENTS, PORTION, PUT_BY_AT_ONCE, RESEND_AFTER_NS, Outbox
from whichrank.model.commands import Reply
from whichrank.model.telemetry import RECORD_REPORTED, Batch, CommInfo, Event
from whichrank.ring.reader import Rows

STATES = Batch(1, "job", "a:1", "host", 0, 0, 0, -1, 1, ranks=b"states")


def records(count: int, rank: int = 0, first: int = 1) -> Rows:
    rows = np.zeros(count, RECORD_REPORTED)
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


def test_reported_once() -> None:
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
    outbox.heard(Reply(3, 1), 0)
    assert outbox.may_send()
    send(outbox)
    assert outbox.may_send()
    send(outbox)
    assert not outbox.may_send()
    # however little credit is given, one batch may go when all are answered
    outbox.heard(Reply(0, 4), 0)
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
    outbox.heard(Reply(1, 1), 20)
    assert outbox.is_empty()
    assert outbox.to_resend(10 * RESEND_AFTER_NS) == []


def test_new_analyzer_hears_what_the_old_one_may_not_have_reported() -> None:
    # GIVEN two batches, the second of which a new analyzer hears first
    outbox = Outbox()
    outbox.add_comm(CommInfo(1, "tp", "", "", 1, 1, [0]))
    outbox.add_records(records(2))
    outbox.add_event(event("a"))
    send(outbox)
    outbox.add_records(records(2, first=3))
    send(outbox)
    outbox.heard(Reply(4, 2, resend=True), 0)
    # THEN the next batch has the first one's items, not the second's, and all communicators
    batch = send(outbox)
    assert (batch.sequence, counters(batch), [e.text for e in batch.events]) == (3, [1, 2], ["a"])
    assert [info.comm_id for info in batch.comm_info] == [1]


def test_nobody_answers_so_one_batch_is_tried_and_then_all() -> None:
    # GIVEN three batches that were sent, and sent again, and not answered
    outbox = Outbox()
    for _ in range(3):
        send(outbox)
    assert [batch.sequence for batch in outbox.to_resend(RESEND_AFTER_NS)] == [1, 2, 3]
    # THEN one of them is enough to find out whether somebody hears
    for times in (2, 3):
        assert [batch.sequence for batch in outbox.to_resend(times * RESEND_AFTER_NS)] == [1]
    # and once it is answered the others follow at once
    outbox.heard(Reply(4, 1), 3 * RESEND_AFTER_NS + 1)
    assert [batch.sequence for batch in outbox.to_resend(3 * RESEND_AFTER_NS + 2)] == [2, 3]


def test_a_batch_holds_a_part_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox()
    for burst in (6, 6, 20, 1):
        outbox.add_records(records(burst))
    monkeypatch.setattr(outbox_module, "MOST_RECORDS_PER_BATCH", 10)
    assert [len(counters(send(outbox))) for _ in range(4)] == [6, 6, 20, 1]


def test_many_records_go_in_portions_while_credit_is_left_for_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN three bursts, of which a portion holds one, and credit for three batches
    monkeypatch.setattr(outbox_module, "PORTION", 10)
    outbox = Outbox()
    outbox.heard(Reply(3, 0), 0)
    for first in (1, 9, 17):
        outbox.add_records(records(8, first=first))
    # WHEN portions are sent as long as they may be THEN the rest goes with the states, in order
    portions = []
    while outbox.has_a_portion():
        portions.append(outbox.fill(STATES, portion=True))
        outbox.sent(portions[-1], 0)
    assert [counters(batch) for batch in portions] == [list(range(1, 9)), list(range(9, 17))]
    assert outbox.may_send()
    assert counters(send(outbox)) == list(range(17, 25))
    assert not outbox.has_a_portion()


def test_records_that_are_reported_at_once_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "pack", None)  # a call would raise
    outbox = Outbox()
    for _ in range(100):
        for rank in range(8):
            outbox.add_records(records(1000, rank))
        assert not outbox.is_behind()
        outbox.heard(Reply(4, send(outbox).sequence), 0)


def test_what_is_put_by_is_reported_in_order_and_once() -> None:
    # GIVEN looks of two ranks that nobody took
    outbox = Outbox()
    for snapshot in range(20):
        for rank in range(2):
            outbox.add_records(records(700, rank, first=1 + 700 * snapshot))
        outbox.put_by()
    assert outbox.is_behind()
    assert not outbox.is_sent()
    # WHEN somebody does, now and then
    reported: dict[int, list[int]] = {0: [], 1: []}
    while not outbox.is_sent():
        outbox.fill(STATES)  # and nobody takes it
        rows = send(outbox).record_rows()
        for rank in reported:
            reported[rank] += rows["row"]["counter"][rows["rank"] == rank].tolist()
    # THEN each has heard everything
    assert reported == {rank: list(range(1, 14_001)) for rank in range(2)}
    assert not outbox.dropped_records


def test_catching_up_leaves_credit_for_the_next_snapshot() -> None:
    outbox = Outbox()
    outbox.heard(Reply(3, 0), 0)
    assert not outbox.may_catch_up()
    for _ in range(6):
        outbox.add_records(records(PUT_BY_AT_ONCE))
        outbox.put_by()
    sent = 0
    while outbox.may_catch_up():
        send(outbox)
        sent += 1
    assert sent == 2
    assert outbox.may_send()


def test_a_busy_node_is_behind_for_a_moment_only() -> None:
    # GIVEN more records at once than a batch holds, and credit for four batches
    outbox = Outbox()
    outbox.heard(Reply(4, 0), 0)
    for rank in range(8):
        outbox.add_records(records(PORTION, rank))
    assert outbox.is_behind()
    # WHEN what is sent is answered at once
    while outbox.may_catch_up():
        batch = outbox.fill(STATES, portion=True)
        outbox.sent(batch, 0)
        outbox.heard(Reply(4, batch.sequence), 0)
    # THEN the next snapshot, as large as one of eight ranks with 1,000 operations a second, goes in one batch
    for rank in range(8):
        outbox.add_records(records(1000, rank))
    assert not outbox.is_behind()
    send(outbox)
    assert outbox.is_sent()


def test_what_is_put_by_is_bounded_and_what_goes_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for two times what is packed at once, and a half
    outbox, half = Outbox(), PUT_BY_AT_ONCE // 2
    for first in range(4):
        for rank in (first, first + 1):
            outbox.add_records(records(half, rank))
        outbox.put_by()
        outbox.fill(STATES)  # what goes next may have been unpacked already
        if not first:
            monkeypatch.setattr(outbox_module, "MOST_PUT_BY_BYTES", outbox._put_by_bytes * 5 // 2)
    # THEN the oldest have gone, and are counted for their ranks
    assert outbox.dropped_records == {0: half, 1: 2 * half, 2: half}
    left = [rank for _ in range(2) for rank in np.unique(send(outbox).record_rows()["rank"]).tolist()]
    assert left == [2, 3, 3, 4]
    assert outbox.is_sent()


def test_new_analyzer_hears_the_old_records_before_those_put_by() -> None:
    outbox = Outbox()
    for first in (1, 3):
        outbox.add_records(records(2, first=first))
        send(outbox)
    send(outbox)
    outbox.add_records(records(PUT_BY_AT_ONCE, first=5))
    outbox.put_by()
    outbox.heard(Reply(4, 3, resend=True), 0)
    reported = [counter for _ in range(3) for counter in counters(send(outbox))]
    assert reported == list(range(1, PUT_BY_AT_ONCE + 5))


def test_two_minutes_of_eight_busy_ranks_fit() -> None:
    # GIVEN iterations of 300 operations on three communicators, with clocks of which nothing can be foretold
    noise = np.random.default_rng(0)
    outbox, snapshot, iteration = Outbox(), 500, 300
    comm = noise.choice(3, iteration, p=(0.8, 0.15, 0.05))
    size = noise.choice((1, 513, 4096, 65_536, 1 << 20), iteration)
    for at in range(0, 120_000, snapshot):
        place = np.arange(at, at + snapshot)
        for rank in range(8):
            rows = records(snapshot, rank)
            row = rows["row"]
            rows["comm"] = (comm[place % iteration] + 1) * 0x9E37_79B9_7F4A
            row["ordinal"], row["seq"], row["count"] = place + 1, 2 * place + 2, size[place % iteration]
            row["counter"] = place // 2 + comm[place % iteration]
            row["t_issue_ns"] = 10**15 + place * 1_000_000 + noise.integers(0, 300_000, snapshot)
            row["t_start_ns"] = row["t_issue_ns"] + noise.integers(2_000, 20_000, snapshot).astype(np.uint64)
            row["t_end_ns"] = row["t_start_ns"] + noise.integers(50_000, 600_000, snapshot).astype(np.uint64)
            outbox.add_records(rows)
        outbox.put_by()
    assert not outbox.dropped_records


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
    outbox.heard(Reply(4, 1), 150)
    assert outbox.delay_bound_ns(150) == 50
    send(outbox, now_ns=200)
    assert outbox.delay_bound_ns(1000) == 800


def test_answer_to_an_unknown_sequence_is_no_error() -> None:
    outbox = Outbox()
    outbox.heard(Reply(4, 99), 0)
    assert outbox.round_trip_ns == -1

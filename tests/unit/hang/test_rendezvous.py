"""A rank is stopped while the others meet: named by its process state, as long as nobody else is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import analyzer, comm_info, watch
from test_silence import IMPORT, INIT, LONG_S, OWN, RENDEZVOUS, Silent, named

from whichrank.model.codes import WaitHow
from whichrank.model.incident import Cause, Incident, Reason
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import WAIT_REPORTED, ProcessState


def stopped_at(node: Silent, *ranks: int, until_s: float = 6.0) -> list[Incident]:
    """These ranks are stopped after two seconds."""
    job = analyzer()
    said = watch(job, node, first_s=0.0, last_s=2.0)
    for rank in ranks:
        node.is_(rank, ProcessState.STOPPED)
    return said + watch(job, node, first_s=2.5, last_s=until_s)


@pytest.mark.parametrize("frames", [INIT, RENDEZVOUS])
@pytest.mark.parametrize("init_ns", [0, 1])
def test_a_rank_that_is_stopped_while_the_others_meet_is_named_at_once(frames: list[str], init_ns: int) -> None:
    # GIVEN three ranks in torch's rendezvous, before the first group or between two WHEN the fourth is stopped
    node = Silent([frames, frames, OWN, frames])
    for rank in range(4):
        node.is_(rank, ProcessState.SLEEPING, init_ns=init_ns)
    said = stopped_at(node, 2)
    # THEN it is named within seconds, as stopped
    assert {(i.severity, i.cause, i.reason) for i in said} == {("alert", Cause.NOT_ENTERED, Reason.STOPPED)}
    assert [c.rank for i in said for c in i.culprits] == [2]


def test_who_is_late_besides_may_be_all_that_is_missing() -> None:
    # GIVEN another rank that runs its own code, or comes up WHEN one is stopped THEN nobody is named
    for other in (OWN, IMPORT):
        assert not named(stopped_at(Silent([INIT, other, INIT, INIT]), 2))


def test_a_stopped_rank_for_which_nobody_is_seen_to_wait_is_no_hang() -> None:
    assert not stopped_at(Silent([OWN, OWN, OWN, OWN]), 2)


def test_a_job_that_is_stopped_as_a_whole_has_no_culprit() -> None:
    assert not [c for i in stopped_at(Silent([INIT] * 4), 0, 1, 2, 3, until_s=12.0) for c in i.culprits]


def test_a_stack_that_is_older_than_the_stop_says_nothing() -> None:
    # GIVEN ranks that were in the rendezvous once, and of which no stack comes any more WHEN one is stopped
    node, job = Silent([INIT, INIT, OWN, INIT]), analyzer()
    watch(job, node, first_s=0.0, last_s=2.0)
    node.stacks.clear()
    node.is_(2, ProcessState.STOPPED)
    # THEN it is not known that they still wait
    assert not named(watch(job, node, first_s=2.5, last_s=8.0))


class Meeting(Silent):
    """Ranks of which some make communicators, whose members their sensors have marked."""

    def __init__(self, stacks: list[list[str]], marks: dict[int, range], since_s: float = 0.0) -> None:
        super().__init__(stacks)
        self.marks, self.marked_s = marks, since_s

    def _wait_rows(self) -> np.ndarray[Any, Any]:
        rows = np.zeros(len(self.marks), WAIT_REPORTED)
        for reported, (rank, members) in zip(rows, self.marks.items(), strict=True):
            reported["rank"], row = rank, reported["row"]
            row["tid"], row["how"], row["kind"] = 100 + rank, WaitHow.CALL, Kind.MEETING
            row["peer"], row["tag"], row["count"] = members.start, members.step, len(members)
            row["comm_slot"], row["since_ns"] = 0xFFFF, self.ns(self.marked_s)
        return np.concatenate((super()._wait_rows(), rows))


def test_only_members_of_a_communicator_that_is_being_made_are_waited_for() -> None:
    # GIVEN ranks 0, 2 and 6 that make a communicator with rank 4, and others that run code of their own meanwhile
    node = Meeting([RENDEZVOUS, OWN] * 2 + [OWN] * 2 + [RENDEZVOUS, OWN], dict.fromkeys((0, 2, 6), range(0, 8, 2)))
    said = stopped_at(node, 4)
    assert {(i.severity, i.cause, i.reason) for i in said} == {("alert", Cause.NOT_ENTERED, Reason.STOPPED)}
    assert [c.rank for i in said for c in i.culprits] == [4]
    assert "where 3 ranks wait" in said[0].culprits[0].why


@pytest.mark.parametrize(
    "marks",
    [
        dict.fromkeys((0, 2, 6), range(0, 6, 2)),  # it is no member
        dict.fromkeys((0, 2, 6), range(0)),  # the members are not known
        dict.fromkeys((0, 2, 6), range(0, 200, 2)),  # no such ranks
        dict.fromkeys((0, 2), range(0, 8, 2)),  # rank 6 is late too
    ],
)
def test_a_stopped_rank_that_may_not_be_waited_for_is_not_named(marks: dict[int, range]) -> None:
    node = Meeting([RENDEZVOUS, OWN, RENDEZVOUS, OWN, OWN, OWN, OWN if 6 not in marks else RENDEZVOUS, OWN], marks)
    stopped = 5 if len(marks[0]) == 3 else 4
    assert not named(stopped_at(node, stopped))


def test_a_communicator_that_is_just_being_made_says_nothing() -> None:
    node = Meeting([RENDEZVOUS, OWN, OWN, RENDEZVOUS], dict.fromkeys((0, 3), range(0, 6, 3)), since_s=5.5)
    assert not named(stopped_at(node, 3))


def test_a_rank_that_makes_a_communicator_is_not_late_for_an_operation() -> None:
    # GIVEN four ranks that wait for rank 0 in an operation, and rank 0 that meets rank 5, which runs its own code
    node = Meeting([RENDEZVOUS, OWN, OWN, OWN, OWN, OWN], {0: range(0, 10, 5)})
    node.comm(comm_info(9, [0, 1, 2, 3, 4])).did(0, 9, 8)
    node.computing = {5}
    for rank in (1, 2, 3, 4):
        node.waits(rank, 9, 9, since_s=1.0)
    said = watch(analyzer(), node, first_s=0.0, last_s=40.0)
    # THEN rank 0 is not named, and both may be at fault
    assert not named(said)
    assert {c.rank for i in said for c in i.candidates} == {0, 5}


def test_a_member_that_has_left_may_be_who_is_waited_for() -> None:
    node = Meeting([RENDEZVOUS, RENDEZVOUS, OWN, OWN], dict.fromkeys((0, 1), range(4)))
    node.is_(3, ProcessState.GONE, ended_ns=node.ns(0.5), exit_status=0)
    assert 2 not in named(stopped_at(node, 2))


def test_each_communicator_is_judged_by_itself() -> None:
    # GIVEN rank 5 that is stopped, and two communicators that need it: for one of them rank 2 is late as well
    node = Meeting([RENDEZVOUS, RENDEZVOUS, OWN, RENDEZVOUS, OWN, OWN],
                   {0: range(6), 1: range(1, 7, 2), 3: range(1, 7, 2)})  # fmt: skip
    # THEN the other one says
    assert named(stopped_at(node, 5)) == {5}


def test_who_is_no_member_is_not_named_for_silence() -> None:
    node = Meeting([RENDEZVOUS, RENDEZVOUS, RENDEZVOUS, OWN], dict.fromkeys(range(3), range(3)))
    assert not named(watch(analyzer(), node, first_s=0.0, last_s=LONG_S))
    # NOR who has made the communicator of all already, which the others still make
    node = Silent([INIT, INIT, INIT, OWN])
    for rank in range(3):
        node.is_(rank, ProcessState.SLEEPING, init_ns=0)
    assert not named(watch(analyzer(), node, first_s=0.0, last_s=LONG_S))

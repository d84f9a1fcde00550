"""A rank is stopped while the others meet: named by its process state, as long as nobody else is missing."""

from __future__ import annotations

import pytest
from batches import analyzer, watch
from test_silence import IMPORT, INIT, OWN, RENDEZVOUS, Silent, named

from whichrank.model.incident import Cause, Incident, Reason
from whichrank.model.telemetry import ProcessState


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

"""The life of an incident and of a suspicion: what may follow what, and which times run on."""

from __future__ import annotations

from typing import Any

import pytest
from incident_cases import not_entered
from msgspec import structs

from whichrank.model.clause import Says, clause
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.verdict.policy import LIFE, RECOVER_S, SETTLE_S, WATCH, Event, Policy, Situation, State, after, state_of


def incident(severity: str, status: str) -> Any:
    one = not_entered()
    return structs.replace(one, severity=severity, status=status, ended=None if status == "open" else one.detected)


def found(rank: int = 1, cause: Cause = Cause.NOT_ENTERED) -> Finding:
    return Finding(cause=cause, culprits=(Blame(rank, 0.9, (clause(Says.AWAITED),)),), onset_s=1.0)


def test_every_state_is_reached_and_every_event_happens() -> None:
    assert {state for state, _ in LIFE} | set(LIFE.values()) == set(State)
    assert {event for _, event in LIFE} == set(Event)
    assert set(WATCH) == set(Situation)


def test_nothing_follows_the_end() -> None:
    assert not [event for state, event in LIFE if state is State.FINAL]


@pytest.mark.parametrize(
    ("severity", "status", "event", "then"),
    [
        ("notice", "open", Event.URGENT, State.ALERT),
        ("alert", "open", Event.DUE, State.ALERT),
        ("alert", "open", Event.EXPLAINED, State.NOTICE),
        ("notice", "open", Event.OVER, State.RECOVERED),
        ("alert", "open", Event.ENDED, State.FINAL),
        ("alert", "recovered", Event.DUE, State.NOTICE),
    ],
)
def test_a_step_of_a_life(severity: str, status: str, event: Event, then: State) -> None:
    assert after(incident(severity, status), event) is then


def test_a_suspicion_is_no_incident_yet() -> None:
    assert state_of(None) is State.SUSPECTED
    assert after(None, Event.DUE) is State.NOTICE
    with pytest.raises(ValueError, match="SUSPECTED cannot become OVER"):
        after(None, Event.OVER)


def test_what_has_ended_stays_so() -> None:
    with pytest.raises(ValueError, match="FINAL cannot become URGENT"):
        after(incident("alert", "final"), Event.URGENT)


def test_it_is_over_once_nobody_has_waited_for_a_while() -> None:
    policy = Policy()
    policy.enter(Situation.SUSPECT, 0.0)
    policy.suspect(found(), 0.0)
    policy.prior = found()
    assert policy.closely
    # WHEN nobody waits, somebody does again, and then nobody
    for at_s, situation in ((1.0, Situation.QUIET), (1.5, Situation.SUSPECT), (2.0, Situation.QUIET)):
        policy.enter(situation, at_s)
        assert not policy.has_recovered(at_s)
    # THEN it is over a second after that, and what was found is forgotten
    policy.enter(Situation.QUIET, 2.0 + RECOVER_S)
    assert policy.has_recovered(2.0 + RECOVER_S)
    assert (policy.suspicion, policy.prior, policy.closely) == (None, None, False)


def test_the_same_is_found_for_longer_and_longer() -> None:
    policy = Policy()
    policy.suspect(found(1), 0.0)
    assert policy.suspect(found(1), 3.0).since_s == 0.0
    assert policy.suspect(found(2), 4.0).since_s == 4.0
    # WHEN no agent is heard, nothing is known: it begins anew
    policy.enter(Situation.CUT_OFF, 5.0)
    assert policy.suspect(found(2), 6.0).since_s == 6.0


def test_all_are_suspended_and_wake() -> None:
    policy = Policy()
    for at_s in (1.0, 5.0):
        policy.enter(Situation.SUSPENDED, at_s)
    assert policy.suspended_since_s(5.0, least_s=4.0) == 1.0
    assert policy.suspended_since_s(5.0, least_s=4.5) is None
    # WHEN they go on THEN waits that began before count from then
    policy.enter(Situation.SUSPECT, 6.0)
    assert policy.awake_s == 6.0
    assert policy.suspended_since_s(9.0, least_s=0.0) is None


def test_a_dying_job_is_judged_when_the_others_were_heard() -> None:
    policy = Policy()
    policy.begin_to_die(10.0)
    assert policy.is_dying
    assert not policy.has_settled(10.0 + SETTLE_S / 2)
    assert policy.has_settled(10.0 + SETTLE_S)
    assert not policy.has_settled(10.0 + SETTLE_S, times=2)
    # WHEN the job goes on THEN what began before that is over
    policy.get_over(10.0)
    assert not policy.is_dying
    assert policy.is_got_over(found())
    # AND WHEN a rank was seen to have left before, rings were read closely: less is to be waited for
    policy.suspect(found(cause=Cause.PROCESS_EXIT), 20.0)
    policy.begin_to_die(21.0)
    assert policy.has_settled(21.0 + 0.5)


def test_an_incident_is_left_once_its_ranks_have_come_for_a_while() -> None:
    policy, one = Policy(), incident("alert", "open")
    assert not policy.is_left(one, 0.0, have_come=True)
    assert not policy.is_left(one, 0.5, have_come=False)
    assert not policy.is_left(one, 1.2, have_come=True)
    assert policy.is_left(one, 1.2 + RECOVER_S, have_come=True)

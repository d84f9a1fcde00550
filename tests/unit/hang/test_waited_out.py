"""What the job has waited out before is no news; what lasts much longer, or has another reason, is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from whichrank.hang.waited_out import MOST_KEPT, WaitedOut
from whichrank.model.clause import Says, clause
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, Reason

EVALUATES = Finding(
    cause=Cause.NOT_ENTERED,
    reason=Reason.USER_CODE,
    culprits=(Blame(0, 0.9, (clause(Says.AWAITED),)),),
    comm=2,
    op={"kind": 1, "counter": 7},
)


def other(**changes: Any) -> Finding:
    return replace(EVALUATES, **changes)


def test_what_was_waited_out_is_usual_until_it_lasts_twice_as_long() -> None:
    known = WaitedOut()
    # GIVEN nothing was waited out WHEN asked THEN any wait is news
    assert not known.is_usual(EVALUATES, 12.0)
    # GIVEN a wait of a minute that ended, and a shorter one after it
    known.learn(EVALUATES, 60.0)
    known.learn(EVALUATES, 20.0)
    # THEN the next round of the same is usual, whatever its number, BUT not after two minutes
    assert known.is_usual(other(op={"kind": 1, "counter": 900}), 90.0)
    assert not known.is_usual(EVALUATES, 121.0)


def test_another_rank_reason_or_operation_is_news() -> None:
    known = WaitedOut()
    known.learn(EVALUATES, 60.0)
    assert not known.is_usual(other(culprits=(Blame(1, 0.9, ()),)), 12.0)
    assert not known.is_usual(other(reason=Reason.DATA_WAIT), 12.0)
    assert not known.is_usual(other(op={"kind": 2, "counter": 7}), 12.0)
    assert not known.is_usual(other(comm=3), 12.0)


def test_what_is_kept_is_bounded() -> None:
    known = WaitedOut()
    for comm in range(MOST_KEPT + 5):
        known.learn(other(comm=comm), 60.0)
    assert not known.is_usual(other(comm=0), 12.0)
    assert known.is_usual(other(comm=MOST_KEPT), 12.0)

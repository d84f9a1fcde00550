"""What was reported of slowness, and when it was so last."""

from __future__ import annotations

from whichrank.model.finding import Finding
from whichrank.model.incident import Cause, Reason
from whichrank.slow.findings import KeyedFinding
from whichrank.slow.steady_findings import SteadyFindings


def found(reason: Reason | None = None) -> dict[str, KeyedFinding]:
    return {"rank 3": KeyedFinding("rank 3", Finding(Cause.COMPUTE_SLOW, kind="slow", reason=reason))}


def test_what_was_so_in_two_snapshots_is_reported_until_half_a_window_later() -> None:
    steady = SteadyFindings(6.0)
    assert steady.take(found(), 1.0) == []
    assert steady.take({}, 2.0) == steady.take(found(), 3.0) == []
    assert [one.key for one in steady.take(found(), 4.0)] == ["rank 3"]
    assert steady.take({}, 6.0) == []
    assert not steady.is_over("rank 3")
    assert steady.take({}, 7.0) == []
    assert steady.is_over("rank 3")


def test_one_snapshot_is_enough_where_a_limit_of_the_node_says_the_same() -> None:
    assert [one.key for one in SteadyFindings(6.0).take(found(Reason.CPU_LIMIT), 1.0)] == ["rank 3"]
    assert SteadyFindings(6.0).take(found(Reason.CPU_CONTENTION), 1.0) == []

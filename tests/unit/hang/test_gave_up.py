"""A rank raises that it lost a connection, in no operation, and no rank is lost: a store that nobody serves."""

from __future__ import annotations

import numpy as np
from batches import T0, Node, S, analyzer
from test_interruption import ends, finished, signalled

from whichrank.model.incident import Cause, Incident
from whichrank.model.telemetry import ProcessState

NOW_S = T0 / S
LOST = b"DistNetworkError: The client socket has timed out after 60000ms at train.py:9"
LISTENS = b"DistNetworkError: The server socket has failed to listen. name: EADDRINUSE at train.py:9"


def job_that_begins(says: bytes, in_order: tuple[int, ...] = (), events_first: bool = False) -> list[Incident]:
    """Rank 1 raises this before any operation; its launcher ends those who have not ended in order."""
    a, n = analyzer(), Node("a:1", [0, 1, 2], 3)
    a.feed(n.batch(0.5), NOW_S + 0.5)
    reported = [signalled(n, 0.8, "SIGTERM")] if events_first else []
    reported += [ends(n, rank, 0.9, 0) for rank in in_order]
    n.is_(1, ProcessState.SLEEPING, exception_ns=n.ns(1.0), exception=says)
    a.feed(n.batch(1.0, events=reported), NOW_S + 1.0)
    reported = [ends(n, 1, 1.5, 1 << 8, exception_ns=n.ns(1.0), exception=says)]
    reported += [ends(n, rank, 1.6, 15) for rank in {0, 2} - set(in_order)]
    a.feed(n.batch(1.7, events=reported), NOW_S + 1.7)
    said = [incident for at_s in np.arange(1.8, 5.0, 0.2) for incident in a.tick(NOW_S + at_s)]
    return said + finished(a, n, 5.0)


def test_a_job_that_fails_is_not_silent_and_whose_fault_it_was_is_left_open() -> None:
    said = job_that_begins(LOST)[-1]
    assert (said.severity, said.kind, said.cause, said.culprits) == ("alert", "failed", Cause.UNKNOWN, ())
    assert [candidate.rank for candidate in said.candidates] == [1]
    # ALSO where another one, which may have served the store, had ended in order
    assert [c.rank for c in job_that_begins(LOST, in_order=(0,))[-1].candidates] == [1, 0]


def test_a_rank_that_cannot_listen_has_failed_by_itself() -> None:
    said = job_that_begins(LISTENS)[-1]
    assert [culprit.rank for culprit in said.culprits] == [1]
    assert "failed to listen" in said.culprits[0].why


def test_nothing_is_said_where_the_job_was_asked_to_end() -> None:
    assert job_that_begins(LOST, events_first=True) == []


def test_who_never_came_is_a_candidate_before_those_who_gave_up() -> None:
    # GIVEN ranks that wait for rank 2 in their first communicator, and give up at one place
    a, n = analyzer(), Node("a:1", [0, 1, 2], 3)
    for rank in range(3):
        n.row[rank]["init_ns"] = 0
    a.feed(n.batch(0.5), NOW_S + 0.5)
    raised = {"exception_ns": n.ns(1.0), "exception": LOST}
    reported = [ends(n, rank, 1.5, 1 << 8, **raised) for rank in (0, 1)] + [ends(n, 2, 1.6, 15)]
    a.feed(n.batch(1.7, events=reported), NOW_S + 1.7)
    said = finished(a, n, 3.0)[-1]
    assert (said.cause, said.culprits) == (Cause.UNKNOWN, ())
    assert [candidate.rank for candidate in said.candidates] == [2, 0, 1]

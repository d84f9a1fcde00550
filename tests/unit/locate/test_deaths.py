"""Which death was a rank's own, and which ranks only followed."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

from whichrank.locate.deaths import (
    ended_by_parent,
    ended_from_outside,
    exit_code_of,
    fact_of_end,
    failed_by_timeout,
    how_it_ended,
    in_order,
    lost_connection,
    own_deaths,
    raised_alike,
    signal_of,
    singled_out,
)
from whichrank.model.clause import Clause, Says, clause
from whichrank.model.ends import Ends
from whichrank.model.evidence import Evidence
from whichrank.model.texts import Texts

ALIVE: dict[str, Any] = {}


def died(at_s: float, status: int, **more: Any) -> dict[str, Any]:
    return {"gone": True, "ended_s": at_s, "status": status, **more}


def code(number: int) -> int:
    return number << 8


def ends(*ranks: dict[str, Any]) -> Ends:
    def column(name: str, default: Any) -> list[Any]:
        return [rank.get(name, default) for rank in ranks]

    return Ends(
        gone=np.array(column("gone", False)),
        ended_s=np.array(column("ended_s", 0.0)),
        status=np.array(column("status", -1)),
        failure_s=np.array(column("failure_s", 0.0)),
        failure=Texts.of(column("failure", "")),
        exception_s=np.array(column("exception_s", 0.0)),
        exception=Texts.of(column("exception", "")),
        closed_s=np.array(column("closed_s", 0.0)),
        node=np.array(column("node", 0)),
        asked_s=np.array(column("asked_s", 0.0)),
    )


def own(*ranks: dict[str, Any]) -> list[int]:
    return np.flatnonzero(own_deaths(ends(*ranks))).tolist()


@pytest.mark.parametrize("status", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, code(3), -1])
def test_an_end_before_any_failure_is_its_own(status: int) -> None:
    assert own(ALIVE, died(10.0, status), ALIVE) == [1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_launchers_signal_is_not(number: int) -> None:
    assert own(died(10.0, code(1)), died(10.2, number), died(10.3, number)) == [0]


def test_sigkill_after_the_launcher_has_terminated_others_is_its_doing() -> None:
    assert own(died(10.0, code(1)), died(10.2, signal.SIGTERM), died(40.0, signal.SIGKILL)) == [0]
    # BUT before that it is a death of its own
    assert own(died(10.0, signal.SIGKILL), died(10.2, signal.SIGTERM)) == [0]


def test_a_killed_rank_that_no_launcher_asked_had_ended_before_those_that_it_did() -> None:
    # GIVEN an agent that came late and saw all ends at once
    asked, killed = died(10.0, signal.SIGTERM, asked_s=9.0), died(10.001, signal.SIGKILL)
    assert own(asked, killed, asked) == [1]
    # BUT not if it was asked too, was killed later, or is on another node
    assert own(asked, {**killed, "asked_s": 9.0}, asked) == []
    assert own(asked, {**killed, "ended_s": 40.0}, asked) == []
    assert own(asked, {**killed, "node": 1}, asked) == []


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_in_the_teardown_that_a_launcher_began_is_its_doing(number: int) -> None:
    assert own(died(10.0, code(1)), died(10.2, signal.SIGTERM), died(10.3, number, closed_s=10.25)) == [0]
    # BUT not before, nor if it was not on its way out
    assert own(died(10.0, number, closed_s=9.9), died(10.2, signal.SIGTERM)) == [0]
    assert own(ALIVE, died(10.2, signal.SIGTERM), died(10.3, number)) == [2]


def test_who_ends_the_job_from_outside_comes_before_any_death() -> None:
    fails = {"failure_s": 9.9, "failure": "Connection closed by peer"}
    assert ended_from_outside(ends(died(10.0, signal.SIGTERM), {**ALIVE, **fails}))
    assert ended_from_outside(ends(died(10.0, signal.SIGTERM), died(10.3, code(1), **fails)))
    # BUT a launcher that follows a dead rank comes after it
    assert not ended_from_outside(ends(died(10.3, signal.SIGTERM), died(10.0, code(1), **fails)))
    assert not ended_from_outside(ends(died(10.0, code(1), **fails), ALIVE))


@pytest.mark.parametrize("text", ["KeyboardInterrupt", "KeyboardInterrupt: at train.py:7", "SignalException: got 15"])
def test_what_ctrl_c_becomes_in_python_is_nobodys_death(text: str) -> None:
    interrupted = died(10.0, code(1), exception_s=9.9, exception=text)
    assert own(interrupted, interrupted) == []
    assert ended_from_outside(ends(interrupted, {**ALIVE, "failure_s": 9.95, "failure": "Connection closed by peer"}))
    # AND so it is while it has not ended yet
    leaving = {**ALIVE, "exception_s": 9.9, "exception": text}
    assert ended_from_outside(ends(leaving, {**ALIVE, "failure_s": 9.95, "failure": "Connection closed by peer"}))


def test_whoever_had_an_operation_fail_first_followed() -> None:
    followed = died(10.4, code(1), failure_s=10.1, failure="Connection reset by peer", exception_s=10.2)
    assert own(died(10.5, code(1), exception_s=10.0, exception="ValueError: bad label"), followed) == [0]


def test_the_order_of_death_decides_nothing() -> None:
    # GIVEN the peers are gone before the culprit has left its interpreter
    followed = died(10.1, code(1), failure_s=10.05, failure="Connection closed by peer [127.0.0.1]:4711")
    assert own(followed, died(11.0, code(1), exception_s=10.0, exception="ValueError: bad label"), followed) == [1]


def test_operations_that_fail_while_it_ends_do_not_make_it_a_follower() -> None:
    # GIVEN a rank that raised, and whose open operations failed in its teardown
    assert own(died(11.0, code(1), exception_s=10.0, exception="ValueError", failure_s=10.5, failure="aborted")) == [0]
    assert own(died(11.0, code(3), closed_s=10.0, failure_s=10.5, failure="aborted")) == [0]


@pytest.mark.parametrize(
    "text",
    [
        "DistBackendError: NCCL error", "RuntimeError: Connection closed by peer [10.0.0.1]:234",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection reset by peer",
        "DistStoreError: wait timeout",
        "RuntimeError: Timed out waiting 8000ms for recv operation to complete",
    ],
)  # fmt: skip
def test_an_exception_that_only_reports_a_lost_connection_is_not_its_own(text: str) -> None:
    assert lost_connection(text)
    assert own(died(10.0, code(1), exception_s=9.9, exception=text)) == []


@pytest.mark.parametrize("text", ["ShardTimeout: read of shard 17 timed out", "ConnectionResetError: reset by peer"])
def test_a_connection_of_the_programs_own_is_its_own_unless_another_rank_may_be_at_its_end(text: str) -> None:
    # GIVEN a rank whose read of a file server failed; torch reported a peer, another peer made it an exception of its
    # own
    doubtful = died(10.0, code(1), exception_s=9.9, exception=text)
    reported = died(10.1, code(1), exception_s=9.95, exception="RuntimeError: Connection closed by peer")
    wrapped = died(10.0, code(1), exception_s=9.96, exception="ValueError: bad step")
    assert own(reported, doubtful) == [1]
    assert own(wrapped, doubtful) == [0, 1]
    # BUT a rank that was killed, or that raised before, may have been at the other end
    assert own(died(10.05, signal.SIGKILL), doubtful) == [0]
    assert own(wrapped | {"exception_s": 9.8}, doubtful) == [0]


def test_what_a_job_has_got_over_did_not_happen() -> None:
    fails = {"failure_s": 9.0, "failure": "Timed out waiting"}
    old = ends(died(10.0, signal.SIGKILL), ALIVE, died(20.0, signal.SIGKILL, **fails))
    assert np.flatnonzero(own_deaths(old)).tolist() == [0]
    # BUT that an operation of rank 2 had failed before says nothing of its end, long after
    first, last, none = np.array([True, False, False]), np.array([False, False, True]), np.zeros(3)
    after = old.but_for(ended=first, raised=first, failed=first | last, again_s=none)
    assert np.flatnonzero(own_deaths(after)).tolist() == [2]
    # UNLESS another one failed just before
    again = old.but_for(ended=first, raised=first, failed=first | last, again_s=np.array([0.0, 0.0, 19.9]))
    assert own_deaths(again).sum() == 0


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: 3 of 16 labels are outside the vocabulary",
        "MemoryError",
        "AssertionError: nan",
        "RuntimeError: my own bug at /jobs/gloo/socket.py:7",
        "DistNetworkError: The server socket has failed to listen on any address. name: EADDRINUSE",
        "RuntimeError: gloo: bind: Address already in use at train.py:3",
    ],
)
def test_other_exceptions_are(text: str) -> None:
    assert not lost_connection(text)
    assert own(died(10.0, code(1), exception_s=9.9, exception=text)) == [0]


def test_exit_code_0_is_an_end_in_order() -> None:
    assert in_order(ends(ALIVE, died(10.0, 0), died(10.0, code(1)), died(10.0, -1))).tolist() == [
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "expected"), [("Timed out waiting 8000ms", True), ("timeout", True), ("reset by peer", False), ("", False)]
)
def test_operations_that_ran_into_their_own_timeout(text: str, expected: bool) -> None:
    assert failed_by_timeout(ends({"failure_s": 1.0, "failure": text})).tolist() == [expected]


@pytest.mark.parametrize(
    ("status", "number", "exit_code"), [(9, 9, None), (code(3), 0, 3), (0, 0, 0), (-1, 0, None), (0x86, 6, None)]
)
def test_a_wait_status_is_a_signal_or_an_exit_code(status: int, number: int, exit_code: int | None) -> None:
    assert (signal_of(status), exit_code_of(status)) == (number, exit_code)


@pytest.mark.parametrize(
    ("rank", "how", "what", "value"),
    [
        (died(1.0, 9), clause(Says.KILLED, number=9, signal="SIGKILL"), "signal", "SIGKILL"),
        (died(1.0, 64), clause(Says.KILLED, number=64, signal=""), "signal", 64),
        (died(1.0, code(1), exception="ValueError: x"), clause(Says.RAISED, exception="ValueError: x"), "exception",
         "ValueError: x"),
        (died(1.0, code(3)), clause(Says.EXITED, code=3), "exit code", 3),
        (died(1.0, code(0)), clause(Says.EXITED, code=0), "exit code", 0),
        (died(1.0, -1, closed_s=0.5), clause(Says.ENDED_IN_ORDER), "ended in order", True),
        (died(1.0, -1), clause(Says.IS_GONE), "ended in order", False),
    ],
)  # fmt: skip
def test_how_it_ended_and_the_fact_of_it(rank: dict[str, Any], how: Clause, what: str, value: str | int) -> None:
    assert how_it_ended(ends(rank), 0) == how
    assert fact_of_end(how, 7) == Evidence(what=what, value=value, where="rank 7")


LOST = {
    "failure_s": 10.02,
    "failure": "Connection closed by peer",
    "exception_s": 10.03,
    "exception": "RuntimeError: gloo",
}


def alone(*ranks: dict[str, Any]) -> list[int]:
    return np.flatnonzero(singled_out(ends(*ranks))).tolist()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_rank_that_was_singled_out_is_no_death_of_its_own_but_known(number: int) -> None:
    # GIVEN one rank ended by SIGTERM, peers whose operations fail then, and a launcher that ends these
    job = died(10.0, number), *[died(10.3, signal.SIGTERM, **LOST) for _ in range(3)]

    # THEN it is known who was first; but launchers may end ranks one by one, so it is not to blame
    assert alone(*job) == [0]
    assert own(*job) == []


@pytest.mark.parametrize(
    "job",
    [
        [*[died(10.0 + i / 100, signal.SIGTERM) for i in range(3)], died(10.9, code(1), **LOST)],
        [died(10.0, signal.SIGINT), died(10.3, signal.SIGTERM, **LOST)],
        [*[died(10.0, signal.SIGTERM, node=0)] * 2, died(13.0, signal.SIGTERM, node=1, **LOST)],
        [died(10.0, signal.SIGTERM, node=0), died(13.0, signal.SIGTERM, node=1, **LOST)],
        [died(10.5, signal.SIGTERM, **LOST), died(11.0, code(1), **{**LOST, "failure_s": 10.6})],
    ],
    ids=["a launcher, at once", "ctrl-c", "host by host", "host by host, one rank each", "a victim"],
)
def test_who_was_not_singled_out(job: list[dict[str, Any]]) -> None:
    assert alone(*job) == []
    assert own(*job) == []


def test_exit_code_of_a_caught_signal_is_that_signal() -> None:
    # GIVEN a program that saves its state at SIGTERM and exits as a shell would
    assert own(died(10.0, code(128 + 15)), died(10.1, code(1))) == [1]
    assert ended_from_outside(ends(died(10.0, code(143)), died(13.0, code(1))))
    assert own(died(10.0, code(128 + 11)), ALIVE) == [0]


def test_exit_that_a_launchers_signal_asked_for_is_no_death_of_its_own() -> None:
    # GIVEN a rank that catches the SIGTERM of its launcher, saves its state and exits with a code of its own
    assert own(died(11.0, code(1), asked_s=10.5), died(13.0, code(1), asked_s=10.5)) == []
    assert ended_from_outside(ends(died(11.0, code(1), asked_s=10.5), died(13.0, code(1), failure_s=11.1)))
    # BUT what it raises is its own, and so is a crash
    # ALSO if its handler raises something of its own; NOT if it had raised before, or crashes
    raised = {"exception_s": 10.9, "exception": "Preempted: state saved at a.py:1"}
    assert own(died(11.0, code(1), asked_s=10.5, **raised), ALIVE) == []
    assert own(died(11.0, code(1), asked_s=10.95, **raised), ALIVE) == [0]
    assert own(died(11.0, signal.SIGSEGV, asked_s=10.5), ALIVE) == [0]
    # ALSO if it is not known how it ended, unless that was before
    assert own(died(11.0, -1, asked_s=10.5), ALIVE) == []
    assert own(died(11.0, -1, asked_s=11.5), ALIVE) == [0]
    assert own({"status": -1, "asked_s": 10.5}, ALIVE) == []


KILLED = [died(10.0 + k / 1000, signal.SIGKILL) for k in range(3)]
STARTED_BY_0 = np.array([-1, 0, 0, 0])


@pytest.mark.parametrize(
    ("parent", "in_operation", "found"),
    [
        (died(12.0, code(1)), [], [0, 1, 2, 3]),
        (died(12.0, 0), [], [0, 1, 2, 3]),
        (died(12.0, code(1), exception_s=9.9, exception="KeyboardInterrupt:  at a.py:1"), [], [0, 1, 2, 3]),
        (ALIVE, [], [1, 2, 3]),
        (ALIVE, [0], []),
        (died(12.0, code(1), failure_s=10.1, failure="closed by peer"), [], []),
        (died(12.0, code(1), exception_s=9.9, exception="ValueError: x at a.py:1"), [], []),
        (died(9.9, signal.SIGSEGV), [], []),
        (died(10.0, signal.SIGKILL), [], []),
    ],
)
def test_ranks_that_the_rank_which_started_them_ends(
    parent: dict[str, Any], in_operation: list[int], found: list[int]
) -> None:
    ended = ended_by_parent(ends(parent, *KILLED), STARTED_BY_0, np.array(in_operation, int))
    assert np.flatnonzero(ended).tolist() == found


@pytest.mark.parametrize(
    "started",
    [
        [KILLED[0], ALIVE, ALIVE],
        [died(5.0, signal.SIGKILL), KILLED[1], KILLED[2]],
        [died(10.0, code(1)) for _ in range(3)],
    ],
)
def test_ranks_that_die_of_themselves_although_a_rank_started_them(started: list[dict[str, Any]]) -> None:
    assert not ended_by_parent(ends(ALIVE, *started), STARTED_BY_0, np.array([], int)).any()


def test_raised_alike_by_kind_and_place() -> None:
    def said(text: str) -> dict[str, Any]:
        return {"exception": text, "exception_s": 1.0}

    ranks = [said(f"ValueError: rank {k} has no data at train.py:4") for k in range(3)]
    ranks += [said("ValueError: none at train.py:9"), said("TypeError: none at train.py:4"), ALIVE]
    among = np.array([bool(rank) for rank in ranks])
    assert raised_alike(ends(*ranks), among) == [0, 1, 2]
    assert raised_alike(ends(*ranks[2:]), among[2:]) == []

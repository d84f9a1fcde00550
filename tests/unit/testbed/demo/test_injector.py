"""The injector against ranks that are played by this test: who is reported what, and what nobody can read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whichrank.testbed.demo.injector import Injector
from whichrank.testbed.demo.plan import Truth
from whichrank.testbed.demo.recipes import Strike
from whichrank.testbed.demo.seat import ADDRESS_VARIABLE, Order, Seat
from whichrank.testbed.demo.slow import SLOW

RANKS = 4
SITES = [{"kind": "all_reduce", "role": "dp", "size": 4, "signature": ["all_reduce", "float32", 8, -1]}] * 3


def enter(injector: Injector) -> tuple[list[Seat], list[dict[str, Any]]]:
    address = injector.env()[ADDRESS_VARIABLE]
    seats = [Seat(address) for _ in range(RANKS)]
    settings = [seat.greet(rank, log_every=10) for rank, seat in enumerate(seats)]
    return seats, settings


def run(injector: Injector, seats: list[Seat], until: int = 60) -> dict[int, tuple[int, int, Order]]:
    """Play iterations until somebody is reported something; returns who, where and what."""
    reported: dict[int, tuple[int, int, Order]] = {}
    for iteration in range(until):
        for seat in seats:
            seat.report("iteration", iteration=iteration, **({"sites": SITES} if iteration == 4 else {}))
        time.sleep(0.005)
        for rank, seat in enumerate(seats):
            for place in range(len(SITES)):
                order = seat.order_at(iteration, place)
                if order is not None:
                    reported[rank] = (iteration, place, order)
                    seat.report("now", iteration=iteration, do=order.do)
        if reported:
            return reported
        if iteration == 4:
            assert injector._hub.wait_for(lambda: len(injector._hub.sites) == RANKS, 5.0)
    return reported


def wait_for_truth(injector: Injector) -> Truth:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        truth = injector.truth()
        if truth is not None:
            return truth
        time.sleep(0.01)
    raise AssertionError("no truth within 5 s")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def start(stack: ExitStack, fault: str, seed: int, **options: Any) -> Injector:
    injector = Injector(fault, RANKS, seed, "dp4", **options)
    stack.callback(injector.close)
    injector.start()
    return injector


def seated(stack: ExitStack, injector: Injector) -> tuple[list[Seat], list[dict[str, Any]]]:
    seats, settings = enter(injector)
    for seat in seats:
        stack.callback(seat._leave)
    return seats, settings


def test_only_the_victim_is_reported_and_the_truth_names_it(stack: ExitStack) -> None:
    # GIVEN four ranks under an injector for `sleep`
    injector = start(stack, "sleep", seed=3)
    seats, settings = seated(stack, injector)
    assert settings == [{}] * RANKS
    assert injector.truth() is None
    # WHEN they iterate
    reported = run(injector, seats)
    # THEN exactly one is reported, not before the drawn iteration, and the truth names it
    [(victim, (iteration, _place, order))] = reported.items()
    assert victim == injector.plan.victims[0]
    assert order.do == "sleep"
    assert iteration >= injector.plan.iteration >= 6
    truth = wait_for_truth(injector)
    assert truth.culprits == (victim,)
    assert (truth.cause, truth.reason, truth.hard) == ("not_entered", "in user code", False)
    assert truth.iteration == iteration
    assert abs(truth.at_monotonic_ns - time.monotonic_ns()) < 5e9
    assert truth.at_utc.endswith("+00:00")


def test_the_same_seed_strikes_the_same_rank_at_the_same_operation(stack: ExitStack) -> None:
    struck = []
    for _ in range(2):
        injector = start(stack, "wrong-shape", seed=11)
        reported = run(injector, seated(stack, injector)[0])
        struck.append([(rank, place, order.variant) for rank, (_iteration, place, order) in reported.items()])
    assert struck[0] == struck[1]


def test_a_healthy_run_has_a_truth_without_culprits(stack: ExitStack) -> None:
    injector = start(stack, "none", seed=1)
    assert run(injector, seated(stack, injector)[0], until=12) == {}
    truth = wait_for_truth(injector)
    assert (truth.culprits, truth.cause, truth.kind) == ((), "none", "healthy")


def test_never_init_is_settled_when_the_victim_says_hello(stack: ExitStack) -> None:
    injector = start(stack, "never-init", seed=2)
    _seats, settings = seated(stack, injector)
    assert [rank for rank, reported in enumerate(settings) if reported.get("prepare_s")] == [injector.plan.victims[0]]
    assert wait_for_truth(injector).culprits == (injector.plan.victims[0],)


def test_nothing_that_can_be_read_says_the_truth(stack: ExitStack) -> None:
    # GIVEN an injector with a known fault
    injector = start(stack, "wrong-shape", seed=5, variant="larger")
    words = ("wrong", "shape", "larger", "fault", "culprit", "victim")
    # THEN neither the environment, nor the command, nor the control folder has a word of it
    environment = injector.env()
    assert list(environment) == [ADDRESS_VARIABLE]
    assert not ADDRESS_VARIABLE.startswith("WHICHRANK")
    folder = Path(environment[ADDRESS_VARIABLE]).parent
    assert not str(folder).startswith("/dev/shm")
    assert folder.stat().st_mode & 0o077 == 0
    listed = [str(path) for path in folder.rglob("*")]
    assert listed == [environment[ADDRESS_VARIABLE]]
    readable = " ".join([*environment.values(), *listed, *injector.job_command()])
    assert not any(word in readable for word in words)
    # AND after the end the folder is gone
    injector.close()
    assert not folder.exists()


def test_a_rank_without_a_control_channel_is_an_ordinary_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    seat = Seat()
    assert seat.greet(0) == {}
    seat.report("iteration", iteration=0)
    assert seat.order_at(0, 0) is None
    assert Seat("/nowhere/ctl").greet(0) == {}


def test_a_rank_goes_on_when_the_injector_is_gone(stack: ExitStack) -> None:
    injector = start(stack, "sleep", seed=1)
    seats, _settings = seated(stack, injector)
    injector.close()
    for seat in seats:
        seat.report("iteration", iteration=0)
        assert seat.order_at(0, 0) is None


def test_stop_and_continue_hits_the_process_and_takes_it_back(stack: ExitStack) -> None:
    # GIVEN a process that plays the victim; its pid is known from the kernel, not from what it says
    injector = Injector("stop-and-continue", 1, 1, "dp1")
    stack.callback(injector.close)
    injector.start()
    code = """if True:
        import sys, time
        from whichrank.testbed.demo.seat import Seat
        seat = Seat(sys.argv[1])
        seat.greet(0)
        for iteration in range(10_000):
            site = {"kind": "all_reduce", "role": "dp", "size": 1, "signature": []}
            seat.report("iteration", iteration=iteration, **({"sites": [site]} if iteration == 4 else {}))
            order = seat.order_at(iteration, 0)
            if order is not None:
                seat.report("now", iteration=iteration, do=order.do)
            time.sleep(0.01)
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "src")}
    child = subprocess.Popen([sys.executable, "-c", code, injector.env()[ADDRESS_VARIABLE]], env=environment)
    stack.callback(child.wait)
    stack.callback(child.kill)
    # WHEN the blow has landed
    assert wait_for_truth(injector).culprits == (0,)
    # THEN the process is stopped, and runs again when the injector is closed
    assert comes_true(lambda: state_of(child.pid) == "T")  # a signal waits until the process is scheduled
    assert injector.pids() == {0: child.pid}
    injector.close()
    assert comes_true(lambda: state_of(child.pid) != "T")
    truth = injector.truth()
    assert truth is not None
    assert truth.ended_monotonic_ns is not None


def comes_true(condition: Callable[[], bool], within_s: float = 60.0) -> bool:
    deadline_s = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return condition()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_foreign_connection_does_no_harm(stack: ExitStack) -> None:
    injector = start(stack, "sleep", seed=1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as foreign:
        foreign.connect(injector.env()[ADDRESS_VARIABLE])
        foreign.send(b"\xff not json")
    seats, _settings = seated(stack, injector)
    assert injector.pids().keys() == set(range(len(seats)))


@pytest.mark.parametrize(("ended_ns", "at", "longer"), [(None, 10.5, 0.5), (None, 4.5, None), (1, 10.5, None)])
def test_how_much_longer_iterations_are_is_by_the_injectors_own_clock(
    stack: ExitStack, ended_ns: int | None, at: float, longer: float | None
) -> None:
    # GIVEN iterations of one second, after a slow start, and of one and a half from the eleventh on
    injector = Injector("stop", RANKS, 0, "dp4")
    stack.callback(injector.close)
    ends_s = [0.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.5, 13.0, 14.5, 16.0]
    injector._hub.began_ns.update({i: int(s * 1e9) for i, s in enumerate(ends_s)})
    # WHEN the fault was done in between, too early to know what is usual, or is over again
    injector._truth = replace(injector._report(Strike((0,), int(at * 1e9), 5)), ended_monotonic_ns=ended_ns)
    assert injector.longer() == (longer and pytest.approx(longer))


def test_the_pace_is_that_of_iterations_before_the_fault(stack: ExitStack) -> None:
    # GIVEN iterations of 1, 1 and 1.2 s after a slow start, then a fault and iterations of two seconds
    injector = Injector("stop", RANKS, 0, "dp4")
    stack.callback(injector.close)
    ends_s = [0.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.2, 12.2, 14.2]
    injector._hub.began_ns.update({i: int(s * 1e9) for i, s in enumerate(ends_s)})
    injector._truth = injector._report(Strike((0,), int(10.5e9), 6))
    pace = injector.pace()
    assert pace is not None
    assert (pace.seconds, pace.iterations) == (pytest.approx(1.0), 3)
    assert 0 < pace.noise < 0.2
    # WHERE there are too few THEN nothing is said
    injector._truth = injector._report(Strike((0,), int(7.5e9), 3))
    assert injector.pace() is None


def test_a_job_whose_ranks_are_to_want_cores_computes_on_the_host(stack: ExitStack) -> None:
    injector = Injector(SLOW["cpu-contention"], RANKS, 0, "dp4")
    stack.callback(injector.close)
    assert injector.job_command()[-2:] == ["--host-ms", "20.0"]

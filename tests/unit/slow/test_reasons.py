"""Why a rank is slow: the reason must explain its excess, and its peers must not have it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from whichrank.model.incident import Reason
from whichrank.model.telemetry import RANK_ROW, ProcessState
from whichrank.slow.node_usage import NodeUsage, Rates
from whichrank.slow.reasons import Why, why_slow
from whichrank.verdict.words.clauses import words

RANKS = 4
PEERS = np.array([0, 1, 3])
EXCESS = 0.3
S = 1_000_000_000


def rates(**of_rank_2: float) -> Rates:
    """All ranks alike, but for this of rank 2."""
    same = {"main_cpu": 0.2, "delay": 0.02, "throttled": 0.0, "collected": 0.01, "cpu": 0.3, "major_faults": 0.0,
            "read_bytes": 0.0, "node": 0.5, "stolen": 0.1, "memory_stall": 0.0, "io_stall": 0.0, "clock_mhz": 2600.0,
            "stopped": 0.0, "limit_cores": np.inf, "allowed_cores": 8.0}  # fmt: skip
    columns = {name: np.full(RANKS, value) for name, value in same.items()}
    for name, value in of_rank_2.items():
        columns[name][2] = value
    return Rates(**columns)


def why(reported: Rates, *, in_loader: float = 0.0) -> Why:
    return why_slow(reported, 2, PEERS, 2, EXCESS, in_loader)


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        (rates(), None),
        (rates(delay=0.2), Reason.CPU_CONTENTION),
        (rates(delay=0.2, limit_cores=np.nan), None),
        (rates(delay=0.05), None),
        (rates(stolen=0.5), Reason.CPU_CONTENTION),
        (rates(collected=0.25), Reason.GARBAGE_COLLECTION),
        (rates(collected=0.25, throttled=0.24, limit_cores=0.3), Reason.CPU_LIMIT),
        (rates(collected=0.25, delay=0.22), Reason.CPU_CONTENTION),
        (rates(collected=0.25, delay=0.05), Reason.GARBAGE_COLLECTION),
        (rates(stopped=0.4), Reason.STOPPED),
        (rates(stopped=0.1), None),
        (rates(throttled=0.25, limit_cores=0.5), Reason.CPU_LIMIT),
        (rates(throttled=0.25), None),
        (rates(delay=0.4, allowed_cores=1.0, cpu=0.95), Reason.CPU_LIMIT),
        (rates(delay=0.4, allowed_cores=1.0, cpu=0.3), Reason.CPU_CONTENTION),
        (rates(limit_cores=2.0), None),
        (rates(memory_stall=0.3, major_faults=400.0), Reason.MEMORY_PRESSURE),
        (rates(memory_stall=0.3), None),
        (rates(memory_stall=0.05, major_faults=400.0), None),
        (rates(io_stall=0.3, read_bytes=4e7), Reason.DATA_WAIT),
        (rates(io_stall=0.3, read_bytes=4e7, main_cpu=0.5), None),
        (rates(io_stall=0.3), None),
        (rates(clock_mhz=1000.0, main_cpu=0.5), Reason.DEVICE_CLOCK),
        (rates(clock_mhz=2400.0, main_cpu=0.5), None),
        (rates(clock_mhz=1000.0, main_cpu=0.1), None),
    ],
)
def test_what_explains_the_excess_is_the_reason(reported: Rates, reason: Reason | None) -> None:
    assert why(reported).reason == reason


def test_a_limit_is_reported_though_that_of_another_rank_cannot_be_read() -> None:
    reported = rates(throttled=0.25, limit_cores=0.5)
    reported.limit_cores[0] = np.nan
    assert why(reported).reason == Reason.CPU_LIMIT
    assert why(replace(reported, limit_cores=np.array([np.nan, 0.5, np.nan, np.nan]))).reason is None


def test_a_clock_that_reads_zero_is_no_clock() -> None:
    assert why(replace(rates(), clock_mhz=np.zeros(RANKS), main_cpu=np.full(RANKS, 0.5))).reason is None


def test_what_all_have_explains_nothing() -> None:
    same = rates()
    assert why(replace(same, delay=np.full(RANKS, 0.3), collected=np.full(RANKS, 0.3))).reason is None


def test_a_limit_is_reported_with_what_its_peers_have() -> None:
    said = why(rates(throttled=0.25, limit_cores=1.0))
    assert words(said.clauses, over=False) == "its control group limits it to 1 core while its peers have 8"
    assert {e.what for e in said.evidence} == {"cores that it may use", "throttled by its control group"}


def test_data_is_waited_for_without_a_cpu() -> None:
    assert why(rates(), in_loader=0.3).reason == Reason.DATA_WAIT
    assert why(rates(main_cpu=0.5), in_loader=0.3).reason is None
    assert why(rates(), in_loader=0.05).reason is None


def test_nothing_is_said_of_what_nobody_measured() -> None:
    unknown = Rates(**{name: np.full(RANKS, np.nan) for name in rates().__dict__})
    assert why(unknown).reason is None
    assert why(unknown, in_loader=0.5).reason == Reason.DATA_WAIT


def test_what_stands_in_the_way_is_told_with_its_numbers() -> None:
    assert words(why(rates(memory_stall=0.3, major_faults=400.0)).clauses, over=False) == (
        "its memory is pushed out and read back, 400 pages a second"
    )
    assert words(why(rates(io_stall=0.3, read_bytes=4e7)).clauses, over=False) == (
        "it reads 40 MB/s from storage that is slow to answer"
    )
    assert words(why(rates(clock_mhz=1000.0, main_cpu=0.5)).clauses, over=False) == (
        "its core runs at 1.0 GHz while those of its peers run at 2.6"
    )


# ---- samples -------------------------------------------------------------------------------------------------------


def rows(at_s: float, **of_rank_1: float) -> np.ndarray:
    reported = np.zeros(2, RANK_ROW)
    reported["rank"], reported["pid"], reported["usage_ns"] = [0, 1], [100, 101], int(at_s * S)
    reported["limit_cores"], reported["allowed_cores"] = np.inf, 4
    for name, value in of_rank_1.items():
        reported[name][1] = value
    return reported


def test_rates_are_of_the_time_since_it_began() -> None:
    # GIVEN a rank that waited for a CPU for half of the time since second 20, and not before
    usage = NodeUsage()
    for at_s in range(10, 31, 2):
        now = rows(at_s, delay_ns=max(0, at_s - 20) * S / 2)
        usage.see(now)
        usage.sample(now)

    # THEN that is its rate since then, and less of the whole time
    assert usage.rates(np.arange(2), np.full(2, 20 * S)).delay == pytest.approx([0.0, 0.5])
    assert usage.rates(np.arange(2), np.full(2, 10 * S)).delay == pytest.approx([0.0, 0.25])


def test_a_stopped_process_is_counted_by_snapshots() -> None:
    usage = NodeUsage()
    usage.sample(rows(1.0))
    for snapshot in range(400):
        usage.see(rows(1.0 + snapshot / 40, state=ProcessState.STOPPED if snapshot % 2 else ProcessState.SLEEPING))
    usage.sample(rows(11.0))
    # half of them, less two standard errors
    assert usage.rates(np.arange(2), np.zeros(2, np.int64)).stopped == pytest.approx([0.0, 0.45])


def test_few_snapshots_at_a_stopped_process_say_little() -> None:
    usage = NodeUsage()
    usage.sample(rows(1.0))
    for snapshot in range(8):
        usage.see(rows(1.0 + snapshot, state=ProcessState.SLEEPING if snapshot % 4 else ProcessState.STOPPED))
    usage.sample(rows(11.0))
    assert usage.rates(np.arange(2), np.zeros(2, np.int64)).stopped == pytest.approx([0.0, 0.0])


def test_too_short_a_time_is_not_known() -> None:
    usage = NodeUsage()
    usage.sample(rows(5.0))
    assert np.isnan(usage.rates(np.arange(2), np.zeros(2, np.int64)).delay).all()


def test_another_process_of_the_same_rank_is_not_compared() -> None:
    usage = NodeUsage()
    usage.sample(rows(5.0, delay_ns=9 * S, pid=77))
    usage.sample(rows(10.0))
    assert np.isnan(usage.rates(np.arange(2), np.zeros(2, np.int64)).delay[1])


def test_the_clock_is_the_median_of_snapshots() -> None:
    usage = NodeUsage()
    for at_s, mhz in ((10, 0.0), (12, 1200.0), (14, 1300.0), (16, 2600.0)):
        usage.sample(rows(at_s, clock_mhz=mhz))
    reported = usage.rates(np.arange(2), np.zeros(2, np.int64)).clock_mhz
    assert np.isnan(reported[0])
    assert reported[1] == 1300.0

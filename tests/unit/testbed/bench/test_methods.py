"""Methods of others say of plain telemetry what their sources say, and are reported nothing of the truth."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from batches import T0, Node, S, comm_info, records

from whichrank.model.kinds import Kind
from whichrank.model.telemetry import PAIR_ROW, ProcessState
from whichrank.testbed.bench.methods.bocd import Bocd
from whichrank.testbed.bench.methods.c4d import C4d
from whichrank.testbed.bench.methods.ccl_d import CclD
from whichrank.testbed.bench.methods.flight_recorder import FlightRecorder
from whichrank.testbed.bench.methods.greyhound import latest, period
from whichrank.testbed.bench.methods.megatrace import MegaTrace
from whichrank.testbed.bench.methods.method import Limits, Method, Said
from whichrank.testbed.bench.methods.ras import Ras
from whichrank.testbed.bench.methods.score import METHODS, Expected, judge
from whichrank.testbed.bench.methods.stacks import Stacks
from whichrank.testbed.bench.methods.telemetry import ROUNDS, Telemetry
from whichrank.testbed.bench.methods.word import Word
from whichrank.testbed.lab.scenarios import Class

LIMITS = Limits(hang_s=5.0, window_s=10.0)
ROUND = 9
RING = ((0, 1), (1, 2), (2, 3), (3, 0))


def job() -> Node:
    """Four ranks that have done eight rounds."""
    node = Node("a:1", [0, 1, 2, 3], 4).comm(comm_info(7, [0, 1, 2, 3], "default_pg"))
    for rank in range(4):
        node.did(rank, 7, ROUND - 1)
    return node


def stands(node: Node, *ranks: int, **more: int) -> Node:
    for rank in ranks:
        node.waits(rank, 7, ROUND, since_s=1.0, **more)
    return node


def said(make: Callable[[Limits], Method], node: Node, until_s: float = 12.0) -> list[Said]:
    seen, method, words = Telemetry(), make(LIMITS), list[Said]()
    rows = [records(rank, 7, number, 1) for rank in range(4) for number in range(1, ROUND)]
    for step in range(int(2 * until_s)):
        at_s = T0 / S + step / 2
        seen.feed(node.batch(step / 2, np.concatenate(rows) if not step else None), at_s)
        seen.at(at_s)
        words += method.examine(seen)
    return words


@pytest.mark.parametrize("make", [Ras, FlightRecorder, CclD])
def test_a_rank_that_did_not_enter_is_named_after_the_hang_timeout(make: Callable[[Limits], Method]) -> None:
    assert said(make, stands(job(), 0, 1, 3)) == [Said("hang", frozenset({2}), fault_class="H1")]


@pytest.mark.parametrize("make", METHODS.values())
def test_nothing_is_said_before_that(make: Callable[[Limits], Method]) -> None:
    assert said(make, stands(job(), 0, 1, 3), until_s=4.0) == []


def test_equal_counts_are_running_for_ras() -> None:
    # GIVEN all have entered, and nothing moves (nccl#1730)
    assert said(Ras, stands(job(), 0, 1, 2, 3)) == [Said("hang")]


def test_ras_prints_the_smaller_group_even_if_that_is_ahead() -> None:
    # GIVEN three that are behind (nccl#1911)
    assert said(Ras, stands(job(), 0))[0].ranks == {0}


def test_ras_counts_five_types_of_collectives_apart() -> None:
    # GIVEN four ranks with equal counts of operations, of which rank 2 has launched an all-gather for an all-reduce
    node = stands(job(), 0, 1, 3)
    node.waits(2, 7, ROUND, since_s=1.0, kind=Kind.ALL_GATHER)
    assert said(Ras, node) == [Said("hang", frozenset({2}), fault_class="H1")]


def test_ras_does_not_count_all_to_all() -> None:
    node = stands(job(), 0, 1, 3, kind=Kind.ALL_TO_ALL)
    assert said(Ras, node) == [Said("hang")]


def test_ras_compares_all_collectives_where_records_were_lost() -> None:
    # GIVEN one operation more than the eight of which records came
    node = job()
    for rank in range(4):
        node.did(rank, 7, ROUND)
    for rank in (0, 1, 3):
        node.waits(rank, 7, ROUND + 1, since_s=1.0)
    assert said(Ras, node) == [Said("hang", frozenset({2}), fault_class="H1")]


def test_the_recorder_names_who_recorded_something_else() -> None:
    node = stands(job(), 0, 1, 3)
    node.waits(2, 7, ROUND, since_s=1.0, count=2048)
    assert said(FlightRecorder, node) == [Said("hang", frozenset({2}), fault_class="H2")]


def test_ccl_d_holds_an_inconsistency_against_those_that_do_not_hang() -> None:
    node = stands(job(), 0, 1, 3).did(2, 7, ROUND)
    assert said(CclD, node) == [Said("hang", frozenset({2}), fault_class="H2")]


def test_a_barrier_is_no_hang_for_ccl_d() -> None:
    assert said(CclD, stands(job(), 0, 1, 3, kind=Kind.BARRIER)) == []


def test_megatrace_is_silent_without_batches() -> None:
    assert said(MegaTrace, stands(job(), 0, 1, 3)) == []


def pipeline_stands() -> Node:
    """Ranks 0 to 3 are stages, of which 2 is stopped: 3 waits to receive from it, 1 to send to it, 0 to send to 1."""
    node = job()
    for rank, peer, kind in ((0, 1, Kind.SEND), (1, 2, Kind.SEND), (3, 2, Kind.RECV)):
        node.waiting[rank] = {"comm": 7, "counter": 9, "kind": kind, "since_s": 1.0, "peer": peer}
    return node


def pairs_of(*rows: tuple[int, int, Kind, int]) -> bytes:
    """Rank, peer, kind, and how many messages it has begun."""
    reported = np.zeros(len(rows), PAIR_ROW)
    for row, (rank, peer, kind, issued) in zip(reported, rows, strict=True):
        row["rank"], row["comm_id"], row["peer"], row["kind"], row["issued"] = rank, 7, peer, kind, issued
    return reported.tobytes()


PAIRS = pairs_of(
    (0, 1, Kind.SEND, 9), (1, 0, Kind.RECV, 8), (1, 2, Kind.SEND, 9), (2, 1, Kind.RECV, 8), (2, 3, Kind.SEND, 8),
    (3, 2, Kind.RECV, 9),
)  # fmt: skip


def test_the_halt_point_of_megatrace_is_found_by_sends_and_receives_too() -> None:
    # GIVEN a pipeline that has made steps, and in which stage 2 has begun neither a receive nor a send
    node, seen, method, words = pipeline_stands(), Telemetry(), MegaTrace(LIMITS), list[Said]()
    seen.steps = [(0, 0.5 * number) for number in range(8)]
    for step in range(24):
        seen.feed(node.batch(step / 2, pairs=PAIRS), T0 / S + step / 2)
        words += method.examine(seen)
    # THEN stage 1, which is behind stage 0, is a victim, and stage 2 is the halt point
    assert words == [Said("hang", frozenset({2}), fault_class="H1")]


def test_a_job_that_has_ended_hangs_no_more() -> None:
    # GIVEN the stage that was stopped has been named, and then all processes have ended WHEN nothing more comes
    node, seen, method, words = pipeline_stands(), Telemetry(), MegaTrace(LIMITS), list[Said]()
    seen.steps = [(0, 0.5 * number) for number in range(8)]
    for step in range(60):
        if step == 24:
            for rank in range(4):
                node.is_(rank, ProcessState.GONE, ended_ns=node.ns(12.0))
        seen.feed(node.batch(step / 2, pairs=PAIRS), T0 / S + step / 2)
        words += method.examine(seen)
    # THEN nothing more is said
    assert len(words) == 1


class Cables(Telemetry):
    """A job of which a test sets how much goes from rank to rank between nodes."""

    sent: dict[tuple[int, int], tuple[float, float]]

    def between_nodes(self) -> dict[tuple[int, int], tuple[float, float]]:
        return self.sent


def test_c4d_searches_late_ranks_beside_a_slow_cell() -> None:
    # GIVEN four ranks: what goes from 0 to 1 takes four times as long, and rank 3 is late in every round
    node, method, words = job(), C4d(LIMITS), list[Said]()
    seen = Cables()
    for step in range(1, 40):
        end_ns = T0 + step * S
        begun = [
            records(rank, 7, step, 1, t_issue_ns=end_ns - S // (10 if rank == 3 else 2), t_end_ns=end_ns)
            for rank in range(4)
        ]
        seen.sent = {(a, b): (1e6 * step, (4e4 if (a, b) == (0, 1) else 1e4) * step) for a, b in RING}
        seen.feed(node.batch(1.0 + step, np.concatenate(begun)), T0 / S + 1 + step)
        words += method.examine(seen)
    # THEN both are named
    assert Said("slow", links=frozenset({(0, 1)}), fault_class="S2") in words
    assert Said("slow", frozenset({3}), fault_class="S1") in words


def rounds_of(durations_s: list[float]) -> list[np.ndarray]:
    """Rounds of two ranks, the second of which is as long as reported and the first half of it."""
    made = []
    for number, took_s in enumerate(durations_s):
        rows = np.zeros(2, ROUNDS)
        rows["counter"], rows["rank"], rows["took_s"], rows["reported_s"] = number, (0, 1), (took_s / 2, took_s), number
        made.append(rows)
    return made


def test_the_baseline_of_ccl_d_is_of_a_hundred_rounds_or_two_windows() -> None:
    # GIVEN windows of 40 rounds WHEN the second is over THEN it is known, from both
    method = CclD(LIMITS)
    assert method._judge_window(0, rounds_of([0.01] * 40)) == []
    assert 0 not in method._base
    assert method._judge_window(0, rounds_of([0.03] * 40)) == []
    assert method._base[0].duration_s == pytest.approx(0.02)
    # AND a window of many rounds is enough by itself, by its first hundred
    method = CclD(LIMITS)
    method._judge_window(0, rounds_of([0.01] * 100 + [0.05] * 100))
    assert method._base[0].duration_s == pytest.approx(0.01)


@pytest.mark.parametrize(("spread", "is_slow"), [(0.001, True), (0.008, False)])
def test_the_threshold_of_ccl_d_is_of_its_own_rounds(spread: float, is_slow: bool) -> None:
    # GIVEN sound rounds of 10 ms that spread little, or much, WHEN rounds of 20 ms come twice
    method = CclD(LIMITS)
    method._judge_window(0, rounds_of([0.01 - spread, 0.01 + spread] * 50))
    assert method._base[0].threshold == pytest.approx(3 * spread / 0.01)
    reported = [method._judge_window(0, rounds_of([0.02] * 40)) for _ in range(2)]
    # THEN they are slow where the threshold, 0.3 or 2.4 times the baseline, says so
    assert bool(reported[-1]) == is_slow


def test_c4d_names_who_has_not_entered_and_nobody_if_all_have() -> None:
    assert said(C4d, stands(job(), 0, 1, 3)) == [Said("hang", frozenset({2}), fault_class="H1")]
    assert said(C4d, stands(job(), 0, 1, 2, 3)) == [Said("hang")]


INSIDE = [
    "wait (torch/distributed/x.py:1)",
    "all_reduce (torch/distributed/distributed_c10d.py:9)",
    "main (train.py:3)",
]


@pytest.mark.parametrize(
    ("of_rank_2", "named", "fault_class"),
    [
        (["sleep (data.py:8)", "main (train.py:3)"], {2}, "H1"),
        (["barrier (torch/distributed/distributed_c10d.py:9)", "main (train.py:3)"], {2}, "H2"),
        (INSIDE, set(), None),
    ],
)
def test_stacks_name_who_stands_elsewhere(of_rank_2: list[str], named: set[int], fault_class: Class | None) -> None:
    seen, method, words = Telemetry(dict.fromkeys(range(4), INSIDE) | {2: of_rank_2}), Stacks(LIMITS), list[Said]()
    node = stands(job(), 0, 1, 3)
    for step in range(24):
        seen.feed(node.batch(step / 2), T0 / S + step / 2)
        words += method.examine(seen)
    assert words == [Said("hang", frozenset(named), fault_class=fault_class)]


@pytest.mark.parametrize(("calls", "lag"), [("abbc", 4), ("aab", 3), ("a", 1)])
def test_the_iteration_is_the_first_lag_at_which_calls_repeat(calls: str, lag: int) -> None:
    assert period(np.array([ord(call) for call in calls * 40])) == lag


def test_how_a_job_begins_does_not_hide_the_period() -> None:
    calls = np.array(list("xxyz" + 100 * "ab"))
    assert period(calls) == 0
    assert period(latest(calls)) == 2


def test_calls_that_do_not_repeat_have_no_period() -> None:
    assert period(np.random.default_rng(1).integers(0, 9, 200)) == 0


@pytest.mark.parametrize(("factor", "is_change"), [(1.5, True), (1.0, False)])
def test_a_change_point_is_where_iterations_begin_to_take_longer(factor: float, is_change: bool) -> None:
    rng = np.random.default_rng(4)
    detector = Bocd()
    before = [detector.change(float(1 + 0.02 * x)) for x in rng.standard_normal(60)]
    after = [detector.change(float(factor * (1 + 0.02 * x))) for x in rng.standard_normal(10)]
    assert not any(before)
    assert any(after) == is_change


# ---- judging ---------------------------------------------------------------------------------------------------------

RANK = Expected(False, frozenset({"hang"}), frozenset({2}), frozenset({2, 3}), frozenset(), True, "H1")
LINK = Expected(False, frozenset({"hang"}), frozenset(), frozenset({0, 1}), frozenset({(0, 1)}), True, "H3")
SLOW = Expected(False, frozenset({"slow"}), frozenset({2}), frozenset({2}), frozenset(), True, "S1")
HEALTHY = Expected(True, frozenset({"hang"}), frozenset(), frozenset(), frozenset(), False, None)


def word(*ranks: int, links: tuple[tuple[int, int], ...] = (), kind: str = "hang", at_s: float = 12.0) -> Word:
    return Word(at_s, 0.5, kind, ranks, links, "H1")


@pytest.mark.parametrize(
    ("expected", "words", "verdict"),
    [
        (RANK, [word(2)], "right"),
        (RANK, [word(2, 3)], "right"),
        (RANK, [word(3)], "missed"),
        (RANK, [word()], "unknown"),
        (RANK, [word(1), word(2)], "wrong_name"),
        (RANK, [word(2, kind="slow")], "missed"),
        (RANK, [word(2, at_s=9.0)], "false_alarm"),
        (RANK, [], "missed"),
        (SLOW, [word(at_s=9.0), word(2, kind="slow")], "false_alarm"),
        (SLOW, [word(), word(2, kind="slow")], "right"),
        (SLOW, [word()], "missed"),
        (LINK, [word(links=((1, 0),))], "right"),
        (LINK, [word(1)], "right"),
        (LINK, [word(links=((1, 2),))], "wrong_name"),
        (HEALTHY, [], "right"),
        (HEALTHY, [word()], "false_alarm"),
        (HEALTHY, [word(1)], "wrong_name"),
    ],
)
def test_words_against_the_truth(expected: Expected, words: list[Word], verdict: str) -> None:
    assert judge(expected, words, fault_s=10.0).verdict == verdict


def test_times_are_from_the_fault_to_the_first_word() -> None:
    outcome = judge(RANK, [word(2), word(2, at_s=15.0)], fault_s=10.0)
    assert (outcome.detected_s, outcome.located_ms, outcome.is_class_right) == (2.0, 0.5, True)
    # AND a word of another kind is not what detects it
    assert judge(SLOW, [word(), word(2, kind="slow", at_s=17.0)], fault_s=10.0).detected_s == 7.0


# ---- the truth stays out ---------------------------------------------------------------------------------------------

SCORER = {"score", "campaign", "tables"}


def test_no_method_can_read_the_truth() -> None:
    # GIVEN everything that a method imports, and what that imports, within whichrank
    spec = importlib.util.find_spec("whichrank.testbed.bench.methods")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    methods = [path for path in folder.glob("*.py") if path.stem not in SCORER]
    assert len(methods) >= len(METHODS)
    known: set[str] = set()
    todo = list(methods)
    while todo:
        for name in _imported(todo.pop()):
            if name not in known:
                known.add(name)
                todo += [path] if (path := _source(name)) else []
    # THEN the injector, its plan and the scorer are not among it
    forbidden = {
        name
        for name in known
        if name.startswith(("whichrank.testbed.demo", "whichrank.testbed.bench.trial", "whichrank.testbed.bench.setup"))
    }
    forbidden |= {f"whichrank.testbed.bench.methods.{name}" for name in SCORER} & known
    assert not forbidden


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("whichrank"):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("whichrank")}
    return names


def _source(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None  # a name in a module
    return Path(spec.origin) if spec and spec.origin else None

"""Questions to nodes: bounded, and answers count while they are young."""

from __future__ import annotations

from whichrank.model.telemetry import Probe
from whichrank.store.probes import AGE_S, MOST_TARGETS, MOST_WITNESSES, PATIENCE_S, Probes

NONE = Probe("10.0.0.3", 4, 0, -1)


def asked() -> Probes:
    probes = Probes()
    probes.ask([0, 1], {3: "10.0.0.3"}, 100.0)
    return probes


def test_each_witness_is_asked_once_for_each_question() -> None:
    probes = asked()
    assert probes.take_wanted(0) == ["10.0.0.3"]
    assert probes.take_wanted(0) == []
    assert probes.take_wanted(1) == ["10.0.0.3"]
    assert probes.take_wanted(2) == []


def test_no_node_probes_itself() -> None:
    probes = Probes()
    probes.ask([0, 3], {3: "10.0.0.3", 0: "10.0.0.0"}, 1.0)
    assert probes.take_wanted(3) == ["10.0.0.0"]


def test_an_answer_counts_while_it_is_young() -> None:
    probes = asked()
    probes.take(0, NONE, 101.0)
    assert probes.of(0, 3, 101.0 + AGE_S / 2) == NONE
    assert probes.of(0, 3, 101.0 + 2 * AGE_S) is None
    assert probes.of(1, 3, 101.0) is None


def test_what_nobody_asked_for_is_not_taken() -> None:
    probes = asked()
    probes.take(0, Probe("10.9.9.9", 4, 4, 1), 101.0)
    probes.take(0, Probe("10.0.0.3", 0, 0, -1), 101.0)
    assert probes.of(0, 3, 101.0) is None


def test_answers_are_waited_for_and_not_for_ever() -> None:
    probes = asked()
    assert probes.outstanding([0, 1], 3, 100.5)
    probes.take(0, NONE, 101.0)
    assert probes.outstanding([0, 1], 3, 101.0)  # the other one
    assert not probes.outstanding([0], 3, 101.0)
    for second in range(20):  # WHEN it is asked for again and again THEN the patience is that of the first question
        probes.ask([1], {3: "10.0.0.3"}, 100.0 + second)
    assert not probes.outstanding([1], 3, 100.1 + PATIENCE_S + 17)


def test_one_that_gets_answers_is_told_from_one_behind_a_firewall() -> None:
    probes = Probes()
    probes.ask([0, 1], {3: "10.0.0.3", 2: "10.0.0.2"}, 1.0)
    probes.take(0, NONE, 2.0)
    assert not probes.gets_answers(0, 2.0)
    probes.take(0, Probe("10.0.0.2", 4, 1, 90_000), 2.0)
    assert probes.gets_answers(0, 2.0)
    assert not probes.gets_answers(1, 2.0)


def test_questions_are_bounded() -> None:
    probes = Probes()
    probes.ask(range(1000, 2000), {node: f"10.0.0.{node}" for node in range(100)}, 1.0)
    wanted = [probes.take_wanted(node) for node in range(1000, 2000)]
    assert sum(map(bool, wanted)) == MOST_WITNESSES
    assert {len(w) for w in wanted if w} == {MOST_TARGETS}

"""The lines of code of both sides of a contradiction, asked for while it is open."""

from __future__ import annotations

import numpy as np
from batches import T0, WORLD, Node, S, analyzer, watch

from whichrank.analyzer import Analyzer
from whichrank.model.commands import TakeStacks
from whichrank.model.evidence import AT, RAISED_AT
from whichrank.model.incident import Incident
from whichrank.model.telemetry import Event

NOW_S = T0 / S
STEP = ["all_reduce (/usr/lib/python3.11/site-packages/torch/distributed/d.py:3)", "step (/home/me/train.py:91)"]
OTHER = ["broadcast (/usr/lib/python3.11/site-packages/torch/distributed/d.py:9)", "step (/home/me/train.py:88)"]


def contradiction() -> Node:
    """Ranks 0 to 2 reduce 1,024 elements, and rank 3 reduces 8."""
    n = Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    for rank in range(4):
        n.waits(rank, 7, 9, since_s=1.0, count=8 if rank == 3 else 1024)
    return n


def asked_of(a: Analyzer) -> list[int]:
    return [rank for order in a.orders("a:1") if isinstance(order, TakeStacks) for rank in order.ranks]


def places(incident: Incident) -> dict[str | None, object]:
    return {fact.where: fact.value for fact in incident.evidence if fact.what == AT}


def test_both_sides_are_asked_for_at_once_and_reported_with_the_alert() -> None:
    # GIVEN a contradiction that has just been seen
    a, n = analyzer(), contradiction()
    assert watch(a, n, first_s=1.8, last_s=1.8) == []
    # THEN stacks of those in question are asked for
    asked = asked_of(a)
    assert 3 in asked
    assert set(asked) & {0, 1, 2}
    # WHEN they come THEN the alert has the lines of code of both sides
    n.stacks = {rank: OTHER if rank == 3 else STEP for rank in asked}
    said = watch(a, n, first_s=2.3, last_s=4.0)
    assert said[0].severity == "alert"
    assert places(said[0])["rank 3"] == "step() (/home/me/train.py:88)"
    assert "step() (/home/me/train.py:91)" in places(said[0]).values()


def test_alert_does_not_wait_long_for_stacks_and_takes_them_up_later() -> None:
    # GIVEN stacks that do not come
    a, n = analyzer(), contradiction()
    said = watch(a, n, first_s=1.8, last_s=3.6)
    assert [(i.severity, places(i)) for i in said] == [("alert", {})]
    # WHEN they come after all THEN the incident has them, once
    n.stacks = {3: OTHER, 0: STEP}
    said = watch(a, n, first_s=4.1, last_s=8.0)
    assert [places(i)["rank 3"] for i in said] == ["step() (/home/me/train.py:88)"]


def test_refused_stacks_are_not_waited_for() -> None:
    a, n = analyzer(), contradiction()
    watch(a, n, first_s=1.8, last_s=1.8)
    refused = [Event("stacks", rank, 100 + rank, n.ns(2.0), text="py-spy is not installed") for rank in asked_of(a)]
    a.feed(n.batch(2.05, events=refused), NOW_S + 2.05)
    assert [i.severity for i in watch(a, n, first_s=2.45, last_s=2.5)] == ["alert"]


def test_stack_of_before_is_no_place() -> None:
    # GIVEN a stack that was read before the operation was issued
    a, n = analyzer(), contradiction()
    a.feed(n.batch(0.5), NOW_S + 0.5)
    old = [Event("stacks", rank, 100 + rank, n.ns(0.5), stacks=[]) for rank in range(4)]
    a.feed(n.batch(0.6, events=old), NOW_S + 0.6)
    said = watch(a, n, first_s=1.8, last_s=4.0)
    assert places(said[-1]) == {}


def test_rank_that_raised_over_it_is_reported_with_its_line() -> None:
    # GIVEN a rank that raises because of the contradiction
    a, n = analyzer(), contradiction()
    a.feed(n.batch(1.2), NOW_S + 1.2)
    text = "RuntimeError: sizes differ at /home/me/train.py:88"
    n.row[3].update(exception_ns=n.ns(1.3), exception=np.bytes_(text.encode()))
    said = watch(a, n, first_s=1.5, last_s=6.0)
    reported = {fact.where: fact.value for i in said for fact in i.evidence if fact.what == RAISED_AT}
    assert reported["rank 3"] == "/home/me/train.py:88"

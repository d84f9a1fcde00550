"""A job at which nobody looks for a while is no worse watched: all is found in the tick in which it would be."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from batches import T0, Node, S, comm_info, records

from whichrank.analyzer import Analyzer, analyzer
from whichrank.config import AnalyzerConfig
from whichrank.model.telemetry import ProcessState
from whichrank.store.store import Store

NOW_S = T0 / S
RANKS = [0, 1, 2, 3]


def goes_on(node: Node, at_s: float) -> None:
    for rank in RANKS:
        node.did(rank, 7, int(10 * at_s))


def one_is_late(node: Node, at_s: float) -> None:
    """Three wait for rank 2 since a moment before they are read."""
    for rank in RANKS:
        if rank == 2:
            node.did(rank, 7, 40)
        else:
            node.waits(rank, 7, 41, since_s=at_s - 0.1)


def one_is_stopped(node: Node, at_s: float) -> None:
    one_is_late(node, at_s)
    node.is_(2, ProcessState.STOPPED)


def all_are_silent(node: Node, at_s: float) -> None:
    """What comes after this is nothing."""


def said(happens: Callable[[Node, float], None], *, speaks: bool = True) -> tuple[list[tuple[float, str, str]], int]:
    """When what was said of a job, and how often it was looked at: four seconds well, and then this happens."""
    watch = Analyzer(AnalyzerConfig(hang_timeout_s=8.0), "job", 0.0)
    node, found, looks = Node("a:1", RANKS, 4).comm(comm_info(7, RANKS)), [], 0
    picture = Store.picture

    def counted(store: Store, now_s: float) -> object:
        nonlocal looks
        looks += 1
        return picture(store, now_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "picture", counted)
        for tick in range(400):
            at_s = tick * 0.05
            if tick % 20 == 0 and (speaks or at_s < 4.0):
                (goes_on if at_s < 4.0 else happens)(node, at_s)
                watch.feed(node.batch(at_s), NOW_S + at_s)
            for incident in watch.tick(NOW_S + at_s):
                found.append((round(at_s, 2), str(incident.cause), incident.severity))
    return found, looks


@pytest.mark.parametrize("happens", [goes_on, one_is_late, one_is_stopped, all_are_silent])
@pytest.mark.parametrize("speaks", [True, False])
def test_what_is_said_and_when_is_as_without_rest(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[Node, float], None], *, speaks: bool
) -> None:
    at_rest, looks = said(happens, speaks=speaks)
    monkeypatch.setattr(analyzer, "rests_until_s", lambda *_: -math.inf)
    always, all_looks = said(happens, speaks=speaks)
    assert at_rest == always
    assert looks < all_looks
    assert bool(at_rest) == (speaks and happens in (one_is_late, one_is_stopped))


def test_a_job_that_is_well_is_looked_at_when_something_has_come_and_no_more() -> None:
    _, looks = said(goes_on)
    assert looks <= np.ceil(400 / 20) + 400 * 0.05 / 5.0 + 1


@pytest.mark.parametrize("odd", [False, True])
def test_operations_that_go_well_are_no_reason_to_look_unless_they_contradict(
    monkeypatch: pytest.MonkeyPatch, *, odd: bool
) -> None:
    # GIVEN a job that is well, of which records come between two snapshots; in some of them a rank took the maximum
    def job() -> tuple[list[tuple[int, str]], int]:
        watch, node = Analyzer(AnalyzerConfig(), "job", 0.0), Node("a:1", RANKS, 4).comm(comm_info(7, RANKS))
        for rank in RANKS:
            node.did(rank, 7, 40)
        watch.feed(node.batch(0.0, np.concatenate([records(rank, 7, 1, 40) for rank in RANKS])), NOW_S)
        found, looks = [], 0
        look = Store.picture

        def counted(store: Store, now_s: float) -> object:
            nonlocal looks
            looks += 1
            return look(store, now_s)

        monkeypatch.setattr(Store, "picture", counted)
        for tick in range(60):
            at_s = 0.05 * tick
            if tick and tick % 4 == 0:
                rows = [records(rank, 7, 5 * tick + 21, 20) for rank in RANKS]
                if odd and tick == 32:
                    rows[2]["row"]["reduce_op"][-1] = 4
                whole = node.batch(at_s, np.concatenate(rows))
                portion = msgspec.structs.replace(whole, ranks=b"", comms=b"", comm_info=[])
                watch.feed(portion, NOW_S + at_s)
            found += [(tick, str(i.cause)) for i in watch.tick(NOW_S + at_s)]
        monkeypatch.setattr(Store, "picture", look)
        return found, looks

    at_rest, looks = job()
    monkeypatch.setattr(analyzer, "is_at_ease", lambda *_: False)
    always, all_looks = job()
    # THEN the same is said in the same tick, with fewer looks
    assert at_rest == always
    assert bool(at_rest) == odd
    assert looks < all_looks

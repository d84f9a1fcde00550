"""The share of its time that a slow rank spends in a data loader, from samples of its stack and of a peer's."""

from __future__ import annotations

import pytest

from whichrank.model.telemetry import Stack
from whichrank.slow.loader_share import MOST, LoaderShare
from whichrank.store.store import Store

LOADER = ["__getitem__ (data.py)", "fetch (torch/utils/data/_utils/fetch.py)", "_next_data (dataloader.py)"]


def sampled(store: Store, rank: int, at_s: float, in_loader: float) -> None:
    shares = ((LOADER, in_loader), (["forward (model.py)"], 1.0 - in_loader))
    stacks = [Stack("MainThread", True, False, frames, share=share) for frames, share in shares]
    store.profiles[rank] = (int(at_s * 1e9), stacks)


def test_what_a_peer_loads_too_is_not_counted() -> None:
    store, loader = Store(), LoaderShare()
    # GIVEN a slow rank and one in the same position
    loader.note(5, 1, is_explained=False)

    # WHEN both were sampled, for two iterations
    assert loader.want(store, 3.0, now_s=10.0) == ([1, 5], 6.0)
    assert loader.share(5) == 0.0
    sampled(store, 5, 11.0, 0.7)
    assert loader.want(store, 3.0, now_s=12.0)[0] == [5]
    assert loader.share(5) == 0.0
    sampled(store, 1, 12.0, 0.2)
    loader.want(store, 3.0, now_s=13.0)

    # THEN the difference is the share
    assert loader.share(5) == pytest.approx(0.5)


def test_a_rank_whose_reason_is_known_is_not_sampled_and_keeps_its_share() -> None:
    store, loader = Store(), LoaderShare()
    loader.note(5, None, is_explained=False)
    sampled(store, 5, 11.0, 0.7)
    loader.want(store, 0.2, now_s=12.0)
    loader.note(5, None, is_explained=True)
    assert not loader
    assert loader.want(store, 0.2, now_s=100.0) == ([], 2.0)
    assert loader.share(5) == pytest.approx(0.7)
    # until it is slow no more
    loader.keep(lambda rank: rank != 5)
    assert loader.share(5) == 0.0


def test_it_is_asked_again_only_after_a_while_and_not_for_ever() -> None:
    store, loader = Store(), LoaderShare()
    loader.note(5, None, is_explained=False)
    asked = []
    for now_s in range(1000):
        if loader.want(store, 0.2, float(now_s))[0]:
            asked.append(now_s)
            sampled(store, 5, now_s + 0.5, 0.5)
    assert len(asked) == MOST


def test_a_peer_of_before_is_sampled_anew_when_it_is_slow_itself() -> None:
    # GIVEN a peer that was sampled as often as a rank is
    store, loader = Store(), LoaderShare()
    loader.note(5, 1, is_explained=False)
    for at in range(1, MOST + 1):
        sampled(store, 1, float(at), 0.0)
        sampled(store, 5, float(at), 0.7)
        loader.want(store, 0.2, now_s=10.0 * at)
    # WHEN the slow one is slow no more, and the peer is
    loader.keep(lambda _: False)
    loader.note(1, 0, is_explained=False)
    for at in (20.0, 30.0):
        assert 1 in loader.want(store, 0.2, now_s=10.0 * at)[0]
        sampled(store, 1, at, 0.9)
        sampled(store, 0, at, 0.0)
    loader.want(store, 0.2, now_s=400.0)
    assert loader.share(1) == pytest.approx(0.9)

"""What an agent does with shares of the work and with places: tells them to its ranks, and reports what these say."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ring_writer import RingWriter, core

from whichrank.agent.changes import Changes, tell_places, tell_shares
from whichrank.model.commands import Place, PlaceOut, Share, ShareOut
from whichrank.model.rows import PLACE_SAVE, PLACES
from whichrank.ring.places import RingPlaces
from whichrank.ring.reader import RingReader
from whichrank.ring.shares import RingShares


def offer(writer: RingWriter, microbatches: int, replica: int) -> None:
    core().wr_shares_offer.argtypes = (ctypes.c_void_p, *[ctypes.c_uint32] * 4)
    core().wr_shares_offer(writer.ring, microbatches, 1, replica, 2)


def use(writer: RingWriter, version: int) -> None:
    core().wr_shares_use.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    core().wr_shares_use(writer.ring, version)


@pytest.fixture
def watches(tmp_path: Path) -> list[Any]:
    """Three ranks, of which the last one offers nothing."""
    found = []
    for rank in range(3):
        writer = RingWriter(tmp_path / f"{rank + 1}.ring", rank=rank, world=3)
        if rank < 2:
            offer(writer, 8, rank)
        reader = RingReader(writer.path)
        found.append(
            SimpleNamespace(path=writer.path, rank=rank, pid=rank + 1, ended_ns=0, reader=reader, writer=writer)
        )
    return found


def newest(watch: Any) -> tuple[int, int, int]:
    """Version, first and count that a rank was told last."""
    row = RingShares(watch.path).read()
    version = int(row["newest"])
    return version, *(int(row["told"][version % 2][name]) for name in ("first", "count"))


def test_ranks_are_told_their_own_share(watches: list[Any]) -> None:
    tell_shares(ShareOut(1, (Share(0, 0, 3), Share(1, 3, 5), Share(7, 0, 1))), watches)
    assert [newest(watch) for watch in watches] == [(1, 0, 3), (1, 3, 5), (0, 0, 0)]


def test_only_the_next_version_is_told_and_none_that_does_not_fit(watches: list[Any]) -> None:
    for order in (
        ShareOut(2, (Share(0, 0, 3),)),  # before the first
        ShareOut(1, (Share(0, 0, 9), Share(1, 3, 5), Share(2, 0, 1))),  # of eight, and of a rank that offers nothing
        ShareOut(1, (Share(1, 0, 1),)),  # once more
    ):
        tell_shares(order, watches)
    assert [newest(watch)[0] for watch in watches] == [0, 1, 0]
    assert newest(watches[1]) == (1, 3, 5)


def test_rank_that_has_ended_or_has_no_ring_keeps_nobody_from_theirs(watches: list[Any]) -> None:
    watches[0].path.unlink()
    tell_shares(ShareOut(1, (Share(0, 0, 3), Share(1, 3, 5))), watches)
    assert newest(watches[1]) == (1, 3, 5)


def test_what_ranks_say_is_reported_when_it_is_news(watches: list[Any]) -> None:
    shares = Changes("shares")
    rows = shares.rows(watches)
    assert rows["rank"].tolist() == [0, 1]
    assert rows["shares"]["microbatches"].tolist() == [8, 8]
    assert rows["shares"]["replica"].tolist() == [0, 1]
    assert len(shares.rows(watches)) == 0
    # WHEN a rank uses what it was told THEN that is news
    tell_shares(ShareOut(1, (Share(1, 3, 5),)), watches)
    use(watches[1].writer, 1)
    (row,) = shares.rows(watches)
    assert (int(row["rank"]), int(row["shares"]["used"])) == (1, 1)
    # AND all of it is, if nobody has heard it
    shares.report_again()
    assert shares.rows(watches)["rank"].tolist() == [0, 1]


def test_ranks_are_told_their_own_place_and_it_is_reported(watches: list[Any]) -> None:
    # GIVEN two ranks that can change places, and one that cannot
    core().wr_places_offer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    for watch in watches[:2]:
        offered = np.zeros(1, PLACES)
        offered["ranks"], offered["stages"], offered["bytes"] = 2, 2, 1 << 40
        offered["saves"] = watch is watches[0]
        core().wr_places_offer(watch.writer.ring, offered.tobytes())
    places = Changes("places")
    rows = places.rows(watches)
    assert rows["rank"].tolist() == [0, 1]
    assert rows["places"]["bytes"].tolist() == [1 << 40] * 2
    # WHEN they are told THEN each has its own, and none that there is not
    tell_places(PlaceOut(1, (Place(0, 1), Place(1, 7), Place(2, 0))), watches)
    told = [RingPlaces(watch.path).read() for watch in watches]
    assert [(int(row["newest"]), int(row["told"][1])) for row in told] == [(1, 1), (0, 0), (0, 0)]
    # AND what a rank uses then is news
    core().wr_places_used.argtypes = (ctypes.c_void_p, *[ctypes.c_uint32] * 3, ctypes.c_int)
    core().wr_places_used(watches[0].writer.ring, 1, 1, 250, 0)
    rows = places.rows(watches)["places"]
    assert [rows[0][name].item() for name in ("used", "place", "took_ms", "failed", "ranks")] == [1, 1, 250, 0, 2]
    # AND who can write its state is told to, where it is
    tell_places(PlaceOut(2, (Place(0, 1), Place(1, 0)), saves=True), watches)
    told = [RingPlaces(watch.path).read() for watch in watches]
    assert [(int(row["newest"]), int(row["told"][0])) for row in told[:2]] == [(2, PLACE_SAVE | 1), (0, 0)]
    tell_places(PlaceOut(3, (Place(0, 0),), saves=True), watches)
    assert int(RingPlaces(watches[0].path).read()["newest"]) == 2

"""Ranks of a cycle that came too early, as the progress of their peers says."""

from __future__ import annotations

import numpy as np
import pytest
from job_pictures import Job

from whichrank.locate.ahead import ahead_of_peers
from whichrank.model.kinds import Kind
from whichrank.model.picture import Picture

DESCRIPTIONS = np.array([0, 1, 1, 1, 1, 2, 2])
"""Of the communicators of `job_of_eight`."""


def job_of_eight() -> Job:
    """The world, four pairs, and two groups of four."""
    return Job(
        8, world=range(8), tp01=[0, 1], tp23=[2, 3], tp45=[4, 5], tp67=[6, 7], dp0=[0, 2, 4, 6], dp1=[1, 3, 5, 7]
    )


def test_the_one_that_owes_what_the_others_of_its_round_have_done_is_ahead() -> None:
    # GIVEN rank 2 has come to the operation of the world with one operation less on its pair, in which rank 3 waits
    job = job_of_eight()
    for pair in ("tp01", "tp45", "tp67"):
        job.entered(pair, 8, *(int(digit) for digit in pair[2:]))
    for rank in (0, 1, 2, 4, 5, 6, 7):
        job.waits(rank, "world", 3)
    job.entered("tp23", 7, 2).waits(3, "tp23", 8)
    picture = job.picture()
    assert ahead_of_peers(picture, DESCRIPTIONS, picture.waits) == [2]
    # BUT not if most of the others have not done theirs either
    job.entered("tp45", 7, 4, 5).entered("tp67", 7, 6, 7)
    picture = job.picture()
    assert ahead_of_peers(picture, DESCRIPTIONS, picture.waits) == []


def test_nobody_is_ahead_without_collectives() -> None:
    picture = job_of_eight().picture()
    assert ahead_of_peers(picture, DESCRIPTIONS, picture.waits) == []


def one_by_one(picture: Picture, waits: np.ndarray) -> list[int]:
    """The same by definition: each wait with each other one."""
    found = set()
    for mine in waits:
        for theirs in waits:
            owed, entered = members(picture, theirs["comm"]), members(picture, mine["comm"])
            is_member = mine["rank"] in owed and owed[mine["rank"]] < theirs["counter"]
            if mine["comm"] == theirs["comm"] or not is_member:
                continue
            others = {rank for rank, issued in entered.items() if issued >= mine["counter"] and rank != mine["rank"]}
            sisters = np.flatnonzero(DESCRIPTIONS[theirs["comm"]] == DESCRIPTIONS)
            done = [
                issued >= theirs["counter"]
                for comm in sisters
                for rank, issued in members(picture, comm).items()
                if rank in others
            ]
            if len(done) > 1 and 2 * sum(done) > len(done):
                found.add(int(mine["rank"]))
    return sorted(found)


def members(picture: Picture, comm: int) -> dict[int, int]:
    """What each known member of a communicator has issued there."""
    rows = slice(picture.comm_at[comm], picture.comm_at[comm] + picture.comm_size[comm])
    known = zip(picture.member_rank[rows].tolist(), picture.member_issued[rows].tolist(), strict=True)
    return {rank: issued for rank, issued in known if rank >= 0}


@pytest.mark.parametrize("lost", [0, 2])
def test_all_at_once_says_the_same_as_one_by_one(lost: int) -> None:
    # GIVEN ranks that wait anywhere, some with two threads, and members of which nothing is known
    rng = np.random.default_rng(lost)
    sizes = set()
    for _ in range(300):
        job = job_of_eight()
        job.issued[:] = rng.integers(1, 4, len(job.issued))
        for rank in [*range(8), *rng.integers(0, 8, 2).tolist()]:
            comm = rng.choice([name for name, ranks in zip(job.names, job.members, strict=True) if rank in ranks])
            job.waits(rank, str(comm), int(job.issued[job.place(str(comm), rank)]), kind=Kind.ALL_REDUCE)
        picture = job.picture()
        picture.member_rank[rng.integers(0, len(picture.member_rank), lost)] = -1
        # WHEN they are held against each other all at once THEN that is what each with each other one says
        found = ahead_of_peers(picture, DESCRIPTIONS, picture.waits)
        assert found == one_by_one(picture, picture.waits)
        sizes.add(len(found))
    assert {0, 1, 2, 3} <= sizes

"""Ranks that change places while a real job trains: it computes bit for bit what it does without."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import Job, forked

from whichrank.ring.places import RingPlaces

pytestmark = pytest.mark.integration

RANKS = 4


def said(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"said.{rank}").read_text()) for rank in range(RANKS)]


class Outside:
    """Who tells the ranks of a job where to be."""

    def __init__(self, job: Job) -> None:
        self.job, self.version = job, 0
        rings = job.until(lambda rings: all(int(ring.raw["places"]["ranks"]) for ring in rings), "an offer")
        self.rings = [
            RingPlaces(job.folder / "rings" / f"{ring.pid}.ring") for ring in sorted(rings, key=lambda ring: ring.rank)
        ]

    def tell(self, places: list[int]) -> None:
        self.version += 1
        for ring, place in zip(self.rings, places, strict=True):
            ring.tell(self.version, place)

    def rows(self) -> list[Any]:
        return [ring.read() for ring in self.rings]

    def is_used(self) -> bool:
        return all(int(row["used"]) == self.version for row in self.rows())

    def tell_and_wait(self, places: list[int]) -> None:
        self.tell(places)
        self.job.until(lambda _: self.is_used(), "other places")


def parameters_by_place(folder: Path) -> list[int]:
    return [one["parameters"] for one in sorted(said(folder), key=lambda one: one["places"][-1])]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, nursery: Path) -> Path:
    """A job that whichrank does not watch."""
    folder = tmp_path_factory.mktemp("plain") / "plain"
    with forked("reordered", RANKS, folder, "off", nursery) as job:
        job.finish()
    return folder


def test_what_is_trained_is_the_same_bit_for_bit(tmp_path: Path, plain: Path, nursery: Path) -> None:
    # GIVEN a job of which ranks change places again and again, some of them not each time
    changed, random = tmp_path / "changed", np.random.default_rng(1)
    with forked("reordered", RANKS, changed, "cpp", nursery) as job:
        outside = Outside(job)
        assert [int(row["stages"]) * 10 + int(row["replicas"]) for row in outside.rows()] == [22] * RANKS
        job.until(lambda _: all(int(row["bytes"]) > 45_000 for row in outside.rows()), "the state of optimizers")
        while job.process.poll() is None:
            if outside.is_used():
                outside.tell(random.permutation(RANKS).tolist())
        assert outside.version > 3
        assert [int(row["failed"]) for row in outside.rows()] == [0] * RANKS
        job.finish()
    # THEN all losses are those of a job of which none does, and so is what each place has trained
    assert said(changed)[0]["losses"] == said(plain)[0]["losses"]
    assert parameters_by_place(changed) == parameters_by_place(plain)
    # AND they were elsewhere indeed
    places = np.array([one["places"] for one in said(changed)])
    assert (np.sort(places, axis=0) == np.arange(RANKS)[:, None]).all()
    assert len(np.unique(places, axis=1).T) > 3


@pytest.mark.parametrize("fail", ["build", "load", "corrupt"])
def test_all_stay_where_they_are_if_one_cannot_change(fail: str, tmp_path: Path, plain: Path, nursery: Path) -> None:
    folder = tmp_path / "changed"
    with forked("reordered", RANKS, folder, "cpp", nursery, FAIL=fail) as job:
        outside = Outside(job)
        outside.tell_and_wait([2, 3, 0, 1])
        outside.tell_and_wait([1, 0, 3, 2])
        # THEN that is said, with the place in which each is
        assert [int(row["failed"]) for row in outside.rows()] == [2] * RANKS
        assert [int(row["place"]) for row in outside.rows()] == [2, 3, 0, 1]
        # AND the next change is made
        outside.tell_and_wait([0, 1, 2, 3])
        assert [int(row["failed"]) for row in outside.rows()] == [0] * RANKS
        job.finish()
    assert said(folder)[0]["losses"] == said(plain)[0]["losses"]
    assert parameters_by_place(folder) == parameters_by_place(plain)


def test_order_that_is_none_changes_nothing(tmp_path: Path, plain: Path, nursery: Path) -> None:
    folder = tmp_path / "changed"
    with forked("reordered", RANKS, folder, "cpp", nursery) as job:
        outside = Outside(job)
        outside.tell_and_wait([0, 0, 1, 2])
        assert [int(row["failed"]) for row in outside.rows()] == [1] * RANKS
        job.finish()
    assert said(folder)[0]["losses"] == said(plain)[0]["losses"]


def test_job_of_which_a_rank_is_killed_meanwhile_fails_as_it_would_have(tmp_path: Path, nursery: Path) -> None:
    folder = tmp_path / "changed"
    with forked("reordered", RANKS, folder, "cpp", nursery, FAIL="die") as job:
        outside = Outside(job)
        outside.tell_and_wait([2, 3, 0, 1])
        outside.tell([1, 0, 3, 2])
        status = job.process.wait(120)
        with contextlib.suppress(ProcessLookupError):
            job.process.send_signal(signal.SIGKILL)
    assert status != 0
    assert not (folder / "said.0").exists()

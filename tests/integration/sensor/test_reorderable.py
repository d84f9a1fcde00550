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

    def tell(self, places: list[int], *, saves: bool = False) -> None:
        self.version += 1
        for ring, place in zip(self.rings, places, strict=True):
            ring.tell(self.version, place, saves=saves)

    def rows(self) -> list[Any]:
        return [ring.read() for ring in self.rings]

    def is_used(self) -> bool:
        return all(int(row["used"]) == self.version for row in self.rows())

    def tell_and_wait(self, places: list[int], *, saves: bool = False) -> list[int]:
        """The version that each has given up, 0 if none."""
        self.tell(places, saves=saves)
        self.job.until(lambda _: self.is_used(), "other places")
        return [int(row["failed"]) for row in self.rows()]


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


def test_another_job_goes_on_from_a_checkpoint_bit_for_bit(tmp_path: Path, plain: Path, nursery: Path) -> None:
    # GIVEN a job of which ranks are in other places, and that is killed some time behind a checkpoint
    first, second, checkpoints = tmp_path / "first", tmp_path / "second", str(tmp_path / "checkpoints")
    with forked("reordered", RANKS, first, "cpp", nursery, WHICHRANK_CHECKPOINTS=checkpoints) as job:
        outside = Outside(job)
        assert [int(row["saves"]) for row in outside.rows()] == [1] * RANKS
        outside.tell_and_wait([2, 3, 0, 1])
        assert outside.tell_and_wait([2, 3, 0, 1], saves=True) == [0] * RANKS
        assert outside.tell_and_wait([2, 3, 0, 1], saves=True) == [0] * RANKS
    (iterations, latest) = sorted(int(path.name.removeprefix("iteration-")) for path in Path(checkpoints).iterdir())
    assert 0 < iterations < latest
    assert all(path.stat().st_mode & 0o077 == 0 for path in Path(checkpoints).rglob("*"))
    # WHEN another one is started, in which each rank is where it is at the start
    with forked("reordered", RANKS, second, "cpp", nursery, WHICHRANK_CHECKPOINTS=checkpoints) as job:
        job.finish()
    # THEN it goes on behind the latest one, and ends as a job does that nothing has stopped
    assert [one["resumed"] for one in said(second)] == [latest] * RANKS
    assert said(second)[0]["losses"] == said(plain)[0]["losses"][latest:]
    assert parameters_by_place(second) == parameters_by_place(plain)


def test_checkpoint_that_not_all_can_write_is_none(tmp_path: Path, plain: Path, nursery: Path) -> None:
    folder, checkpoints = tmp_path / "changed", tmp_path / "checkpoints"
    checkpoints.write_text("this is a file")
    with forked("reordered", RANKS, folder, "cpp", nursery, WHICHRANK_CHECKPOINTS=str(checkpoints)) as job:
        assert Outside(job).tell_and_wait([0, 1, 2, 3], saves=True) == [1] * RANKS
        job.finish()
    assert said(folder)[0]["losses"] == said(plain)[0]["losses"]


def test_damaged_checkpoint_is_refused(tmp_path: Path, nursery: Path) -> None:
    first, second, checkpoints = tmp_path / "first", tmp_path / "second", tmp_path / "checkpoints"
    with forked("reordered", RANKS, first, "cpp", nursery, WHICHRANK_CHECKPOINTS=str(checkpoints)) as job:
        Outside(job).tell_and_wait([0, 1, 2, 3], saves=True)
    (path,) = checkpoints.rglob("place-1.pt")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with forked("reordered", RANKS, second, "cpp", nursery, WHICHRANK_CHECKPOINTS=str(checkpoints)) as job:
        assert job.process.wait(120) != 0
    assert not (second / "said.0").exists()

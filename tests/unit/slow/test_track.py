"""How long iterations of a job take, and when that has changed."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.model.iterations import Window
from whichrank.model.work import Work
from whichrank.slow.track import Change, Track

RANKS = 4


class Job:
    """Iterations of four ranks, given to a track a few at a time."""

    def __init__(self) -> None:
        self.track = Track()
        self.changes: list[Change] = []
        self._number, self._now_s = 3, 100.0
        self._rng = np.random.default_rng(7)

    @property
    def now_s(self) -> float:
        return self._now_s

    def run(self, iterations: int, seconds: float, *, pattern: int = 1, elements: float = 0.0, poll: int = 5) -> None:
        for done in range(0, iterations, poll):
            count = min(poll, iterations - done)
            total_s = seconds * (1 + self._rng.normal(0, 0.01, (RANKS, count)))
            end_s = self._now_s + np.cumsum(total_s, axis=1)
            given = np.full((RANKS, count), elements)
            window = Window(
                ranks=np.arange(RANKS),
                iteration=self._number + np.arange(count),
                end_ns=(end_s * 1e9).astype(np.int64),
                total_s=total_s,
                own_s=total_s / 2,
                position=np.zeros(RANKS, np.int64),
                in_pipeline=np.zeros(RANKS, np.bool_),
                roots=np.zeros(RANKS, np.uint64),
                lasted_s=float(total_s[0].sum()),
                ring=np.full(RANKS, -1),
                given=Work(given, np.zeros((RANKS, count))) if elements else None,
                pattern=pattern,
            )
            self.changes += self.track.feed(window, 1000.0)
            self._number += count
            self._now_s = float(end_s[0, -1])


def test_onset_and_relief_are_found_with_their_iteration_and_time() -> None:
    job = Job()
    job.run(20, 1.0)
    begun_s = job.now_s
    job.run(10, 1.5)
    relieved_s = job.now_s
    job.run(10, 1.0)
    onset, relief = job.changes
    assert (onset.iteration, onset.is_onset) == (23, True)
    assert onset.at_s == pytest.approx(1000 + begun_s, abs=0.1)
    assert (onset.before_s, onset.after_s) == (pytest.approx(1.0, rel=0.03), pytest.approx(1.5, rel=0.03))
    assert (relief.iteration, relief.is_onset) == (33, False)
    assert relief.at_s == pytest.approx(1000 + relieved_s, abs=0.1)
    assert job.track.longer is None
    assert job.track.relieved_s(1000 + begun_s) == relief.at_s
    assert job.track.relieved_s(relief.at_s + 1) is None


def test_steady_job_has_no_changes() -> None:
    job = Job()
    job.run(200, 1.0)
    assert not job.changes
    assert job.track.longer is None


def test_job_is_longer_since_the_first_of_several_steps() -> None:
    job = Job()
    job.run(20, 1.0)
    job.run(20, 1.2)
    job.run(20, 1.5)
    longer = job.track.longer
    assert longer is not None
    assert (longer.iteration, len(job.changes)) == (23, 2)
    assert longer.after_s / longer.before_s == pytest.approx(1.5, rel=0.03)


def test_short_iterations_are_put_together() -> None:
    job = Job()
    job.run(400, 0.05, poll=40)
    job.run(200, 0.1, poll=40)
    (onset,) = job.changes
    assert 393 <= onset.iteration <= 413


def test_lull_is_not_what_iterations_take() -> None:
    job = Job()
    job.run(20, 1.0)
    job.run(4, 0.5)
    job.run(20, 1.0)
    assert [change.is_onset for change in job.changes] == [False, True]
    assert job.track.longer is None


def test_other_operations_and_more_work_are_no_change() -> None:
    for others in ({"pattern": 2, "elements": 8.0}, {"elements": 16.0}):
        job = Job()
        job.run(30, 1.0, elements=8.0)
        job.run(5, 2.0, **others)
        job.run(30, 1.0, elements=8.0)
        job.run(30, 2.0, **others)
        assert not job.changes
        job.run(10, 3.0, **others)
        assert [change.after_s for change in job.changes] == [pytest.approx(3.0, rel=0.03)]


def test_what_was_seen_is_not_taken_again() -> None:
    job = Job()
    job.run(20, 1.0)
    seen = job.track
    assert seen.feed(_again(), 0.0) == []


def _again() -> Window:
    total_s = np.full((RANKS, 3), 9.0)
    return Window(
        ranks=np.arange(RANKS), iteration=np.arange(3, 6), end_ns=np.zeros((RANKS, 3), np.int64), total_s=total_s,
        own_s=total_s, position=np.zeros(RANKS, np.int64), in_pipeline=np.zeros(RANKS, np.bool_),
        roots=np.zeros(RANKS, np.uint64), lasted_s=27.0, ring=np.full(RANKS, -1),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("share", "seconds"), [(0.1, 2.0), (0.15, 1.0)])
def test_single_long_iterations_are_no_change(seed: int, share: float, seconds: float) -> None:
    rng, job = np.random.default_rng(seed), Job()
    for is_long in rng.random(1500) < share:
        job.run(1, seconds if is_long else 0.1, poll=1)
    assert job.changes == []


def test_change_to_long_iterations_is_known_after_a_few_of_them() -> None:
    # GIVEN iterations of which five make a value
    job = Job()
    job.run(300, 0.1)
    # WHEN each takes as long as two values THEN each is one soon: the change is known after eight instead of fifteen
    job.run(8, 1.0, poll=1)
    (onset,) = job.changes
    assert onset.after_s == pytest.approx(1.0, rel=0.02)

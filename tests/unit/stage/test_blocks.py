"""An iteration in blocks: what each rank did, what decided the end, and how it would have been."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from repaired_jobs import repaired
from simulated import Program, ddp, tp_pp_dp

from whichrank.stage.blocks import Blocks, What, before_and_after


def both(programs: list[Program], slow: int = 2, factor: float = 3.0) -> tuple[Blocks, Blocks]:
    """As it was with a slow rank, and without."""
    job = repaired(programs, lambda rank, _, work: work.seconds * (factor if rank == slow else 1.0), slow, factor)
    found = before_and_after(job, job.now.ranks)
    assert found is not None
    return found


@pytest.mark.parametrize("programs", [ddp(4), tp_pp_dp(), tp_pp_dp(1, 4, 1)], ids=["dp4", "tp2-pp2-dp2", "pp4"])
def test_blocks_of_a_rank_fill_its_iteration_without_overlap(programs: list[Program]) -> None:
    for blocks in both(programs):
        for rank in range(len(programs)):
            mine = blocks.rank == rank
            assert (blocks.since_s[mine][1:] >= blocks.until_s[mine][:-1] - 1e-6).all()
            covered_s = (blocks.until_s - blocks.since_s)[mine].sum()
            assert covered_s == pytest.approx(blocks.until_s[mine].max() - blocks.since_s[mine].min(), rel=1e-3)
        assert blocks.until_s.max() == pytest.approx(blocks.lasts_s)


def test_after_is_as_long_as_a_sound_job() -> None:
    before, after = both(ddp(4))
    sound, same = both(ddp(4), factor=1.0)
    assert after.iteration_s == pytest.approx(sound.iteration_s, rel=0.02)
    assert same.iteration_s == pytest.approx(sound.iteration_s)
    assert before.iteration_s - after.iteration_s == pytest.approx(0.16, abs=0.01)


def test_iteration_that_is_shown_is_usual_without_what_is_slow_as_well() -> None:
    job = repaired(ddp(4), lambda rank, _, work: work.seconds * (3.0 if rank == 2 else 1.0), 2, 3.0)
    number = before_and_after(job, job.now.ranks)[1].number  # type: ignore[index]
    # GIVEN another rank that is long in that iteration, which shows only without the slow one
    longer_s = np.where((job.now.iteration == number) & (job.now.rank == 0), 1.5, 1.0)
    then = replace(job.then, own_s=job.then.own_s * longer_s)
    found = before_and_after(replace(job, then=then), job.now.ranks)
    # THEN another one is shown
    assert found is not None
    assert found[0].number == found[1].number != number
    assert found[1].mended == (2,)


def test_critical_path_goes_through_the_slow_rank_and_covers_the_iteration() -> None:
    # GIVEN a data-parallel rank that takes three times as long
    before, after = both(ddp(4))
    lasts_s = before.until_s - before.since_s
    # THEN own time on the path is that of this rank, and makes up the iteration but for transfers
    assert lasts_s[before.is_critical & (before.rank == 2)].sum() > 0.9 * before.iteration_s
    assert lasts_s[before.is_critical].sum() <= before.lasts_s + 1e-6
    assert after.is_critical.any()


@pytest.mark.parametrize("stage", range(4))
def test_critical_path_of_a_pipeline_is_one_chain_in_time(stage: int) -> None:
    before, _ = both(tp_pp_dp(1, 4, 1), slow=stage)
    at = np.flatnonzero(before.is_critical)
    at = at[np.argsort(before.since_s[at], kind="stable")]
    # THEN no two blocks of the path are under way at once, and most of them are of the slow stage
    assert (before.since_s[at][1:] >= before.until_s[at][:-1] - 1e-6).all()
    lasts_s = (before.until_s - before.since_s)[at]
    assert lasts_s[before.rank[at] == stage].sum() > 0.6 * lasts_s.sum()


def test_phases_and_microbatches_of_a_pipeline() -> None:
    before, _ = both(tp_pp_dp(1, 4, 1, microbatches=4), slow=1, factor=1.0)
    for rank in range(4):
        for what in (What.FORWARD, What.BACKWARD):
            mine = (before.rank == rank) & (before.what == what)
            assert set(before.microbatch[mine].tolist()) == {0, 1, 2, 3}
        assert ((before.rank == rank) & (before.what == What.OPTIMIZER)).any()


def test_without_backward_passes_own_time_has_no_phase() -> None:
    job = repaired(ddp(2), lambda _, __, work: work.seconds, 0, 1.0)
    found = before_and_after(replace(job, passes=job.passes[:0]), job.now.ranks)
    assert found is not None
    assert set(found[0].what.tolist()) <= {What.OWN, What.TRANSFER, What.WAITING}


def test_ranks_that_would_wait_for_ever_have_no_blocks() -> None:
    job = repaired(ddp(2), lambda _, __, work: work.seconds, 0, 1.0)
    assert before_and_after(replace(job, then=replace(job.then, members=job.then.members + 1)), job.now.ranks) is None

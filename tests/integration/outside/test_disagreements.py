"""Scripts that go wrong by themselves: sizes that do not fit, an exchange left out, a stop where others meet."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from watched import Watched, named

from whichrank.model.incident import Cause, Reason
from whichrank.testbed.bench.launch import preloaded as preloaded_launcher

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = pytest.mark.integration


def forked(nursery: Path, folder: Path, program: str, *arguments: object) -> Watched:
    launcher = [*preloaded_launcher(nursery), "--nproc", "4", "--pids", "pids", "--"]
    return Watched(folder, [*launcher, str(PROGRAMS / program), *map(str, arguments)])


@pytest.mark.parametrize(("mine", "theirs"), [(7, 5), (5, 7), (800, 400), (400, 800)])
def test_a_rank_with_another_size_is_named_whoever_it_stops(
    tmp_path: Path, nursery: Path, mine: int, theirs: int
) -> None:
    # GIVEN one rank whose sum has another size: some members complete that round, some hang in it, some abort
    with forked(nursery, tmp_path, "sizes.py", 2, mine, theirs) as job:
        # WHEN an alert comes THEN it names that rank and nobody else
        job.until(lambda: bool(job.alerts()), "an alert")
        assert job.alerts()[-1].cause is Cause.INCONSISTENT, job.log()
        assert named(job.words()) == {2}, job.log()


def test_a_rank_that_leaves_an_uneven_exchange_out_is_named_and_not_who_aborts_over_it(
    tmp_path: Path, nursery: Path
) -> None:
    # GIVEN all-to-alls whose sizes differ each time, of which one rank leaves one out; its peers abort in the library
    with forked(nursery, tmp_path, "exchange.py", 1) as job:
        job.until(lambda: bool(job.alerts()), "an alert")
        # THEN the sizes say who it was
        assert job.alerts()[-1].cause is Cause.INCONSISTENT, job.log()
        assert named(job.words()) == {1}, job.log()


def test_a_rank_that_is_stopped_while_the_others_make_a_group_is_named(tmp_path: Path) -> None:
    # GIVEN three ranks that wait in `new_group` for one that is late
    with Watched(tmp_path, ["torchrun", "--nproc-per-node", "4", str(PROGRAMS / "late_group.py")]) as job:
        job.until(lambda: "step 10 " in job.said("stdout"), "the late rank")
        # WHEN somebody stops that one
        os.kill(job.pids()[1], signal.SIGSTOP)
        job.until(lambda: bool(job.alerts()), "an alert")
        # THEN its process state names it, though nobody waits in an operation
        last = job.alerts()[-1]
        assert (last.cause, last.reason) == (Cause.NOT_ENTERED, Reason.STOPPED), job.log()
        assert named(job.words()) == {1}, job.log()

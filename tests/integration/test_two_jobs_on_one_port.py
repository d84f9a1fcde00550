"""Two jobs meet on one port: real runs, real agents, real TCP. No word of one is said in the other, and both go on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_process import eventually
from tests.integration.ranks_of_a_node import CODE
from tests.integration.side_by_side import Run

pytestmark = pytest.mark.integration

REFUSED = "what it sends is refused"


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Run]:
    """A job of two ranks that serves; its port of rendezvous is 1."""
    with Run(tmp_path / "ours", (0, 2), 2, 1, "--serve", "127.0.0.1:0") as run:
        yield run


@pytest.mark.parametrize(
    ("ranks", "world", "port", "why"),
    [
        ((2, 2), 4, 2, "that job has the MASTER_PORT 2, this one 1"),
        ((2, 2), 4, 1, "that job has the WORLD_SIZE 4, this one 2"),
        ((1, 1), 2, 1, "both have a rank 1 that runs"),
    ],
)
def test_a_node_of_another_job_leaves_and_its_fault_is_not_ours(
    ours: Run, tmp_path: Path, ranks: tuple[int, int], world: int, port: int, why: str
) -> None:
    # GIVEN a node of another job that joins our address, and a fault there at once
    with Run(tmp_path / "theirs", ranks, world, port, "--join", ours.address()) as theirs:
        theirs.stop(ranks[0])
        # THEN both say once what happened
        eventually(lambda: "is of another job" in theirs.said())
        assert (ours.said().count(REFUSED), ours.said().count(why)) == (1, 1), ours.said()
        assert theirs.said().count("is of another job") == 1
        assert "give each job an address of its own: --serve HOST:PORT" in theirs.said()
        assert "Traceback" not in theirs.said()
        # AND the job there runs on and ends as it would have
        time.sleep(3.0)
        assert theirs.process.poll() is None
        assert theirs.end() == CODE
        assert theirs.said().count("\n") == 1, theirs.said()
    # AND nothing of it was said here
    assert ours.alerts() == []
    assert ours.end() == CODE
    assert ours.said().splitlines()[-1] == "whichrank: watched 2 ranks; no alert"


def test_our_own_fault_is_reported_while_another_job_is_sent_away(ours: Run, tmp_path: Path) -> None:
    # GIVEN another job at our address
    with Run(tmp_path / "theirs", (2, 2), 4, 2, "--join", ours.address()) as theirs:
        eventually(lambda: REFUSED in ours.said())
        # WHEN a rank of ours is stopped THEN it is named, and nobody else
        ours.stop(1)
        eventually(lambda: bool(ours.alerts()))
        assert {culprit.rank for word in ours.alerts() for culprit in word.culprits} == {1}
        assert theirs.process.poll() is None


def test_a_node_of_the_same_job_stays(tmp_path: Path) -> None:
    # GIVEN two nodes of one job
    with (
        Run(tmp_path / "ours", (0, 2), 4, 1, "--serve", "127.0.0.1:0") as ours,
        Run(tmp_path / "other", (2, 2), 4, 1, "--join", ours.address()) as other,
    ):
        # WHEN a rank of the other one is stopped THEN it is reported here
        time.sleep(5.0)
        other.stop(3)
        eventually(lambda: bool(ours.alerts()))
        assert {culprit.rank for word in ours.alerts() for culprit in word.culprits} == {3}
        assert REFUSED not in ours.said()


def test_an_agent_that_is_reported_of_another_job_ends_with_its_code(ours: Run, tmp_path: Path) -> None:
    # GIVEN an agent that somebody starts by hand for ranks of another job
    with Run(tmp_path / "theirs", (2, 2), 4, 2) as theirs:
        (folder,) = (theirs.folder / "shm").iterdir()
        done = subprocess.run(
            [sys.executable, "-m", "whichrank", "agent", "--job", folder.name, "--connect", ours.address()],
            env={**os.environ, "WHICHRANK_SHM": str(folder.parent)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        # THEN it says why, and its exit code is one of its own
        assert done.returncode == 6
        assert "is of another job" in done.stderr

"""`whichrank lab run`: a job over nodes, broken, named; nothing is left behind, also after Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rank_process import eventually

from whichrank.lab import box
from whichrank.lab.network import PREFIX, can_be_here, namespaces

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc"),
]

LAB = [sys.executable, "-m", "whichrank", "lab"]


def lab_of(run: subprocess.Popen[bytes]) -> str:
    """The name of the lab that this command has made: others of this machine may be up too."""
    names: list[str] = []

    def found() -> bool:
        names[:] = [lab.name for lab in box.labs() if lab.owner_pid == run.pid]
        return bool(names)

    eventually(found)
    return names[0]


def places_of(lab: str) -> list[str]:
    return [name for name in namespaces() if name.startswith(f"{PREFIX}{lab}-")]


def test_a_stopped_rank_of_a_job_over_four_nodes_is_named(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    # GIVEN a mixture of experts over four nodes WHEN one of its ranks is stopped
    command = [*LAB, "run", "--scenario", "stop", "--workload", "moe", "--seed", "2", "--keep", str(kept), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        lab = lab_of(run)
        out, err = run.communicate()
    # THEN it is named, and the lab is gone
    assert run.returncode == 0, out + err
    result = json.loads(out)
    assert [c["rank"] for c in result["incidents"][-1]["culprits"]] == result["truth"]["culprits"]
    assert places_of(lab) == []
    # AND its recording says the same again
    replay = [sys.executable, "-m", "whichrank", "replay", str(kept)]
    again = subprocess.run(replay, check=False, capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (3, "whichrank: as it was said live\n")


def test_ctrl_c_leaves_nothing() -> None:
    with subprocess.Popen([*LAB, "run", "--scenario", "none", "--workload", "ddp"], stderr=subprocess.PIPE) as run:
        lab = lab_of(run)
        eventually(lambda: len(places_of(lab)) == 8)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    assert run.returncode == 130
    eventually(lambda: places_of(lab) == [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scenario", "stpo"], "there is no fault 'stpo'"),
        (["--workload", "gpt"], "there is no workload 'gpt'"),
        (["--ranks", "6"], "needs 4 nodes with equally many ranks, not 6"),
        (["--rate", "fast"], "a cable cannot have the rate 'fast'"),
        (["--leaves", "1", "--ports", "2"], "with one leaf a node has one port, not 2"),
    ],
)
def test_what_cannot_run_is_said_before_anything_is_made(options: list[str], said: str) -> None:
    done = subprocess.run([*LAB, "run", *options], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
    assert "mend:" in done.stderr
    assert "Traceback" not in done.stderr

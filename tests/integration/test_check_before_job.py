"""`whichrank validate -- torchrun ...`: real processes measure before a job, and one that does not come is named."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
pytest.importorskip("torch")
PATIENCE_S = 240
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]


def validate(*words: str) -> list[str]:
    return [sys.executable, "-m", "whichrank", "validate", *words]


def test_ranks_are_measured_and_the_script_of_the_job_is_not_run(tmp_path: Path) -> None:
    script, floors = tmp_path / "train.py", tmp_path / "floors.json"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    launcher = ["--", *TORCHRUN, str(script), "--lr", "1"]
    done = subprocess.run(
        validate("--json", "--learn", str(floors), *launcher), check=False, capture_output=True, text=True, cwd=tmp_path
    )
    # THEN each has all its speeds (whether one is slow is the machine's)
    said = json.loads(done.stdout)
    assert (said["world"], said["late"], len(said["ranks"])) == (3, [], 3), done.stderr
    for one in said["ranks"]:
        assert one["problem"] == ""
        assert min(one["float32_flops"], one["memory_bytes_per_s"], one["link_bytes_per_s"]) > 0
    assert done.returncode == (4 if said["is_slow"] else 0)
    assert not (tmp_path / "ran").exists()
    # AND without one there is a floor from now on
    if not said["is_slow"]:
        (floor,) = json.loads(floors.read_text())["devices"].values()
        assert 0 < floor["float32_flops"] < 1.0 * max(one["float32_flops"] for one in said["ranks"])


def test_a_process_that_does_not_come_is_named(tmp_path: Path) -> None:
    # GIVEN a launcher of which rank 1 stands still
    stand_still = tmp_path / "sitecustomize.py"
    stand_still.write_text(
        "import os, signal\nif os.environ.get('RANK') == '1': os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(
        validate("--wait", "15", "--", *TORCHRUN),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert "rank 1 did not come to 'start'" in out
    assert process.returncode == 5


MPIRUN = """for rank in 0 1 2; do
  OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_SIZE=3 "$@" & pids="$pids $!"
done
code=0; for pid in $pids; do wait $pid || code=1; done; exit $code"""
"""Says what Open MPI's says, and fails if a process fails."""


def test_ranks_that_open_mpi_starts_are_measured_and_end_well() -> None:
    # GIVEN processes of which rank 0 has the store in it
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = validate("--json", "--", "bash", "-c", MPIRUN, "mpirun")
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
    # THEN all are measured, and none of them finds the store gone
    said = json.loads(done.stdout)
    assert [one["problem"] for one in said["ranks"]] == ["", "", ""], done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 4)  # whether one is slow is the machine's


def test_it_is_said_where_rank_0_is_missing_from_the_environment() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MASTER_")}
    command = validate("--", "bash", "-c", MPIRUN, "mpirun")
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
    assert "export MASTER_ADDR=HOST MASTER_PORT=29500" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(validate("--", *TORCHRUN), stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stderr
    process.stderr.readline()
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    process.stderr.close()
    deadline_s = time.monotonic() + 60
    while (left := children_of(process.pid)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert left == []


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == os.getpgid(0) and int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found

"""Which processes get a ring, and what happens to a job where something is missing: it goes on."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import (
    PROGRAMS,
    VARIANTS,
    environment,
    finished,
    forked,
    launched,
    rings_in,
    started,
    text,
    without_compiler,
)

from whichrank.model.codes import SensorState
from whichrank.testbed.demo.ports import free_port

pytestmark = pytest.mark.integration

ONE_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}


def run(program: str | list[str], folder: Path, variant: str, **more: str) -> subprocess.CompletedProcess[str]:
    """One process as the only rank of a job."""
    (folder / "rings").mkdir(exist_ok=True)
    command = program if isinstance(program, list) else [str(PROGRAMS / f"{program}.py")]
    variables = environment(variant, folder, MASTER_PORT=str(free_port()), **(ONE_RANK | more))
    return subprocess.run(
        [sys.executable, *command], env=variables, capture_output=True, text=True, check=False, cwd=folder
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_data_loader_workers_get_no_ring(variant: str, tmp_path: Path) -> None:
    with launched("workers", 1, tmp_path, variant) as job:
        rings = job.finish()
    workers = {int(path.name.split("-")[1]) for path in tmp_path.glob("worker-*")}
    ranks = {int(rank): int(pid) for rank, pid in re.findall(r"rank (\d) is (\d+)", job.output)}
    assert len(workers) == 2
    assert {ring.rank: ring.pid for ring in rings} == ranks
    assert workers.isdisjoint(ranks.values())
    for ring in rings:
        assert ring.header["pid"] == ring.pid
        assert ring.header["closed_ns"] > 0
        assert ring.header["exception_ns"] == ring.header["first_failure_ns"] == 0
        assert ring.header["ordinal"] == 8


@pytest.mark.parametrize("variant", VARIANTS)
def test_rank_is_learned_from_the_first_group(variant: str, tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "spawned.py")]
    with started(command, tmp_path, variant, 2, MASTER_PORT=str(free_port())) as job:
        rings = job.finish()
    assert [ring.rank for ring in rings] == [0, 1]
    assert {int(ring.header["world_size"]) for ring in rings} == {2}
    assert {int(ring.header["ordinal"]) for ring in rings} == {1}


def test_no_thread_of_the_sensor_is_left_when_the_interpreter_ends(tmp_path: Path) -> None:
    # GIVEN a rank that shows its threads after all that was to be done at its end (what was registered first runs last)
    program = """
import atexit, threading
atexit.register(lambda: print("left:", [thread.name for thread in threading.enumerate()]))
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(100):
    dist.all_reduce(torch.ones(2), async_op=True)
print("running:", [thread.name for thread in threading.enumerate()])
dist.destroy_process_group()
"""
    # WHEN it ends with operations that nobody has waited for
    done = run(["-c", program], tmp_path, "python")
    # THEN the thread that polled has ended: one that drops a work object later aborts the process
    assert done.returncode == 0, done.stderr
    assert "running: ['MainThread', 'whichrank-poll']" in done.stdout
    assert "left: ['MainThread']" in done.stdout


def test_disabled_means_nothing_is_loaded(tmp_path: Path) -> None:
    program = "import torch, sys; print([name for name in sys.modules if name.startswith('whichrank.')])"
    done = run(["-c", program], tmp_path, "cpp", WHICHRANK_DISABLE="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "['whichrank.sensors', 'whichrank.sensors.autoload']"
    assert rings_in(tmp_path / "rings") == []


def test_unwatched_process_is_left_alone(tmp_path: Path) -> None:
    done = run("single", tmp_path, "off")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_process_without_torch_has_no_ring(tmp_path: Path) -> None:
    done = run(["-c", "print('no torch here')"], tmp_path, "cpp")
    assert (done.returncode, done.stdout, done.stderr) == (0, "no torch here\n", "")
    assert rings_in(tmp_path / "rings") == []


def test_without_a_compiler_the_python_sensor_takes_over(tmp_path: Path, nursery: Path) -> None:
    with forked("single", 1, tmp_path, "cpp", nursery, **without_compiler(tmp_path)) as job:
        (ring,) = job.finish()
    said, done = job.output.splitlines()
    assert done == "done"
    assert "no C++ compiler was found" in said
    status = ring.header["sensor"][0]
    assert status["state"] == SensorState.FALLBACK
    assert text(status["message"]) == "no C++ compiler was found"
    assert ring.header["ordinal"] == 1


def test_compiler_that_fails_is_quoted(tmp_path: Path, nursery: Path) -> None:
    broken = tool(tmp_path / "c++", 'echo "x.cpp:1: error: no member named frobnicate" >&2; exit 1')
    more = {"CXX": str(broken), "WHICHRANK_CACHE": str(tmp_path / "cache")}
    with forked("single", 1, tmp_path, "cpp", nursery, **more) as job:
        (ring,) = job.finish()
    assert job.output.splitlines()[-1] == "done"
    assert "no member named frobnicate" in job.output
    assert ring.header["sensor"][0]["state"] == SensorState.FALLBACK
    assert ring.header["ordinal"] == 1


def test_folder_that_cannot_be_written_is_said_once(tmp_path: Path, nursery: Path) -> None:
    with forked("single", 1, tmp_path, "cpp", nursery, WHICHRANK_DIR="/dev/null/nowhere") as job:
        job.finish()
    assert job.output.splitlines()[-1] == "done"
    assert job.output.count("whichrank:") == 1
    assert "runs on unobserved" in job.output


@pytest.mark.parametrize("variant", VARIANTS)
def test_uncaught_exception_is_noted(variant: str, tmp_path: Path) -> None:
    raising = "import torch\ndef step():\n    raise ValueError('loss is nan')\nstep()\n"
    (tmp_path / "raising.py").write_text(raising)
    done = run([str(tmp_path / "raising.py")], tmp_path, variant)
    assert done.returncode == 1
    assert "ValueError: loss is nan" in done.stderr, "the program's own report stays"
    (ring,) = rings_in(tmp_path / "rings")
    assert text(ring.header["exception"]).startswith("ValueError: loss is nan at ")
    assert text(ring.header["exception"]).endswith("raising.py:3")
    assert ring.header["closed_ns"] > ring.header["exception_ns"]


def test_ranks_that_start_together_build_once(tmp_path: Path, built_sensor: Path, nursery: Path) -> None:
    # GIVEN an empty cache, and a compiler that takes a while and notes each call
    calls = tmp_path / "calls"
    copy = f'echo call >> {calls}; sleep 1; while [ "$1" != "-o" ]; do shift; done; cp {built_sensor} "$2"'
    compiler = tool(tmp_path / "c++", copy)
    # WHEN four ranks meet there
    more = {"CXX": str(compiler), "WHICHRANK_CACHE": str(tmp_path / "cache")}
    with forked("single", 4, tmp_path, "cpp", nursery, **more) as job:
        rings = job.finish()
    # THEN one has built for all
    assert calls.read_text() == "call\n"
    assert [ring.rank for ring in rings] == [0, 1, 2, 3]
    assert {int(ring.header["sensor"][0]["state"]) for ring in rings} == {SensorState.ON}
    assert job.output.count("building the c10d sensor") == 1
    assert [path.suffix for path in sorted((tmp_path / "cache").iterdir())] == [".lock", ".so"]


def test_ring_is_private(tmp_path: Path, nursery: Path) -> None:
    finished("single", 1, tmp_path, "cpp", nursery)
    (path,) = (tmp_path / "rings").glob("*.ring")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def tool(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_sensor_that_fails_at_its_start_leaves_the_others_on(tmp_path: Path) -> None:
    # GIVEN a rank in which times of garbage collection cannot be noted, and that raises at its end
    program = """
import whichrank.sensors.garbage_collector as collector
def broken():
    raise OSError("out of luck")
collector.watch = broken
import torch, torch.distributed as dist
dist.init_process_group("gloo")
raise ValueError("the end")
"""
    done = run(["-c", program], tmp_path, "cpp")
    # THEN that is said once, and the exception is in the ring
    assert done.stderr.count("times of garbage collection are not noted in this process: out of luck") == 1
    (ring,) = rings_in(tmp_path / "rings")
    assert text(ring.header["exception"]).startswith("ValueError")

"""What looks like a cause and is none: caught exceptions, those of peers, errors of another time, process or group."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

import pytest

from whichrank.intake.grammar import worded
from whichrank.intake.logs import read_log
from whichrank.intake.read import read
from whichrank.intake.recording import Recording
from whichrank.server.analyze import analyze
from whichrank.testbed.bench.logs import jobs
from whichrank.testbed.bench.logs.jobs import VERSIONS, Job

WORLD = 8
HOUR = 3
PLACED = (
    "node{node}:{pid}:9 [0] NCCL INFO ncclCommInitRank comm 0x55 rank {rank} nranks 8 cudaDev 0 nvmlDev 0 busId "
    "{rank}2000 commId 0x1 - Init COMPLETE"
)


def timeouts(*, silent: tuple[int, ...] = ()) -> list[str]:
    """All of eight ranks but these give up the same operation at three o'clock."""
    job = Job(WORLD, 5, VERSIONS[-1], 167, HOUR, "ALLREDUCE", 4096, Random(1))
    return [text for rank in range(WORLD) if rank not in silent for _, text in jobs.gave_up(job, rank)]


def placed(node: int = 1) -> list[str]:
    return [PLACED.format(node=node, pid=5000 + rank, rank=rank) for rank in range(WORLD)]


def raised(rank: int, text: str) -> list[str]:
    lines = ("Traceback (most recent call last):", '  File "train.py", line 60, in main', text)
    return [f"[rank{rank}]: {line}" for line in lines]


def ended(rank: int, code: int) -> str:
    return worded(
        "torchrun: a failure", stamp="2026-06-01_03:00:05", host="node1", rank=rank, local=rank, code=code,
        pid=5000 + rank, signal=-code, signal_name="SIGNAL",
    )  # fmt: skip


def recorded(folder: Path, lines: list[str]) -> Recording:
    (folder / "job.log").write_text("".join(f"{line}\n" for line in lines))
    (recording,) = read([folder]).recordings
    return recording


def said(folder: Path, lines: list[str]) -> tuple[list[int], list[int]]:
    """Who is named, and who are candidates."""
    incidents = analyze(recorded(folder, lines))
    return (
        [one.rank for incident in incidents for one in incident.culprits],
        [one.rank for incident in incidents for one in incident.candidates],
    )


# ---- exceptions that ended nobody ------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["step 300 loss 1.2", "WARNING falling back to eager", "Retrying in 3 s"])
def test_who_works_on_behind_an_exception_has_caught_it(tmp_path: Path, after: str) -> None:
    assert said(tmp_path, [*raised(0, "OSError: no route"), f"[rank0]: {after}"]) == ([], [])
    assert said(tmp_path, [*raised(0, "OSError: no route"), f"[rank0]: {after}", ended(5, -9)]) == ([], [5])


def test_the_text_of_an_exception_over_several_lines_is_no_work(tmp_path: Path) -> None:
    more = ["[rank0]: CUDA kernel errors might be asynchronously reported at some other API call."]
    assert said(tmp_path, [*raised(0, "RuntimeError: CUDA error: an illegal memory access"), *more]) == ([0], [])


def test_an_exception_that_python_ignores_ends_nobody(tmp_path: Path) -> None:
    ignored = ["[rank3]: Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>"]
    lines = [*ignored, *raised(3, "AssertionError: can only test a child process"), ended(6, -9)]
    assert said(tmp_path, lines) == ([], [6])


def test_who_was_still_there_to_be_ended_comes_behind_who_was_killed(tmp_path: Path) -> None:
    lines = [*raised(2, "OSError: no cache"), ended(2, -15), ended(0, -15), ended(6, -9)]
    assert said(tmp_path, lines) == ([], [6])


def test_who_raised_and_ended_by_itself_is_named(tmp_path: Path) -> None:
    assert said(tmp_path, [*raised(2, "ValueError: no labels"), ended(2, 1), ended(0, -15)]) == ([2], [])


@pytest.mark.parametrize("text", ["StopIteration", "subprocess.TimeoutExpired: Command 'x' timed out after 30 seconds",
                                  "FileNotFoundError: '/data/nccl_tests/NCCL/shard.tar'"])  # fmt: skip
def test_exceptions_of_any_name_are_read(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, [*raised(3, text), *timeouts(silent=(3,))]) == ([3], [])


def test_what_all_raise_is_of_no_rank(tmp_path: Path) -> None:
    lines = [line for rank in range(64) for line in raised(rank, "FileNotFoundError: '/data/config.yaml'")]
    assert said(tmp_path, lines) == ([], [])


# ---- exceptions over a peer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 7/8 clients joined.",
        "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0",
        "TimeoutError: The client socket has timed out after 1800s while trying to connect to (10.0.0.1, 29500).",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "TimeoutError: RPC call to execute_model timed out.",
        "RuntimeError: remote rank 7 failed: ValueError: bad",
        "RuntimeError: [3]: params[0] in this process with sizes [4, 4] appears not to match sizes of the same param "
        "in process 0.",
        "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 148 params, while rank 0 has "
        "inconsistent 150 params.",
    ],
)
def test_who_reports_a_peer_is_not_at_fault(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, raised(4, text)) == ([], [])


def in_barrier(rank: int, joined: int, key: int = 1) -> list[str]:
    return raised(
        rank,
        f"RuntimeError: Timed out initializing process group in store based barrier on rank: {rank}, for key: "
        f"store_based_barrier_key:{key} (world_size=8, worker_count={joined}, timeout=0:30:00)",
    )


def test_who_alone_had_not_come_when_the_job_began(tmp_path: Path) -> None:
    lines = [line for rank in range(WORLD) if rank != 6 for line in in_barrier(rank, 7)]
    assert said(tmp_path, lines) == ([6], [])


@pytest.mark.parametrize("key", [1, 2])
def test_who_had_not_come_is_not_known_where_others_have_not_written(tmp_path: Path, key: int) -> None:
    recording = recorded(tmp_path, in_barrier(0, 7, key))
    assert not any(incident.culprits or incident.candidates for incident in analyze(recording))
    assert any("1 rank had not come" in one for one in recording.remarks) == (key == 1)


def test_a_barrier_of_a_smaller_group_names_no_rank_of_the_job(tmp_path: Path) -> None:
    recording = recorded(tmp_path, raised(4, "RuntimeError: Rank 1 failed to pass monitoredBarrier in 5000 ms"))
    assert not any(incident.culprits or incident.candidates for incident in analyze(recording))
    assert any("number 1 of its group" in one for one in recording.remarks)


# ---- errors of another time, host or process -------------------------------------------------------------------------


def kernel(when: str, host: str, text: str) -> str:
    return f"{when} {host} kernel: {text}"


XID = "NVRM: Xid (PCI:0000:02:00): {number}, pid={pid}, name=python3, GPU has fallen off the bus."
KILLED = "Out of memory: Killed process 5002 (python3) total-vm:1234kB, anon-rss:1234kB"


def placed_apart() -> list[str]:
    """Eight ranks on a node, each with its own device: that of rank 0 is 0000:02:00."""
    return [line.replace(f"busId {rank}2000", f"busId {rank:x}02000") for rank, line in enumerate(placed())]


def test_an_error_of_the_device_in_the_run_is_the_cause(tmp_path: Path) -> None:
    error = kernel("Jun  1 02:55:00", "node1", XID.format(number=79, pid=1777))
    assert said(tmp_path, [*placed_apart(), *timeouts(), error]) == ([0], [])


@pytest.mark.parametrize("when", ["May 20 04:30:00", "Jun  1 04:30:00", "Jun  1 02:00:00"])
def test_an_error_of_another_time_is_none(tmp_path: Path, when: str) -> None:
    error = kernel(when, "node1", XID.format(number=79, pid=1777))
    recording = recorded(tmp_path, [*placed_apart(), *timeouts(), error])
    assert not any(incident.culprits for incident in analyze(recording))


def test_an_error_of_a_program_is_of_its_process_only(tmp_path: Path) -> None:
    error = f"[100.1] {XID.format(number=13, pid=111)}"
    assert said(tmp_path, [*placed_apart(), *timeouts(), error])[0] == []
    error = f"[100.1] {XID.format(number=13, pid=5000)}"
    assert said(tmp_path, [*placed_apart(), *timeouts(), error])[0] == [0]


@pytest.mark.parametrize(("pid", "named"), [(111, []), (5000, [0]), ("'<unknown>'", [0])])
def test_an_error_without_a_time_is_of_the_process_that_it_names(tmp_path: Path, pid: object, named: list[int]) -> None:
    (tmp_path / "dmesg.txt").write_text(f"[100.1] {XID.format(number=79, pid=pid)}\n")
    assert said(tmp_path, [*placed_apart(), *timeouts()])[0] == named


@pytest.mark.parametrize(
    ("when", "host", "named", "candidates"),
    [
        ("Jun  1 02:55:00", "node1", [2], []),
        ("Jun  1 02:55:00", "node7", [], [2, 5]),
        ("Jun  1 05:30:00", "node1", [], [2, 5]),
    ],
)
def test_lack_of_memory_is_of_that_host_and_run(
    tmp_path: Path, when: str, host: str, named: list[int], candidates: list[int]
) -> None:
    lines = [*placed(), *timeouts(silent=(2, 5)), kernel(when, host, KILLED)]
    assert said(tmp_path, lines) == (named, candidates)


# ---- lines of another launcher or group ------------------------------------------------------------------------------


def test_a_task_of_slurm_counts_beside_a_traceback(tmp_path: Path) -> None:
    lines = ["srun: error: node1: task 5: Out Of Memory", *raised(0, "ValueError: x")]
    assert said(tmp_path, lines) == ([], [0, 5])


def test_who_has_written_of_another_group_only_may_still_have_come(tmp_path: Path) -> None:
    line = (
        "[rank5]:[E601 03:00:00.3 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 7(mesh_tp) Rank 1] Received a dump "
        "signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info. Last "
        "enqueued NCCL work: 12, last completed NCCL work: 12."
    )
    assert said(tmp_path, [*timeouts(silent=(5,)), line]) == ([], [5])


# ---- what launchers and libraries say in one line --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        ("slurmstepd: error: *** STEP 8.0 ON node1 CANCELLED AT 2026-06-01T03:00:00 DUE TO TIME LIMIT ***", "limit"),
        ("slurmstepd: error: *** JOB 8 ON node1 CANCELLED AT 2026-06-01T03:00:00 DUE TO PREEMPTION ***", "another"),
        ("slurmstepd: error: *** JOB 8 ON node1 CANCELLED AT 2026-06-01T03:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD "
         "LOG FOR DETAILS ***", "a node had failed"),
    ],
)  # fmt: skip
def test_tasks_that_slurm_has_ended_are_no_candidates(tmp_path: Path, line: str, remark: str) -> None:
    recording = recorded(
        tmp_path, [line, "srun: error: node1: tasks 0-7: Terminated", "srun: error: node2: task 8: Killed"]
    )
    assert not any(incident.culprits or incident.candidates for incident in analyze(recording))
    assert any(remark in one for one in recording.remarks)


def test_the_task_for_which_slurm_has_ended_the_others(tmp_path: Path) -> None:
    lines = [
        "srun: error: node2: task 11: Exited with exit code 1",
        "slurmstepd: error: *** STEP 8812.0 ON node1 CANCELLED AT 2026-06-01T03:00:00 ***",
        "srun: error: node1: tasks 0-7: Terminated",
    ]
    assert said(tmp_path, lines) == ([], [11])


@pytest.mark.parametrize(
    "line",
    [
        "E0601 03:00:00.1 4711 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) "
        "local_rank: 3 (pid: 5003) of binary: /usr/bin/python",
        "[rank: 3] Child process with PID 5003 terminated with code -11. Forcefully terminating all other processes",
    ],
)
def test_the_end_of_a_process_is_of_the_rank_with_its_pid(tmp_path: Path, line: str) -> None:
    assert said(tmp_path, [*placed(), line]) == ([3], [])
    (tmp_path / "job.log").unlink()
    recording = recorded(tmp_path, [line])
    assert not any(incident.culprits or incident.candidates for incident in analyze(recording))
    assert any("process 5003: " in one and "no line says which rank" in one for one in recording.remarks)


def met_an_error(rank: int) -> str:
    return (
        f"[rank{rank}]:[E601 02:50:00.1 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process "
        "group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered"
    )


def test_who_met_an_error_of_its_device_is_named_and_nobody_if_all_did(tmp_path: Path) -> None:
    assert said(tmp_path, [met_an_error(4), *timeouts(silent=(4,))]) == ([4], [])
    assert said(tmp_path, [met_an_error(rank) for rank in range(WORLD)]) == ([], [])


def test_ranks_whose_watchdog_got_stuck_are_said(tmp_path: Path) -> None:
    text = worded("heartbeat of the watchdog", pg="0", desc="default_pg", place=5)
    recording = recorded(tmp_path, [f"[rank5]:[E601 03:10:00.1 ProcessGroupNCCL.cpp:1743] {text}"])
    assert any("got stuck on rank 5: " in one for one in recording.remarks)


def test_how_many_ranks_there_are_by_lightning(tmp_path: Path) -> None:
    line = worded("Lightning: how many ranks there are", rank=0, world=16)
    assert said(tmp_path, [line, *timeouts()]) == ([], list(range(8, 16)))


def test_an_error_of_a_node_that_is_none_of_the_ranks(tmp_path: Path) -> None:
    """The devices of all nodes have the same addresses."""
    error = kernel("Jun  1 02:55:00", "node9", XID.format(number=79, pid=1777))
    assert said(tmp_path, [*placed_apart(), *timeouts(), error])[0] == []


def test_numbers_in_a_smaller_group_are_none_of_the_job(tmp_path: Path) -> None:
    job = Job(WORLD, 5, VERSIONS[-1], 40, HOUR, "ALLREDUCE", 4096, Random(1))
    lines = [
        text.removeprefix(f"[rank{rank}]:")
        for rank in (0, 1, 3)
        for _, text in jobs.gave_up(job, rank, pg="3", desc="DATA_PARALLEL_GROUP")
    ]
    recording = recorded(tmp_path, lines)
    assert not any(incident.culprits or incident.candidates for incident in analyze(recording))
    assert any("a smaller group" in one for one in recording.remarks)


def test_a_job_that_slurm_queues_again_is_another_attempt() -> None:
    again = worded("slurmstepd: the job is queued again", job=7, host="node1")
    lines = [*timeouts(silent=(2,)), again, *timeouts(silent=(5,))]
    log = read_log(io.BytesIO("\n".join(lines).encode()))
    assert len(log.before) == len(log.restarts_s) == 1
    assert sorted({one.rank for one in log.standings}) == [0, 1, 2, 3, 4, 6, 7]

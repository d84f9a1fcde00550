"""Ends of processes and pods that Ray, Kubernetes, DeepSpeed and accelerate report."""

from __future__ import annotations

import pytest

from whichrank.intake.ends import Ends
from whichrank.intake.ends_of_ranks import with_ends
from whichrank.intake.facts import Fact
from whichrank.intake.grammar import worded
from whichrank.intake.lines.prefixes import Who, taken_off


def seen(*lines: str, who: Who | None = None) -> Ends:
    ends = Ends()
    for line in lines:
        said, text = taken_off(line)
        assert ends.see(text, who or said), line
    return ends


def test_where_ray_has_put_its_workers() -> None:
    ends = seen(
        worded("Ray: where a rank is", address="10.0.0.2", pid=7003, rank=3, local=1),
        "(TorchTrainer pid=71127) - (ip=10.216.70.82, pid=75299) world_rank=1, local_rank=1, node_rank=0",
        worded("Ray: a rank begins", pid=7005, address="10.0.0.3", rank=5, world=16),
    )
    assert ends.places == {3: ("10.0.0.2", 7003), 1: ("10.216.70.82", 75299), 5: ("10.0.0.3", 7005)}
    assert (ends.most_rank, ends.world_size) == (15, 16)
    assert seen("(TorchTrainer pid=1) - (ip=10.2.7.8, pid=9) world_rank=1, local_rank=1, node_rank=0").world_size == 0


@pytest.mark.parametrize(
    ("kind", "detail", "status", "lacks"),
    [
        ("SYSTEM_ERROR", "Worker unexpectedly exits with a connection error code 2. End of file.", -1, False),
        ("SYSTEM_ERROR", "Worker exits unexpectedly. Worker exits with an exit code 3.", 3 << 8, False),
        ("SYSTEM_ERROR", "Worker exits unexpectedly. Worker exits with an exit code None.", -1, False),
        ("NODE_OUT_OF_MEMORY", "Task was killed due to the node running low on memory.", 9, True),
    ],
)
def test_how_ray_says_that_a_worker_has_ended(kind: str, detail: str, status: int, lacks: bool) -> None:
    (end,) = seen(
        f"(raylet, ip=10.0.0.3) A worker died. Worker IP address: 10.0.0.3 Worker port: 101 Worker PID: 71 Worker exit "
        f"type: {kind} Worker exit detail: {detail}"
    ).ends
    assert (end.host, end.pid, end.status, end.lacked_memory) == ("10.0.0.3", 71, status, lacks)


@pytest.mark.parametrize(
    ("lines", "pod", "lacks"),
    [
        (("Name:             job-3", "      Reason:       OOMKilled"), "job-3", True),
        (("Name:             job-3", "Reason:           Evicted"), "job-3", False),
        (
            ("Name:             job-3", "  Warning  Evicted    3m    kubelet            The node was low"),
            "job-3",
            False,
        ),
        (("job-4   0/1     OOMKilled   2 (3m ago)   3h",), "job-4", True),
        (("team-a    job-4   0/8     Evicted   0   3h",), "job-4", False),
        (("3m   Warning   Evicted   pod/job-5   The node was low on resource: memory.",), "job-5", False),
    ],
)
def test_pods_that_kubernetes_has_ended(lines: tuple[str, ...], pod: str, lacks: bool) -> None:
    (end,) = seen(*lines).ends
    assert (end.host, end.pid, end.lacked_memory) == (pod, 0, lacks)


def test_the_command_in_the_last_line_of_deepspeed_is_of_the_process_that_it_started_last() -> None:
    ends = seen(
        worded("DeepSpeed: ranks of hosts", host="localhost", ranks="0, 1, 2"),
        *(worded("DeepSpeed: a process begins", pid=80 + rank, local=rank) for rank in range(3)),
        worded("DeepSpeed: a process has ended", local=2, code=-9),
    )
    assert ends.places == {0: ("", 80), 1: ("", 81), 2: ("", 82)}
    assert ends.ends == []
    (remark,) = ends.remarks
    assert "by signal 9" in remark
    assert "not of the one that ended" in remark


def test_ranks_of_deepspeed_on_several_hosts_are_known_by_the_host_before_the_line() -> None:
    ends = Ends()
    ends.see("[launch.py:1:main] global_rank_mapping=defaultdict(<class 'list'>, {'a1': [0, 1], 'a2': [2, 3]})", Who())
    begins = worded("DeepSpeed: a process begins", pid=90, local=1)
    ends.see(begins, Who())
    assert ends.places == {}  # which host that is nothing says
    ends.see(begins, Who(host="a2"))
    assert ends.places == {3: ("a2", 90)}


@pytest.mark.parametrize(
    ("end", "how"),
    [("died with <Signals.SIGKILL: 9>.", "by SIGKILL"), ("returned non-zero exit status 1.", "with code 1")],
)
def test_accelerate_does_not_say_which_rank(end: str, how: str) -> None:
    (remark,) = seen(f"subprocess.CalledProcessError: Command '['python', 'a.py']' {end}").remarks
    assert how in remark


# ---- whose they are --------------------------------------------------------------------------------------------------


def killed_by_ray(pid: int, address: str) -> Ends:
    return seen(worded("Ray: out of memory", address=address, pid=pid))


def test_an_end_is_joined_by_process_and_host() -> None:
    places = {rank: (f"10.0.0.{rank // 2}", 7000 + rank % 2) for rank in range(4)}
    found, unknown = with_ends(killed_by_ray(7001, "10.0.0.1").ends, {}, places)
    assert unknown == []
    (fact,) = found.values()
    assert (fact.rank, fact.status, fact.lacked_memory, fact.has_ended) == (3, 9, True, True)


def test_an_end_that_fits_several_or_none_is_of_nobody() -> None:
    places = {0: ("", 7), 1: ("", 7)}
    for pid in (7, 8):
        found, (remark,) = with_ends(killed_by_ray(pid, "10.0.0.1").ends, {}, places)
        assert found == {}
        assert "no line says which rank that is" in remark


def test_of_a_pod_with_several_ranks_nobody_is_said_to_have_ended() -> None:
    ends = seen("job-4   0/1     OOMKilled   0   3h").ends
    facts = {rank: Fact(rank, "job-4", 70 + rank) for rank in range(2)}
    found, _ = with_ends(ends, facts, {})
    assert [(fact.rank, fact.has_ended) for fact in found.values()] == [(0, False), (1, False)]
    assert all("OOMKilled of pod job-4" in fact.words[0] for fact in found.values())
    (alone,) = with_ends(ends, {5: Fact(5, "job-4", 75)}, {})[0].values()
    assert (alone.rank, alone.status, alone.lacked_memory) == (5, 9, True)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ("back-off 40s restarting failed container=pytorch pod=w-0_kubeflow(2e06a4e3)",),
            "container pytorch of pod w-0 ",
        ),
        (
            ("Back-off restarting failed container pytorch in pod w-0_ns(2e06)",),
            "container pytorch of pod w-0 again since",
        ),
        (("w-0   0/1   CrashLoopBackOff   5 (2m ago)   20m",), "a container of pod w-0 again, 5 times;"),
        (("Name:             w-0", "    Restart Count:  1"), "a container of pod w-0 again, once;"),
    ],
)
def test_a_container_that_kubernetes_starts_again_names_nobody(lines: tuple[str, ...], said: str) -> None:
    ends = seen(*lines)
    (remark,) = ends.remarks
    assert said in remark
    assert "kubectl logs --previous w-0" in remark
    assert not ends.ends


@pytest.mark.parametrize(
    "line", ["    Restart Count:  0", "    Restart Count:  3", "Back-off restarting failed container"]
)
def test_a_count_without_a_pod_or_a_restart_says_nothing(line: str) -> None:
    ends = Ends()
    assert not ends.see(line, Who())
    assert not ends.remarks

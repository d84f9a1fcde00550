"""Faults that only a launcher, the kernel of a node or the network library says something of, as lines of a log."""

from __future__ import annotations

from typing import Any, Final

from whichrank.intake.grammar import worded
from whichrank.testbed.bench.logs.jobs import LAUNCHER, Job, Line, Told, after_another, gave_up, silent

PER_NODE: Final = 8
FATAL: Final = 0xBE00000000800400
"""Status of a machine check that was not corrected."""
CORRECTED: Final = 0x8C00004000010091


def _node(rank: int) -> str:
    return f"node{rank // PER_NODE}"


def _address(rank: int) -> str:
    return f"10.0.0.{rank // PER_NODE}"


def _process(rank: int) -> dict[str, Any]:
    return {"host": _node(rank), "pid": 5000 + rank, "tid": 6000 + rank, "local": rank % PER_NODE}


def placed(job: Job) -> list[Line]:
    """What NCCL says of where each rank is."""
    return [
        (rank, worded("NCCL: who is where", comm=f"0x55840{rank:03x}", rank=rank, world=job.world, bus_id="b3000",
                      comm_id="0xb886", **_process(rank)))
        for rank in range(job.world)
    ]  # fmt: skip


def placed_by_ray(job: Job, first_pid: int = 7000) -> list[Line]:
    """What Ray says of where each rank is."""
    return [
        (LAUNCHER, worded("Ray: where a rank is", address=_address(rank), pid=first_pid + rank, rank=rank,
                          local=rank % PER_NODE))
        for rank in range(job.world)
    ]  # fmt: skip


def short_of_memory_in_ray(job: Job) -> Told:
    """Ray has killed its worker for lack of memory."""
    why = worded("Ray: out of memory", address=_address(job.culprit), pid=7000 + job.culprit)
    return Told([*placed_by_ray(job), *silent(job).lines, (LAUNCHER, why)])


def lost_in_ray(job: Job) -> Told:
    """Ray has found its worker dead, and does not know why; and then those that gave up."""
    ends = [
        (LAUNCHER, worded("Ray: a worker has ended", address=_address(rank), port=10110, pid=7000 + rank))
        for rank in (job.culprit, *job.others())
    ]
    return Told([*placed_by_ray(job), ends[0], *silent(job).lines, *ends[1:]], decides=False)


def restarted_by_ray(job: Job) -> Told:
    """Another rank was late in the first attempt; Ray's controller has started all workers again."""
    started = [(LAUNCHER, worded("Ray: all workers have started", world=job.world))]
    says = ("Ray: another attempt", "Ray: another attempt, by its state")
    again = [(LAUNCHER, worded(name)) for name in job.random.choice((says, says[:1], says[1:], ()))]
    second = [*again, *started, *placed_by_ray(job, 9000)]
    return after_another(job, second, [*started, *placed_by_ray(job)])


def restarted_by_jobset(job: Job) -> Told:
    """Another rank was late in the first attempt; JobSet has started all pods again, and its event lies between."""
    return after_another(job, [(LAUNCHER, worded("JobSet: another attempt", host="job-worker-0"))])


def _pod(rank: int) -> str:
    return f"job-worker-{rank}"


def in_pods(job: Job) -> list[Line]:
    """What NCCL says of where each rank is, where each has a pod of its own."""
    return [
        (rank, worded("NCCL: who is where", comm=f"0x55840{rank:03x}", rank=rank, world=job.world, bus_id="b3000",
                      comm_id="0xb886", host=_pod(rank), pid=7, tid=9, local=0))
        for rank in range(job.world)
    ]  # fmt: skip


def short_of_memory_in_a_pod(job: Job) -> Told:
    """Its container ran out of memory, as `kubectl describe` or `kubectl get` says behind the log."""
    name = worded("Kubernetes: name of a pod", host=_pod(job.culprit))
    state = worded("Kubernetes: a container ran out of memory").splitlines()
    listed = worded("Kubernetes: pods in a list", host=_pod(job.culprit), reason="OOMKilled")
    said = [listed] if job.random.randrange(2) else [name, *state]
    return Told([*in_pods(job), *silent(job).lines, *((LAUNCHER, line) for line in said)])


def evicted(job: Job) -> Told:
    """Its pod was evicted."""
    name = worded("Kubernetes: name of a pod", host=_pod(job.culprit))
    said = (name, worded("Kubernetes: a pod was evicted"))
    return Told([*in_pods(job), *silent(job).lines, *((LAUNCHER, line) for line in said)], decides=False)


def container_started_again(job: Job) -> Told:
    """Its container has ended, and Kubernetes starts it again while all others wait."""
    name = job.random.choice(
        ("Kubernetes: a container is started again", "Kubernetes: how often those of a listed pod were")
    )
    said = [(LAUNCHER, worded(name, host=_pod(job.culprit)))]
    behind = job.random.randrange(2)
    return Told([*in_pods(job), *said * (1 - behind), *silent(job).lines, *said * behind], decides=False)


def killed_by_deepspeed(job: Job) -> Told:
    """A process of DeepSpeed was killed; its launcher prints the command of the one that it started last."""
    ranks = ", ".join(map(str, range(job.world)))
    lines = [worded("DeepSpeed: ranks of hosts", host="localhost", ranks=ranks)]
    lines += [worded("DeepSpeed: a process begins", pid=8000 + rank, local=rank) for rank in range(job.world)]
    end = worded("DeepSpeed: a process has ended", local=job.world - 1, code=-9)
    return Told([*((LAUNCHER, one) for one in lines), *silent(job).lines, (LAUNCHER, end)], decides=False)


def ended_in_accelerate(job: Job) -> Told:
    """What accelerate has started was killed; it does not say which rank that was."""
    end = worded("accelerate: what it started has ended", signal_name="SIGKILL", signal=9)
    head = "Traceback (most recent call last):"
    return Told([*silent(job).lines, (LAUNCHER, head), (LAUNCHER, end)], decides=False)


def broken_switch(job: Job) -> Told:
    """An NVSwitch of its node has failed; on another node one has reported what hangs nobody."""
    name, clock = "NVIDIA's driver: an error of an NVSwitch", f"{job.hour:02}:00:00"
    fatal = worded(
        name, clock=clock, host=_node(job.culprit), sxid=20034, severity="Fatal", text="Link 30 LTSSM Fault Up"
    )  # fmt: skip
    other = worded(
        name, clock=clock, host="node99", sxid=28006, severity="Non-fatal", text="Link 46 MC TS crumbstore MCTO (First)"
    )
    waits = [line for rank in range(job.world) for line in gave_up(job, rank)]
    return Told([*placed(job), (LAUNCHER, other), *waits, (LAUNCHER, fatal)], decides=False)


def machine_check(job: Job) -> Told:
    """A processor of its node has failed; on another node an error was corrected."""
    clock = f"{job.hour:02}:00:00"
    fatal = worded("kernel: a machine check", clock=clock, host=_node(job.culprit), cpu=12, status=FATAL)
    panic = worded("kernel: a panic by a machine check", clock=clock, host=_node(job.culprit))
    other = worded("kernel: a machine check", clock=clock, host="node99", cpu=3, status=CORRECTED)
    ends = [(LAUNCHER, text) for text in (other, fatal, *[panic] * job.random.randrange(2))]
    return Told([*placed(job), *silent(job).lines, *ends], decides=False)


def damaged_memory(job: Job) -> Told:
    """The kernel has ended its process since its memory is damaged."""
    name = job.random.choice(("kernel: killed by damaged memory", "kernel: a signal by damaged memory"))
    return Told([*placed(job), *silent(job).lines, (job.culprit, worded(name, pid=5000 + job.culprit))])


def requests_stall(job: Job) -> Told:
    """All wait in the same operation, and network requests from and to it have no completion."""
    return _requests(job, "NCCL: a request that is late")


def requests_slow(job: Job) -> Told:
    """The same with requests that took long."""
    return _requests(job, "NCCL: a request that was slow")


def _requests(job: Job, name: str) -> Told:
    before, behind = (job.culprit - 1) % job.world, (job.culprit + 1) % job.world
    lines = [
        (rank, worded(name, peer=f"{_address(other)}<4791>", gid=f"fe80::{other}", own_gid=f"fe80::{rank}",
                      qpn=1000 + rank, peer_qpn=1000 + other, age_ns=4 * 10**9, in_flight=3, **_process(rank)))
        for rank, other in ((before, job.culprit), (job.culprit, behind))
    ]  # fmt: skip
    waits = [line for rank in range(job.world) for line in gave_up(job, rank)]
    return Told([*placed(job), *waits, *lines], decides=False)

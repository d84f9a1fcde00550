"""What the ranks of a hung job write, line by line, and who is at fault.

Each fault is a function of a job that returns lines, each with the rank that writes it (`LAUNCHER`: none), and says
whether a careful reader could name the culprit by them, or only say who it may be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from whichrank.intake.grammar import worded

LAUNCHER: Final = -1
Line = tuple[int, str]
"""A line with who writes it."""
Dress = Callable[[int, str, str], str]
"""Of a rank, a line and when it is collected, the line as it reaches the log."""
COLLECTIVES: Final = 20
"""That a rank enqueues."""
LEAST_IN_SUBGROUP: Final = 3
"""Members, of which two can show how they are spaced."""
OPS: Final = ("ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLGATHER", "REDUCE_SCATTER")


class Version(NamedTuple):
    """How a version of torch writes; "" where it has no such line."""

    name: str
    timeout: str
    status: str
    asked: str
    has_rank: bool
    has_time: bool


VERSIONS: Final = (
    Version("1.13", "timeout, without sizes", "", "", has_rank=False, has_time=False),
    Version("2.1", "timeout", "", "", has_rank=False, has_time=False),
    Version("2.2", "timeout", "", "", has_rank=True, has_time=False),
    Version("2.3", "timeout", "status, by number of the group", "", has_rank=True, has_time=False),
    Version(
        "2.4", "timeout", "status, by number and description", "asked for a dump by another rank", has_rank=True,
        has_time=True,
    ),
    Version("2.5", "timeout", "status, by name", "asked for a dump", has_rank=True, has_time=True),
    Version("2.9", "timeout", "status", "asked for a dump", has_rank=True, has_time=True),
)  # fmt: skip
"""Those between write like one of these."""


@dataclass
class Job:
    """A job that hangs.

    Attributes:
        world: Ranks.
        culprit: Who is at fault.
        version: Of torch.
        seq: Number of the operation that the others wait in.
        hour: At which it gives up.
        op: The operation.
        numel: Its elements.
        random: For all that is chosen.
    """

    world: int
    culprit: int
    version: Version
    seq: int
    hour: int
    op: str
    numel: int
    random: Random

    def others(self) -> list[int]:
        """All ranks but the culprit, in the order in which they write."""
        ranks = [rank for rank in range(self.world) if rank != self.culprit]
        self.random.shuffle(ranks)
        return ranks

    def head(self, rank: int, second: float = 0.1) -> str:
        """What torch puts before a line."""
        at = f"601 {self.hour:02}:00:{second:012.9f} " if self.version.has_time else " "
        who = f"[rank{rank}]:" if self.version.has_rank else ""
        return f"{who}[E{at}ProcessGroupNCCL.cpp:632] "


@dataclass
class Told:
    """What is written of a fault.

    Attributes:
        lines: Each with who writes it.
        decides: Whether they say who is at fault.
        first_hour: At which the first lines were collected, and how many those are.
        is_whole: It is a file of its own, and no lines among others.
        first_culprit: Who was at fault in the attempt before this one; -1: there is none.
    """

    lines: list[tuple[int, str]] = field(default_factory=list)
    decides: bool = True
    first_hour: tuple[int, int] = (0, 0)
    is_whole: bool = False
    first_culprit: int = -1

    def dressed(self, dress: Dress, hour: int) -> list[str]:
        """All lines as they reach the log."""
        found, (first, count) = list[str](), self.first_hour
        for place, (rank, text) in enumerate(self.lines):
            at = f"2026-06-01T{first if place < count else hour:02}:00:00.123456789Z"
            found += [dress(rank, line, at) for line in text.splitlines()]
        return found


def gave_up(job: Job, rank: int, *, seq: int = 0, op: str = "", place: int = -1, pg: str = "0",
            desc: str = "default_pg", ahead: int = 2) -> list[tuple[int, str]]:  # fmt: skip
    """What a rank writes that has run out of time: what in, and how far it is where its version says so."""
    seq, place = seq or job.seq, rank if place < 0 else place
    fields = {
        "place": place, "seq": seq, "op": op or job.op, "numel": job.numel, "timeout_ms": 600000,
        "ran_ms": 600000 + job.random.randrange(99), "pg": pg, "desc": desc, "enqueued": seq + ahead,
        "completed": seq - 1,
    }  # fmt: skip
    lines = [(rank, job.head(rank) + worded(job.version.timeout, **fields))]
    if job.version.status:
        lines.append((rank, job.head(rank, 0.2) + worded(job.version.status, **fields)))
    return lines


def was_asked(job: Job, rank: int, enqueued: int) -> list[tuple[int, str]]:
    """What a rank writes that waits for nothing and is asked for its dump; nothing where it has no such line."""
    if not job.version.asked:
        return []
    fields = {"place": rank, "asker": job.others()[0], "enqueued": enqueued, "completed": enqueued, "pg": "0"}
    return [(rank, job.head(rank, 0.3) + worded(job.version.asked, desc="default_pg", **fields))]


def late(job: Job) -> Told:
    """The culprit has not enqueued what all others wait in."""
    lines = [line for rank in job.others() for line in gave_up(job, rank)]
    said = was_asked(job, job.culprit, job.seq - 1)
    return Told([*lines, *said], bool(said) and job.world > 2)


def silent(job: Job) -> Told:
    """The same, and it has written nothing."""
    return Told([line for rank in job.others() for line in gave_up(job, rank)], decides=False)


def killed(job: Job) -> Told:
    """It was killed ten minutes before the others gave up, and torchrun says so at the end."""
    lines = silent(job).lines
    for rank in [*job.others(), job.culprit]:
        ended = rank == job.culprit
        stamp = f"2026-06-01_{job.hour - 1:02}:50:09" if ended else f"2026-06-01_{job.hour:02}:00:09"
        block = worded(
            "torchrun: a failure", stamp=stamp, host=f"node{rank // 8}", rank=rank, local=rank % 8, pid=6000 + rank,
            code=-9 if ended else -6, signal=9 if ended else 6, signal_name="SIGKILL" if ended else "SIGABRT",
        )  # fmt: skip
        lines += [(LAUNCHER, line) for line in block.splitlines()]
    return Told(lines)


def short_of_memory(job: Job) -> Told:
    """The kernel has killed it for lack of memory, and srun says so."""
    lines = silent(job).lines
    lines.append((LAUNCHER, worded("slurmstepd: out of memory", job=4711)))
    host = f"node{job.culprit // 8}"
    lines.append((LAUNCHER, worded("srun: tasks that ended", host=host, rank=job.culprit, how="Out Of Memory")))
    return Told(lines)


def crashed(job: Job) -> Told:
    """It has crashed, and srun says so."""
    how = job.random.choice(("Segmentation fault (core dumped)", "Bus error", "Illegal instruction"))
    ended = worded("srun: tasks that ended", host=f"node{job.culprit // 8}", rank=job.culprit, how=how)
    return Told([(LAUNCHER, ended), *silent(job).lines])


def raised(job: Job) -> Told:
    """It has raised an exception of its own."""
    block = worded(
        "torchrun: a failure", stamp=f"2026-06-01_{job.hour - 1:02}:55:09", host="node0", rank=job.culprit, local=0,
        pid=6000 + job.culprit, code=1, signal=0, signal_name="",
    ).splitlines()[:-1]  # fmt: skip
    why = worded("torchrun: why", exception="ValueError: batch 17 has no labels")
    lines = [(LAUNCHER, line) for line in (*block, *why.splitlines())]
    return Told([*silent(job).lines, *lines])


def lost_device(job: Job) -> Told:
    """Its device has fallen off the bus: NCCL has said which one that is."""
    lines = []
    for rank in range(job.world):
        fields = {"host": f"node{rank // 8}", "pid": 5000 + rank, "tid": 6000 + rank, "local": rank % 8, "rank": rank}
        bus = 0x0B000 + 0x1E000 * (rank % 8) + 0x2000 * (rank // 8 % 8)
        lines.append((rank, worded(
            "NCCL: who is where", comm=f"0x55840{rank:03x}", world=job.world, bus_id=f"{bus:x}", comm_id="0xb886",
            **fields,
        )))  # fmt: skip
        if rank == job.culprit:
            address = f"0000:{bus >> 12:02x}:00"
            xid = worded(
                "NVIDIA's driver: an error of a device", bus=address, xid=79, pid="'<unknown>'",
                text="GPU has fallen off the bus.",
            )  # fmt: skip
            dead = (rank, xid)
    return Told([*lines, *silent(job).lines, dead])


def another_operation(job: Job) -> Told:
    """It waits in another operation of the same number."""
    lines = [line for rank in job.others() for line in gave_up(job, rank)]
    lines += gave_up(job, job.culprit, op="BROADCAST")
    return Told(lines, job.world > 2 and bool(job.version.status))


def one_too_many(job: Job) -> Told:
    """It has issued one operation more than all others, which wait for nothing."""
    lines = gave_up(job, job.culprit, ahead=0)
    return Told([*lines, *(line for rank in job.others() for line in was_asked(job, rank, job.seq - 1))], decides=False)


def in_a_subgroup(job: Job) -> Told:
    """The culprit is a member of a group of every second rank, and has not come there."""
    mine = [rank for rank in range(job.world) if rank % 2 == job.culprit % 2]
    if len(mine) < LEAST_IN_SUBGROUP or not job.version.has_rank:
        return late(job)  # without `[rank3]:` a line has the number in the group only
    lines = [
        line
        for place, rank in enumerate(mine)
        if rank != job.culprit
        for line in gave_up(job, rank, place=place, pg="7", desc="DATA_PARALLEL_GROUP")
    ]
    return Told([*lines, *(line for rank in range(job.world) for line in was_asked(job, rank, 12))], decides=False)


def unfinished(job: Job) -> Told:
    """The culprit does not see the end of what all others have completed."""
    lines = gave_up(job, job.culprit, ahead=2)
    return Told([*lines, *(line for rank in job.others() for line in was_asked(job, rank, job.seq))], decides=False)


def desynchronised(job: Job) -> Told:
    """Torch reports itself who has not joined."""
    first = job.others()[0]
    others = ", ".join(map(str, sorted(job.others())))
    lines = [
        worded("desync: who is behind", ranks=job.culprit, before=job.seq - 1, seq=job.seq),
        worded("desync: number of a snapshot", seq=job.seq - 1, state="finished"),
        worded("desync: ranks of a snapshot, done", ranks=job.culprit, state="finished", op=job.op),
        worded("desync: number of a snapshot", seq=job.seq, state="started"),
        worded("desync: ranks of a snapshot", ranks=others, state="started", op=job.op),
    ]
    return Told([*gave_up(job, first)[:1], *((first, line) for line in lines)], job.world > 2)


def absent(job: Job) -> Told:
    """It did not come to a monitored barrier, and rank 0 says so; rank 0 itself cannot be the one."""
    job.culprit = job.culprit or 1
    who = "[rank0]: " if job.version.has_rank else ""
    text = worded("monitored barrier: who is absent", ranks=job.culprit, timeout_ms=120000)
    return Told([(0, f"{who}RuntimeError: {text}")])


def mismatched(job: Job) -> Told:
    """Torch has compared what ranks called."""
    lines = []
    for rank in job.others():
        who = f"[rank{rank}]: " if job.version.has_rank else ""
        text = worded(
            "DETAIL: what does not match", rank=rank, other=job.culprit, seq=job.seq, op="ALLREDUCE", numel=job.numel,
            other_op="BROADCAST",
        )  # fmt: skip
        lines.append((rank, f"{who}RuntimeError: {text}"))
    return Told(lines, job.world > 2)


def restarted(job: Job) -> Told:
    """Another rank was late in the first attempt."""
    return after_another(job, [(LAUNCHER, worded("torchrun: another attempt", left=2))])


def after_another(job: Job, again: list[Line], first_lines: list[Line] | None = None) -> Told:
    """It is late, and another rank was late in the attempt before.

    Args:
        job: The second attempt.
        again: What is written between the attempts.
        first_lines: What is written before the first one.
    """
    first = Job(job.world, (job.culprit + 1) % job.world, job.version, job.seq + 300, job.hour - 2, job.op, job.numel,
                job.random)  # fmt: skip
    now = late(job)
    before = [*(first_lines or []), *late(first).lines]
    return Told(
        [*before, *again, *now.lines], now.decides, (first.hour, len(before) + 1), first_culprit=first.culprit,
    )  # fmt: skip


def counted_by_nccl(job: Job) -> Told:
    """NCCL has logged each collective, and the culprit has enqueued fewer."""
    lines = []
    for rank in range(job.world):
        who = {"host": f"node{rank // 8}", "pid": 5000 + rank, "tid": 6000 + rank, "local": rank % 8}
        comm = f"0x55840{rank:03x}"
        lines.append((rank, worded(
            "NCCL: who is where", comm=comm, world=job.world, bus_id="1b000", comm_id="0xb886", rank=rank, **who
        )))  # fmt: skip
    lacks = job.random.randrange(1, 4)
    for count in range(COLLECTIVES):
        for rank in range(job.world):
            who = {"host": f"node{rank // 8}", "pid": 5000 + rank, "tid": 6000 + rank, "local": rank % 8}
            if rank != job.culprit or count < COLLECTIVES - lacks:
                lines.append((rank, worded(
                    "NCCL: a collective is enqueued", function="AllReduce", count=count, numel=job.numel + count,
                    comm=f"0x55840{rank:03x}", world=job.world, **who,
                )))  # fmt: skip
    return Told(lines, job.world > 2 and lacks > 1)  # by one: a log that was cut looks like that

"""What each process of a launcher measures before a job: its own speed, and the links round all of them.

`whichrank validate -- torchrun ...` starts it in place of a training script. It makes a process group, measures as at
the gate (`sensors.tester`), and rank 0 prints what all have found, in one line. Ranks meet in the store, each for so
long at most: who does not come, at which part, is what a check is for.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from whichrank.model.check import LINE_BEGINS, Checked, CheckedLink, CheckedRank
from whichrank.model.codes import LINK_S
from whichrank.sensors import speeds

EVERY_S: Final = 0.05
"""Between two looks whether the others have come."""
LEAVE_S: Final = 5.0
"""For which the others are waited for in the end, if some have not come."""
CPU_SIZES: Final = (1 << 20, 2 << 20, 4 << 20)
"""Bytes of messages between processes that communicate from the CPU: for links of ten gigabits and less."""
GPU_SIZES: Final = (16 << 20, 32 << 20, 64 << 20)
"""The same from a GPU: Greyhound, section 6."""
_PREFIX: Final = "whichrank/check"
_RANK: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD: Final = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_LOCAL: Final = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
"""What torchrun, Open MPI, MPICH and Slurm set; a launcher within an allocation of Slurm sets its own besides."""


class LateError(Exception):
    """Ranks have not come."""

    def __init__(self, part: str, ranks: list[int]) -> None:
        super().__init__(part)
        self.part = part
        self.ranks = ranks


class Meetings:
    """Where all ranks come together, one after the other.

    Args:
        store: Of the job.
        rank: This one.
        size: How many there are.
        limit_s: For so long one waits for the others.
    """

    def __init__(self, store: Any, rank: int, size: int, limit_s: float) -> None:
        self._store, self._rank, self._size, self._limit_s = store, rank, size, limit_s

    def meet(self, part: str, said: bytes = b"") -> list[bytes]:
        """Say something, and wait until all have said something; returns what, by rank.

        Raises:
            LateError: Some have not.
        """
        keys = [f"{_PREFIX}/{part}/{rank}" for rank in range(self._size)]
        self._store.set(keys[self._rank], said)
        deadline = time.monotonic() + self._limit_s
        missing = list(range(self._size))
        while missing := [rank for rank in missing if not self._store.check([keys[rank]])]:
            if time.monotonic() > deadline:
                raise LateError(part, missing)
            time.sleep(EVERY_S)
        return [bytes(self._store.get(key)) for key in keys]

    def leave(self) -> None:
        """Say that this one leaves. Rank 0, whose process may have the store, goes last: others still read in it."""
        keys = [f"{_PREFIX}/left/{rank}" for rank in range(self._size)]
        self._store.set(keys[self._rank], b"")
        deadline = time.monotonic() + min(self._limit_s, LEAVE_S)
        while self._rank == 0 and not self._store.check(keys) and time.monotonic() < deadline:
            time.sleep(EVERY_S)


def main(argv: list[str] | None = None) -> int:
    """Measure, and as rank 0 print what all have found. Exit code 0: it is printed, whatever it is."""
    parser = argparse.ArgumentParser(prog="whichrank.sensors.check")
    parser.add_argument("--sizes", default="", help="bytes of messages, with commas between; default by device")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds that ranks wait for each other in each part")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args(argv)
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    has_gpu = torch.cuda.is_available()
    rank, size, local_rank = (_number_of(names) for names in (_RANK, _WORLD, _LOCAL))
    device = torch.device("cuda", local_rank) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    limit = timedelta(seconds=args.limit)
    store = TCPStore(
        *_master(), wait_for_workers=False, timeout=limit,
        is_master=rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True", multi_tenant=True,
    )  # fmt: skip
    meetings = Meetings(store, rank, size, args.limit)
    sizes = [int(part) for part in args.sizes.split(",") if part] or list(GPU_SIZES if has_gpu else CPU_SIZES)
    try:
        meetings.meet("start")  # before the group is made, which says of nobody that he did not come
        group = PrefixStore(f"{_PREFIX}/group", store)
        dist.init_process_group("nccl" if has_gpu else "gloo", store=group, rank=rank, world_size=size, timeout=limit)
        checked = _measured(torch, device, meetings, rank, size, sizes, args.repeats)
    except LateError as late:
        checked = Checked(world=size, late=tuple(late.ranks), late_in=late.part)
    if rank == 0:
        sys.stdout.write(LINE_BEGINS + msgspec.json.encode(checked).decode() + "\n")
        sys.stdout.flush()
    meetings.leave()
    os._exit(0)  # whoever has not come would be waited for


def _measured(
    torch: Any, device: Any, meetings: Meetings, rank: int, size: int, sizes: list[int], repeats: int
) -> Checked:
    """What all ranks have found.

    Raises:
        LateError: Some did not come.
    """
    mine = CheckedRank(rank=rank, host=socket.gethostname(), device=_name_of(torch, device))
    compute_s: list[float] = []
    memory_s: list[float] = []
    problems = []
    for turn in range(repeats):  # in turns: what disturbs one lasts for a moment
        problems += _tried("computation", lambda: compute_s.extend(speeds.multiplied(torch, device, 1, _go_on)))
        problems += _tried("memory", lambda: memory_s.extend(speeds.copied(torch, device, 1, _go_on)))
        meetings.meet(f"computation {turn + 1}")
    links: list[CheckedLink] = []
    problems += _tried("links", lambda: links.extend(_links(torch, device, meetings, rank, size, sizes, repeats)))
    mine = msgspec.structs.replace(
        mine, compute_s=tuple(compute_s), memory_s=tuple(memory_s), links=tuple(links), problem="; ".join(problems)
    )
    said = meetings.meet("end", msgspec.msgpack.encode(mine))
    if rank:
        return Checked(world=size)
    ranks = tuple(msgspec.msgpack.decode(one, type=CheckedRank) for one in said)
    return Checked(world=size, ranks=ranks, sizes=tuple(sizes), side=speeds.side_of(device), copied=speeds.COPIED)


def _go_on() -> None:
    """Nobody waits for training here."""


def _master() -> tuple[str, int]:
    """Where rank 0 is to be found.

    Raises:
        SystemExit: Neither the launcher nor the user has said it.
    """
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not address or not port.isdecimal():
        sys.exit(
            "check: nobody says where rank 0 is: export MASTER_ADDR=HOST MASTER_PORT=29500 before `whichrank validate`;"
            " with mpirun also `-x MASTER_ADDR -x MASTER_PORT`"
        )
    return address, int(port)


def _number_of(names: tuple[str, ...]) -> int:
    """What a launcher says, under one of these names.

    Raises:
        SystemExit: It says nothing.
    """
    said = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if said is None:
        sys.exit(
            f"check: the launcher has set none of {', '.join(names)}: start it as `whichrank validate -- torchrun ...`"
        )
    return int(said)


def _tried(what: str, measure: Callable[[], object]) -> list[str]:
    """Why it cannot be measured here; empty: it was.

    Raises:
        LateError: Other ranks did not come.
    """
    try:
        measure()
    except LateError:
        raise
    except Exception as error:
        return [f"{what}: {type(error).__name__}: {error}"[:200]]
    return []


def _links(
    torch: Any, device: Any, meetings: Meetings, rank: int, size: int, sizes: list[int], repeats: int
) -> list[CheckedLink]:
    """What messages from the rank before this one took, round the ring of all ranks; two or three passes."""
    from torch.distributed import distributed_c10d

    group: Any = distributed_c10d._get_default_group()
    backend: Any = group._get_backend(device)
    word = torch.ones(1, dtype=torch.uint8, device=device)
    room = torch.zeros(max(sizes), dtype=torch.uint8, device=device)
    links = []
    for number, pairs in enumerate(_round(size)):
        meetings.meet(f"links {number + 1}")
        for sender, receiver in pairs:
            if rank == sender:
                speeds.send_as_told(backend, receiver, word, room, sizes, repeats)
            elif rank == receiver:
                took = speeds.receive_for_a_while(backend, sender, word, room, sizes, repeats, LINK_S)
                links += [
                    CheckedLink(src=sender, bytes=one, seconds=tuple(took[at * repeats : (at + 1) * repeats]))
                    for at, one in enumerate(sizes)
                    if took[at * repeats :]
                ]
    return links


def _round(size: int) -> list[list[tuple[int, int]]]:
    """Each rank to its next one, in passes in which no rank comes twice: Greyhound, figure 10."""
    if size < 2:
        return []
    even = [(at, at + 1) for at in range(0, size - 1, 2)]
    odd = [(at, (at + 1) % size) for at in range(1, size - size % 2, 2)]
    return [even, odd, [(size - 1, 0)]] if size % 2 else [even, odd]


def _name_of(torch: Any, device: Any) -> str:
    """What a device calls itself."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()[:100]
    except OSError:
        pass
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())

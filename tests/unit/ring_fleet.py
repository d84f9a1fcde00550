"""Rings of many ranks, written by one process: `Fleet`. What `whichrank watch` shows of them needs no torch."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from ring_writer import Op, RingWriter

from whichrank.model.incident import Incident, encode_incident
from whichrank.model.rows import COMM
from whichrank.ring.folder import JobFolder
from whichrank.ring.layout import RING


class Fleet:
    """A job of `world` ranks, all of them in this process; rank r is in the ring `<1000 + r>.ring`."""

    def __init__(self, base: Path, world: int, job: str = "job-1") -> None:
        self.output = base / "out" / job
        self.output.mkdir(parents=True, exist_ok=True)
        self.folder = JobFolder.create(job, owner_pid=os.getpid(), output=str(self.output), base=base)
        self.world = world
        self.writers = [RingWriter(self.ring(rank), rank, world) for rank in range(world)]
        self.slots: dict[tuple[int, str], int] = {}
        self._comms = 0

    def ring(self, rank: int) -> Path:
        return self.folder.path / f"{1000 + rank}.ring"

    def comm(self, desc: str, members: list[int], name: str = "7") -> None:
        """A communicator of these ranks, with one id on all of them as in processes of their own."""
        self._comms += 1
        assert RING.fields is not None
        assert COMM.fields is not None
        for place, rank in enumerate(members):
            slot = self.writers[rank].comm(name, members, place, desc)
            self.slots[rank, desc] = slot
            at = RING.fields["comm"][1] + slot * COMM.itemsize + COMM.fields["comm_id"][1]
            with self.ring(rank).open("r+b") as file:
                os.pwrite(file.fileno(), struct.pack("<Q", 0xC0DE0000 + self._comms), at)

    def ops(self, rank: int, desc: str, times: int = 1) -> None:
        """Whole operations."""
        self.writers[rank].op(self.slots[rank, desc], times)

    def blocked(self, rank: int, desc: str, kind: int = 1, *, peer: int = -1) -> Op:
        """From now on the rank is blocked on one more operation."""
        writer = self.writers[rank]
        op = writer.begin(self.slots[rank, desc], kind, peer=peer)
        writer.issued(op)
        writer.wait(op)
        return op

    def incidents(self, *incidents: Incident) -> None:
        """What the run has written."""
        (self.output / "incidents.jsonl").write_bytes(b"".join(encode_incident(i) + b"\n" for i in incidents))

"""Runs as `whichrank run --record` keeps them, made of plain data and told to a real analyzer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from batches import CONFIG, T0, WORLD, Node, S, records

from whichrank.analyzer import Analyzer
from whichrank.model.incident import Incident, encode_incident
from whichrank.model.telemetry import ProcessState
from whichrank.surface.redact import Redacted
from whichrank.surface.report.make import gather
from whichrank.surface.report.page import page_of
from whichrank.wire.tape import FILE_NAME, Head, TapeWriter

JOB = "20260102-030405-gpu-node-17-4242"
HOST = "gpu-node-17.acme.example"
UTC_OFFSET_S = 1_767_000_000.0
EVERY_S = 0.5


class TapedRun:
    """A run that is told to an analyzer and kept on a tape beside its incidents.

    Args:
        folder: Of the run.
        job: Its name.
    """

    def __init__(self, folder: Path, job: str = JOB) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.analyzer = Analyzer(CONFIG, job, UTC_OFFSET_S)
        self.said: list[Incident] = []
        self._tape = TapeWriter(folder / FILE_NAME, Head(job, UTC_OFFSET_S, msgspec.to_builtins(CONFIG)))

    def goes(self, node: Node, first_s: float, last_s: float, done: dict[float, np.ndarray] | None = None) -> None:
        """The node reports its state from one time to another; `done` are operations that ended by then."""
        for at_s in np.arange(first_s, last_s, EVERY_S).tolist():
            now_s = T0 / S + at_s
            ended = [rows for by_s, rows in (done or {}).items() if at_s - EVERY_S < by_s <= at_s]
            batch = node.batch(at_s, np.concatenate(ended) if ended else None)
            self._tape.write("batch", now_s, batch)
            self.analyzer.feed(batch, now_s)
            self.analyzer.orders(batch.agent)
            self._tape.write("tick", now_s)
            self._say(self.analyzer.tick(now_s))

    def ends(self, at_s: float) -> list[Incident]:
        """The job has ended: the last word on each incident."""
        self._tape.write("finish", T0 / S + at_s)
        self._say(self.analyzer.finish(T0 / S + at_s))
        self._tape.close()
        latest = {one.id: one for one in self.said}
        (self.folder / "incidents.jsonl").write_bytes(b"".join(encode_incident(one) + b"\n" for one in self.said))
        job = self.said[-1].job if self.said else JOB
        about = {"schema": "whichrank.job/1", "job": job, "hosts": [HOST], "world_size": 4}
        (self.folder / "job.json").write_bytes(msgspec.json.encode(about))
        return list(latest.values())

    def _say(self, incidents: list[Incident]) -> None:
        self.said += incidents


def two_hangs(folder: Path, *, is_recorded: bool = True) -> list[Incident]:
    """Rank 2 is stopped for five seconds and goes on; then rank 1 is stopped until the end. Four ranks on one host."""
    run = TapedRun(folder)
    node = Node(f"{HOST}:1", [0, 1, 2, 3], 4).comm(WORLD)
    for rank in range(4):
        node.did(rank, 7, 8)
    before = {at / 10: _round(at, at / 10) for at in range(1, 9)}
    run.goes(node, 0.0, 1.0, before)
    for rank in (0, 1, 3):
        node.waits(rank, 7, 9, since_s=1.0)
    node.is_(2, ProcessState.STOPPED)
    run.goes(node, 1.0, 6.0)
    node.is_(2, ProcessState.SLEEPING)
    for rank in range(4):
        node.moves_on(rank).did(rank, 7, 40)
    run.goes(node, 6.0, 9.0, {6.0 + at / 10: _round(9 + at, 6.0 + at / 10) for at in range(1, 25)})
    for rank in (0, 2, 3):
        node.waits(rank, 7, 41, since_s=9.0)
    node.is_(1, ProcessState.STOPPED)
    run.goes(node, 9.0, 14.0)
    said = run.ends(14.0)
    if not is_recorded:
        (folder / FILE_NAME).unlink()
    return said


def _round(counter: int, ended_s: float) -> np.ndarray:
    """An all-reduce of all four ranks that took 20 ms."""
    begin_ns, end_ns = T0 + int((ended_s - 0.02) * S), T0 + int(ended_s * S)
    return np.concatenate([records(r, 7, counter, 1, t_issue_ns=begin_ns, t_end_ns=end_ns) for r in range(4)])


def page_at(path: Path, redact: Sequence[Redacted] = ()) -> tuple[str, tuple[Incident, ...]]:
    """The page of what lies there, and the incidents in it."""
    source = gather([path], redact)
    return page_of(source.gathered, source.notes), source.gathered.incidents

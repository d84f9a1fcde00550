"""Faults from outside for jobs that were not written for it: no control channel, only pids.

The ranks are found in the file that the launcher writes (``--pids``), or below a torchrun process by the RANK in
their environment.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from whichrank.demo.fault import EXITED, NOT_ENTERED, STOPPED_INSIDE
from whichrank.demo.plan import Truth

_LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class Blow:
    """One way to strike a process from outside."""

    number: signal.Signals
    effect: str
    causes: tuple[str, ...]
    reason: str
    hard: bool


BLOWS: dict[str, Blow] = {
    "stop": Blow(signal.SIGSTOP, "hang", (*NOT_ENTERED, *STOPPED_INSIDE[:1]), "stopped", True),
    "kill": Blow(signal.SIGKILL, "death", EXITED, "signal", True),
    "doze": Blow(signal.SIGUSR2, "hang", NOT_ENTERED, "in user code", False),
}


def ranks_from_file(path: Path) -> dict[int, int]:
    """Pids by rank from the launcher's file; empty as long as it is not there."""
    try:
        return {int(rank): int(pid) for rank, pid in json.loads(path.read_text()).items()}
    except FileNotFoundError:
        return {}


def ranks_below(parent: int) -> dict[int, int]:
    """Pids by rank of the processes below `parent` that have RANK in the environment they were started with."""
    found: dict[int, int] = {}
    for pid in _children(parent):
        try:
            block = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ranks = [int(entry[5:]) for entry in block if entry.startswith(b"RANK=")]
        if ranks:
            found[ranks[0]] = pid
    return found


def _children(parent: int) -> list[int]:
    pids: list[int] = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        pids += [int(pid) for pid in task.read_text().split()]
    return pids


class OutsideInjector:
    """Strikes one rank of any job, some time after all its ranks are there.

    Args:
        fault: stop, kill or doze (which needs `whichrank.demo.doze` around the script).
        ranks: world size.
        seed: decides the victim and the moment.
        find: gives pids by rank, empty as long as they are unknown.
        after_s: earliest and latest moment after all ranks were found.
    """

    def __init__(
        self,
        fault: str,
        ranks: int,
        seed: int,
        find: Callable[[], dict[int, int]],
        after_s: tuple[float, float] = (6.0, 9.0),
    ) -> None:
        rng = random.Random(f"{fault}/{ranks}/{seed}")
        self._fault, self._blow = fault, BLOWS[fault]
        self._ranks = ranks
        self._find = find
        self._victim = rng.randrange(ranks)
        self._after_s = rng.uniform(*after_s)
        self._truth: Truth | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="demo-outside", daemon=True)

    def start(self) -> None:
        """Look for the ranks from now on."""
        self._thread.start()

    def truth(self) -> Truth | None:
        """What was done; None as long as nothing was."""
        return self._truth

    def close(self) -> None:
        """Stop; what was struck stays as it is."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        pids: dict[int, int] = {}
        while len(pids) < self._ranks:
            if self._closing.wait(_LOOK_EVERY_S):
                return
            pids = self._find()
        if self._closing.wait(self._after_s):
            return
        at_ns, at_utc = time.monotonic_ns(), datetime.now(UTC).isoformat()
        try:
            os.kill(pids[self._victim], self._blow.number)
        except ProcessLookupError:
            return
        self._truth = self._tell(at_ns, at_utc)

    def _tell(self, at_ns: int, at_utc: str) -> Truth:
        blow = self._blow
        return Truth(
            fault=self._fault,
            variant="from-outside",
            kind="outside",
            effect=blow.effect,
            culprits=(self._victim,),
            candidates=(self._victim,),
            cause=blow.causes[0],
            causes=blow.causes,
            reason=blow.reason,
            reasons=(blow.reason,),
            hard=blow.hard,
            layout="",
            iteration=-1,
            at_utc=at_utc,
            at_monotonic_ns=at_ns,
        )

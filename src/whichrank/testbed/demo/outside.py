"""Faults from outside for jobs that were not written for it: no control channel, only pids.

The ranks are found in the file that the launcher writes (``--pids``), or below a launcher by the RANK in the
environment that they were started with. Nothing here looks at a ring: what is known of the victim must not come from
whichrank, or both would be wrong together.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whichrank.model.incident import Reason
from whichrank.testbed.demo.fault import EXITED, NOT_ENTERED, STOPPED_INSIDE

_POLL_EVERY_S = 0.1


@dataclass(frozen=True)
class Blow:
    """One way to strike a process from outside.

    Args:
        number: the signal.
        causes: right values of `cause`, the best first.
        reason: the right value of `reason`.
    """

    number: signal.Signals
    causes: tuple[str, ...]
    reason: Reason


BLOWS: dict[str, Blow] = {
    "stop": Blow(signal.SIGSTOP, (*NOT_ENTERED, *STOPPED_INSIDE[:1]), Reason.STOPPED),
    "kill": Blow(signal.SIGKILL, EXITED, Reason.SIGNAL),
    "doze": Blow(signal.SIGUSR2, NOT_ENTERED, Reason.USER_CODE),
}
"""Doze needs `whichrank.testbed.demo.doze` around the script."""


@dataclass(frozen=True)
class Struck:
    """What was done to a job."""

    blow: Blow
    rank: int
    pid: int


class OutsideInjector:
    """Strikes one rank of any job, some time after it has got under way.

    Args:
        blow: name in `BLOWS`.
        ranks: world size.
        seed: decides the victim and the moment.
        find: gives pids by rank, empty as long as the job is not under way.
        after_s: earliest and latest moment after all ranks were found.
    """

    def __init__(
        self,
        blow: str,
        ranks: int,
        seed: str,
        find: Callable[[], dict[int, int]],
        after_s: tuple[float, float],
    ) -> None:
        rng = random.Random(f"{blow}/{ranks}/{seed}")
        self._blow = BLOWS[blow]
        self._ranks = ranks
        self._find = find
        self._victim = rng.randrange(ranks)
        self._after_s = rng.uniform(*after_s)

    def strike(self, limit_s: float) -> Struck:
        """Wait for the ranks, and for the moment; then strike.

        Raises:
            TimeoutError: not all ranks were there within the limit.
            ProcessLookupError: the victim has ended before.
        """
        until_s = time.monotonic() + limit_s
        while len(pids := self._find()) < self._ranks:
            if time.monotonic() > until_s:
                raise TimeoutError(f"only ranks {sorted(pids)} of {self._ranks} within {limit_s} s")
            time.sleep(_POLL_EVERY_S)
        time.sleep(self._after_s)
        os.kill(pids[self._victim], self._blow.number)
        return Struck(self._blow, self._victim, pids[self._victim])


def ranks_from_file(path: Path) -> dict[int, int]:
    """Pids by rank from the launcher's file; empty as long as it is not there."""
    try:
        return {int(rank): int(pid) for rank, pid in json.loads(path.read_text()).items()}
    except FileNotFoundError:
        return {}


def ranks_below(ancestor: int) -> dict[int, int]:
    """Pids by rank of the processes below `ancestor` that were started with RANK; their own children are none."""
    found: dict[int, int] = {}
    for pid in _children(ancestor):
        rank = _rank_of(pid)
        found |= ranks_below(pid) if rank is None else {rank: pid}
    return found


def _rank_of(pid: int) -> int | None:
    try:
        block = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((int(entry[5:]) for entry in block if entry.startswith(b"RANK=")), None)


def _children(parent: int) -> list[int]:
    pids: list[int] = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            pids += [int(pid) for pid in task.read_text().split()]
        except OSError:
            continue  # it has ended meanwhile
    return pids

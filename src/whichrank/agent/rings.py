"""The rings of a job on this node and the processes behind them: found, read, and one chosen for each rank.

Two rings can carry one rank: a helper process inherits RANK from the rank that started it, and a restarted rank follows
a dead one. The later restart wins; a ring made after the other's process had ended follows it; else the one with
communicators is the rank, and at last the older one, since helpers come from it.

Nothing is written, removed or asked of the job, so screens read with it as well.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from whichrank.agent.inferred import WaitInference
from whichrank.agent.processes import read_thread
from whichrank.agent.rank import RankWatch
from whichrank.agent.ringless import NoRing
from whichrank.agent.usage import Host
from whichrank.errors import RingFormatError
from whichrank.ring.folder import JobFolder
from whichrank.ring.reader import Rows, Scratch

PATIENCE_S: Final = 3.0
"""A ring is being made for a moment; after this it is said that it cannot be read."""


class Unreadable(NamedTuple):
    """A file that is called like a ring."""

    what: str
    since_s: float


class Rings:
    """The ranks of a job on this node.

    Args:
        folder: Where the rings are.
        scratch: Working memory, shared by all readers of a thread.

    Attributes:
        watches: By path; also of dead processes, and of several with one rank.
        chosen: One for each rank, by rank, as of the latest snapshot.
    """

    def __init__(self, folder: JobFolder, scratch: Scratch | None = None) -> None:
        self.watches: dict[Path, RankWatch] = {}
        self.chosen: list[RankWatch] = []
        self._folder = folder
        self._scratch = scratch or Scratch()
        self._host = Host()
        self._inference: dict[Path, WaitInference] = {}
        self._unreadable: dict[Path, Unreadable] = {}
        self._stamp = -1

    def discover(self) -> list[Path]:
        """Take up new rings. Returns those in whose place another process had one."""
        try:
            stamp = self._folder.path.stat().st_mtime_ns
        except OSError:
            return []  # the job has ended; what was read stays
        if stamp == self._stamp and not self._unreadable:
            return []
        self._stamp = stamp
        rings = self._folder.rings()
        self._unreadable = {path: why for path, why in self._unreadable.items() if path in rings}
        replaced = [path for path in rings if path in self.watches and self._is_another(path)]
        new = [path for path in rings if path not in self.watches or path in replaced]
        opened = {path for path in new if self._open(path)}
        return [path for path in replaced if path in opened]

    def add(self, path: Path, no_ring: NoRing | None = None) -> None:
        """Watch a rank whose ring is at `path`, or that has none.

        Raises:
            RingFormatError: It is no ring, or not yet.
            OSError: It cannot be opened.
        """
        watch = RankWatch(path, self._scratch, self._host, no_ring)
        if path in self.watches:
            self.watches[path].close()
        self.watches[path], self._inference[path] = watch, WaitInference()

    def let_go(self, path: Path) -> None:
        """Watch this one no longer."""
        self.watches.pop(path).close()
        del self._inference[path]

    def refresh(self, *, deep: bool) -> None:
        """Read all of them, and choose."""
        for watch in self.watches.values():
            watch.refresh(deep=deep)
        best: dict[int, RankWatch] = {}
        for watch in self.watches.values():
            if watch.rank >= 0:
                other = best.get(watch.rank)
                best[watch.rank] = watch if other is None else preferred(other, watch)
        self.chosen = [best[rank] for rank in sorted(best)]

    def inferred_waits(self, watch: RankWatch) -> Rows:
        """Waits of a rank that no sensor marked, as of the latest snapshot; to be asked once for each."""
        if watch.ended_ns:
            return watch.snapshot.waits[:0]
        return self._inference[watch.path].waits(watch.snapshot, partial(read_thread, watch.pid))

    def unreadable(self) -> dict[Path, str]:
        """What is called like a ring and cannot be read, though it is no longer being made; and why."""
        now_s = time.monotonic()
        return {path: one.what for path, one in self._unreadable.items() if now_s - one.since_s > PATIENCE_S}

    def close(self) -> None:
        """Let go of all."""
        for watch in self.watches.values():
            watch.close()
        self.watches.clear()
        self.chosen.clear()

    def _is_another(self, path: Path) -> bool:
        """A new process has got the pid of a dead one, and made its ring in the same place."""
        watch = self.watches[path]
        return bool(watch.ended_ns) and watch.reader.is_replaced()

    def _open(self, path: Path) -> bool:
        try:
            self.add(path)
        except (RingFormatError, OSError) as error:
            what = error.what if isinstance(error, RingFormatError) else error.strerror or str(error)
            since_s = self._unreadable[path].since_s if path in self._unreadable else _changed_s(path)
            self._unreadable[path] = Unreadable(what, since_s)
            return False
        self._unreadable.pop(path, None)
        return True


def preferred(one: RankWatch, other: RankWatch) -> RankWatch:
    """Which of two rings with the same rank is the rank."""
    if one.restart_count != other.restart_count:
        return max(one, other, key=lambda watch: watch.restart_count)
    older, younger = sorted((one, other), key=lambda watch: watch.created_ns)
    if older.ended_ns and older.ended_ns < younger.created_ns:
        return younger
    if older.has_communicators != younger.has_communicators:
        return older if older.has_communicators else younger
    return older


def _changed_s(path: Path) -> float:
    """When a file was last changed, on the monotonic clock; now if it is gone."""
    now_s = time.monotonic()
    try:
        return now_s - max(0.0, time.time() - path.lstat().st_ctime)
    except OSError:
        return now_s

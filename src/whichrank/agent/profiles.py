"""Where the thread of a rank that trains spends its time, sampled by py-spy without pausing it.

One stack says where a rank is; some dozens say for how much of its time it is there. They take as long as an iteration
or two, so nobody's stacks wait for them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from queue import SimpleQueue
from typing import Final

from whichrank.agent import py_spy
from whichrank.agent.stacks import drained
from whichrank.agent.threads import Subject
from whichrank.model.telemetry import Event, Stack

SAMPLES: Final = 50
MOST_PER_S: Final = 25
LEAST_SAMPLES: Final = 10
"""Fewer say nothing."""
LONGEST_S: Final = 30.0
MOST_AT_ONCE: Final = 8
"""Ranks; more are not sampled."""
MOST_STACKS: Final = 24
"""Reported of one rank, those that were seen most."""


class Profiler:
    """Samples several ranks at once, each in a thread of its own."""

    def __init__(self) -> None:
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._at_it: dict[int, threading.Thread] = {}

    def ask(self, subjects: list[Subject], seconds: float) -> None:
        """Want these sampled for so long; who is sampled already, or one too many, is not."""
        self._at_it = {pid: thread for pid, thread in self._at_it.items() if thread.is_alive()}
        for subject in subjects:
            if subject.pid not in self._at_it and len(self._at_it) < MOST_AT_ONCE:
                arguments = (subject, min(LONGEST_S, max(1.0, seconds)))
                self._at_it[subject.pid] = threading.Thread(target=self._sample, args=arguments, daemon=True)
                self._at_it[subject.pid].start()

    def events(self) -> list[Event]:
        """What was sampled since the last call."""
        return drained(self._events)

    def _sample(self, subject: Subject, seconds: float) -> None:
        at_ns = time.monotonic_ns()
        if stacks := profile(subject.pid, seconds, subject.tid):
            self._events.put(Event("profile", subject.rank, subject.pid, at_ns, stacks=stacks))


def profile(pid: int, seconds: float, trains: int = 0) -> list[Stack]:
    """What a thread was found in, with the share of samples; empty if that cannot be seen.

    Args:
        pid: The process.
        seconds: For how long.
        trains: The thread; 0 the main one.
    """
    rate = max(1, min(MOST_PER_S, round(SAMPLES / seconds)))
    counts: Counter[tuple[str, ...]] = Counter()
    for thread, frames, count in py_spy.samples(pid, seconds, rate, "--idle", "--function"):
        if thread == (trains or pid):
            counts[tuple(reversed(frames))] += count
    total = counts.total()
    if total < LEAST_SAMPLES:
        return []
    main = trains in (0, pid)
    name = "MainThread" if main else f"thread {trains}"
    return [
        Stack(name, main=main, holds_gil=False, frames=list(frames), share=count / total, tid=trains or pid)
        for frames, count in counts.most_common(MOST_STACKS)
    ]

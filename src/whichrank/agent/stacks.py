"""Stacks of a rank by py-spy, which needs nothing in the process and works while the GIL is held.

A running process is paused for the few milliseconds that a consistent stack takes; a stopped one cannot be, so it is
read as it lies (`--nonblocking`). Where ptrace is refused, the answer says which command allows it.

Who holds the GIL while it sleeps keeps every other thread of its process from running, which one reading cannot show: a
loop that polls holds it for a moment too. So a process that sleeps is looked at for half a second more, without
pausing it: the GIL must be with one thread all the time, and that thread must not run.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

import msgspec

from whichrank.agent import py_spy
from whichrank.agent.blocked import Family, source_of
from whichrank.agent.processes import read_process, read_thread
from whichrank.agent.threads import Subject
from whichrank.errors import WhichrankError
from whichrank.model.telemetry import Event, ProcessState, Source, Stack, WaitChannel

AGAIN_AFTER_S: Final = 0.8
"""The same rank is not read more often: the analyzer asks until it has heard."""
MOST_FRAMES: Final = 200
MOST_THREADS: Final = 128
HOLD_SAMPLES: Final = ((0.5, 5), (1.5, 12))
"""How long to look, in s, and how many samples must find the GIL held: under half of what the snapshot can give, since
on a busy machine py-spy comes late to some. The second snapshot is for where the first found too few."""
HOLD_SAMPLES_PER_S: Final = 20
HOLD_MOST_CPU: Final = 0.1
"""Share of the snapshot that a thread may run and still be one that sleeps."""
_WAITS_FOR_OTHERS: Final = (WaitChannel.IO, WaitChannel.OTHER, WaitChannel.UNKNOWN)
"""Where a thread may wait for another process. UNKNOWN: some kernels hide the place."""

_YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")


class StacksRefusedError(WhichrankError):
    """The stacks of a process cannot be read; the sentence says what would allow it."""


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _Thread(msgspec.Struct):
    frames: list[_Frame]
    thread_name: str | None = None
    os_thread_id: int | None = None
    owns_gil: bool = False
    active: bool = True


_decoder = msgspec.json.Decoder(list[_Thread])


def read_stacks(pid: int, timeout_s: float = py_spy.TIMEOUT_S, *, trains: int = 0) -> list[Stack]:
    """The Python stacks of all threads of a process, first the one that trains, then the main one.

    Args:
        pid: The process.
        timeout_s: For py-spy.
        trains: The thread that trains, 0 if it is not known.

    Raises:
        StacksRefusedError: py-spy is missing, may not read the process, or finds no Python in it.
    """
    now = _Now.of(pid, trains, {})
    threads = _dump(pid, timeout_s)
    holder = sleeping_holder(pid) if any(thread.owns_gil and not thread.active for thread in threads) else None
    return _stacks(threads, now, holder)


def sleeping_holder(pid: int) -> int | None:
    """The thread that held the GIL asleep for half a second, by its tid; None if there is none or it is not known."""
    for poll_s, least in HOLD_SAMPLES:
        tid, samples = _holder_for(pid, poll_s)
        if tid is None or samples >= least:
            return tid
    return None


def _holder_for(pid: int, poll_s: float) -> tuple[int | None, int]:
    """The thread that held the GIL asleep in all samples that found it held, and how many these are."""
    # Right after a snapshot that paused it, one that sleeps may still be about to go on sleeping.
    if read_process(pid).state not in (ProcessState.SLEEPING, ProcessState.RUNNING):
        return None, 0
    before, started_ns = _cpu_by_thread(pid), time.monotonic_ns()
    counts: Counter[int] = Counter()
    for tid, _, count in py_spy.samples(pid, poll_s, HOLD_SAMPLES_PER_S, "--gil"):
        counts[tid] += count
    if len(counts) != 1:
        return None, 0
    tid, samples = counts.popitem()
    after = read_thread(pid, tid)
    ran_ns = after.cpu_ns - before.get(tid, 0)
    asleep = after.state == ProcessState.SLEEPING and tid in before
    idle = ran_ns <= HOLD_MOST_CPU * (time.monotonic_ns() - started_ns)
    return tid if asleep and idle else None, samples


def _dump(pid: int, timeout_s: float) -> list[_Thread]:
    import subprocess  # see `py_spy`

    program = py_spy.program()
    if program is None:
        raise StacksRefusedError("py-spy is not installed", mend="pip install py-spy")
    command = [program, "dump", "--pid", str(pid), "--json"]
    if read_process(pid).state in (ProcessState.STOPPED, ProcessState.TRACED):
        command.append("--nonblocking")
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StacksRefusedError(f"py-spy did not answer for process {pid}: {error}") from error
    if done.returncode != 0:
        raise _refusal(pid, done.stderr)
    try:
        return _decoder.decode(done.stdout)[:MOST_THREADS]
    except msgspec.DecodeError as error:
        raise StacksRefusedError(f"py-spy's answer for process {pid} cannot be read: {error}") from error


class _Now(NamedTuple):
    """What the threads of a process do in the kernel, just before a stack is taken: py-spy disturbs them."""

    pid: int
    trains: int
    channels: dict[int, WaitChannel]
    sources: dict[int, Source]

    @classmethod
    def of(cls, pid: int, trains: int, ranks: Mapping[int, int]) -> _Now:
        """As it is now; `ranks` says which processes are ranks, and where it is empty sources are not looked for."""
        channels = {tid: read_thread(pid, tid).channel for tid in _threads(pid)}
        family = Family(ranks) if ranks else None
        waiting = [tid for tid, channel in channels.items() if channel in _WAITS_FOR_OTHERS] if family else []
        sources = {tid: source for tid in waiting if family and (source := source_of(pid, tid, family))}
        return cls(pid, trains, channels, sources)


def _stacks(threads: list[_Thread], now: _Now, holder: int | None) -> list[Stack]:
    stacks = [_stack(thread, now, holder) for thread in threads]
    return sorted(stacks, key=lambda stack: (not stack.trains, not stack.main))


def _stack(thread: _Thread, now: _Now, holder: int | None) -> Stack:
    tid = thread.os_thread_id or 0
    name = thread.thread_name or f"thread {thread.os_thread_id}"
    frames = [f"{frame.name} ({frame.filename}:{frame.line})" for frame in thread.frames[:MOST_FRAMES]]
    main = tid == now.pid if tid else name == "MainThread"
    asleep = holder is not None and tid == holder
    return Stack(
        name,
        main,
        holds_gil=asleep or (thread.owns_gil and thread.active),
        frames=frames,
        asleep=asleep,
        tid=tid,
        trains=bool(tid) and tid == now.trains,
        channel=now.channels.get(tid, WaitChannel.UNKNOWN),
        source=now.sources.get(tid),
    )


def _threads(pid: int) -> list[int]:
    try:
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def _cpu_by_thread(pid: int) -> dict[int, int]:
    """CPU time in ns of the threads that can be reported, by tid."""
    return {tid: snapshot.cpu_ns for tid in _threads(pid) if (snapshot := read_thread(pid, tid)).cpu_ns >= 0}


def _refusal(pid: int, said: str) -> StacksRefusedError:
    if read_process(pid).state in (ProcessState.GONE, ProcessState.ZOMBIE):
        return StacksRefusedError(f"process {pid} has ended, so it has no stack")
    lines = said.strip().splitlines() or ["no message"]
    if any("ermission" in line or "not permitted" in line for line in lines):
        scope = _YAMA.read_text().strip() if _YAMA.exists() else "0"
        allow = "sudo sysctl kernel.yama.ptrace_scope=0" if scope not in ("0", "3") else "run as the same user"
        mend = f"{allow}, or as root, or with CAP_SYS_PTRACE (container: --cap-add SYS_PTRACE)"
        return StacksRefusedError(f"the stack of process {pid} may not be read", mend=mend)
    return StacksRefusedError(f"py-spy cannot read process {pid}: {lines[0].removeprefix('Error: ')}")


def drained(events: SimpleQueue[Event]) -> list[Event]:
    """All that is in the queue now."""
    found = []
    while True:
        try:
            found.append(events.get_nowait())
        except Empty:
            return found


class StackReader:
    """Reads stacks in a thread of its own, one process after the other, so that the snapshots go on."""

    def __init__(self) -> None:
        self._wanted: SimpleQueue[tuple[Subject, Mapping[int, int]] | None] = SimpleQueue()
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._asked: dict[int, float] = {}
        self._thread: threading.Thread | None = None

    def ask(self, subjects: Iterable[Subject], ranks: Mapping[int, int]) -> None:
        """Want the stacks of these, unless they were read a moment ago; `ranks` says which processes are ranks."""
        now_s = time.monotonic()
        for subject in subjects:
            if now_s - self._asked.get(subject.pid, -AGAIN_AFTER_S) >= AGAIN_AFTER_S:
                self._asked[subject.pid] = now_s
                self._wanted.put((subject, ranks))
                self._start()

    def events(self) -> list[Event]:
        """What was read since the last call."""
        return drained(self._events)

    def close(self, timeout_s: float = py_spy.TIMEOUT_S) -> None:
        """Finish what was asked, within `timeout_s`."""
        if self._thread:
            self._wanted.put(None)
            self._thread.join(timeout_s)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="whichrank-stacks", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            (rank, pid, trains), ranks = wanted
            at_ns = time.monotonic_ns()
            try:
                now = _Now.of(pid, trains, ranks)
                self._report(rank, at_ns, now, _dump(pid, py_spy.TIMEOUT_S))
            except StacksRefusedError as error:
                said = f"{error.what}; {error.mend}" if error.mend else error.what
                self._events.put(Event("stacks", rank, pid, at_ns, text=said))

    def _report(self, rank: int, at_ns: int, now: _Now, threads: list[_Thread]) -> None:
        """At once what is known; once more if the longer snapshot finds that somebody sleeps with the GIL."""
        pid = now.pid
        owners = [thread for thread in threads if thread.owns_gil]
        if not any(not owner.active for owner in owners):
            self._events.put(Event("stacks", rank, pid, at_ns, stacks=_stacks(threads, now, None)))
        if any(owner.active for owner in owners) or not self._is_worth_more_samples(owners):
            return
        holder = sleeping_holder(pid)
        if holder is not None or owners:
            self._events.put(Event("stacks", rank, pid, at_ns, stacks=_stacks(threads, now, holder)))

    def _is_worth_more_samples(self, owners: list[_Thread]) -> bool:
        """Where py-spy saw no owner, only if nobody else's stacks wait for it."""
        return bool(owners) or self._wanted.empty()

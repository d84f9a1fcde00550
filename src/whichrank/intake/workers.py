"""Reads many files at once, in processes that have little memory to lose.

Bytes of others are decoded in a process of their own: it has a limit on its memory and on its time, so a few hostile
bytes that ask for a lot cost one sentence, and where they end the process, that item alone is lost.

The processes are started afresh. The pools of `multiprocessing` wait at the end for what is under way, need a server
and a folder for temporary files beside them, and all of these print what a Ctrl-C does to them. Ours have no stderr, do
not hear a Ctrl-C, and are killed whenever the loop over their results is left.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from whichrank.errors import FormatError, WhichrankError

T = TypeVar("T")
R = TypeVar("R")
MEMORY_BYTES: Final = 1 << 30
"""What a process may take beyond what it begins with."""
CPU_S: Final = 600
"""What it may take for one item, at most: a gigabyte takes a tenth of it."""
AHEAD: Final = 4
"""Items that are begun before an earlier one is done, for each process."""
REPORT_EVERY_S: Final = 0.2
"""So often a person sees a bar move."""
KILLED_S: Final = 10.0
"""A process that is killed is gone by then, however busy the machine is, unless it waits for a disk."""
_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[2:]; from whichrank.intake.workers import serve; serve()"


class _Progress(NamedTuple):
    """What a process says of an item before that is done."""

    done: int


class _Reporter:
    """Where work says how far it is; in a process that is no worker nobody hears it."""

    def __init__(self) -> None:
        self._channel: Connection | None = None
        self._next_s = 0.0

    def listen(self, channel: Connection) -> None:
        self._channel = channel

    def report(self, done: int) -> None:
        now_s = time.monotonic()
        if self._channel is not None and now_s >= self._next_s:
            self._next_s = now_s + REPORT_EVERY_S
            self._channel.send(_Progress(done))


_REPORTER: Final = _Reporter()


def report_progress(done: int) -> None:
    """Say how much of the item that is worked on is done, in a unit of the work's own; heard now and then."""
    _REPORTER.report(done)


def each(
    work: Callable[[T], R],
    items: Sequence[T],
    processes: int = 0,
    cpu_s: Callable[[T], int] = lambda _: CPU_S,
    show: Callable[[int, int], None] = lambda _number, _done: None,
) -> Generator[R | WhichrankError]:
    """The results of `work`, in the order of the items; where it raised an error of ours, that.

    Close it where the loop over it may be left early: then its processes end.

    Args:
        work: A function of a module; its arguments and results travel between processes.
        items: One for each call.
        processes: So many; 0: as many as there are cores to run on.
        cpu_s: What an item may take, beyond which its process ends.
        show: Called with the number of an item and how much of it is done, by `report_progress`.
    """
    count = processes or len(os.sched_getaffinity(0))
    workers: list[_Worker] = []
    busy: dict[Connection, tuple[int, _Worker]] = {}
    done: dict[int, Any] = {}
    begun = at = 0
    try:
        while at < len(items):
            while len(busy) < count and begun < min(at + AHEAD * count, len(items)):
                worker = next((one for one in workers if one.channel not in busy), None)
                if worker is None:
                    worker = _Worker(work)
                    workers.append(worker)
                busy[worker.channel] = begun, worker
                worker.say((cpu_s(items[begun]), items[begun]))
                begun += 1
            for channel in set(busy).intersection(wait(list(busy))):
                number, worker = busy[channel]
                answer = worker.answer()
                if isinstance(answer, _Progress):
                    show(number, answer.done)
                    continue
                del busy[channel]
                done[number] = answer
                if worker.is_lost:
                    workers.remove(worker)
            while at in done:
                yield done.pop(at)
                at += 1
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.bury()


class _Worker:
    """A process that does this work with one item after the other."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.channel, theirs = Pipe()
        self.is_lost = False
        number = theirs.fileno()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # stays so in what is started
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(number), *sys.path], pass_fds=[number],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self.say(work)

    def say(self, what: object) -> None:
        """The work, then each item with its limit. That nobody is there to hear it shows in place of the answer."""
        with contextlib.suppress(OSError):
            self.channel.send(what)

    def answer(self) -> Any:
        """What comes next of the latest item: how far it is, or its result; waits for it."""
        try:
            return self.channel.recv()
        except (EOFError, OSError):
            self.is_lost = True
            self.kill()
            self.bury()
            return FormatError("what it holds ended the process that read it")

    def kill(self) -> None:
        self._process.kill()

    def bury(self) -> None:
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_S)


def serve() -> None:
    """What a process does: items come and results go through the channel whose number it was started with."""
    channel = Connection(int(sys.argv[1]))
    work = channel.recv()  # and with it the modules that it needs, which are to be there before the limits
    _limit()
    _REPORTER.listen(channel)
    while True:
        try:
            cpu_s, item = channel.recv()
        except EOFError:
            return
        _limit_time(cpu_s)
        result = _result(work, item)
        try:
            channel.send(result)
        except MemoryError:
            channel.send(_too_large())


def _result(work: Callable[[T], R], item: T) -> R | WhichrankError:
    try:
        return work(item)
    except WhichrankError as error:
        return error
    except MemoryError:
        return _too_large()
    except Exception as error:
        return FormatError(f"it cannot be read: {type(error).__name__}")


def _too_large() -> FormatError:
    return FormatError("it asks for more memory than a recording needs")


def _limit_time(cpu_s: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    wanted = int(used.ru_utime + used.ru_stime) + cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _limit() -> None:
    gc.disable()  # what is read is plain data, without cycles
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = used + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))

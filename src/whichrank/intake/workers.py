"""Reads many files at once, in processes that have little memory to lose.

Bytes of others are decoded in a process of their own: it has a limit on its memory, so a few hostile bytes that ask for
a lot of it cost one sentence, and where they end a process, those that were under way are read one by one.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final, TypeVar

from whichrank.errors import FormatError, WhichrankError

T = TypeVar("T")
R = TypeVar("R")
MEMORY_BYTES: Final = 1 << 30
"""What a process may take beyond what it begins with."""
CPU_S: Final = 600
"""What it may take for one item: a gigabyte takes a tenth of it."""
AHEAD: Final = 4
"""Items that wait for a process, for each."""


def each(work: Callable[[T], R], items: Sequence[T], processes: int = 0) -> Iterator[R | WhichrankError]:
    """The results of `work`, in the order of the items; where it raised an error of ours, that.

    Args:
        work: A function of a module; its arguments and results travel between processes.
        items: One for each call.
        processes: So many; 0: as many as there are cores to run on.
    """
    count = min(processes or len(os.sched_getaffinity(0)), len(items))
    at = 0
    while at < len(items):
        try:
            for result in _pooled(work, items[at:], count):
                yield result
                at += 1
        except BrokenProcessPool:
            # One of those that were under way, and all of them are lost.
            for item in items[at : at + (AHEAD + 1) * count]:
                yield _alone(work, item)
                at += 1


def _pooled(work: Callable[[T], R], items: Sequence[T], count: int) -> Iterator[R | WhichrankError]:
    if not count:
        return
    pool = _pool(count)
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(_timed, work, item))
            if len(waiting) > AHEAD * count:
                result = _result(waiting.popleft())
                yield result
        while waiting:
            result = _result(waiting.popleft())
            yield result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _alone(work: Callable[[T], R], item: T) -> R | WhichrankError:
    with _pool(1) as pool:
        try:
            return _result(pool.submit(_timed, work, item))
        except BrokenProcessPool:
            return FormatError("what it holds ended the process that read it")


def _result(future: Future[R]) -> R | WhichrankError:
    try:
        return future.result()
    except WhichrankError as error:
        return error
    except MemoryError:
        return FormatError("it asks for more memory than a recording needs")
    except BrokenProcessPool:
        raise
    except Exception as error:
        return FormatError(f"it cannot be read: {type(error).__name__}")


def _timed(work: Callable[[T], R], item: T) -> R:
    """With a limit on the time of the CPU, beyond which the process ends."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    wanted = int(used.ru_utime + used.ru_stime) + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    return work(item)


def _pool(count: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")  # we may have threads, with which a plain fork does not go well
    context.set_forkserver_preload(["whichrank.intake.flight_dump"])
    return ProcessPoolExecutor(count, context, initializer=_limit)


def _limit() -> None:
    gc.disable()  # what is read is plain data, without cycles
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = used + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))

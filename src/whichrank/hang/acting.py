"""Which stack of a rank shows why it does not act: that of the thread which others wait for.

The sensor knows which thread issued the latest operation of a communicator, and the agent which thread makes the
optimizer's steps. Mostly that is the main thread. Where the program trains in another one (Ray Train, a thread pool),
the main thread only waits for it. A thread of torch's own, or one that has ended, has no line of the program: then the
thread that took its place is looked for, and where that is not clear the main thread is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from whichrank.model import frames
from whichrank.model.telemetry import Stack
from whichrank.store.store import Store

_WAITS_FOR_THREAD: Final = re.compile(
    r"^\S+ \(.*/(?:threading|queue|concurrent/futures/(?:_base|thread)|asyncio/\w+|selectors)\.py:\d+\)$"
)
"""The innermost frame of a thread that waits for another one of its process."""
_SERVES: Final = re.compile(r"^_run_function \(.*torch/distributed/rpc/internal\.py:\d+\)$")
"""torch calls the function of a remote call from here."""


def stacks_of(store: Store, rank: int) -> list[Stack]:
    """All threads as py-spy saw them last; none if the rank was not looked at."""
    reported = store.stacks.get(rank)
    return reported[1] if reported else []


def sampled_at_s(store: Store, rank: int) -> float:
    """When its stacks were read or refused, by the analyzer's clock; -inf if it was not looked at."""
    reported = store.stacks.get(rank)
    return reported[0] + float(store.ranks.offset_s[rank]) if reported else -math.inf


def acting_stack(store: Store, rank: int, tid: int = 0) -> Stack | None:
    """The thread whose line says why the rank does not act; None if the rank was not looked at.

    Args:
        store: The job.
        rank: The rank.
        tid: The thread that others wait for, by what it did last; 0 if it is not known.
    """
    stacks = stacks_of(store, rank)
    if not stacks:
        return None
    issuer = next((s for s in stacks if tid and s.tid == tid), None)
    trains = next((s for s in stacks if s.trains), None)
    main = next((s for s in stacks if s.main), None)
    for stack in (issuer, trains):
        if stack is not None and is_own(stack):
            return stack
    another = _only(s for s in stacks if not s.main and is_own(s) and not waits_for_thread(s))
    may_be_main = main is not None and trains in (None, main) and tid in (0, main.tid)
    if another and not (main and may_be_main and is_own(main) and not waits_for_thread(main)):
        return another
    return main or trains or issuer or stacks[0]


def serving_stack(store: Store, rank: int) -> Stack | None:
    """A thread that runs the program's own function for a remote call, and waits for no other thread; None if none."""
    serving = [s for s in stacks_of(store, rank) if serves(s)]
    return next((s for s in serving if is_own(s) and not waits_for_thread(s)), None)


def serves(stack: Stack) -> bool:
    """Does it run a function for a remote call?"""
    return any(_SERVES.search(frame) for frame in stack.frames)


def is_own(stack: Stack) -> bool:
    """Is the user's own code on it?"""
    return any(frames.is_own(frame) for frame in stack.frames)


def waits_for_thread(stack: Stack) -> bool:
    """Does it wait for another thread of its process?"""
    return bool(stack.frames) and bool(_WAITS_FOR_THREAD.search(stack.frames[0]))


def place_in(stack: Stack | None) -> str:
    """`step() (train.py:88)`: the innermost frame of the user's own code, else the innermost; empty without a stack."""
    if not stack or not stack.frames:
        return ""
    own = [f for f in stack.frames if frames.is_own(f)]
    function, bracket, place = (own or stack.frames)[0].partition(" (")
    return f"{function}{'()' if bracket and function.isidentifier() else ''}{bracket}{place}"


def name_of(stack: Stack) -> str:
    """The thread in words that follow "its"."""
    return "main thread" if stack.main else f"thread '{stack.thread}'"


def _only(stacks: Iterable[Stack]) -> Stack | None:
    found = list(stacks)
    return found[0] if len(found) == 1 else None

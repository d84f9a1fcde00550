"""What is behind a culprit, as far as the evidence of its process goes: its state, its stack, how it ended."""

from __future__ import annotations

import re
from dataclasses import dataclass

from whichrank.analyzer.state import JobState
from whichrank.locate.deaths import how_it_ended, signal_of
from whichrank.model.incident import Evidence, Reason
from whichrank.model.picture import Picture
from whichrank.model.telemetry import ProcessState, Stack, WaitChannel

_DATA = re.compile(r"dataloader|data_loader|_next_data|_get_data|_try_get_data|dataset", re.IGNORECASE)
_CHECKPOINT = re.compile(
    r"(?<![a-z])(save|write|dump)\w* \(|(?<![a-z])(store|upload|persist)_?\w*(checkpoint|ckpt|state|snapshot)"
    r"|(checkpoint|ckpt|snapshot)\w*_(save|write)",
    re.IGNORECASE,
)
"""Frames that write training state. Not every checkpoint: activations are checkpointed in each backward pass."""
_RENDEZVOUS = re.compile(
    r"^(?:init_process_group|new_group|_new_group_with_tag|new_subgroups\w*|split_group|_new_process_group_helper"
    r"|_store_based_barrier) \(.*\btorch/distributed/distributed_c10d\.py:\d+\)$"
    r"|\(.*\btorch/distributed/(?:rendezvous|elastic/utils/store)\.py:\d+\)$"
)
"""Frames of torch's own code that waits for other ranks. Under them lie store waits in C++, which have no frame."""
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python3|<frozen|<string>|importlib")
_NO_SLEEP = (WaitChannel.NONE, WaitChannel.DISK)
"""The channel is told in close looks only; where it is, it must not contradict what py-spy saw."""
_FOR_OTHERS = (WaitChannel.IO, WaitChannel.LOCK, WaitChannel.OTHER)
_BY_ITSELF = (WaitChannel.NONE, WaitChannel.SLEEP, WaitChannel.DISK)
_LINE = re.compile(r":\d+\)$")


@dataclass(frozen=True)
class Told:
    """A reason with its words."""

    reason: Reason | None
    words: str
    confidence: float
    evidence: tuple[Evidence, ...] = ()


def reason_of(state: JobState, picture: Picture, rank: int) -> Told:
    """Why this rank does not act, in the words that follow "it has not entered ..., and".

    Args:
        state: The job.
        picture: The same job at one moment.
        rank: The rank in question.
    """
    row = state.ranks.rows[rank]
    pid = int(row["pid"])
    if picture.gone[rank] or row["exception_ns"] or row["closed_ns"]:
        return _ended(state, rank)
    if picture.stopped[rank]:
        fact = Evidence(what="process state", value="stopped (T)", where=f"rank {rank}, pid {pid}")
        return Told(Reason.STOPPED, f"its process {pid} is stopped", 0.99, (fact,))
    stack = main_stack(state, rank)
    where = place_in(stack)
    facts = [
        Evidence(
            what="process state", value=ProcessState(int(row["state"])).name.lower(), where=f"rank {rank}, pid {pid}"
        )
    ]
    if where:
        facts.append(Evidence(what="main thread at", value=where, where=f"rank {rank}"))
    at = f"; it is in {where}" if where else ""
    if stack and stack.holds_gil and stack.asleep and row["main_wait_channel"] not in _NO_SLEEP:
        return Told(
            Reason.GIL_HELD, f"its main thread sleeps in the kernel while it holds the GIL{at}", 0.95, tuple(facts)
        )
    frames = " ".join(stack.frames[:12]) if stack else ""
    if _CHECKPOINT.search(frames) or (picture.busy[rank] and not _DATA.search(frames)):
        return Told(Reason.CHECKPOINT, f"its process writes{at}", 0.9, tuple(facts))
    if _DATA.search(frames):
        return Told(Reason.DATA_WAIT, f"it waits for data{at}", 0.95, tuple(facts))
    phase = row["phase"].decode(errors="replace")
    if phase:
        return Told(Reason.USER_CODE, f"it is in the phase '{phase}' that the script marked{at}", 0.9, tuple(facts))
    return Told(Reason.USER_CODE, f"it runs its own code{at}", 0.95 if where else 0.9, tuple(facts))


def in_rendezvous(state: JobState, rank: int) -> bool:
    """Does the main thread wait in torch's own code for other ranks, in no operation?"""
    stack = main_stack(state, rank)
    return stack is not None and any(_RENDEZVOUS.search(frame) for frame in stack.frames)


def held_up_by(state: JobState, picture: Picture, ranks: list[int]) -> list[int]:
    """Of several ranks that others wait for, those that are late by themselves; none if that cannot be told.

    Ranks also wait for each other where no operation is seen: for a key in a store, a file lock, a socket. So of
    several only those are named that run or sleep while all the rest waits in the kernel for something to come, and
    only if they are in the same function: one of two at different places may look for what the other will do.
    """
    if len(ranks) < 2:
        return ranks
    own = {r: _is_late_by_itself(state, picture, r) for r in ranks}
    late = [r for r in ranks if own[r]]
    places = {_LINE.sub("", place_in(main_stack(state, r))) for r in late}
    return late if None not in own.values() and len(places) == 1 and "" not in places else []


def _is_late_by_itself(state: JobState, picture: Picture, rank: int) -> bool | None:
    """None if it is not known whether it waits for others."""
    row, stack = state.ranks.rows[rank], main_stack(state, rank)
    frames = " ".join(stack.frames[:12]) if stack else ""
    if in_rendezvous(state, rank):
        return False
    if picture.busy[rank] or row["state"] == ProcessState.RUNNING or _DATA.search(frames) or _CHECKPOINT.search(frames):
        return True
    channel = row["main_wait_channel"]
    return True if channel in _BY_ITSELF else False if channel in _FOR_OTHERS else None


def _ended(state: JobState, rank: int) -> Told:
    ends = state.ends()
    event = state.exits.get(rank)
    how = how_it_ended(ends, rank)
    facts = (Evidence(what="process", value=how, where=f"rank {rank}"),)
    if event and "out of memory" in event.text:
        return Told(Reason.OUT_OF_MEMORY, f"its process {how}; the kernel ended it for lack of memory", 0.99, facts)
    if ends.exception[rank] and ends.exception[rank] in how:
        return Told(Reason.EXCEPTION, f"its process {how}", 0.99, facts)
    if signal_of(int(ends.status[rank])) and "signal" in how:
        return Told(Reason.SIGNAL, f"its process {how}", 0.99, facts)
    return Told(None, f"its process {how}", 0.97, facts)


def main_stack(state: JobState, rank: int) -> Stack | None:
    """The main thread as py-spy saw it last, None if it was not looked at."""
    told = state.stacks.get(rank)
    if not told or not told[1]:
        return None
    return next((s for s in told[1] if s.main), told[1][0])


def place_in(stack: Stack | None) -> str:
    """The innermost frame of the user's own code, else the innermost frame; empty without a stack."""
    if not stack or not stack.frames:
        return ""
    own = [f for f in stack.frames if not _LIBRARY.search(f)]
    return (own or stack.frames)[0]

"""What is behind a culprit, as far as the evidence of its process goes: its state, its stack, how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whichrank.hang.acting import acting_stack, name_of, place_in, sampled_at_s, stacks_of
from whichrank.locate.deaths import fact_of_end, how_it_ended
from whichrank.locate.stack_reading import (
    loads_data,
    waits_for_another_process,
    waits_in_rendezvous,
    writes_checkpoint,
)
from whichrank.model.clause import Clause, Says, clause
from whichrank.model.evidence import Evidence
from whichrank.model.incident import Reason
from whichrank.model.picture import Picture
from whichrank.model.telemetry import ProcessState, SourceKind, Stack, WaitChannel
from whichrank.store.store import Store

FEW = 4
"""Times as many ranks wait, at the least, for all that they wait for to be named on the word of operations alone."""
MOST = 4
"""So many are named on it, at the most."""
_NO_SLEEP = (WaitChannel.NONE, WaitChannel.DISK)
"""The channel is reported in close snapshots only; where it is, it must not contradict what py-spy saw."""


@dataclass(frozen=True)
class FoundReason:
    """A reason, and what is said of it."""

    reason: Reason | None
    clauses: tuple[Clause, ...]
    confidence: float
    evidence: tuple[Evidence, ...] = ()


def reason_of(store: Store, picture: Picture, rank: int, tid: int = 0) -> FoundReason:
    """Why this rank does not act: what is said after "it has not entered ..., and".

    Args:
        store: The job.
        picture: The same job at one moment.
        rank: The rank in question.
        tid: The thread that others wait for, 0 if it is not known.
    """
    row = store.ranks.rows[rank]
    pid = int(row["pid"])
    if picture.gone[rank] or row["exception_ns"] or row["closed_ns"]:
        return _ended(store, rank)
    if picture.stopped[rank]:
        fact = Evidence(what="process state", value="stopped (T)", where=f"rank {rank}, pid {pid}")
        return FoundReason(Reason.STOPPED, (clause(Says.SUSPENDED),), 0.99, (fact,))
    stack = acting_stack(store, rank, tid)
    where = place_in(stack)
    if not store.was_observed(rank):
        return _by_its_operations(picture, rank, where)
    facts = [
        Evidence(
            what="process state", value=ProcessState(int(row["state"])).name.lower(), where=f"rank {rank}, pid {pid}"
        )
    ]
    if stack and where:
        facts.append(Evidence(what=f"{name_of(stack)} at", value=where, where=f"rank {rank}"))
    at = (clause(Says.IS_IN, place=where),) if where else ()
    channel = _channel(stack, int(row["main_wait_channel"]))
    holder = next((s for s in stacks_of(store, rank) if s.holds_gil and s.asleep), None)
    if holder and (not holder.main or row["main_wait_channel"] not in _NO_SLEEP):
        asleep = clause(Says.ASLEEP_WITH_GIL, thread=name_of(holder))
        held_at = (clause(Says.IS_IN, place=place_in(holder)),) if holder.frames else ()
        return FoundReason(Reason.GIL_HELD, (asleep, *held_at), 0.95, tuple(facts))
    if writes_checkpoint(stack):
        return FoundReason(Reason.CHECKPOINT, (clause(Says.WRITES), *at), 0.9, tuple(facts))
    if loads_data(stack):
        return FoundReason(Reason.DATA_WAIT, (clause(Says.WAITS_FOR_DATA), *at), 0.95, tuple(facts))
    if picture.busy[rank]:
        return FoundReason(Reason.USER_CODE, (clause(Says.BUSY), *at), 0.9, tuple(facts))
    phase = row["phase"].decode(errors="replace")
    if phase:
        return FoundReason(Reason.USER_CODE, (clause(Says.IN_PHASE, phase=phase), *at), 0.9, tuple(facts))
    if stack and (awaited := _waits_for(stack)):
        return FoundReason(Reason.USER_CODE, (awaited[0], *at), awaited[1], tuple(facts))
    if channel in (WaitChannel.IO, WaitChannel.OTHER):
        return FoundReason(Reason.USER_CODE, (clause(Says.WAITS_FOR_SOMETHING), *at), 0.8, tuple(facts))
    own = clause(Says.OWN_CODE_IN, place=where) if where else clause(Says.OWN_CODE)
    return FoundReason(Reason.USER_CODE, (own,), 0.95 if where else 0.9, tuple(facts))


def _channel(stack: Stack | None, main_channel: int) -> int:
    """Where the thread sleeps: as it was seen with its stack, else as the agent says of the rank."""
    if stack is None or (stack.main and stack.channel == WaitChannel.UNKNOWN):
        return main_channel
    return stack.channel


def _waits_for(stack: Stack) -> tuple[Clause, float] | None:
    """Whom a thread waits for outside of any operation, and how sure it is that its own rank is at fault."""
    source = stack.source
    if source is None:
        return (clause(Says.WAITS_FOR_PROCESS), 0.3) if waits_for_others(stack) else None
    if source.kind is SourceKind.CHILD:
        return clause(Says.WAITS_FOR_CHILD, pid=next(iter(source.pids), 0)), 0.85
    if source.kind is SourceKind.ELSEWHERE:
        return clause(Says.WAITS_FOR_ADDRESS, address=source.address), 0.75
    if source.kind is SourceKind.RANK:
        return clause(Says.WAITS_FOR_RANK, rank=source.ranks[0]), 0.3
    return clause(Says.WAITS_FOR_JOB), 0.3


def waits_for_others(stack: Stack) -> bool:
    """Does it wait for another rank, or may it, in no operation? Then its own rank is not at fault for sure."""
    if stack.source is not None:
        return stack.source.kind in (SourceKind.RANK, SourceKind.JOB)
    return waits_for_another_process(stack.frames)


def is_held_up(store: Store, rank: int, tid: int = 0, since_s: float = -np.inf) -> bool:
    """Was the thread that others wait for seen, since then, to wait for another process of the job?

    Not in torch's own rendezvous, where it waits for the very ranks that wait for it, and not for data.
    """
    stack = acting_stack(store, rank, tid)
    if stack is None or sampled_at_s(store, rank) < since_s or loads_data(stack):
        return False
    return waits_for_others(stack) and not waits_in_rendezvous(stack.frames)


def in_rendezvous(store: Store, rank: int, since_s: float = -np.inf) -> bool:
    """Was the thread that trains seen, since then, to wait in torch's own code for other ranks, in no operation?"""
    stack = acting_stack(store, rank)
    if stack is None or sampled_at_s(store, rank) < since_s:
        return False
    return waits_in_rendezvous(stack.frames)


def _by_its_operations(picture: Picture, rank: int, where: str) -> FoundReason:
    """What operations alone say of a rank that does not act."""
    in_flight = int(((picture.ops["rank"] == rank) & ~picture.ops["failed"]).sum())
    at = (clause(Says.LAST_ISSUED_IN, place=where),) if where else ()
    fact = Evidence(what="operations in flight", value=in_flight, where=f"rank {rank}")
    if in_flight:
        return FoundReason(None, (clause(Says.NOTHING_AFTER, in_flight=in_flight), *at), 0.7, (fact,))
    if picture.recorded is not None and picture.recorded.has_only_counts:
        return FoundReason(None, at, 0.85)
    return FoundReason(None, (clause(Says.NOTHING_IN_FLIGHT), *at), 0.85, (fact,))


def held_up_by(
    store: Store,
    ranks: list[int],
    since_s: float,
    waiting: int,
    unseen: int = 0,
    tids: Mapping[int, int] | None = None,
) -> list[int]:
    """Of several ranks that others wait for, the one on which it rests; none if that cannot be reported.

    Ranks also wait for each other where no operation is seen: for a key in a store, a file, a lock, a socket. One that
    sleeps may look for what another will do every second, and both may stand in the same function. So nobody is
    named, unless all but one are in torch's own rendezvous, where a rank does nothing but wait for others. Nor is one
    that waits for another process of the job itself.

    Where no process was observed, as in recordings of operations, nothing more will come to light. Then all are named
    if they are few, and some are not all there is of a communicator that is new: such ranks wait for each other before
    their first operation. In a job that has just begun any communicator may be new, those of messages too. And where
    sends and receives are not recorded, who waits in one looks the same. In both only a single one counts.

    Args:
        store: The job.
        ranks: Those in question.
        since_s: Stacks that are older say nothing.
        waiting: How many ranks wait.
        unseen: How many others they wait for that were not read.
        tids: The thread of each that the others wait for, where it is known.
    """
    if store.recorded is not None and not any(store.was_observed(rank) for rank in ranks):
        if store.recorded.hides_messages and (len(ranks) > 1 or unseen):
            return []
        if store.recorded.is_young and len(ranks) > 1:
            return []
        are_few = len(ranks) <= MOST and FEW * len(ranks) <= waiting and not _is_all_of_a_new_group(store, ranks)
        return ranks if len(ranks) == 1 or are_few else []
    late = ranks if len(ranks) < 2 else [r for r in ranks if not in_rendezvous(store, r, since_s)]
    tids = tids or {}
    return late if len(late) == 1 and not is_held_up(store, late[0], tids.get(late[0], 0), since_s) else []


def _is_all_of_a_new_group(store: Store, ranks: list[int]) -> bool:
    """Are some of these all there is of a communicator on which nobody has issued anything yet?"""
    if len(ranks) < 2:
        return False
    elsewhere = ~np.isin(store.comms.member_rank, ranks) | (store.comms.member_issued > 0)
    comm = np.repeat(np.arange(len(store.comms.size)), store.comms.size)
    not_so = np.bincount(comm[elsewhere], minlength=len(store.comms.size))
    return bool(((not_so == 0) & (store.comms.size > 1)).any())


def _ended(store: Store, rank: int) -> FoundReason:
    ends = store.departures.ends()
    event = store.departures.exits.get(rank)
    how = how_it_ended(ends, rank)
    facts = (fact_of_end(how, rank),)
    if event and "out of memory" in event.text:
        return FoundReason(Reason.OUT_OF_MEMORY, (how, clause(Says.OUT_OF_MEMORY)), 0.99, facts)
    if how.says is Says.RAISED:
        return FoundReason(Reason.EXCEPTION, (how,), 0.99, facts)
    if how.says is Says.KILLED:
        return FoundReason(Reason.SIGNAL, (how,), 0.99, facts)
    return FoundReason(None, (how,), 0.97, facts)

"""Dumps of torchcomms' own Flight Recorder (`TORCHCOMM_FR_DUMP_TEMP_FILE`), counted as PyTorch's dumps are.

A dump has the form of PyTorch's, pickle or JSON, and also its version ("2.10"), so `flight_dump` reads it. It says
other things (meta-pytorch/torchcomms, `comms/torchcomms/hooks/fr/FlightRecorder.cpp` and `.hpp`, commits 164b034 and
10cd4fe):

- a group is called after its communicator, and its description is the backend; there is no status of groups;
- `collective_seq_id` counts all that the process has issued, on all communicators, sends and receives included;
- sends and receives do not say their peer, and are not marked as such;
- `state` becomes `completed` only on CUDA; everywhere an operation is `retired` when its work is complete.

So operations are counted anew for each communicator. Where the ring has lost nothing, that is their order. Where it
has, the numbers of all that was issued are taken, if there are no messages, and on each communicator all members have
the same operations under the same numbers, as in a program that does the same on all of them. Example: rank 0 has an
all-reduce of "dp" as number 7, 9 and 11, rank 1 as 7 and 9: it is one behind. Had rank 1 them as 7 and 10, nothing
could be said of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.intake.flight_dump import COMPLETED, OF_ALL, Dump
from whichrank.model.kinds import is_message

UNCOUNTED: Final = (
    "torchcomms counts what a process issues on all communicators together, its ring has lost the first ones, and "
    "ranks need not have the same operations under these numbers; a larger TORCHCOMM_FR_BUFFER_SIZE keeps them"
)
_BACKENDS: Final = frozenset({"nccl", "ncclx", "rccl", "rcclx", "xccl", "hccl", "mccl", "gloo", "dummy"})
LEAST_SHARED: Final = 8
"""Operations that a rank has in common with its peers on a communicator, from which its numbers are theirs; fewer if it
has no more."""
_SIGNATURE: Final = ("kind", "dtype", "count")
Key = tuple[str, tuple[int, ...]]


def is_torchcomms(dump: Dump) -> bool:
    """Is this a dump of torchcomms? It says so by what it does not count."""
    rows = dump.entries
    if dump.status or not len(rows) or rows["p2p_seq"].any() or not dump.version.startswith("2."):
        return False
    descs = {dump.groups[at].desc for at in np.unique(rows["group"]).tolist()}
    return descs <= _BACKENDS | {dump.backend} and len(np.unique(rows["seq"] - rows["record"])) == 1


def counted_anew(dumps: Mapping[int, Dump]) -> tuple[dict[int, Dump], dict[int, str]]:
    """The dumps of a job with the counts of each communicator, and the ranks whose dump has none, each with the reason.

    Args:
        dumps: By rank; those of PyTorch stay as they are.
    """
    theirs = {rank: dump for rank, dump in dumps.items() if is_torchcomms(dump)}
    if not theirs:
        return dict(dumps), {}
    hides = any(_is_no_collective(dump.entries).any() for dump in theirs.values())
    if all(_is_whole(dump.entries) for dump in theirs.values()):
        seq = {rank: _by_order(dump) for rank, dump in theirs.items()}
    elif not hides and (numbered := _by_numbers(theirs)) is not None:
        seq = numbered
    else:  # of some ranks alone a verdict would blame who waits for the others
        others = {rank: dump for rank, dump in dumps.items() if rank not in theirs}
        return others, dict.fromkeys(sorted(theirs), UNCOUNTED)
    world = max((max(group.members, default=0) for dump in theirs.values() for group in dump.groups), default=0) + 1
    found = {
        rank: _counted(theirs[rank], seq[rank], world, hides) if rank in theirs else dump
        for rank, dump in dumps.items()
    }
    return found, {}


def _is_whole(rows: NDArray[Any]) -> bool:
    """Is all in it that was issued?"""
    return bool((rows["record"] == np.arange(len(rows))).all())


def _is_no_collective(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Sends, receives and batches of them, of which nothing says to whom they go."""
    return np.asarray(is_message(rows["kind"]) | rows["p2p"])


def _by_order(dump: Dump) -> NDArray[np.int64]:
    """Of each operation, how many collectives there have been on its group."""
    rows = dump.entries
    found = np.zeros(len(rows), np.int64)
    counts = ~_is_no_collective(rows)
    for at in np.unique(rows["group"]).tolist():
        mine = counts & (rows["group"] == at)
        found[mine] = np.arange(1, mine.sum() + 1)
    return found


def _by_numbers(dumps: Mapping[int, Dump]) -> dict[int, NDArray[np.int64]] | None:
    """The same by the numbers of all that was issued; None if members of a communicator differ in them."""
    seq = {rank: np.zeros(len(dump.entries), np.int64) for rank, dump in dumps.items()}
    on: dict[Key, dict[int, NDArray[np.bool_]]] = {}
    for rank, dump in dumps.items():
        counts = ~_is_no_collective(dump.entries)
        for at, group in enumerate(dump.groups):
            mine = counts & (dump.entries["group"] == at)
            if mine.any():
                on.setdefault((group.name, group.members), {})[rank] = mine
    for ranks in on.values():
        if not _agree({rank: dumps[rank].entries for rank in ranks}, ranks):
            return None
        every = np.unique(np.concatenate([dumps[rank].entries["record"][mine] for rank, mine in ranks.items()]))
        for rank, mine in ranks.items():
            seq[rank][mine] = np.searchsorted(every, dumps[rank].entries["record"][mine]) + 1
    return seq


def _agree(rows: Mapping[int, NDArray[Any]], which: Mapping[int, NDArray[np.bool_]]) -> bool:
    """Have all members the same operations of a communicator under the same numbers, as far as their rings reach?"""
    known: dict[int, tuple[int, ...]] = {}
    owners: dict[int, int] = {}
    mine = {rank: _signatures(rows[rank][which[rank]]) for rank in rows}
    for signatures in mine.values():
        for number, signature in signatures.items():
            if known.setdefault(number, signature) != signature:
                return False
            owners[number] = owners.get(number, 0) + 1
    for rank, signatures in mine.items():
        first, last = int(rows[rank]["record"][0]), int(rows[rank]["record"][-1])
        if len(rows[rank]) != last - first + 1 or any(first <= n <= last and n not in signatures for n in known):
            return False
        if len(mine) > 1 and sum(owners[n] > 1 for n in signatures) < min(LEAST_SHARED, len(signatures)) - 1:
            return False
    return True


def _signatures(rows: NDArray[Any]) -> dict[int, tuple[int, ...]]:
    columns: Iterable[tuple[int, ...]] = zip(*(rows[name].tolist() for name in _SIGNATURE), strict=True)
    return dict(zip(rows["record"].tolist(), columns, strict=True))


def _counted(dump: Dump, seq: NDArray[np.int64], world: int, hides: bool) -> Dump:
    """The dump with these counts, its messages left out, and the group of all ranks called so."""
    keep = ~_is_no_collective(dump.entries)
    rows = dump.entries[keep].copy()
    rows["seq"] = rows["op"] = seq[keep]
    rows["state"] = np.where(rows["retired"], COMPLETED, rows["state"])
    if _is_whole(dump.entries):
        rows["record"] = np.arange(len(rows))
    is_all = tuple(range(world))
    groups = tuple(replace(one, desc=OF_ALL[0] if one.members == is_all else "") for one in dump.groups)
    return replace(dump, entries=rows, groups=groups, hides_messages=hides)

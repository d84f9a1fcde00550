"""Writes into the ring which ranks this process meets while it makes a communicator.

`new_group`, and `init_process_group` behind its store, wait inside of torch until all members of the new communicator
have come. Nobody is in an operation then, and stacks show that a rank waits and not for whom. So the one function of
torch through which Python makes communicators is wrapped, and the members are marked while it runs. Members that are
no range by steps are left out: then only the wait is marked.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from whichrank.native import load_core

_MARK: Final = "_whichrank_meets"
_OF_ALL: Final = "default_pg"


class Members(NamedTuple):
    """Global ranks: `first`, and so on by `stride`."""

    first: int
    stride: int
    size: int
    """0: not known."""


UNKNOWN: Final = Members(0, 1, 0)


def watch() -> None:
    """Mark from now on whom this process meets; where a torch has no such function, nothing is marked.

    Raises:
        NativeLibraryError: The core library is not there.
    """
    from torch.distributed import distributed_c10d

    original = getattr(distributed_c10d, "_new_process_group_helper", None)
    if original is None or hasattr(original, _MARK):
        return
    core = load_core()

    @functools.wraps(original)
    def meets(*arguments: Any, **named: Any) -> Any:
        ring, row = _begun(core, arguments, named)
        try:
            return original(*arguments, **named)
        finally:
            if ring and core.wr_process_ring() == ring:  # not after a fork or a switch-off
                core.wr_outside_wait_end(ring, row)

    setattr(meets, _MARK, True)
    distributed_c10d._new_process_group_helper = meets


def members_met(
    group_size: object, group_rank: object, ranks: object, desc: object, rank: str | None
) -> Members | None:
    """Whom a process meets that makes a communicator, None if it is no member.

    Args:
        group_size: As torch's helper takes it.
        group_rank: The same; no number in a process that is no member.
        ranks: The same: global ranks. There are none for the communicator of all, and for those that programs make by
            themselves across jobs, whose numbers are no ranks.
        desc: The same: what it is for.
        rank: Of this process, as its launcher has reported it; None if none did.
    """
    if not isinstance(group_rank, int) or group_rank < 0:
        return None
    if not isinstance(ranks, Sequence) or not isinstance(group_size, int):
        return UNKNOWN
    if not ranks:
        is_of_all = desc == _OF_ALL and rank in (None, str(group_rank))
        return Members(0, 1, group_size) if is_of_all else UNKNOWN
    listed = sorted(ranks)
    stride = listed[1] - listed[0] if len(listed) > 1 else 1
    if listed[0] < 0 or listed != list(range(listed[0], listed[0] + stride * len(listed), stride or 1)):
        return UNKNOWN
    return Members(listed[0], stride, len(listed))


def _begun(core: ctypes.CDLL, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[int | None, int]:
    """The ring and the row of the mark; no ring where nothing is marked."""
    try:
        names = ("group_size", "group_rank", "global_ranks_in_group")
        given = [arguments[at] if at < len(arguments) else named.get(name) for at, name in enumerate(names)]
        members = members_met(given[0], given[1], given[2], named.get("group_desc"), os.environ.get("RANK"))
        ring = core.wr_process_ring()
        if members is None or not ring:
            return None, -1
        return ring, core.wr_meeting_begin(ring, *members)
    except Exception as error:
        print(f"whichrank: who meets in a new communicator is not known: {error}", file=sys.stderr)
        return None, -1

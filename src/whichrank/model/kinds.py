"""What each kind of operation is, said once: a new kind is a member of `Kind` and a line of `TRAITS`.

The training process reads this too, so nothing heavy is imported. The numbers are those of `enum wr_kind` in
`native/include/whichrank/ring.h`; a test holds both together.

Example: a reduce-scatter is `Traits(synchronises=True, reduces=True)`. So nobody is done with it before all have
entered, and its signature has a reduce op; it has no root, and its size must be the same on all members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Literal, overload

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray


class Kind(IntEnum):
    """Kind of an operation; messages are >= SEND, waits for one rank outside of operations >= REMOTE_CALL."""

    NONE = 0
    ALL_REDUCE = 1
    BROADCAST = 2
    REDUCE = 3
    ALL_GATHER = 4
    REDUCE_SCATTER = 5
    ALL_TO_ALL = 6
    GATHER = 7
    SCATTER = 8
    BARRIER = 9
    MONITORED_BARRIER = 10
    ALL_REDUCE_COALESCED = 11
    ALL_GATHER_COALESCED = 12
    REDUCE_SCATTER_COALESCED = 13
    OTHER = 14
    SEND = 32
    RECV = 33
    RECV_ANY = 34
    REMOTE_CALL = 40  # no operation: a call by torch.distributed.rpc, among the waits only
    OUTSIDE = 41  # no operation, and in no ring: a receive from another process, seen by the agent
    MEETING = 42  # no operation: a communicator is being made, among the waits only
    STEP = 48  # no operation: an optimizer step, among the records; so is all from here on
    WORK = 49  # no operation: what a backward pass is given
    PASS = 50  # no operation: a backward pass begins (its end is 0), or is over


@dataclass(frozen=True)
class Traits:
    """What an operation of a kind is.

    Attributes:
        synchronises: No member can be done with it before all have entered.
        root: Who must have entered for the others to be done: the root that `sends` to them, or for the root itself
            all that it `receives` from; empty: there is no root.
        reduces: It has a reduce op.
        sized: Its data type and size are part of its signature.
        uneven: Its sizes may differ between members, where its flags say so.
        addressed: Its peer (the root, or the other end of a message) is part of its signature.
    """

    synchronises: bool = False
    root: Literal["", "sends", "receives"] = ""
    reduces: bool = False
    sized: bool = True
    uneven: bool = False
    addressed: bool = False


TRAITS: Final = {
    Kind.ALL_REDUCE: Traits(synchronises=True, reduces=True),
    Kind.BROADCAST: Traits(root="sends", addressed=True),
    Kind.REDUCE: Traits(root="receives", reduces=True, addressed=True),
    Kind.ALL_GATHER: Traits(synchronises=True),
    Kind.REDUCE_SCATTER: Traits(synchronises=True, reduces=True),
    Kind.ALL_TO_ALL: Traits(synchronises=True, uneven=True),
    Kind.GATHER: Traits(root="receives", addressed=True),
    Kind.SCATTER: Traits(root="sends", addressed=True),
    Kind.BARRIER: Traits(synchronises=True, sized=False),
    Kind.MONITORED_BARRIER: Traits(root="receives", sized=False),
    Kind.ALL_REDUCE_COALESCED: Traits(synchronises=True, reduces=True),
    Kind.ALL_GATHER_COALESCED: Traits(synchronises=True),
    Kind.REDUCE_SCATTER_COALESCED: Traits(synchronises=True, reduces=True),
    Kind.OTHER: Traits(),
    Kind.SEND: Traits(addressed=True),
    Kind.RECV: Traits(addressed=True),
    Kind.RECV_ANY: Traits(addressed=True),
}
"""Of all kinds of operations."""


def kinds_that(has: Callable[[Traits], bool]) -> frozenset[Kind]:
    """The kinds of operations whose traits are so: `kinds_that(lambda t: t.reduces)`."""
    return frozenset(kind for kind, traits in TRAITS.items() if has(traits))


SYNCHRONISING: Final = kinds_that(lambda t: t.synchronises)
"""No member can be done with these before all have entered."""
FROM_ROOT: Final = kinds_that(lambda t: t.root == "sends")
TO_ROOT: Final = kinds_that(lambda t: t.root == "receives")
ROOTED: Final = FROM_ROOT | TO_ROOT
REDUCING: Final = kinds_that(lambda t: t.reduces)
BARRIERS: Final = kinds_that(lambda t: not t.sized)


@overload
def is_collective(kind: int) -> bool: ...
@overload
def is_collective(kind: NDArray[Any]) -> NDArray[bool_]: ...
def is_collective(kind: Any) -> Any:
    """Whether a kind, or each of an array of kinds, is an operation that all members of a communicator take part in."""
    return kind < Kind.SEND


@overload
def is_message(kind: int) -> bool: ...
@overload
def is_message(kind: NDArray[Any]) -> NDArray[bool_]: ...
def is_message(kind: Any) -> Any:
    """Whether a kind, or each of an array of kinds, is a send or receive, or a wait for one rank outside of any."""
    return kind >= Kind.SEND

"""What logs say of ranks and their processes, beside what recordings say of operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from whichrank.intake.log_time import UNTIMED


@dataclass(frozen=True)
class Fact:
    """What is known of one rank.

    Attributes:
        rank: Global rank.
        host: Where it ran; empty: not known.
        pid: Of its process; 0: not known.
        status: How that ended, as from wait(2); -1: not known, or it did not.
        exception: The last line of its traceback.
        words: Lines that say so, for evidence.
        is_dead: Living peers have found it dead.
        world_size: Ranks of the communicator in which it says so of itself; 0: not said.
        at_s: When it was said or happened, see `log_time`.
        bus: Address of its device, as NCCL writes it; empty: not known.
        lacked_memory: It was killed for lack of memory.
        by_task: It is a task of Slurm's, which is a rank unless another launcher makes several of each.
    """

    rank: int
    host: str = ""
    pid: int = 0
    status: int = -1
    exception: str = ""
    words: tuple[str, ...] = ()
    is_dead: bool = False
    world_size: int = 0
    by_task: bool = False
    at_s: float = UNTIMED
    bus: str = ""
    lacked_memory: bool = False

    @property
    def has_ended(self) -> bool:
        """Its process is known to have ended."""
        return self.is_dead or self.status >= 0 or bool(self.exception)


@dataclass(frozen=True)
class Xid:
    """An error that NVIDIA's driver has logged of a device.

    Attributes:
        number: Its kind, as in NVIDIA's list.
        device: PCI address.
        host: Where, empty if the line does not say.
        pid: Of the process that met it, 0 if the line does not say.
        words: What the driver says.
        at_s: When, see `log_time`.
    """

    number: int
    device: str
    host: str
    pid: int
    words: str
    at_s: float = UNTIMED

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        return f"Xid {self.number} of device {self.device}{where}" + (f": {self.words}" if self.words else "")


class Killed(NamedTuple):
    """A process that the kernel has ended: its pid, where, empty if the line does not say, and when, see `log_time`."""

    pid: int
    host: str = ""
    at_s: float = UNTIMED


def with_xids(facts: Mapping[int, Fact], xids: Iterable[Xid]) -> dict[int, Fact]:
    """Facts with the errors of devices that are known to be of a rank: by its process, on its host if that is known."""
    known = dict(facts)
    for xid in xids:
        if not xid.pid:
            continue
        mine = [fact for fact in known.values() if fact.pid == xid.pid and xid.host in ("", fact.host)]
        if len(mine) == 1:
            known[mine[0].rank] = replace(mine[0], words=(*mine[0].words, str(xid)))
    return known


SIGBUS, SIGKILL, SIGTERM = 7, 9, 15
_OF_NO_PEER: Final = frozenset({4, 7, 8, 9, 11})
"""Signals that end a rank, and that no exception of another one leads to."""


def survived(fact: Fact) -> Fact:
    """What is left of an exception that a rank went on after."""
    return replace(fact, exception="", words=(*fact.words, f"raised {fact.exception}, and went on"))


def without_survived(facts: Mapping[int, Fact]) -> dict[int, Fact]:
    """Facts without exceptions of ranks that a launcher had to end, where another rank was killed or has crashed.

    A rank that raises ends by itself, and its launcher says with which code. One that was still there to be ended had
    caught it, or was on its way out; what no exception of a peer can lead to comes before that.
    """
    if not any(fact.status in _OF_NO_PEER for fact in facts.values()):
        return dict(facts)
    return {rank: survived(fact) if fact.exception and fact.status == SIGTERM else fact for rank, fact in facts.items()}


def status_of_code(code: int) -> int:
    """A status as from wait(2) of an exit code as launchers write it: negative, or above 128, for signals.

    Args:
        code: Such as 1, -9 or 137.
    """
    if code < 0:
        return -code & 0x7F
    return code - 128 if 128 < code < 160 else (code & 0xFF) << 8


def without_repeats(facts: Iterable[Fact]) -> list[Fact]:
    """Of facts that differ in their time only, the first and the latest, in their order: both count, see `attempts`."""
    facts = list(facts)
    alike: dict[Fact, tuple[int, int]] = {}
    for at, fact in enumerate(facts):
        key = replace(fact, at_s=UNTIMED)
        alike[key] = alike.get(key, (at, at))[0], at
    return [facts[at] for at in sorted({at for both in alike.values() for at in both})]


def _is_of_itself(fact: Fact) -> bool:
    """Does a rank say this of itself, by what it raised? No launcher that numbers ranks need be there for that."""
    return fact.status < 0 and not fact.is_dead and not fact.world_size


def joined(facts: Iterable[Fact]) -> dict[int, Fact]:
    """One for each rank: the first word on each point counts, since later ones are of what followed.

    Tasks of Slurm count only where no other launcher or library says of ranks; a traceback is of none.
    """
    facts = list(facts)
    by_task = all(fact.by_task or _is_of_itself(fact) for fact in facts)
    known: dict[int, Fact] = {}
    for fact in facts:
        if fact.by_task and not by_task:
            continue
        before = known.get(fact.rank)
        if before is None:
            known[fact.rank] = fact
            continue
        known[fact.rank] = replace(
            before,
            host=before.host or fact.host,
            pid=before.pid or fact.pid,
            status=before.status if before.status >= 0 else fact.status,
            exception=before.exception or fact.exception,
            words=tuple(dict.fromkeys((*before.words, *fact.words))),
            is_dead=before.is_dead or fact.is_dead,
            world_size=max(before.world_size, fact.world_size),
            at_s=before.at_s if before.has_ended or not fact.has_ended else fact.at_s,
            bus=before.bus or fact.bus,
            lacked_memory=before.lacked_memory or fact.lacked_memory,
        )
    return known

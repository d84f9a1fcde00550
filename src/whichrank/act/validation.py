"""A validation: the job is paused, ranks of suspect groups are measured, and the job goes on.

Computation and memory of all these ranks at once; then the links of their groups, in passes that do not overlap, groups
that share no rank at one time. Of what takes longer than the pause may, the last links are left out.
Source: Greyhound, section 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.act.passes import Pass, in_use, passes_over, ring
from whichrank.act.pause import Pause, Phase
from whichrank.model.codes import MIB, MULTIPLIED, GateTest, link_s
from whichrank.model.commands import HoldGate, RankTest
from whichrank.model.job_now import Group
from whichrank.model.rows import RESULTS

REPEATS: Final = 3
"""Greyhound, section 6. Of ranks one by one, with the other tests in between: what disturbs one lasts for a moment."""
MOST_TESTS: Final = 200
"""Of a pause: ranks tell 255 apart."""
ALONE_S: Final = 1.0
"""What a test of computation or memory usually takes, until all have said that they have made it."""
ALL_ALONE_S: Final = 2.5
"""All of these, likely: what would take longer is not made again. A rank that takes so long is far from chance."""
LATER_S: Final = 0.1
"""By which a pass over links lasts longer than messages are asked for."""
MUCH_SLOWER: Final = 2.0
"""Times the others, from which a rank computes so slowly that nothing is asked of its links: they would be slow too."""
MOST: Final = 0.25
"""Share of what is compared that may be slow; of more it is another sort."""
MARGIN_S: Final = 0.5
"""Before ranks go on by themselves."""


def are_few(slow: int, compared: int) -> bool:
    """Whether so many of those compared may be slow: of more it is another sort."""
    return slow <= max(1, MOST * compared)


@dataclass
class Measured:
    """What came of a validation. Times are seconds; NaN where nothing was measured.

    Attributes:
        ranks: Of the job, (R,).
        compute_s: A product of matrices, by rank, type of numbers and repeat, (R, 3, repeats).
        memory_s: A copy of memory, (R, repeats).
        links: Sender and receiver, global ranks; bytes; seconds of each repeat.
        arrivals: By sender and receiver, bytes per second at which their middle byte came in, where that is known: late
            acknowledgements do not change it.
        problems: By rank, why it could not measure.
        left_out_links: For which no time was left.
    """

    ranks: NDArray[np.int64]
    compute_s: NDArray[np.float64]
    memory_s: NDArray[np.float64]
    links: list[tuple[int, int, int, list[float]]] = field(default_factory=list)
    arrivals: dict[tuple[int, int], float] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    left_out_links: int = 0

    def computing_slowly(self, times: float) -> set[int]:
        """Ranks that take so many times as long as usual for products of every type of numbers that was measured.

        None, if there are more than a few: then they are another sort of device.
        """
        least = np.full(len(self.ranks), np.inf)  # of the types, (R,)
        for times_s in self.compute_s.transpose(1, 0, 2):
            made = np.flatnonzero(np.isfinite(times_s).any(axis=1))
            if len(made):
                usual_s = np.nanmedian(times_s[made], axis=1)
                least[made] = np.minimum(least[made], usual_s / np.median(usual_s))
        slow = self.ranks[np.isfinite(least) & (least >= times)].tolist()
        return set(slow) if are_few(len(slow), len(self.ranks)) else set()


@dataclass(frozen=True)
class GroupLinks:
    """Links of a communicator that are to be tested."""

    group: Group
    passes: tuple[Pass, ...]


@dataclass(frozen=True)
class _Test:
    """What is measured at one time: by all suspects alone, or on the links of groups that share no rank."""

    kind: GateTest
    turn: int = 0
    groups: tuple[GroupLinks, ...] = ()

    @property
    def lasts_s(self) -> float:
        """What it takes, likely."""
        passes = [len(one.passes) for one in self.groups]
        return max((1 + of_one) * (LATER_S + link_s(of_one)) for of_one in passes) if passes else ALONE_S


class Validation:
    """Of one job.

    Args:
        pause: Of all its ranks.
        suspects: Ranks that are measured.
        links: That are.
        sizes: Bytes of the messages.
    """

    def __init__(
        self, pause: Pause, suspects: Sequence[int], links: Sequence[GroupLinks], sizes: Sequence[int]
    ) -> None:
        self.pause = pause
        self._suspects, self._sizes = sorted(set(suspects)), tuple(sizes)
        alone = (GateTest.COMPUTE, GateTest.MEMORY)
        self._tests = [_Test(kind, turn) for turn in range(REPEATS) for kind in alone]
        self._tests += [_Test(GateTest.LINKS, 0, groups) for groups in at_one_time(links)]
        del self._tests[MOST_TESTS:]
        self._closed_s = 0.0  # when the first test was asked for
        self._number = 0  # of the test that is under way, from 1
        self._told: dict[int, RankTest] = {}  # and what each rank does in it
        self._takes: dict[int, list[tuple[int, int]]] = {}  # and from whom in which pass it receives
        self._asked = np.zeros(len(pause.ranks), np.bool_)
        nothing = np.full((len(pause.ranks), len(MULTIPLIED), REPEATS), np.nan)
        self.measured = Measured(pause.ranks, nothing, nothing[:, 0].copy())

    @property
    def is_over(self) -> bool:
        """Whether nothing more is asked."""
        return self.pause.phase is Phase.OVER

    def feed(self, rows: np.ndarray[Any, Any], now_s: float) -> None:
        """Take what ranks say of their gates: rows of GATE_REPORTED."""
        self.pause.feed(rows, now_s)
        self.advance(now_s)

    def advance(self, now_s: float) -> None:
        """Time goes on: ask for the next test if this one is done, and open behind the last."""
        self.pause.advance(now_s)
        while self.pause.phase is Phase.CLOSED:
            if self._number:
                have_made_it = self._have_made_it()
                if not have_made_it[self._asked].all():
                    return
                self._keep(self._asked)
            self._go_on(now_s)
        if self._told:  # it was given up: what is there counts
            self._keep(self._asked & self._have_made_it(), are_problems_ours=True)
            self._told = {}

    def orders(self, ranks_of: Mapping[str, Sequence[int]]) -> dict[str, HoldGate]:
        """How gates should be now: for each agent what its own ranks are to do.

        Args:
            ranks_of: By agent.
        """
        self.pause.renew()
        return {
            agent: self.pause.order(ranks, [self._told[rank] for rank in ranks if rank in self._told])
            for agent, ranks in ranks_of.items()
        }

    def _go_on(self, now_s: float) -> None:
        """Ask for the next test for which there is time, or open."""
        self._told, left_s = {}, self.pause.left_s(now_s) - MARGIN_S
        if self._number == 0:
            self._closed_s = now_s
        while self._number < len(self._tests):
            self._number += 1
            test = self._tests[self._number - 1]
            if not test.groups and self._is_enough(test, now_s):
                continue
            if not test.groups or test.lasts_s <= left_s:
                self._told = self._all_told(test)
                self._asked = np.isin(self.pause.ranks, list(self._told))
                return
            self.measured.left_out_links += sum(len(one) for links in test.groups for one in links.passes)
        self.pause.open("", now_s)

    def _is_enough(self, test: _Test, now_s: float) -> bool:
        """Whether computation or memory is not measured once more: so far it has taken too long.

        A copy of memory says nothing unless it is repeated: where there is no time for that it is not made at all.
        """
        turn, measured, took_s = test.turn, self.measured, now_s - self._closed_s
        of_memory = test.kind is GateTest.MEMORY
        if of_memory and not turn and took_s * REPEATS > ALL_ALONE_S:
            measured.compute_s, measured.memory_s = measured.compute_s[:, :, :1], measured.memory_s[:, :0]
        elif turn and not of_memory and took_s * (turn + 1) / turn > ALL_ALONE_S:
            measured.compute_s, measured.memory_s = measured.compute_s[:, :, :turn], measured.memory_s[:, :turn]
        made = measured.memory_s if of_memory else measured.compute_s
        return turn >= int(made.shape[-1])

    def _have_made_it(self) -> NDArray[np.bool_]:
        """Which ranks have made the test that is under way."""
        made: NDArray[np.bool_] = self.pause.rows["gate"]["tested"] == self._id()
        return made

    def _id(self) -> int:
        """Of the test that is under way. Ranks tell tests apart by it, also those of two pauses."""
        return (self.pause.number << 8 | self._number) & 0xFFFFFFFF

    def _all_told(self, test: _Test) -> dict[int, RankTest]:
        kind, number = int(test.kind), self._id()
        if not test.groups:
            return {rank: RankTest(rank, number, kind, 1) for rank in self._suspects}
        told, self._takes = dict[int, RankTest](), {}
        slow = self.measured.computing_slowly(MUCH_SLOWER)
        for links in test.groups:
            members, comm_id = links.group.members, links.group.comm_id
            for rank, roles in zip(members, _roles(links, slow), strict=True):
                told[rank] = RankTest(rank, number, kind, REPEATS, comm_id, self._sizes, roles)
                self._takes[rank] = [
                    (at, members[peer]) for at, (peer, sends) in enumerate(roles) if peer >= 0 and not sends
                ]
        return told

    def _keep(self, which: NDArray[np.bool_], *, are_problems_ours: bool = False) -> None:
        """Keep what these ranks have measured, and what kept them from it unless that was the end of the pause."""
        test, at = self._tests[self._number - 1], np.flatnonzero(which)
        ranks, gates = self.pause.ranks[at], self.pause.rows["gate"][at]
        if not are_problems_ours:
            for place in np.flatnonzero(gates["problem"] != b"").tolist():
                self.measured.problems[int(ranks[place])] = gates["problem"][place].decode(errors="replace")
        times = np.where(gates["result_s"] > 0, gates["result_s"].astype(np.float64), np.nan)
        count = gates["results"]
        if test.kind is GateTest.COMPUTE:
            is_whole = count == len(MULTIPLIED)
            self.measured.compute_s[at[is_whole], :, test.turn] = times[is_whole, : len(MULTIPLIED)]
        elif test.kind is GateTest.MEMORY:
            self.measured.memory_s[at[count == 1], test.turn] = times[count == 1, 0]
        else:
            for rank, seconds, length in zip(ranks.tolist(), times, count.tolist(), strict=True):
                self._keep_links(rank, seconds[: min(length, RESULTS)])

    def _keep_links(self, rank: int, times: NDArray[np.float64]) -> None:
        passes = len(self._told[rank].passes)
        arrived, times = times[:passes], times[passes:]
        if not len(times) or len(times) % (passes * len(self._sizes)):
            return
        by_pass = times.reshape(passes, len(self._sizes), -1)
        for at, sender in self._takes[rank]:
            if math.isfinite(arrived[at]):
                self.measured.arrivals[sender, rank] = MIB / float(arrived[at])
            self.measured.links += [
                (sender, rank, size, seconds) for size, seconds in zip(self._sizes, by_pass[at].tolist(), strict=True)
            ]


def links_of(groups: Iterable[Group], carried: Mapping[int, Mapping[int, int]]) -> list[GroupLinks]:
    """Links of communicators that are to be tested: those in use where they are known, else a ring.

    Small communicators come first. A pair of ranks is tested in one of them only: it is the same link in another one.

    Args:
        groups: The communicators.
        carried: Bytes, by sending and by receiving rank.
    """
    found: list[GroupLinks] = []
    taken: set[tuple[int, int]] = set()
    for group in sorted(groups, key=lambda one: len(one.members)):
        members = group.members
        links = in_use(carried, members) or ring(len(members))
        links = [(src, dst) for src, dst in links if (members[src], members[dst]) not in taken]
        taken |= {(members[src], members[dst]) for src, dst in links}
        if passes := passes_over(links):
            found.append(GroupLinks(group, tuple(passes)))
    return found


def at_one_time(links: Iterable[GroupLinks]) -> list[tuple[GroupLinks, ...]]:
    """Put each group with the first others that it shares no rank with."""
    together: list[list[GroupLinks]] = []
    busy: list[set[int]] = []
    for one in links:
        at = next((at for at, ranks in enumerate(busy) if ranks.isdisjoint(one.group.members)), len(busy))
        if at == len(busy):
            together.append([])
            busy.append(set())
        together[at].append(one)
        busy[at].update(one.group.members)
    return [tuple(groups) for groups in together]


def _roles(links: GroupLinks, without: Set[int]) -> list[tuple[tuple[int, bool], ...]]:
    """By place in the communicator, what it does in each pass: with which place, -1 none, and whether it sends.

    Args:
        links: Of the communicator.
        without: Global ranks of which no links are tested.
    """
    members = links.group.members
    roles = [[(-1, False)] * len(links.passes) for _ in members]
    for at, one in enumerate(links.passes):
        for sender, receiver in one:
            if without.isdisjoint((members[sender], members[receiver])):
                roles[sender][at], roles[receiver][at] = (receiver, True), (sender, False)
    return [tuple(one) for one in roles]

"""A training job that is computed instead of run: what each rank would say, on a clock of its own.

Programs are lists of calls per rank. Every rank goes through its own; a collective ends for all when the last has
entered it and the transfer is done, a receive when the sender is there, and so does a send (as Gloo's).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from whichrank.model.iterations import OP, STEP
from whichrank.model.kinds import Kind


@dataclass(frozen=True)
class Compute:
    """Time of the rank's own: `what` names it for those who change it."""

    seconds: float
    what: str = ""


@dataclass(frozen=True)
class Call:
    """An operation; `later` names it for the `Wait` that ends it, else it blocks."""

    comm: int
    kind: Kind = Kind.ALL_REDUCE
    peer: int = -1  # global rank, of send/recv
    transfer_s: float = 0.002
    elements: int = 1000
    later: str = ""


@dataclass(frozen=True)
class Pass:
    """A backward pass begins, or ends."""

    ends: bool


@dataclass(frozen=True)
class Wait:
    """Wait for the operation of this name."""

    later: str


Program = list[Compute | Call | Wait | Pass]
Slower = Callable[[int, int, Compute], float]
"""Rank, iteration and what it computes: the seconds that it takes."""
Longer = Callable[[int, int], float]
"""Communicator and number of an operation: times as long as its transfer takes."""


@dataclass
class Reported:
    """What ranks have reported."""

    ops: list[tuple[int, ...]] = field(default_factory=list)
    steps: list[tuple[int, ...]] = field(default_factory=list)
    passes: list[tuple[int, int, int]] = field(default_factory=list)
    """Rank, begin and end of its backward passes, ns."""
    on_one_node: ClassVar[bool] = False

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of OP in the order of completion, rows of STEP."""
        ops = np.zeros(len(self.ops), OP)
        names = (
            "rank",
            "comm",
            "counter",
            "ordinal",
            "issue_ns",
            "end_ns",
            "blocked_ns",
            "count",
            "peer",
            "kind",
            "stage",
        )
        for name, column in zip(names, zip(*self.ops, strict=True), strict=True):
            ops[name] = column
        messages = np.flatnonzero(ops["kind"] >= Kind.SEND)
        for comm in np.unique(ops["comm"][messages]):
            mine = messages[ops["comm"][messages] == comm]
            members, place = np.unique(ops["rank"][mine], return_inverse=True)
            ops["stage"][mine] = place.reshape(-1) + 1
            offset = (np.searchsorted(members, ops["peer"][mine]) - place.reshape(-1)) % len(members)
            ops["offset"][mine] = np.where(2 * offset != len(members), offset, 0)
        steps = np.zeros(len(self.steps), STEP)
        for name, column in zip(("rank", "counter", "ordinal", "at_ns"), zip(*self.steps, strict=True), strict=True):
            steps[name] = column
        return ops[np.argsort(ops["end_ns"] - self.clock(ops["rank"]), kind="stable")], steps

    @staticmethod
    def clock(rank: np.ndarray | int) -> np.ndarray | int:
        """Nanoseconds that a rank's clock is ahead."""
        return 5_000_000_000_000 + np.asarray(rank, np.int64) * 3_700_000_000_000


def run(
    programs: list[Program], iterations: int, slower: Slower | None = None, transfer: float | Longer = 1.0
) -> Reported:
    """Run all programs; communicator `c` has as members the ranks that call it.

    Args:
        programs: One iteration of each rank.
        iterations: How many.
        slower: Changes what ranks compute.
        transfer: Factor of all transfers, or of each.
    """
    members: dict[int, set[int]] = defaultdict(set)
    for rank, program in enumerate(programs):
        for call in program:
            if isinstance(call, Call) and call.kind < Kind.SEND:
                members[call.comm].add(rank)
    n = len(programs)
    began = [0] * n
    now, ordinal = [0.0] * n, [0] * n
    at = [[0, 0] for _ in range(n)]  # iteration, place in the program
    counters: dict[tuple[int, ...], int] = defaultdict(int)
    issued: dict[tuple[int, ...], dict[int, float]] = defaultdict(dict)
    open_calls: list[dict[str, tuple[tuple[int, ...], Call, float, int]]] = [{} for _ in range(n)]
    begun: set[tuple[int, int, int]] = set()
    reported = Reported()

    def end_of(key: tuple[int, ...], call: Call) -> float | None:
        there = issued[key]
        needed = len(members[call.comm]) if call.kind < Kind.SEND else 2
        if len(there) < needed:
            return None
        times = transfer if isinstance(transfer, float) else transfer(call.comm, key[-1])
        return max(there.values()) + call.transfer_s * times

    def finish(rank: int, key: tuple[int, ...], call: Call, issue_s: float, ordinal: int, end_s: float) -> None:
        blocked_s = max(0.0, end_s - now[rank])
        now[rank] = max(now[rank], end_s)
        clock = int(Reported.clock(rank))
        reported.ops.append(
            (rank, call.comm, key[-1], ordinal, int(issue_s * 1e9) + clock, int(end_s * 1e9) + clock,
             int(blocked_s * 1e9), call.elements, call.peer, int(call.kind), 0)
        )  # fmt: skip

    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            while at[rank][0] < iterations:
                iteration, place = at[rank]
                if place == len(program):
                    reported.steps.append(
                        (rank, iteration + 1, ordinal[rank], int(now[rank] * 1e9) + int(Reported.clock(rank)))
                    )
                    at[rank] = [iteration + 1, 0]
                    moved = True
                    continue
                call = program[place]
                if isinstance(call, Compute):
                    now[rank] += slower(rank, iteration, call) if slower else call.seconds
                elif isinstance(call, Pass):
                    at_ns = int(now[rank] * 1e9) + int(Reported.clock(rank))
                    if not call.ends:
                        began[rank] = at_ns
                    else:
                        reported.passes.append((rank, began[rank], at_ns))
                elif isinstance(call, Call):
                    pair = (
                        (call.comm,)
                        if call.kind < Kind.SEND
                        else (call.comm, *((rank, call.peer) if call.kind == Kind.SEND else (call.peer, rank)))
                    )
                    if (rank, iteration, place) not in begun:
                        begun.add((rank, iteration, place))
                        counters[(rank, *pair)] += 1
                        ordinal[rank] += 1
                        key = (*pair, counters[(rank, *pair)])
                        issued[key][rank] = now[rank]
                        open_calls[rank][call.later or "-"] = key, call, now[rank], ordinal[rank]
                    if not call.later:
                        key, _, issue_s, number = open_calls[rank]["-"]
                        end_s = end_of(key, call)
                        if end_s is None:
                            break
                        finish(rank, key, call, issue_s, number, end_s)
                else:
                    key, waited, issue_s, number = open_calls[rank][call.later]
                    end_s = end_of(key, waited)
                    if end_s is None:
                        break
                    finish(rank, key, waited, issue_s, number, end_s)
                at[rank][1] += 1
                moved = True
    assert all(iteration == iterations for iteration, _ in at), f"the programs wait for each other: {at}"
    return reported


def ddp(ranks: int, own_s: float = 0.08, buckets: int = 4) -> list[Program]:
    """Data parallel: forward, backward with asynchronous all-reduces, optimizer."""
    program: Program = [Compute(own_s / 4, "forward")]
    program += [Pass(ends=False)]
    for bucket in range(buckets):
        program += [Compute(own_s / 2 / buckets, "backward"), Call(0, later=f"bucket {bucket}")]
    program += [Pass(ends=True)]
    program += [Wait(f"bucket {bucket}") for bucket in range(buckets)]
    program += [Compute(own_s / 4, "optimizer")]
    return [list(program) for _ in range(ranks)]


def tp_pp_dp(tp: int = 2, pp: int = 2, dp: int = 2, microbatches: int = 4, layer_s: float = 0.004) -> list[Program]:
    """Three kinds of parallelism with 1F1B; the tensor index runs fastest, then data, then pipeline."""
    programs = []
    for rank in range(tp * pp * dp):
        stage = rank // (tp * dp)
        pipe = 1000 + rank % (tp * dp)
        before = rank - tp * dp if stage else None
        behind = rank + tp * dp if stage < pp - 1 else None
        forward = _block(pipe, before, "forward", layer_s, rank // tp, behind)
        backward = _block(pipe, behind, "backward", 2 * layer_s, rank // tp, before)
        warm = min(pp - 1 - stage, microbatches)
        blocks = [forward] * warm + [forward, backward] * (microbatches - warm) + [backward] * warm
        program = [
            replace(call, later=f"send {at}") if isinstance(call, Call) and call.kind == Kind.SEND else call
            for at, call in enumerate(call for block in blocks for call in block)
        ]
        program += [Wait(call.later) for call in program if isinstance(call, Call) and call.later]
        program += [Call(2000 + stage * tp + rank % tp), Compute(0.002, "optimizer"), Call(3000)]
        programs.append(program)
    return programs


class Long(Reported):
    """A job of many iterations on one node, computed at once: what each rank has of its own, then an all-reduce.

    Args:
        own_s: Shape (iterations, operations, ranks): seconds of each rank's own before each operation.
        transfer_s: Of each operation, or for each by itself, (iterations, operations).
    """

    on_one_node = True

    def __init__(self, own_s: np.ndarray, transfer_s: float | np.ndarray = 0.002) -> None:
        super().__init__()
        iterations, count, ranks = own_s.shape
        end_s = np.cumsum((own_s.max(axis=2) + transfer_s).reshape(-1)).reshape(iterations, count, 1)
        began_s = np.concatenate(([0.0], end_s.reshape(-1)[:-1])).reshape(end_s.shape)
        clock = np.asarray(self.clock(np.arange(ranks)))
        self._ops = np.zeros(own_s.shape, OP)
        self._ops["rank"], self._ops["kind"], self._ops["peer"] = np.arange(ranks), Kind.ALL_REDUCE, -1
        self._ops["counter"] = np.arange(1, iterations * count + 1).reshape(end_s.shape)
        self._ops["ordinal"], self._ops["count"] = self._ops["counter"], 1000
        self._ops["issue_ns"] = ((began_s + own_s) * 1e9).astype(np.int64) + clock
        self._ops["end_ns"] = (end_s * 1e9).astype(np.int64) + clock
        self._ops["blocked_ns"] = self._ops["end_ns"] - self._ops["issue_ns"]
        self._marks = np.zeros((iterations, ranks), STEP)
        self._marks["rank"] = np.arange(ranks)
        self._marks["counter"] = np.arange(1, iterations + 1)[:, None]
        self._marks["ordinal"] = self._marks["counter"] * count
        self._marks["at_ns"] = self._ops["end_ns"][:, -1]

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of OP in the order of completion, rows of STEP."""
        return self._ops.reshape(-1), self._marks.reshape(-1)

    @staticmethod
    def clock(rank: np.ndarray | int) -> np.ndarray | int:
        """They share a clock."""
        return np.full_like(np.asarray(rank, np.int64), int(Reported.clock(0)))


def _block(pipe: int, source: int | None, what: str, seconds: float, tensor: int, target: int | None) -> Program:
    """The forward or backward of a microbatch."""
    block: Program = [] if source is None else [Call(pipe, Kind.RECV, source)]
    work: Program = [Compute(seconds, what), Call(tensor)]
    block += [Pass(ends=False), *work, Pass(ends=True)] if what == "backward" else work
    return block if target is None else [*block, Call(pipe, Kind.SEND, target)]

"""Jobs with a fault, and who is at fault in them: what a reader of dumps is to find."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from whichrank.testbed.bench.dumps.played import Fault, Group, Op, Style, Unit

ITERATIONS: Final = 16
LOG_EVERY: Final = 5
WORLD_NAME: Final = "0"
DESCRIPTIONS: Final = ("TENSOR_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP", "PIPELINE_MODEL_PARALLEL_GROUP")
STYLES: Final = (
    Style("whole"),
    Style("wrapped", ring=60),
    Style("only active", only_active=True, version="2.9"),
    Style("wrapped, no status", ring=60, has_status=False, version="2.2"),
)


@dataclass(frozen=True)
class Layout:
    """Ranks in the order of Megatron: tensor first, then data, then pipeline.

    Attributes:
        tp: Ranks that share each layer.
        dp: Replicas.
        pp: Pipeline stages.
    """

    tp: int = 1
    dp: int = 1
    pp: int = 1

    @property
    def size(self) -> int:
        """Ranks in all."""
        return self.tp * self.dp * self.pp

    @property
    def name(self) -> str:
        """`tp2-dp2-pp2`."""
        return "-".join(f"{kind}{n}" for kind, n in (("tp", self.tp), ("dp", self.dp), ("pp", self.pp)) if n > 1)

    def groups(self, *, equal_names: bool = False) -> list[Group]:
        """All process groups; with equal names and no descriptions if they came of a split of the world."""
        each_tp, each_dp, each_pp = range(self.tp), range(self.dp), range(self.pp)
        members = (
            [[self.rank(t, d, p) for t in each_tp] for p in each_pp for d in each_dp],
            [[self.rank(t, d, p) for d in each_dp] for p in each_pp for t in each_tp],
            [[self.rank(t, d, p) for p in each_pp] for d in each_dp for t in each_tp],
        )
        found = [Group(WORLD_NAME, "default_pg", tuple(range(self.size)))]
        for kind, (desc, of_kind) in enumerate(zip(DESCRIPTIONS, members, strict=True)):
            for number, ranks in enumerate(of_kind if len(of_kind[0]) > 1 else []):
                name = f"{WORLD_NAME}:split:{kind}" if equal_names else str(1 + 100 * kind + number)
                found.append(Group(name, "" if equal_names else desc, tuple(ranks), kind))
        return found

    def rank(self, t: int, d: int, p: int) -> int:
        """By its place."""
        return t + self.tp * (d + self.dp * p)


@dataclass(frozen=True)
class Case:
    """A job with a fault.

    Attributes:
        name: In the table.
        groups: All of it.
        programs: By rank.
        fault: What is done to it.
        culprits: Who is to be named; empty: nobody.
        candidates: Who may be named as such, where the dumps do not say.
        style: How the recorder was set.
    """

    name: str
    groups: list[Group]
    programs: list[list[Unit]]
    fault: Fault
    culprits: tuple[int, ...]
    candidates: tuple[int, ...] = ()
    style: Style = STYLES[0]


def programs_of(
    layout: Layout, groups: list[Group], iterations: int, *, batched: bool = False, layers: int = 2
) -> list[list[Unit]]:
    """What each rank issues: tensor-parallel layers, a pipeline, gradients at the end, now and then a log line.

    Stages differ in how much they issue, as those with an embedding or a head do.

    Args:
        layout: Of the job.
        groups: Of this layout.
        iterations: Of the training loop.
        batched: Neighbours of a pipeline exchange in batches of a send and a receive, instead of one after the other.
        layers: Of a stage.
    """
    found: list[list[Unit]] = []
    for rank in range(layout.size):
        tp, dp, pp = (_group_of(groups, rank, kind) for kind in range(3))
        stage = pp.members.index(rank) if pp else 0
        before, behind = (stage > 0, stage < layout.pp - 1)
        units: list[Unit] = []
        for iteration in range(iterations):
            for _ in range(2 * layout.pp if pp else 1):
                forward: list[Unit] = [(Op(tp, "all_reduce", 128),)] * (layers + (not behind)) if tp else []
                backward: list[Unit] = [(Op(tp, "_reduce_scatter_base", 128),)] * layers if tp else []
                if pp and batched:
                    units += [(Op(pp, "send", 64, stage - 1), Op(pp, "recv", 64, stage - 1))] if before else []
                    units += forward + backward
                    units += [(Op(pp, "send", 64, stage + 1), Op(pp, "recv", 64, stage + 1))] if behind else []
                    continue
                units += [(Op(pp, "recv", 64, stage - 1),)] if pp and before else []
                units += forward
                units += [(Op(pp, "send", 64, stage + 1),), (Op(pp, "recv", 64, stage + 1),)] if pp and behind else []
                units += backward
                units += [(Op(pp, "send", 64, stage - 1),)] if pp and before else []
            units += [(Op(dp, "_all_gather_base", 256 + n),) for n in range(3)] if dp else []
            units += [(Op(groups[0], "all_reduce", 1),)] if iteration % LOG_EVERY == LOG_EVERY - 1 else []
        found.append(units)
    return found


def _group_of(groups: list[Group], rank: int, kind: int) -> Group | None:
    return next((g for g in groups if rank in g.members and g.kind == kind), None)


def cases() -> Iterator[Case]:
    """All of them; the same at each call."""
    for layout in (Layout(dp=8), Layout(tp=2, dp=2, pp=2), Layout(dp=2, pp=4), Layout(tp=4, dp=2, pp=4)):
        for style in STYLES:
            yield _stopped(layout, style)
            yield _stopped(layout, style, on_device=True)
        yield _stopped(layout, STYLES[0], named="killed, no dump", sends_none=True)
        yield _other(layout, "another size", lambda op: replace(op, count=op.count + 1))
        yield _other(layout, "another operation", lambda op: replace(op, kind="all_gather"))
    yield _stopped(Layout(tp=2, dp=4, pp=2), STYLES[0], named="equal names after a split", equal_names=True)
    for style in STYLES:
        yield _stopped(Layout(tp=2, dp=1, pp=4), style, named="batches of messages", batched=True)
    yield _stopped(Layout(tp=4, dp=4, pp=2), STYLES[1], named="two at once", count=2, iterations=4 * ITERATIONS)
    yield _stopped(Layout(tp=4, dp=4, pp=2), STYLES[1], named="two at once, at first", count=2, is_reported=False)
    yield _healthy(Layout(tp=2, dp=2, pp=2))


def _stopped(
    layout: Layout, style: Style, *, named: str = "", on_device: bool = False, sends_none: bool = False,
    equal_names: bool = False, batched: bool = False, count: int = 1, iterations: int = ITERATIONS,
    is_reported: bool = True,
) -> Case:  # fmt: skip
    """Ranks that stop; if the dumps cannot say who it is, they are candidates."""
    what = named or ("device stopped" if on_device else "host stopped")
    name = f"{what}, {layout.name}, {style.name}"
    rng = random.Random(name)
    groups = layout.groups(equal_names=equal_names)
    programs = programs_of(layout, groups, iterations, batched=batched)
    ranks = tuple(sorted(rng.sample(range(layout.size), count)))
    share = rng.uniform(0.5, 0.8)
    at = {rank: round(share * len(programs[rank])) for rank in ranks}
    unsent = frozenset(ranks) if sends_none else frozenset()
    fault = Fault({} if on_device else at, at if on_device else {}, unsent=unsent)
    return Case(name, groups, programs, fault, ranks if is_reported and not sends_none else (), ranks, style)


def _other(layout: Layout, what: str, change: Callable[[Op], Op]) -> Case:
    """One rank issues something else in one of its collectives."""
    name = f"{what}, {layout.name}"
    rng = random.Random(name)
    groups = layout.groups()
    programs = programs_of(layout, groups, ITERATIONS)
    rank = rng.randrange(layout.size)
    own = programs[rank]
    at = rng.choice([n for n in range(len(own) // 2, len(own)) if not own[n][0].is_message and own[n][0].count > 1])
    own[at] = (change(own[at][0]),)
    return Case(name, groups, programs, Fault(), (rank,))


def _healthy(layout: Layout) -> Case:
    groups = layout.groups()
    return Case(f"finished, {layout.name}", groups, programs_of(layout, groups, ITERATIONS), Fault(), ())

"""What is done to a simulated job: one rank hangs or is slow somewhere, a message is lost, or nothing is at fault.

Faults are drawn at random places of the program, and for hangs at any of its items; MegaTrace, section V.A.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from whichrank.model.telemetry import ProcessState
from whichrank.store.passes import START
from whichrank.testbed.sim.program import (
    CP,
    DP,
    EP,
    FORWARD,
    HAS_RECORD,
    OPTIMIZER,
    TP,
    WORLD,
    Do,
    Item,
)
from whichrank.testbed.sim.run import Floats, Run
from whichrank.testbed.sim.states import Process

Kind = Literal["healthy", "imbalance", "slow", "hang"]
Where = Literal[
    "nowhere", "forward", "backward", "optimizer", "all", "block", "last stage", "sequences", "turns", "lost message",
    "lost collective",
]  # fmt: skip
PHASES: Final = ("forward", "backward", "optimizer")
"""By the number of a program's phase."""
KILLED: Final = 9
"""As from wait(2): killed by SIGKILL."""
HANGING: Final = (
    Process(ProcessState.SLEEPING), Process(ProcessState.RUNNING), Process(ProcessState.STOPPED),
    Process(ProcessState.GONE, 0.0, KILLED),
)  # fmt: skip
"""What is seen of a rank that goes no further: asleep, computing, stopped, dead."""
DELAYS_S: Final = (0.05, 30.0)
"""Shortest and longest delay of a block, in seconds (MegaTrace, section V.A)."""
LONGEST_SEQUENCES: Final = (0.8, 1.3)
"""By how much longer or shorter sequences make all ranks compute."""


@dataclass(frozen=True)
class Fault:
    """What is done.

    Attributes:
        kind: What comes of it.
        where: In which part of the program, or which imbalance.
        rank: To whom, -1 nobody; of a lost message its receiver, and of a lost collective a member.
        sender: Of a lost message, else -1.
        microbatch: Only in this one of its phase, -1 in all.
        phase: Of the block or the item, -1 none.
        item: Place in the rank's program, of a hang.
        factor: Of own times, of what is slow.
        delay_s: More in a block, seconds.
        onset: The first iteration.
        process: What is seen of the rank, of a hang.
    """

    kind: Kind
    where: Where = "nowhere"
    rank: int = -1
    sender: int = -1
    microbatch: int = -1
    phase: int = -1
    item: int = -1
    factor: float = 1.0
    delay_s: float = 0.0
    onset: int = 15
    process: Process | None = None

    def slower(self, run: Run, iteration: int, item: Item, stage: int, own_s: Floats) -> Floats:
        """Own times of the ranks of a pipeline rank under this fault; see `run.Change`."""
        if self.kind == "imbalance":
            return self._unequal(run, iteration, item, stage, own_s)
        n, is_meant = run.layout.per_stage, iteration >= self.onset and self.rank // run.layout.per_stage == stage
        if not is_meant or self.sender >= 0 or self.where == "lost collective":
            return own_s
        if self.kind == "hang" and iteration == self.onset and item is run.programs[stage][self.item]:
            own_s[self.rank % n] = np.inf
        if self.kind == "slow" and self._hits(item):
            own_s[self.rank % n] = own_s[self.rank % n] * self.factor + self.delay_s
        return own_s

    def longer(self, run: Run, iteration: int, item: Item, stage: int, took_s: Floats) -> Floats:
        """Transfers under this fault; see `run.Change`."""
        of = self.sender if self.sender >= 0 else self.rank
        is_lost = self.where in ("lost message", "lost collective") and iteration == self.onset
        if is_lost and of // run.layout.per_stage == stage and item is run.programs[stage][self.item]:
            took_s[of % run.layout.per_stage] = np.inf
        return took_s

    def _hits(self, item: Item) -> bool:
        if self.where == "all":
            return item.phase != OPTIMIZER
        is_part = item.part == 0 or not self.delay_s  # a delay comes once in a block
        is_batch = self.microbatch in (-1, item.microbatch)
        return item.phase == self.phase and is_batch and is_part

    def _unequal(self, run: Run, iteration: int, item: Item, stage: int, own_s: Floats) -> Floats:
        if item.phase == OPTIMIZER:
            return own_s
        if self.where == "last stage":  # by design, from the beginning
            return own_s * (self.factor if stage == run.layout.pp - 1 else 1.0)
        if self.where == "sequences":  # of all, longer and shorter as it comes
            of_all = np.random.default_rng(iteration).uniform(*LONGEST_SEQUENCES)
            return own_s * float(of_all) * (self.factor if iteration >= self.onset else 1.0)
        # Another replica has the longest sequences each time, from the beginning.
        layout = run.layout
        heavy = np.random.default_rng(iteration).integers(layout.dp)
        replica = np.arange(layout.per_stage) // (layout.tp * layout.cp)
        return own_s * np.where(replica == heavy, self.factor, 1.0)


def draw_slow(run: Run, rng: np.random.Generator, factors: tuple[float, ...], onset: int) -> Fault:
    """A rank that computes longer in one phase, in all, or in one block.

    Args:
        run: The job.
        rng: Of chance.
        factors: Of own time.
        onset: The first iteration in which it is.
    """
    where: Where = ("forward", "backward", "all", "optimizer", "block")[int(rng.integers(5))]
    fault = Fault("slow", where, int(rng.integers(run.layout.ranks)), onset=onset, factor=float(rng.choice(factors)))
    if where in PHASES:
        return replace(fault, phase=PHASES.index(where))
    if where == "block":
        blocks = [item for item in run.programs[fault.rank // run.layout.per_stage] if item.phase != OPTIMIZER]
        one = blocks[int(rng.integers(len(blocks)))]
        return replace(fault, phase=one.phase, microbatch=one.microbatch)
    return fault


def draw_delay(run: Run, rng: np.random.Generator, least_s: float, most_s: float, onset: int) -> Fault:
    """A rank that takes so much longer in one block of each iteration, by chance on a logarithmic scale.

    Args:
        run: The job.
        rng: Of chance.
        least_s: At the least, seconds.
        most_s: At the most.
        onset: The first iteration in which it is.
    """
    rank = int(rng.integers(run.layout.ranks))
    blocks = [item for item in run.programs[rank // run.layout.per_stage] if item.do is Do.OWN]
    blocks = [item for item in blocks if item.phase != OPTIMIZER]
    one = blocks[int(rng.integers(len(blocks)))]
    delay_s = float(np.exp(rng.uniform(np.log(least_s), np.log(most_s))))
    return Fault(
        "slow", "block", rank, microbatch=one.microbatch, phase=one.phase, delay_s=delay_s, onset=onset
    )  # fmt: skip


def draw_hang(run: Run, rng: np.random.Generator, onset: int) -> Fault:
    """A rank that goes no further from some item of its program on, asleep, computing, stopped or dead.

    Args:
        run: The job.
        rng: Of chance.
        onset: The iteration.
    """
    rank, at, item = _item(run, rng, Do.OWN)
    process = HANGING[int(rng.integers(len(HANGING)))]
    where: Where = ("forward", "backward", "optimizer")[item.phase]
    return Fault("hang", where, rank, -1, _batch(item), item.phase, at, onset=onset, process=process)


def draw_lost(run: Run, rng: np.random.Generator, onset: int) -> Fault:
    """A message that never comes, or a collective that all have entered and none leaves.

    Args:
        run: The job.
        rng: Of chance.
        onset: The iteration.
    """
    rank, at, item = _item(run, rng, Do.SEND, Do.SHARE)
    fault = Fault("hang", "lost collective", rank, -1, _batch(item), item.phase, at, onset=onset)
    if item.do is Do.SHARE:
        return fault
    receiver = item.peer * run.layout.per_stage + rank % run.layout.per_stage
    return replace(fault, where="lost message", rank=receiver, sender=rank)


def _item(run: Run, rng: np.random.Generator, *kinds: Do) -> tuple[int, int, Item]:
    """A rank, and the place and item of one of these kinds in its program."""
    rank = int(rng.integers(run.layout.ranks))
    program = run.programs[rank // run.layout.per_stage]
    places = [at for at, item in enumerate(program) if item.do in kinds]
    at = places[int(rng.integers(len(places)))]
    return rank, at, program[at]


def _batch(item: Item) -> int:
    """The microbatch of an item, -1 behind all blocks."""
    return item.microbatch if item.phase != OPTIMIZER else -1


def draw_imbalance(run: Run, rng: np.random.Generator, onset: int) -> Fault:
    """An imbalance of which no rank is at fault.

    Args:
        run: The job.
        rng: Of chance.
        onset: The first iteration in which all sequences are longer; other imbalances are from the beginning.
    """
    kinds: list[Where] = ["sequences"]
    kinds += ["last stage"] if run.layout.pp > 1 else []
    kinds += ["turns"] if run.layout.dp > 1 else []
    where = kinds[int(rng.integers(len(kinds)))]
    return Fault("imbalance", where, factor=float(rng.uniform(1.1, 1.6)), onset=onset, phase=FORWARD)


def draw_healthy(_: Run, __: np.random.Generator, onset: int) -> Fault:
    """Nothing is done."""
    return Fault("healthy", onset=onset)


def phases_of(fault: Fault, run: Run) -> frozenset[str]:
    """In which phase it happens, as incidents say it: more than one word where the same place has several; or none."""
    if fault.phase < 0:
        return frozenset()
    program = run.programs[max(fault.sender, fault.rank * (fault.sender < 0)) // run.layout.per_stage]
    if fault.where == "lost collective" and program[fault.item].slot == DP:
        return frozenset({"dp_sync"})
    has_begun = any(item.do in HAS_RECORD for item in program[: max(fault.item, 0)])
    at_start = fault.kind == "hang" and not ends_of(fault, run) and not has_begun
    return frozenset({PHASES[fault.phase], START} if at_start else {PHASES[fault.phase]})


def ends_of(fault: Fault, run: Run) -> frozenset[int]:
    """Between which ranks something was lost; none if nothing was."""
    if fault.where == "lost message":
        return frozenset({fault.rank, fault.sender})
    if fault.where != "lost collective":
        return frozenset()
    layout, slot = run.layout, run.programs[fault.rank // run.layout.per_stage][fault.item].slot
    if slot == WORLD:
        return frozenset(range(layout.ranks))
    if slot == DP:
        same = (layout.place("tp") == layout.place("tp")[fault.rank]) & (
            layout.place("pp") == layout.place("pp")[fault.rank]
        )
    else:
        group = layout.group({TP: "tp", CP: "cp", EP: "ep"}[slot])
        same = group == group[fault.rank]
    return frozenset(np.flatnonzero(same).tolist())

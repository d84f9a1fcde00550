"""In which order each rank of a pipeline works on its microbatches.

A *block* is one piece of work: the forward or backward pass of one microbatch through one pipeline stage, or the half
of a backward pass that makes the gradient of the input, or of the weights, where a schedule tells them apart. A rank
may hold several stages.

GPipe, 1F1B and interleaved 1F1B are made here; any other schedule (zero bubble, DualPipe-V, one's own) is read from the
CSV in which `torch.distributed.pipelining` writes them, a line for each rank: ``0F0,0F1,,0B0``.
Sources: GPipe (Huang et al. 2019), PipeDream-flush and its interleaved form (Narayanan et al. 2021).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whichrank.locate.interleaving import round_of, work_of
from whichrank.stage.levels import levels_of

Ints = NDArray[np.int64]
MOST_RANKS: Final = 4096
"""Of one pipeline."""
MOST_BLOCKS: Final = 1 << 20
"""Of one schedule."""
MOST_AT_ONCE: Final = 2
"""Blocks that are done in alternation."""
_ACTION: Final = re.compile(
    r"([0-9]{1,6})(F|B|I|W|SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)([0-9]{0,6})"
)
_BOTH: Final = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
_LETTERS: Final = "FBIW"


class ScheduleError(ValueError):
    """No such schedule can be; the message says why."""


class Phase(IntEnum):
    """What a block does. The values are those of the letters ``FBIW`` in torch's CSV."""

    FORWARD = 0
    BACKWARD = 1
    INPUT = 2
    """The half of a backward pass for which the stage before waits."""
    WEIGHT = 3
    """The other half, for which nobody waits."""


Block: TypeAlias = tuple[int, Phase, int]
"""Pipeline stage, phase and microbatch."""


@dataclass(frozen=True)
class Schedule:
    """The blocks of one iteration of one pipeline, sorted by rank and, of a rank, in the order of its work.

    Attributes:
        rank: Place in the pipeline, (n,).
        stage: Pipeline stage, (n,); more than there are ranks where each holds several.
        phase: Values of `Phase`, (n,).
        microbatch: (n,).
        turn: Counts up along each rank, (n,); two blocks of one turn are done in alternation, and neither waits for the
            other.
    """

    rank: Ints
    stage: Ints
    phase: Ints
    microbatch: Ints
    turn: Ints

    @property
    def ranks(self) -> int:
        """How many share the work."""
        return int(self.rank.max()) + 1

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return int(self.stage.max()) + 1

    @property
    def microbatches(self) -> int:
        """Of one iteration."""
        return int(self.microbatch.max()) + 1

    @cached_property
    def first(self) -> Ints:
        """Of each rank its first block; one more at the end, (ranks + 1,)."""
        return np.searchsorted(self.rank, np.arange(self.ranks + 1))

    @cached_property
    def edges(self) -> tuple[Ints, Ints]:
        """Which block needs which: the earlier and the later one of each dependency.

        A block needs the one before it on its rank; a forward pass that of the stage before; a backward pass that of
        the stage behind it, or, in the last stage, the forward pass; the weights' half the input's.
        """
        before, after = list[Ints](), list[Ints]()
        for back in range(1, 2 * MOST_AT_ONCE):
            later = np.flatnonzero(
                (self.rank[back:] == self.rank[:-back]) & (self.turn[back:] == self.turn[:-back] + 1)
            )
            before.append(later)
            after.append(later + back)
        forward = self.phase == Phase.FORWARD
        weight = self.phase == Phase.WEIGHT
        backward = ~forward & ~weight
        for which, phases, step in (
            (forward & (self.stage > 0), (Phase.FORWARD,), -1),
            (backward & (self.stage < self.stages - 1), (Phase.BACKWARD, Phase.INPUT), 1),
            (backward, (Phase.FORWARD,), 0),
            (weight, (Phase.INPUT,), 0),
        ):
            at = np.flatnonzero(which)
            needed = np.max(
                [self._place(phase, self.stage[at] + step, self.microbatch[at]) for phase in phases], axis=0
            )
            if (needed < 0).any():
                block = int(at[np.argmin(needed)])
                raise ScheduleError(f"{self.name_of(block)} needs a block that no rank is to do")
            before.append(needed)
            after.append(at)
        return np.concatenate(before), np.concatenate(after)

    @cached_property
    def levels(self) -> Ints:
        """How many blocks must be done one after the other before each, (n,); -1 of one that waits for itself."""
        return levels_of(*self.edges, len(self.rank))

    def name_of(self, block: int) -> str:
        """As in torch's CSV: ``2F0`` is the forward pass of microbatch 0 through stage 2."""
        return f"{self.stage[block]}{_LETTERS[self.phase[block]]}{self.microbatch[block]}"

    def _place(self, phase: Phase, stage: Ints, microbatch: Ints) -> Ints:
        """Of blocks by what they do; -1 where there is none."""
        found = np.full(len(stage), -1, np.int64)
        known = (stage >= 0) & (stage < self.stages)
        found[known] = self._places[phase, stage[known], microbatch[known]]
        return found

    @cached_property
    def _places(self) -> Ints:
        places = np.full((len(Phase), self.stages, self.microbatches), -1, np.int64)
        places[self.phase, self.stage, self.microbatch] = np.arange(len(self.rank))
        return places


def gpipe(ranks: int, microbatches: int) -> Schedule:
    """All forward passes, then all backward passes.

    Raises:
        ScheduleError: There are too few ranks or microbatches, or too many.
    """
    _check(ranks, 1, microbatches)
    return _made(
        [[(rank, phase, batch)] for phase in (Phase.FORWARD, Phase.BACKWARD) for batch in range(microbatches)]
        for rank in range(ranks)
    )


def one_f_one_b(ranks: int, microbatches: int) -> Schedule:
    """As many forward passes as there are stages behind, then one of each in turn, then the backward passes left.

    Raises:
        ScheduleError: There are too few ranks or microbatches, or too many.
    """
    return interleaved(ranks, 1, microbatches)


def interleaved(ranks: int, stages_per_rank: int, microbatches: int) -> Schedule:
    """1F1B where each rank holds several stages: rank r has r, r + ranks, r + 2 * ranks and so on.

    Microbatches go through in rounds of about as many as there are ranks, stage by stage of the rank.

    Args:
        ranks: Of the pipeline.
        stages_per_rank: That each holds.
        microbatches: A multiple of the number of rounds, which is `microbatches // ranks`.

    Raises:
        ScheduleError: Microbatches cannot be shared out evenly, or there are too few of anything, or too many.
    """
    _check(ranks, stages_per_rank, microbatches)
    if not round_of(ranks, stages_per_rank, microbatches):
        raise ScheduleError(f"{microbatches} microbatches cannot be shared out among {microbatches // ranks} rounds")
    sizes = ranks, stages_per_rank, microbatches
    return _made(
        [[(block.stage, Phase.FORWARD if block.is_forward else Phase.BACKWARD, block.microbatch)] for block in work]
        for work in (work_of(rank, *sizes) for rank in range(ranks))
    )


def _check(ranks: int, stages_per_rank: int, microbatches: int) -> None:
    if min(ranks, stages_per_rank, microbatches) < 1:
        raise ScheduleError("a pipeline has one rank, one stage on each and one microbatch at the least")
    if ranks > MOST_RANKS or 2 * ranks * stages_per_rank * microbatches > MOST_BLOCKS:
        raise ScheduleError(f"it has more than {MOST_RANKS:,} ranks or {MOST_BLOCKS:,} blocks")


def from_csv(lines: Iterable[str]) -> Schedule:
    """Read a schedule as `torch.distributed.pipelining` writes it, with or without its communication.

    Args:
        lines: One of each rank.

    Raises:
        ScheduleError: It is none.
    """
    work = list[list[list[Block]]]()
    blocks = 0
    for number, line in enumerate(lines):
        if number >= MOST_RANKS:
            raise ScheduleError(f"it has more than {MOST_RANKS:,} lines")
        try:
            row = next(csv.reader([line]), [])
        except csv.Error as error:
            raise ScheduleError(f"line {number + 1} is no CSV: {error}") from error
        mine = [turn for cell in row if (turn := _turn_of(cell.strip(), number + 1))]
        if not mine:
            raise ScheduleError(f"line {number + 1} has no forward or backward pass: each rank has a line of its own")
        blocks += sum(map(len, mine))
        if blocks > MOST_BLOCKS:
            raise ScheduleError(f"it has more than {MOST_BLOCKS:,} blocks")
        work.append(mine)
    return _made(work)


def _turn_of(cell: str, line: int) -> list[Block]:
    """The blocks of a cell of torch's CSV; none for communication, or where a rank waits."""
    both = _BOTH.fullmatch(cell)
    actions = both[1].split(";") if both else [cell] if cell else []
    if len(actions) > MOST_AT_ONCE:
        raise ScheduleError(f"line {line}: {cell[:40]!r} are more than {MOST_AT_ONCE} actions at once")
    return [block for action in actions if (block := _block_of(action.strip(), line))]


def _block_of(action: str, line: int) -> Block | None:
    """The block of an action of torch's CSV; None for communication."""
    found = _ACTION.fullmatch(action)
    if not found:
        raise ScheduleError(f"line {line}: {action[:40]!r} is no action such as 2F0 or 1B3")
    if found[2] not in _LETTERS:
        return None
    if not found[3]:
        raise ScheduleError(f"line {line}: {action[:40]!r} names no microbatch")
    return int(found[1]), Phase(_LETTERS.index(found[2])), int(found[3])


def _made(work: Iterable[Iterable[list[Block]]]) -> Schedule:
    """From what each rank does in each turn.

    Raises:
        ScheduleError: A block is done twice, or never though another one needs it.
    """
    rows = [
        (rank, turn, *block) for rank, mine in enumerate(work) for turn, blocks in enumerate(mine) for block in blocks
    ]
    if not rows:
        raise ScheduleError("it has no blocks")
    rank, turn, stage, phase, microbatch = np.array(rows, np.int64).T
    stages, microbatches = int(stage.max()) + 1, int(microbatch.max()) + 1
    if len(Phase) * stages * microbatches > 4 * MOST_BLOCKS:
        raise ScheduleError(f"it has {stages:,} stages and {microbatches:,} microbatches: too many")
    _, at, count = np.unique(
        (phase * stages + stage) * microbatches + microbatch, return_index=True, return_counts=True
    )
    schedule = Schedule(rank, stage, phase, microbatch, turn)
    if count.max() > 1:
        raise ScheduleError(f"{schedule.name_of(int(at[count.argmax()]))} is to be done twice")
    halves = phase[:, None] == np.array([Phase.INPUT, Phase.WEIGHT])
    place = stage * microbatches + microbatch
    if (both := np.isin(place[phase == Phase.BACKWARD], place[halves.any(axis=1)])).any():
        block = int(np.flatnonzero(phase == Phase.BACKWARD)[both.argmax()])
        raise ScheduleError(f"{schedule.name_of(block)} is to be done in halves as well")
    if (schedule.levels < 0).any():
        block = int(schedule.levels.argmin())
        raise ScheduleError(f"{schedule.name_of(block)} needs a block that comes only after it")
    return schedule

"""Which interleaved schedule a pipeline follows, known by the order in which its ranks send messages and go backward.

Where each rank of a pipeline holds several stages, the number of a message or of a backward pass does not say of which
microbatch it is; in a pipeline of two ranks the peer does not even say whether it is forward or backward. The schedule
says both. Nobody has to name it: a schedule prescribes to each rank the order of its messages and backward passes. So
those are kept that fit what ranks have done in a whole iteration, and what is said must follow from all of them. Of an
iteration a *sign* is enough: a number made of all its events and their places. It is kept as events come, and takes no
memory for each of them.

Three kinds are known: 1F1B; and those that go forward with all microbatches first, and then backward with them in the
same order (GPipe) or, where ranks hold several stages, the other way round, which looks alike: of these two only
forward passes have microbatches.

When a message came says nothing, since programs ask for it sooner or later before they need it.

Example: of a pipeline of two ranks the first one sends four messages, then begins four backward passes, and sends two
messages on the way. With two stages each and two microbatches it does exactly that, so its fourth message is of the
forward pass of microbatch 1 through stage 2.

Sources: Narayanan et al. 2021, section 2.2, with rounds of other sizes than the pipeline's as in
`torch.distributed.pipelining`; Lamy-Poirier 2022 (breadth first), which goes backward the other way round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import numpy as np

from whichrank.model.iterations import Ints
from whichrank.model.signature import mix

MOST_PASSES: Final = 1 << 12
"""Of a rank in an iteration; more are not held against any schedule."""


class Event(IntEnum):
    """What a rank does, as far as its order counts. Of two ranks the first one sends ahead, and the other one back."""

    AHEAD = 0
    """It sends a message to the next rank."""
    BACK = 1
    """It sends one to the rank before."""
    BEGIN = 2
    """It begins a backward pass."""


class Block(NamedTuple):
    """The forward or backward pass of a microbatch through a stage."""

    is_forward: bool
    stage: int
    microbatch: int


class Part(NamedTuple):
    """Which pass something belongs to, through any of a rank's stages; the microbatch is None where it is not known."""

    is_forward: bool
    microbatch: int | None


class Turns(Enum):
    """When a rank goes backward."""

    ONE_BY_ONE = "1F1B"
    """With one microbatch after it has gone forward with another, once so many are under way."""
    BEHIND_ALL = "behind all"
    """When it has gone forward with all of them, in the same order."""
    REVERSED = "reversed"
    """The same, and the other way round."""


def round_of(ranks: int, stages_per_rank: int, microbatches: int) -> int:
    """How many microbatches go through a stage of a rank before it turns to another one; 0 where no such schedule is.

    Args:
        ranks: Of the pipeline.
        stages_per_rank: That each holds.
        microbatches: Of an iteration.
    """
    rounds = max(1, microbatches // ranks) if stages_per_rank > 1 else 1
    return 0 if microbatches % rounds else microbatches // rounds


def work_of(place: int, ranks: int, stages_per_rank: int, microbatches: int) -> Iterator[Block]:
    """What a rank does in 1F1B: each forward pass in order, and each backward pass once so many forward ones are done.

    Args:
        place: Of the rank in the pipeline; it holds the stages `place`, `place + ranks` and so on.
        ranks: Of the pipeline.
        stages_per_rank: That each holds.
        microbatches: Of an iteration; `round_of` these is not 0.
    """
    a_round, count = round_of(ranks, stages_per_rank, microbatches), stages_per_rank * microbatches
    behind = ranks - 1 - place
    ahead = min(count, (stages_per_rank - 1) * a_round + 2 * behind if stages_per_rank > 1 else behind)
    for number in range(count + ahead):
        if number < count:
            turn, within = divmod(number, a_round)
            chunk, batch = turn % stages_per_rank, turn // stages_per_rank * a_round + within
            yield Block(True, chunk * ranks + place, batch)
        if number >= ahead:
            turn, within = divmod(number - ahead, a_round)
            chunk, batch = turn % stages_per_rank, turn // stages_per_rank * a_round + within
            yield Block(False, (stages_per_rank - 1 - chunk) * ranks + place, batch)


def work_behind_all(
    place: int, ranks: int, stages_per_rank: int, microbatches: int, *, is_reversed: bool
) -> Iterator[Block]:
    """What a rank does that goes forward with all microbatches, stage by stage, before it goes backward.

    Args:
        place: Of the rank in the pipeline.
        ranks: Of the pipeline.
        stages_per_rank: That each holds.
        microbatches: Of an iteration.
        is_reversed: It goes backward with the last microbatch first.
    """
    stages, batches = range(place, ranks * stages_per_rank, ranks), range(microbatches)
    yield from (Block(True, stage, batch) for stage in stages for batch in batches)
    back = batches[::-1] if is_reversed else batches
    yield from (Block(False, stage, batch) for stage in reversed(stages) for batch in back)


def weights(number: Ints, event: Ints) -> Ints:
    """What events add to the sign of their iteration, (n,); sums may overflow.

    Args:
        number: Of each event in its iteration, from 0, (n,).
        event: Values of `Event`, (n,).
    """
    of_each = np.asarray(number * len(Event) + event + 1, np.int64).view(np.uint64)
    return mix(mix(np.zeros(len(of_each), np.uint64), of_each), of_each).view(np.int64)


def sign_of(events: Ints) -> int:
    """The sign of an iteration with these values of `Event`, in order, (n,)."""
    return int(weights(np.arange(len(events)), events).sum())


@dataclass(frozen=True, eq=False)
class Order:
    """What a rank does in an iteration.

    Attributes:
        blocks: In order.
        events: Values of `Event` in order, (n,).
        block_of: To which block each of them belongs, (n,).
        sign: Of the events.
    """

    blocks: tuple[Block, ...]
    events: Ints
    block_of: Ints
    sign: int

    def between(self, count: int) -> Sequence[Block]:
        """The blocks that a rank may be in after so many events, while it is in no backward pass.

        Forward passes through the last stage send nothing, so they are seen only by what comes next.
        """
        first = int(self.block_of[count - 1]) + 1 if count else 0
        last = int(self.block_of[count]) if count < len(self.events) else len(self.blocks) - 1
        mine = self.blocks[first : last + 1]
        return [block for block in mine if block.is_forward] or mine

    @cached_property
    def of_backward(self) -> tuple[int, ...]:
        """The microbatch of each backward pass."""
        return tuple(block.microbatch for block in self.blocks if not block.is_forward)

    @cached_property
    def of_forward(self) -> tuple[int, ...]:
        """After so many events the microbatch of the forward pass that a rank is in, or begins next; 0 behind the last.

        Of several that may be meant it is the first one.
        """
        after = [0, *(self.block_of + 1).tolist()]
        next_one, batches = 0, [0] * (len(self.blocks) + 1)
        for at, block in reversed(list(enumerate(self.blocks))):
            batches[at] = next_one = block.microbatch if block.is_forward else next_one
        return tuple(batches[at] for at in after)


@dataclass(frozen=True)
class Interleaving:
    """A schedule of a pipeline; it has its name from those whose ranks hold several stages each.

    Attributes:
        ranks: Of the pipeline.
        stages_per_rank: That each holds.
        microbatches: Of an iteration.
        turns: When a rank goes backward.
    """

    ranks: int
    stages_per_rank: int
    microbatches: int
    turns: Turns = Turns.ONE_BY_ONE

    @property
    def is_possible(self) -> bool:
        """There is such a schedule."""
        if self.turns is Turns.ONE_BY_ONE:
            return round_of(self.ranks, self.stages_per_rank, self.microbatches) > 0
        return self.stages_per_rank > 1 or self.turns is Turns.BEHIND_ALL

    def order(self, place: int) -> Order:
        """What the rank at this place does."""
        return _order(self, place)

    def stands_in(self, place: int, ahead: int, back: int, begun: int, *, in_pass: bool) -> list[Part]:
        """In which passes a rank may be, or which one it begins next.

        Args:
            place: Of the rank.
            ahead: Messages that it has sent to the next rank.
            back: And to the one before.
            begun: Backward passes that it has begun.
            in_pass: The last of these is not over.

        Returns:
            Nothing where it is not so far at any time, or through.
        """
        order, count = self.order(place), ahead + back + begun
        done = np.bincount(order.events[:count], minlength=len(Event)).tolist()
        if done != [ahead, back, begun]:
            return []
        if not in_pass:
            return list(map(_part, order.between(count)))
        is_possible = count > 0 and order.events[count - 1] == Event.BEGIN
        return [_part(order.blocks[order.block_of[count - 1]])] if is_possible else []

    def message(self, sender: int, receiver: int, number: int) -> list[Part]:
        """Of which pass a message is.

        Args:
            sender: Place of the rank that sends it.
            receiver: And of the rank that receives it.
            number: Of the messages from one to the other in an iteration, from 0.

        Returns:
            Nothing if there are fewer, or if messages are needed in another order than that in which they are sent.
        """
        sent = [block for block in self.order(sender).blocks if self._receiver(block) == receiver]
        needed = [need for block in self.order(receiver).blocks if (need := self._needs(block, sender))]
        return [_part(sent[number])] if sent == needed and 0 <= number < len(sent) else []

    def _receiver(self, block: Block) -> int:
        """Place of the rank to which what a block has made is sent; -1 none."""
        stage = block.stage + (1 if block.is_forward else -1)
        return stage % self.ranks if 0 <= stage < self.ranks * self.stages_per_rank else -1

    def _needs(self, block: Block, sender: int) -> Block | None:
        """The block of a sender whose message another block needs."""
        stage = block.stage - (1 if block.is_forward else -1)
        is_sent = 0 <= stage < self.ranks * self.stages_per_rank and stage % self.ranks == sender
        return block._replace(stage=stage) if is_sent else None

    def events_of(self, place: int, block: Block) -> Iterator[Event]:
        """What is seen of a block of the rank at this place."""
        if not block.is_forward:
            yield Event.BEGIN
        if self._receiver(block) >= 0:
            is_ahead = place == 0 if self.ranks == 2 else block.is_forward
            yield Event.AHEAD if is_ahead else Event.BACK


@lru_cache(maxsize=64)
def _order(schedule: Interleaving, place: int) -> Order:
    """See `Interleaving.order`."""
    sizes, turns = (schedule.ranks, schedule.stages_per_rank, schedule.microbatches), schedule.turns
    if turns is Turns.ONE_BY_ONE:
        blocks = tuple(work_of(place, *sizes))
    else:
        blocks = tuple(work_behind_all(place, *sizes, is_reversed=turns is Turns.REVERSED))
    of_block = [(int(event), at) for at, block in enumerate(blocks) for event in schedule.events_of(place, block)]
    events, block_of = np.array(of_block, np.int64).T
    return Order(blocks, events, block_of, sign_of(events))


def interleavings(ranks: int, passes: int, signs: Mapping[int, Collection[int]]) -> list[Interleaving]:
    """The schedules that fit what some ranks of a pipeline have done.

    Args:
        ranks: Of the pipeline.
        passes: Backward passes of each rank in an iteration.
        signs: By place the signs of iterations that the rank has been through, of which one must fit.
    """
    if ranks < 2 or not 2 <= passes <= MOST_PASSES or not signs:
        return []
    sizes = [(each, passes // each) for each in range(1, passes + 1) if passes % each == 0]
    every = [Interleaving(ranks, *size, turns) for size in sizes for turns in Turns]
    return [
        one for one in every if one.is_possible and all(one.order(place).sign in seen for place, seen in signs.items())
    ]


def to_compare(place: int, ranks: int) -> list[int]:
    """Places whose ranks must fit a schedule before something is said of one: its neighbours and the last two as well.

    These begin their backward passes first, so their order differs the most from schedule to schedule. The last one
    does not suffice, as its last forward passes send nothing.
    """
    return sorted({place, (place - 1) % ranks, (place + 1) % ranks, ranks - 2, ranks - 1})


def agreed(parts: Iterable[Part]) -> Part | None:
    """What all of them say; None where they differ in the phase, or nothing is said."""
    found = set(parts)
    if len({part.is_forward for part in found}) != 1:
        return None
    first, *others = found
    return Part(first.is_forward, None) if others else first


def _part(block: Block) -> Part:
    return Part(block.is_forward, block.microbatch)

"""The communicators of a job as arrays: their members, and along which dimensions of a layout each goes.

The dimensions are taken from a communicator's description, else from its operations. Communicators with one purpose,
such as all that are described as ``mesh_tp``, are a *family*: in one layout they have equal sizes and equal shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.roles import (
    BY_OPERATIONS,
    UNDESCRIBED,
    dimensions_of_description,
    role_of_description,
    roles_of_operations,
)
from whichrank.stage.layout import ROLES
from whichrank.store.communicators import Communicators
from whichrank.store.op_kinds import OpKinds

Ints = NDArray[np.int64]
LEAST_CONFIDENCE: Final = 0.6
"""In a role that is told from operations, to learn from it (0 to 1). Below, tensor and data are told apart by whether
ranks are neighbours, which is wrong where a pipeline is the only other dimension. Above, a pipeline may still be a ring
that exchanges messages: `Learned.confidence` says so."""
_DATA_PARTS: Final = ("replicate", "shard")
"""Words that tell the two data-parallel dimensions of HSDP apart."""


@dataclass(frozen=True)
class Family:
    """Communicators of one purpose.

    Attributes:
        dimensions: They go along, of ROLES; data-parallel ones may go along context, too.
        confidence: In that, from 0 to 1.
        part: Of data parallelism, ``replicate`` or ``shard``; empty if it does not say.
    """

    dimensions: frozenset[str]
    confidence: float
    part: str = ""


@dataclass(frozen=True)
class Groups:
    """All communicators.

    Attributes:
        ranks: World size.
        at: Where the members of each communicator begin, (C,), ascending.
        size: How many there are, (C,).
        member: Ranks, those of one communicator after those of the other; -1 is not known, (M,).
        family: A place in families, -1: it goes along no dimension, or that is not known, (C,).
        families: What they are for.
    """

    ranks: int
    at: Ints
    size: Ints
    member: Ints
    family: Ints
    families: tuple[Family, ...]

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Of which communicators all members are known, (C,)."""
        unknown = (self.member < 0) | (self.member >= self.ranks)
        if not len(self.at):
            return np.zeros(0, np.bool_)
        return ~np.logical_or.reduceat(unknown, self.at)

    def places(self, comms: Ints) -> Ints:
        """Places of the members of some communicators in `member`, one communicator after the other."""
        size = self.size[comms]
        within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        return np.repeat(self.at[comms], size) + within


def groups_of(comms: Communicators, kinds: OpKinds, ranks: int) -> Groups:
    """Take them from the store; communicators that a process has left say nothing, as after an elastic restart.

    Args:
        comms: All communicators.
        kinds: Operations that each has completed.
        ranks: World size.
    """
    number_of: dict[str, int] = {}
    described = np.array([number_of.setdefault(info.desc, len(number_of)) for info in comms.info], np.int64)
    families: dict[Family, int] = {}
    of_description = np.full(len(number_of), -1, np.int64)
    for desc, number in number_of.items():
        dimensions = dimensions_of_description(desc)
        if dimensions:
            part = next((word for word in _DATA_PARTS if word in desc.lower()), "")
            of_description[number] = families.setdefault(Family(dimensions, 1.0, part), len(families))
    family = of_description[described] if len(described) else described
    says_nothing = np.array([desc in UNDESCRIBED or role_of_description(desc) is None for desc in number_of], np.bool_)
    at = np.flatnonzero(says_nothing[described] & (family < 0)) if len(described) else described
    if comms.member_left.any():
        is_over = np.logical_or.reduceat(comms.member_left, comms.at)
        family[is_over], at = -1, at[~is_over[at]]
    groups = Groups(ranks, comms.at, comms.size, comms.member_rank, family, ())
    role, confidence = _by_operations(groups, at, kinds)
    for code in np.unique(role[confidence >= LEAST_CONFIDENCE]).tolist():
        name = BY_OPERATIONS[code]
        which = (role == code) & (confidence >= LEAST_CONFIDENCE)
        if name in ROLES:
            known = Family(frozenset({str(name)}), float(confidence[which].min()))
            family[at[which]] = families.setdefault(known, len(families))
    return Groups(ranks, comms.at, comms.size, comms.member_rank, family, tuple(families))


def _by_operations(groups: Groups, at: Ints, kinds: OpKinds) -> tuple[Ints, NDArray[np.float64]]:
    """Role and confidence of communicators that no description tells, (n,) each.

    Operations of all ranks say something only where no communicator of some of them is known: in a job with several
    dimensions they reduce a norm, and pass messages to anybody.
    """
    if not len(at):
        return np.zeros(0, np.int64), np.zeros(0)
    places = groups.places(at)
    size = groups.size[at]
    starts = np.cumsum(size) - size
    steps = np.diff(groups.member[places], append=0)
    steps[starts + size - 1] = 1
    neighbours = np.logical_and.reduceat(steps == 1, starts) & (size > 1)
    whole = size == groups.ranks
    role, confidence = roles_of_operations(kinds.rows(at), whole, neighbours)
    if ((groups.size > 1) & (groups.size < groups.ranks)).any():
        confidence = np.where(whole, 0.0, confidence)
    return role, confidence

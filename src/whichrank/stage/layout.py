"""How the ranks of a job are arranged: tensor, context, data, expert and pipeline parallel.

Ranks are numbered as Megatron-Core does by default: the tensor-parallel index runs fastest, then context, then data,
then pipeline, so the ranks of a pipeline stage are consecutive. Another order of these four is possible; torchtitan has
tensor, context, data, pipeline, too. Experts are shared out among neighbours in data and context: an expert-parallel
group are `ep` consecutive places of those two taken together, at one place in tensor and pipeline.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.errors import UsageError

Ints = NDArray[np.int64]
MOST_RANKS: Final = 1 << 17
"""Of one job; what is larger is a slip of the pen."""
DIMENSIONS: Final = ("tp", "cp", "dp", "pp")
"""In the usual order, the fastest first."""
ROLES: Final = (*DIMENSIONS, "ep")


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism.

    Attributes:
        tp: Ranks that share a layer.
        cp: That share a sequence.
        dp: Replicas.
        pp: Ranks of a pipeline.
        ep: That share the experts of a layer; no dimension of its own.
        order: Of the dimensions, the fastest first.

    Raises:
        UsageError: No job can be so large, or so small, or arranged like this.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    order: tuple[str, ...] = DIMENSIONS

    def __post_init__(self) -> None:
        if min(self.degree(role) for role in ROLES) < 1:
            raise UsageError("each degree of parallelism is 1 or more", mend="--layout tp2-pp4-dp4")
        if self.ranks > MOST_RANKS:
            raise UsageError(f"{self.ranks:,} ranks are more than {MOST_RANKS:,}", mend="--layout tp8-pp16-dp64")
        if self.cp * self.dp % self.ep:
            what = f"{self.ep} expert-parallel ranks cannot be made of {self.cp * self.dp} in data and context"
            raise UsageError(what, mend="--layout tp2-dp8-ep4")
        if sorted(self.order) != sorted(DIMENSIONS):
            raise UsageError(f"the order {'-'.join(self.order)} does not have tp, cp, dp and pp once each")

    @classmethod
    def parse(cls, name: str) -> Layout:
        """Read a name such as ``tp2-pp4-dp4``.

        Raises:
            UsageError: It is none.
        """
        degrees: dict[str, int] = {}
        for part in name.split("-"):
            found = re.fullmatch(r"(tp|cp|dp|pp|ep)([1-9]\d{0,5})", part)
            if found is None or found[1] in degrees:
                raise UsageError(f"'{name}' is no layout: tpN, cpN, dpN, ppN, epN with - between", mend="tp2-pp4-dp4")
            degrees[found[1]] = int(found[2])
        tp, cp, dp, pp, ep = (degrees.get(role, 1) for role in ROLES)
        return cls(tp, cp, dp, pp, ep)

    @property
    def name(self) -> str:
        """That `parse` reads; it leaves the order out."""
        return "-".join(f"{role}{self.degree(role)}" for role in ROLES if self.degree(role) > 1) or "dp1"

    @property
    def ranks(self) -> int:
        """World size."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def per_stage(self) -> int:
        """Ranks of a pipeline stage."""
        return self.tp * self.cp * self.dp

    def degree(self, role: str) -> int:
        """Ranks of a group."""
        return {"tp": self.tp, "cp": self.cp, "dp": self.dp, "pp": self.pp, "ep": self.ep}[role]

    def stride(self, dimension: str) -> int:
        """From one rank to the next of a dimension."""
        found = 1
        for faster in self.order[: self.order.index(dimension)]:
            found *= self.degree(faster)
        return found

    def place(self, role: str) -> Ints:
        """Of each rank in its group, (R,)."""
        if role == "ep":
            return self.replica() % self.ep
        return np.arange(self.ranks) // self.stride(role) % self.degree(role)

    def replica(self) -> Ints:
        """Of each rank its place among those that reduce gradients together, in data and context, (R,)."""
        replica: Ints = self.place("dp") * self.cp + self.place("cp")
        return replica

    def group(self, role: str) -> Ints:
        """A number for the group of each rank: its first member, (R,)."""
        if role == "ep":
            first = self.replica() // self.ep * self.ep
            return self._at(self.place("tp"), first % self.cp, first // self.cp, self.place("pp"))
        return np.arange(self.ranks) - self.place(role) * self.stride(role)

    def _at(self, tp: Ints, cp: Ints, dp: Ints, pp: Ints) -> Ints:
        """The ranks at these places."""
        places = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
        ranks: Ints = np.sum([places[one] * self.stride(one) for one in DIMENSIONS], axis=0, dtype=np.int64)
        return ranks

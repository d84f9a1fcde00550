"""How the ranks of a simulated job are arranged: tensor x context x data x pipeline parallel.

Ranks are numbered as Megatron-Core does by default: the tensor-parallel index runs fastest, then context, then data,
then pipeline. So the ranks of a pipeline stage are consecutive, an array of shape (dp, cp, tp).
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
ROLES: Final = ("tp", "cp", "dp", "pp")
"""The fastest index first."""


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism.

    Raises:
        UsageError: No job can be so large, or so small.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        if min(self.tp, self.cp, self.dp, self.pp) < 1:
            raise UsageError("each degree of parallelism is 1 or more", mend="--layout tp2-pp4-dp4")
        if self.ranks > MOST_RANKS:
            raise UsageError(f"{self.ranks:,} ranks are more than {MOST_RANKS:,}", mend="--layout tp8-pp16-dp64")

    @classmethod
    def parse(cls, name: str) -> Layout:
        """Read a name such as ``tp2-pp4-dp4``.

        Raises:
            UsageError: It is none.
        """
        degrees: dict[str, int] = {}
        for part in name.split("-"):
            found = re.fullmatch(r"(tp|cp|dp|pp)([1-9]\d{0,5})", part)
            if found is None or found[1] in degrees:
                raise UsageError(f"'{name}' is no layout: tpN, cpN, dpN, ppN with - between", mend="tp2-pp4-dp4")
            degrees[found[1]] = int(found[2])
        return cls(**degrees)

    @property
    def name(self) -> str:
        """That `parse` reads."""
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
        return {"tp": self.tp, "cp": self.cp, "dp": self.dp, "pp": self.pp}[role]

    def stride(self, role: str) -> int:
        """From one rank of a group to the next."""
        return {"tp": 1, "cp": self.tp, "dp": self.tp * self.cp, "pp": self.per_stage}[role]

    def place(self, role: str) -> Ints:
        """Of each rank in its group, (R,)."""
        return np.arange(self.ranks) // self.stride(role) % self.degree(role)

    def group(self, role: str) -> Ints:
        """A number for the group of each rank: its first member, (R,)."""
        return np.arange(self.ranks) - self.place(role) * self.stride(role)

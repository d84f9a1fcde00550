"""How the ranks of the demo job are arranged: data x pipeline x tensor parallel.

Ranks are numbered as Megatron-Core and torchtitan do: the tensor-parallel index runs fastest, then data, then
pipeline. The name ("tp2-pp2-dp2") is the only way a layout is written down; degrees of one are left out of it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

ROLES = ("pp", "dp", "tp")


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism; their product is the world size.

    Args:
        tp: ranks that share one layer.
        pp: pipeline stages.
        dp: replicas.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1

    @classmethod
    def parse(cls, name: str) -> Layout:
        """Read a name such as ``tp2-pp2-dp2``.

        Raises:
            ValueError: if the name has anything but tp, pp and dp, each once and with a positive degree.
        """
        degrees: dict[str, int] = {}
        for part in name.split("-"):
            match = re.fullmatch(r"(tp|pp|dp)([1-9]\d*)", part)
            if match is None or match[1] in degrees:
                raise ValueError(f"layout {name!r}: expected tpN, ppN and dpN joined by '-', for example tp2-pp2-dp2")
            degrees[match[1]] = int(match[2])
        return cls(**degrees)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tp * self.pp * self.dp

    @property
    def name(self) -> str:
        """The name that `parse` reads."""
        parts = [f"{role}{self.degree(role)}" for role in ("tp", "pp", "dp") if self.degree(role) > 1]
        return "-".join(parts) or "dp1"

    @property
    def mixed(self) -> bool:
        """Whether there is more than one role, so that groups differ from the world."""
        return sum(self.degree(role) > 1 for role in ROLES) >= 2

    def degree(self, role: str) -> int:
        """Ranks per group of `role`."""
        return {"tp": self.tp, "pp": self.pp, "dp": self.dp}[role]

    def index(self, rank: int, role: str) -> int:
        """Position of `rank` inside its group of `role`."""
        return {
            "tp": rank % self.tp,
            "dp": rank // self.tp % self.dp,
            "pp": rank // (self.tp * self.dp),
        }[role]

    def members(self, rank: int, role: str) -> tuple[int, ...]:
        """Ranks of the group of `role` that `rank` belongs to, in group order."""
        stride = {"tp": 1, "dp": self.tp, "pp": self.tp * self.dp}[role]
        first = rank - self.index(rank, role) * stride
        return tuple(first + i * stride for i in range(self.degree(role)))

    def groups(self, role: str) -> list[tuple[int, ...]]:
        """All groups of `role`, ordered by first member."""
        return sorted({self.members(rank, role) for rank in range(self.world_size)})


def layouts(ranks: int) -> Iterator[Layout]:
    """All layouts of `ranks` ranks with degrees that are powers of two and at least one degree of two."""
    powers = [1, 2, 4, 8, 16]
    for tp in powers:
        for pp in powers:
            if tp <= 4 and pp <= 4 and tp * pp <= ranks and ranks % (tp * pp) == 0:
                yield Layout(tp=tp, pp=pp, dp=ranks // (tp * pp))


def draw_layout(ranks: int, seed: int) -> Layout:
    """Draw a layout with more than one role if there is any, so that blame has somewhere to hide."""
    mixed = [entry for entry in layouts(ranks) if entry.mixed]
    return random.Random(f"layout/{ranks}/{seed}").choice(mixed or list(layouts(ranks)))

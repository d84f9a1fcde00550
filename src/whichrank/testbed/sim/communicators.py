"""The communicators of a simulated job. Gradients are reduced over context ranks, too: they are in the data groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.telemetry import CommInfo
from whichrank.stage.layout import Layout
from whichrank.testbed.sim.program import CP, DP, EP, PP, TP, WORLD

Ints = NDArray[np.int64]
_ROLES: Final = {TP: "tp", DP: "dp", PP: "pp", CP: "cp", EP: "ep"}
_DESCRIPTIONS: Final = {
    TP: "mesh_tp", DP: "mesh_dp", PP: "mesh_pp", WORLD: "default_pg", CP: "mesh_cp", EP: "EXPERT_MODEL_PARALLEL_GROUP",
}  # fmt: skip


class Communicators:
    """Of one job.

    Args:
        layout: Of its ranks.
        backend: Where operations run: on the host with `gloo`, on devices with `nccl`.

    Attributes:
        layout: The same.
        slots: That are in use, in order.
        ids: By rank and slot, (R, 6); 0 of a slot that is not in use.
        group_rank: Of each rank in its communicators, (R, slots).
    """

    def __init__(self, layout: Layout, backend: str) -> None:
        self.layout, self._backend = layout, backend
        self.slots = [slot for slot in range(len(_DESCRIPTIONS)) if slot == WORLD or self._size(slot) > 1]
        self._groups = {slot: self._group(slot) for slot in self.slots}
        self.group_rank = np.stack([self._groups[slot][1] for slot in self.slots], axis=1)
        self.ids = np.zeros((layout.ranks, len(_DESCRIPTIONS)), np.uint64)
        for slot, (group, _) in self._groups.items():
            self.ids[:, slot] = (slot + 1) << 32 | group

    def infos(self) -> Iterator[CommInfo]:
        """All of them."""
        for slot, (group, place) in self._groups.items():
            order = np.lexsort((place, group))
            firsts, counts = np.unique(group, return_counts=True)
            for first, members in zip(firsts.tolist(), np.split(order, np.cumsum(counts)[:-1]), strict=True):
                name, comm_id = f"{slot}-{first}", (slot + 1) << 32 | first
                yield CommInfo(comm_id, name, _DESCRIPTIONS[slot], self._backend, len(members), 0, members.tolist())

    def _size(self, slot: int) -> int:
        return self.layout.dp * self.layout.cp if slot == DP else self.layout.degree(_ROLES[slot])

    def _group(self, slot: int) -> tuple[Ints, Ints]:
        """The group of each rank and its place there, (R,) each."""
        layout, ranks = self.layout, np.arange(self.layout.ranks)
        if slot == WORLD:
            return np.zeros(layout.ranks, np.int64), ranks
        if slot == DP:
            place = layout.replica()
            return ranks - place * layout.tp, place
        return layout.group(_ROLES[slot]), layout.place(_ROLES[slot])

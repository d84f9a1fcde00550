"""Which programs let ranks change places, as their ranks say, and where each is now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from whichrank.act.said import Said
from whichrank.model.commands import Place, PlaceOut
from whichrank.model.iterations import Ints


@dataclass(frozen=True)
class PlaceOffer:
    """Of all ranks of a job.

    Attributes:
        order: The rank in each place, (R,).
        stage: Of each place, (R,).
        replica: Of each place, (R,).
        microbatches: Of a replica in an iteration.
        version: That all ranks use; -1 while some use another one.
        failed: That version was given up: all are as before.
        size: Bytes that the rank with the most would hand over.
        took_s: How long training stood still for the latest change; 0: there was none.
        saves: All can write their states to disk.
    """

    order: Ints
    stage: Ints
    replica: Ints
    microbatches: int
    version: int
    failed: bool
    size: int
    took_s: float
    saves: bool

    def to(self, version: int, order: Iterable[int], *, saves: bool = False) -> PlaceOut:
        """What to tell all ranks, so that they are in this order; `saves`: that they are in, and write their states."""
        return PlaceOut(version, tuple(Place(int(rank), place) for place, rank in enumerate(order)), saves)


class PlaceOffers(Said):
    """What ranks of a job have said of places."""

    def __init__(self) -> None:
        super().__init__("places")

    @property
    def any_saves(self) -> bool:
        """Whether any rank can write its state to disk."""
        return any(bool(said["saves"]) for said in self._said.values())

    def of(self, ranks: Collection[int]) -> PlaceOffer | None:
        """What all of these ranks offer; None unless they agree on the mesh, and each place has one of them."""
        rows = self.rows(ranks)
        if rows is None:
            return None
        known = sorted(ranks)
        same = ("ranks", "stages", "stage_stride", "replicas", "replica_stride", "microbatches")
        if any((rows[name] != rows[name][0]).any() for name in same):
            return None
        count, stages, stage_stride, replicas, replica_stride, microbatches = (int(rows[name][0]) for name in same)
        if count != len(known) or min(stages, stage_stride, replicas, replica_stride, microbatches) < 1:
            return None
        place = np.arange(count)
        stage, replica = place // stage_stride % stages, place // replica_stride % replicas
        each = np.bincount(replica * stages + stage, minlength=stages * replicas)
        if (each != count // (stages * replicas)).any():
            return None
        versions = rows["used"]
        is_used = bool((versions == versions[0]).all())
        at = rows["place"].astype(np.int64)
        if is_used and sorted(at.tolist()) != place.tolist():
            return None
        order = np.array(known, np.int64)[np.argsort(at, kind="stable")]
        return PlaceOffer(
            order, stage, replica, microbatches, int(versions[0]) if is_used else -1, bool(rows["failed"].any()),
            int(rows["bytes"].max()), float(rows["took_ms"].max()) / 1000.0,
            bool(rows["saves"].all()),
        )  # fmt: skip

"""The place of this process in its ring, from inside (`wr_places` in `ring.h`). No call waits."""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from whichrank.native import loaded_core


class _Places(ctypes.Structure):
    """`wr_places`."""

    _fields_ = (
        ("told", ctypes.c_uint32 * 2),
        *((name, ctypes.c_uint32) for name in ("newest", "used", "failed", "place", "took_ms", "ranks", "stages")),
        *((name, ctypes.c_uint32) for name in ("stage_stride", "replicas", "replica_stride", "microbatches", "saves")),
        ("bytes", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Mesh:
    """Which stage of which replica a place is: place p is of stage `p // stage_stride % stages`, and so on."""

    ranks: int
    stages: int
    stage_stride: int
    replicas: int
    replica_stride: int
    microbatches: int
    """That a replica computes in an iteration."""


SAVE: Final = 1 << 30
"""`WR_PLACE_SAVE`."""


class Told(NamedTuple):
    """What a version asks for.

    Attributes:
        place: Where this process is to be.
        saves: It is to stay, and to write its state to disk.
    """

    place: int
    saves: bool


class OwnPlaces:
    """What this process offers and is told; nothing ever, where whichrank does not watch it.

    Args:
        mesh: Of the job.
        place: Of this process at the start.
        size: Bytes that it would hand over.
        saves: It can write its state to disk.
    """

    def __init__(self, mesh: Mesh, place: int, size: int, *, saves: bool) -> None:
        core = loaded_core()
        self._core = core
        self._ring: int | None = core.wr_process_ring() if core else None
        self._mesh, self._saves = mesh, saves
        if core is None or not self._ring:
            return
        core.wr_places_offer.argtypes, core.wr_places_offer.restype = (ctypes.c_void_p, ctypes.c_void_p), None
        core.wr_places_newest.argtypes, core.wr_places_newest.restype = (ctypes.c_void_p,), ctypes.c_uint32
        core.wr_places_of.argtypes, core.wr_places_of.restype = (ctypes.c_void_p, ctypes.c_uint32), ctypes.c_uint32
        core.wr_places_used.argtypes = (ctypes.c_void_p, *[ctypes.c_uint32] * 3, ctypes.c_int)
        core.wr_places_used.restype = None
        self.use(0, place, 0.0, failed=False)
        self.offer(size)

    def offer(self, size: int) -> None:
        """Say that places can be changed.

        Args:
            size: Bytes that this process would hand over now.
        """
        if self._core and self._ring:
            self._core.wr_places_offer(
                self._ring, ctypes.byref(_Places(bytes=size, saves=self._saves, **asdict(self._mesh)))
            )

    def newest(self) -> int:
        """The version of the newest place that was told, 0: none."""
        return int(self._core.wr_places_newest(self._ring)) if self._core and self._ring else 0

    def of(self, version: int) -> Told:
        """What a version asks for that was told."""
        told = int(self._core.wr_places_of(self._ring, version)) if self._core and self._ring else 0
        return Told(told & ~SAVE, bool(told & SAVE))

    def use(self, version: int, place: int, took_s: float, *, failed: bool) -> None:
        """Say that all ranks have changed to a version, or have given it up.

        Args:
            version: Which.
            place: Where this process is then.
            took_s: How long training stood still.
            failed: It was given up.
        """
        if self._core and self._ring:
            took_ms = min(round(took_s * 1000), 0xFFFFFFFF)
            self._core.wr_places_used(self._ring, version, place, took_ms, int(failed))

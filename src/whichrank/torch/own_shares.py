"""The shares of the work in the ring of this process, from inside (`wr_shares` in `ring.h`). No call waits."""

from __future__ import annotations

import ctypes

from whichrank.native import loaded_core


class _Share(ctypes.Structure):
    """`wr_share`."""

    _fields_ = (("first", ctypes.c_uint32), ("count", ctypes.c_uint32))


class OwnShares:
    """What this process offers and is told; nothing ever, where whichrank does not watch it.

    Args:
        microbatches: Of an iteration, of all replicas.
        multiple: Of which each share is one.
        replica: Which one this process belongs to, from 0.
        replicas: How many there are.
    """

    def __init__(self, microbatches: int, multiple: int, replica: int, replicas: int) -> None:
        core = loaded_core()
        self._core = core
        self._ring: int | None = core.wr_process_ring() if core else None
        if core is None or not self._ring:
            return
        core.wr_shares_offer.argtypes = (ctypes.c_void_p, *[ctypes.c_uint32] * 4)
        core.wr_shares_offer.restype = None
        core.wr_shares_newest.argtypes, core.wr_shares_newest.restype = (ctypes.c_void_p,), ctypes.c_uint32
        core.wr_shares_of.argtypes, core.wr_shares_of.restype = (ctypes.c_void_p, ctypes.c_uint32), _Share
        core.wr_shares_use.argtypes, core.wr_shares_use.restype = (ctypes.c_void_p, ctypes.c_uint32), None
        core.wr_shares_offer(self._ring, microbatches, multiple, replica, replicas)

    def newest(self) -> int:
        """The version of the newest share that was told, 0: none."""
        return int(self._core.wr_shares_newest(self._ring)) if self._core and self._ring else 0

    def of(self, version: int) -> tuple[int, int]:
        """Number of the first microbatch and how many, of a version that was told."""
        share = self._core.wr_shares_of(self._ring, version) if self._core and self._ring else _Share()
        return int(share.first), int(share.count)

    def use(self, version: int) -> None:
        """Say that this version is in use."""
        if self._core and self._ring:
            self._core.wr_shares_use(self._ring, version)

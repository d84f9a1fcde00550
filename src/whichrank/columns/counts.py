"""How often something was so, by communicator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.library import addresses, loops


def count_waits(
    comm: NDArray[np.int64], wait_us: NDArray[np.uint32], counts: NDArray[np.float32], total: NDArray[np.float64]
) -> None:
    """Count waits in bins, each of which goes to the root of two times as far as the one before.

    Args:
        comm: Communicator of each wait, (n,).
        wait_us: How long each took, in microseconds, (n,).
        counts: Added to, (communicators, bins).
        total: Of each communicator, added to, (communicators,).
    """
    comms, bins = counts.shape
    at = addresses((comm, np.int64), (wait_us, np.uint32))
    loops().wr_count_waits(len(comm), *at, comms, bins, *addresses((counts, np.float32), (total, np.float64)))


def count_kinds(comm: NDArray[np.int64], kind: NDArray[np.uint8], counts: NDArray[np.uint32]) -> None:
    """Count operations of each kind.

    Args:
        comm: Communicator of each operation, (n,).
        kind: Of each, (n,).
        counts: Added to, (communicators, kinds); other kinds are not counted.
    """
    at = addresses((comm, np.int64), (kind, np.uint8))
    loops().wr_count_kinds(len(comm), *at, *counts.shape, *addresses((counts, np.uint32)))

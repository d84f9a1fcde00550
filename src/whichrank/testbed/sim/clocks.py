"""Clocks of the nodes of a simulated job: they differ, and run at different speeds."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]
BEGIN_S: Final = 1000.0
"""On the true clock, and on those of all nodes but for their offsets."""
NS: Final = 1_000_000_000


class Clocks:
    """Of the nodes.

    Args:
        node: Of each rank, (R,).
        apart_s: By how much they differ, at most.
        drift: By how much their speeds do, at most: 5e-5 is 50 ppm.
        seed: Of chance.
    """

    def __init__(self, node: Ints, apart_s: float, drift: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        nodes = int(node[-1]) + 1
        self._offset_ns = np.round(rng.uniform(0, apart_s, nodes) * NS).astype(np.int64)[node]
        self._drift = rng.uniform(-drift, drift, nodes)[node]

    def set_here(self, rows: Rows, ranks: Ints, names: tuple[str, ...]) -> None:
        """Turn true times of rows, ns, into those of the clocks of their ranks; 0, never, stays 0.

        Args:
            rows: With these fields, of any shape whose first axis is that of the ranks.
            ranks: Of the rows, (n,).
            names: Of the fields.
        """
        shape = (len(ranks), *(1 for _ in rows.shape[1:]))
        offset_ns, drift = self._offset_ns[ranks].reshape(shape), self._drift[ranks].reshape(shape)
        for name in names:
            true_ns = rows[name].astype(np.int64)
            here_ns = true_ns + offset_ns + ((true_ns - int(BEGIN_S * NS)) * drift).astype(np.int64)
            rows[name] = np.where(true_ns > 0, here_ns, 0)

    def here(self, true_ns: Ints, ranks: Ints) -> Ints:
        """What the clocks of these ranks say at a true time of each, ns, (n,); 0 stays 0."""
        rows = np.zeros(len(ranks), [("at_ns", "u8")])
        rows["at_ns"] = true_ns
        self.set_here(rows, ranks, ("at_ns",))
        return rows["at_ns"].astype(np.int64)

"""Just-in-time checkpointing's watchdog: peers time out in a collective of the data-parallel group.

MegaTrace (section II.C): a watchdog "reports a hang if an event on a node fails to complete within the expected time";
in its Figure 7 it finds all hangs of computation and none of communication. It knows no slowness.

Decided: members of the data-parallel group that have not entered, and that are in no other operation either, compute;
these are named, dead ones too. Where there are none, communication hangs, of which it says nothing.
"""

from __future__ import annotations

import numpy as np

from whichrank.model.roles import role_of_description
from whichrank.testbed.bench.methods.method import Limits, Said
from whichrank.testbed.bench.methods.telemetry import Telemetry


class PeersTimeout:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._named = frozenset[int]()

    def examine(self, seen: Telemetry) -> list[Said]:
        """See `method.Method`."""
        waiting = seen.waiting()
        is_data = np.array([role_of_description(info.desc) == "dp" for info in seen.store.comms.info], np.bool_)
        late = waiting.for_s > self._limits.hang_s
        late[late] = is_data[waiting.comm[late]]
        computes = set[int]()
        for comm, counter in set(zip(waiting.comm[late].tolist(), waiting.counter[late].tolist(), strict=True)):
            ranks, issued, _ = seen.members(comm)
            computes |= set(ranks[(ranks >= 0) & (issued < counter)].tolist())
        ops = seen.picture.ops
        computes -= set(ops["rank"][~ops["failed"] & ~seen.picture.gone[ops["rank"]]].tolist())
        if not computes or computes <= self._named:
            return []
        self._named |= computes
        return [Said("hang", frozenset(computes))]

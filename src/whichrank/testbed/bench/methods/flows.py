"""Who sends to whom between nodes in a run: where a link is slow at one node, the ranks at its other end.

The truth of a slow link is reported as the ranks of the node whose cable is slow. CCL-D names ranks and no links, and
may name the rank at either end, as it may where a link is broken.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from whichrank.testbed.bench.methods.telemetry import Telemetry

EVERY_S: Final = 1.0
MATTERS: Final = 0.25
"""Share of what the busiest pair sends, from which a pair counts: control messages go between many ranks."""


class Flows:
    """Bytes from rank to rank, the most that was reported of each pair: connections end with the job."""

    def __init__(self) -> None:
        self._sent: dict[tuple[int, int], float] = {}
        self._next_s = 0.0

    def note(self, seen: Telemetry) -> None:
        """Take what is known of connections now."""
        if seen.now_s < self._next_s:
            return
        self._next_s = seen.now_s + EVERY_S
        for path, (sent, _) in seen.between_nodes().items():
            self._sent[path] = max(sent, self._sent.get(path, 0.0))

    def other_ends(self, sources: Collection[int], targets: Collection[int]) -> frozenset[int]:
        """Ranks that receive from these sources, and ranks that send to these targets.

        Example: rank 1 of node 0 sends 900 MB to rank 2 of node 1, and 3 kB to rank 7. With the sources 0 and 1, which
        are node 0, the other end is rank 2.
        """
        least = MATTERS * max(self._sent.values(), default=0.0)
        much = [path for path, sent in self._sent.items() if sent >= least > 0]
        return frozenset({dst for src, dst in much if src in sources} | {src for src, dst in much if dst in targets})

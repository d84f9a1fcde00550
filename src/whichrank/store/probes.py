"""Which nodes are to probe which others, and what came of it: asked for on suspicion only, and bounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from whichrank.model.telemetry import Probe

AGE_S: Final = 5.0
"""An answer that is older says nothing of now."""
PATIENCE_S: Final = 2.0
"""So long after the first question a verdict waits for answers."""
MOST_WITNESSES: Final = 16
"""Nodes that probe one address."""
MOST_TARGETS: Final = 8
"""Nodes that are probed at a time."""


class Probes:
    """Questions and answers of a job, by the numbers of nodes."""

    def __init__(self) -> None:
        self._wanted: dict[int, set[int]] = {}
        self._asked_s: dict[tuple[int, int], tuple[float, float]] = {}  # first in this suspicion, and last
        self._answer: dict[tuple[int, int], tuple[float, Probe]] = {}
        self._node_at: dict[str, int] = {}

    def ask(self, witnesses: Iterable[int], targets: dict[int, str], now_s: float) -> None:
        """Let these nodes probe others, each at its address."""
        targets = dict(list(targets.items())[:MOST_TARGETS])
        self._node_at |= {address: node for node, address in targets.items()}
        for witness in list(witnesses)[:MOST_WITNESSES]:
            for node in targets.keys() - {witness}:
                self._wanted.setdefault(witness, set()).add(node)
                first_s, last_s = self._asked_s.get((witness, node), (now_s, now_s))
                self._asked_s[witness, node] = first_s if now_s - last_s < AGE_S else now_s, now_s

    def take_wanted(self, node: int) -> list[str]:
        """The addresses at which a node is to probe now."""
        wanted = self._wanted.pop(node, set())
        return sorted(address for address, at in self._node_at.items() if at in wanted)

    def take(self, node: int, probe: Probe, now_s: float) -> None:
        """What came of it at a node."""
        target = self._node_at.get(probe.target)
        if target is not None and probe.sent > 0:
            self._answer[node, target] = now_s, probe

    def of(self, witness: int, node: int, now_s: float) -> Probe | None:
        """What came of the latest question, if that is not long ago."""
        at_s, probe = self._answer.get((witness, node), (0.0, None))
        return probe if now_s - at_s < AGE_S else None

    def gets_answers(self, witness: int, now_s: float) -> bool:
        """Whether some node answers this one: where firewalls swallow what probes, no answer says nothing."""
        return any(
            at == witness and probe.answered > 0 and now_s - at_s < AGE_S
            for (at, _), (at_s, probe) in self._answer.items()
        )

    def outstanding(self, witnesses: Iterable[int], node: int, now_s: float) -> bool:
        """Whether one of these may still say something."""
        return any(
            self.of(w, node, now_s) is None and now_s - self._asked_s.get((w, node), (0.0, 0.0))[0] < PATIENCE_S
            for w in witnesses
        )

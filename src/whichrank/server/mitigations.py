"""Acts on what is slow, in a program that lets its shares of the work be changed; or says what could be done.

Nothing is done without being told to: `advise` says what would help, and `auto` does it, but for what a person is to
be asked about first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from whichrank.act.mitigation import Action, Mitigation
from whichrank.act.offers import by_agent
from whichrank.act.planner import Effect
from whichrank.model.commands import ShareOut
from whichrank.model.incident import Cause, Incident
from whichrank.model.job_now import Lately
from whichrank.model.telemetry import SHARES_REPORTED, Batch

EVERY_S: Final = 0.25
"""Between two looks at the latest iterations."""
COMPUTES_SLOWLY: Final = frozenset({Cause.COMPUTE_SLOW, Cause.MIXED_SLOW})


class Decided(NamedTuple):
    """An action, and whether ranks are told."""

    action: Action
    is_made: bool


class Mitigations:
    """Of one job.

    Args:
        is_auto: Shares may be changed without asking.
    """

    def __init__(self, *, is_auto: bool) -> None:
        self._is_auto = is_auto
        self._mitigation = Mitigation()
        self._named: dict[str, dict[int, float]] = {}  # by incident
        self._looked_s = -EVERY_S

    def note(self, incidents: Iterable[Incident]) -> None:
        """Incidents are new or have changed."""
        for incident in incidents:
            self._named.pop(incident.id, None)
            is_open = incident.status == "open" and incident.severity == "alert"
            if incident.kind == "slow" and is_open and incident.cause in COMPUTES_SLOWLY:
                self._named[incident.id] = {one.rank: one.confidence for one in incident.culprits}
        self._mitigation.named({rank: sure for named in self._named.values() for rank, sure in named.items()})

    def feed(self, batches: Iterable[Batch]) -> None:
        """Take what agents say of shares."""
        if rows := b"".join(batch.shares for batch in batches):
            self._mitigation.feed(np.frombuffer(rows, SHARES_REPORTED))

    def advance(
        self, lately: Callable[[], Lately | None], ended: Callable[[], Sequence[int]],
        agent_of: Callable[[], Mapping[int, str]], now_s: float,
    ) -> tuple[Decided, dict[str, ShareOut]] | None:  # fmt: skip
        """What is decided now, and what agents are to be told; None if it is nothing.

        Args:
            lately: The latest iterations.
            ended: Ranks whose processes have ended.
            agent_of: The agent of each rank that lives.
            now_s: Now.
        """
        if not self._mitigation.has_offers or now_s - self._looked_s < EVERY_S:
            return None
        self._looked_s = now_s
        self._mitigation.forget(ended())
        known = lately()
        action = self._mitigation.advance(known, now_s) if known is not None else None
        if action is None:
            return None
        if not self._is_auto or action.step.must_be_asked:
            self._mitigation.refused(action)
            return Decided(action, is_made=False), {}
        orders = by_agent(action.order, agent_of())
        self._mitigation.made(action, now_s)
        return Decided(action, is_made=True), orders

    def take_effect(self) -> Effect | None:
        """What the latest action has gained, once, when that is known."""
        return self._mitigation.take_effect()

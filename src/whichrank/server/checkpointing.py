"""Has a job write its state to disk when somebody wants that: all ranks between the same two iterations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from whichrank.act.mitigation import Mitigation
from whichrank.act.placing import Saved
from whichrank.model.commands import PlaceOut
from whichrank.server.mitigations_file import MitigateAsked, Mitigated

BEGIN_S: Final = 15.0
"""Ranks that are changing places, or have not said yet what they can, are waited for so long."""
CANNOT: Final = (
    "this program cannot write its state when asked: it has no Reorderable, or was started without --checkpoints"
)
AGAIN_S: Final = 5.0
"""The same order once more: an agent may have ended before it was obeyed. Who has obeyed it does nothing."""
IS_BUSY: Final = "ranks are changing places, or not all of them can write: were all started with --checkpoints?"


class Checkpointing:
    """One checkpoint after the other.

    Args:
        mitigation: Of the job.
    """

    def __init__(self, mitigation: Mitigation) -> None:
        self._mitigation = mitigation
        self._asked: MitigateAsked | None = None
        self._order: PlaceOut | None = None
        self._since_s = self._told_s = 0.0
        self._is_told = False

    @property
    def is_asked(self) -> bool:
        """Whether one is wanted, or under way."""
        return self._asked is not None

    @property
    def is_under_way(self) -> bool:
        """Whether ranks were told to write, and have not all said what came of it."""
        return self._is_told

    def ask(self, asked: MitigateAsked | None, now_s: float) -> None:
        """Somebody wants one; None: nobody does. What is under way goes on."""
        if not self._is_told and (asked is None or self._asked is None or asked.id != self._asked.id):
            self._asked, self._since_s = asked, now_s

    def advance(self, ranks: Sequence[int], now_s: float, at: datetime) -> tuple[Mitigated | None, PlaceOut | None]:
        """What is to be said, and what ranks are to be told.

        Args:
            ranks: Of the job.
            now_s: Now.
            at: And when that is.
        """
        if self._asked is None:
            return None, None
        if not self._is_told:
            order = self._mitigation.save(ranks)
            if order is not None:
                self._order, self._told_s = order, now_s
                self._is_told, self._since_s = True, now_s
                return None, order
            if now_s - self._since_s > BEGIN_S:
                return self._answer("refused", at, IS_BUSY if self._mitigation.saves else CANNOT), None
            return None, None
        saved = self._mitigation.saved(ranks)
        if saved is Saved.UNDER_WAY:
            if now_s - self._told_s < AGAIN_S:
                return None, None
            self._told_s = now_s
            return None, self._order
        problem = "" if saved is Saved.DONE else saved.value
        return self._answer("refused" if problem else "saved", at, problem, now_s - self._since_s), None

    def _answer(
        self, what: Literal["saved", "refused"], at: datetime, problem: str, took_s: float = 0.0
    ) -> Mitigated:  # fmt: skip
        assert self._asked is not None
        request = self._asked.id
        self._asked, self._is_told = None, False
        return Mitigated(at=at, what=what, request=request, problem=problem, overhead_s=round(took_s, 3))

"""Carries a validation to the ranks and back: what is asked goes to all agents again and again, what they say comes in.

One at a time. While none is under way this costs nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from whichrank.act.judgement import judge
from whichrank.act.pause import Pause
from whichrank.act.validation import Validation
from whichrank.model.commands import HoldGate
from whichrank.model.job_now import JobNow
from whichrank.model.telemetry import Batch
from whichrank.server.validations_file import Asked, Validated, validated

TELL_EVERY_S: Final = 0.1
"""Agents open gates that they are not told to hold for 0.4 s."""
SIZES: Final = (1 << 20, 2 << 20, 4 << 20)
"""Bytes of messages on links: a sixteenth of what Greyhound takes (section 6), for links of ten gigabits and less."""
MOST_PAUSES: Final = 1 << 20
"""Numbers of pauses, of which one is drawn: a job may have been paused by an analyzer before this one."""


class Validations:
    """None is under way at first."""

    def __init__(self) -> None:
        self._asked: Asked | None = None
        self._validation: Validation | None = None
        self._agent_of: Mapping[int, str] = {}
        self._told_s = 0.0
        self._number = secrets.randbelow(MOST_PAUSES)

    @property
    def is_under_way(self) -> bool:
        """Whether gates are held, or are to be."""
        return self._validation is not None

    def begin(self, asked: Asked, job: JobNow, now_s: float) -> str:
        """Begin one. Returns why that cannot be, empty if it can."""
        if self._validation is not None:
            return "a validation is under way"
        if len(job.ranks) < 2 or job.iteration_s <= 0:
            return "the iterations of this job are not known yet"
        self._number = self._number % MOST_PAUSES + 1
        pause = Pause(
            self._number,
            job.ranks,
            now_s,
            iteration_s=job.iteration_s,
            longest_s=asked.longest_s,
            beginnings=job.beginnings,
        )
        suspects = [rank for rank in asked.suspects if rank in job.agent_of] or list(job.ranks)
        groups = [group for group in job.groups if set(group.members) & set(suspects)]
        self._asked, self._agent_of = asked, job.agent_of
        self._validation = Validation(pause, suspects, groups, asked.sizes or SIZES)
        self._told_s = -1.0
        return ""

    def feed(self, batches: Iterable[Batch], now_s: float) -> None:
        """Take what agents say of gates."""
        if self._validation is not None:
            for batch in batches:
                if batch.gates:
                    self._validation.feed(batch.gate_rows(), now_s)

    def lose(self, ranks: Iterable[int], now_s: float) -> None:
        """These ranks have ended: nobody waits for them."""
        if self._validation is not None:
            for rank in ranks:
                self._validation.pause.lose(rank, "has ended", now_s)

    def orders(self, now_s: float) -> dict[str, HoldGate]:
        """What agents are to be told now: of each what its own ranks are to do; none while it is early."""
        if self._validation is None or now_s - self._told_s < TELL_EVERY_S:
            return {}
        self._told_s = now_s
        self._validation.advance(now_s)
        order = self._validation.order()
        return {agent: _of_ranks(order, ranks) for agent, ranks in _by_agent(self._agent_of).items()}

    def take_result(self) -> Validated | None:
        """What came of it, once, when it is over."""
        validation, asked = self._validation, self._asked
        if validation is None or asked is None or not validation.is_over:
            return None
        self._validation = self._asked = None
        paused_s, problem = validation.pause.paused_s, validation.pause.problem
        if problem:
            return Validated(asked=asked, paused_s=paused_s, problem=problem)
        return validated(asked, judge(validation.measured), paused_s)


def _by_agent(agent_of: Mapping[int, str]) -> dict[str, set[int]]:
    ranks: dict[str, set[int]] = {}
    for rank, agent in agent_of.items():
        ranks.setdefault(agent, set()).add(rank)
    return ranks


def _of_ranks(order: HoldGate, ranks: set[int]) -> HoldGate:
    """The part of an order that is for these ranks."""
    return HoldGate(
        pause=order.pause,
        renewal=order.renewal,
        longest_s=order.longest_s,
        at_step=order.at_step,
        at_ordinals=tuple(one for one in order.at_ordinals if one[0] in ranks),
        tests=tuple(test for test in order.tests if test.rank in ranks),
        is_over=order.is_over,
    )

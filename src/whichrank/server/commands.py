"""Commands on their way to agents, until these have obeyed them."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from whichrank.model.commands import Command, HoldGate, Order, Pace

MOST_PENDING: Final = 64
"""For one agent; the oldest is dropped."""
_NUMBERS_OF_A_SERVER: Final = 20
"""Bits: a million commands."""


class Commands:
    """Gives each order a number, and sends it until its agent has given that back.

    An order that is on its way already is not given again, and of paces, and of what gates are to do, only the latest
    counts. Grows with the number of agents, of which the transport takes `wire.transport.MOST_AGENTS`, by at most
    `MOST_PENDING` commands each.
    """

    def __init__(self) -> None:
        self._number = secrets.randbits(40) << _NUMBERS_OF_A_SERVER  # an agent may have obeyed an earlier server
        self._pending: dict[str, OrderedDict[int, Order]] = {}
        self._pace: dict[str, Pace] = {}

    def give(self, agent: str, orders: Iterable[Order], obeyed: Iterable[int]) -> tuple[Command, ...]:
        """What to send to an agent now.

        Args:
            agent: Its name.
            orders: New ones.
            obeyed: Numbers that it has given back.
        """
        pending = self._pending.setdefault(agent, OrderedDict())
        for number in obeyed:
            pending.pop(number, None)
        for order in orders:
            self._add(agent, pending, order)
        return tuple(Command(number, order) for number, order in pending.items())

    def are_pending(self, agent: str) -> bool:
        """Whether an agent has not given all of them back yet."""
        return bool(self._pending.get(agent))

    def _add(self, agent: str, pending: OrderedDict[int, Order], order: Order) -> None:
        if isinstance(order, Pace):
            if order == self._pace.get(agent):
                return
            self._pace[agent] = order
            for number in [n for n, known in pending.items() if isinstance(known, Pace)]:
                del pending[number]
        elif isinstance(order, HoldGate):
            for number in [n for n, known in pending.items() if isinstance(known, HoldGate)]:
                del pending[number]
        elif order in pending.values():
            return
        self._number += 1
        pending[self._number] = order
        if len(pending) > MOST_PENDING:
            pending.popitem(last=False)

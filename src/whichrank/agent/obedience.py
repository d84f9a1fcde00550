"""Obeys each command once, and says which were obeyed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from whichrank.model.commands import Command, Order

MOST_KNOWN: Final = 1024
"""Numbers of commands that are kept: far more than a server has on its way to one agent."""


class Obedience:
    """What an agent does with commands.

    Args:
        handlers: By the type of an order, what obeys it. There is one for each.
        failed: Called with an order that could not be obeyed and why; the agent goes on.
    """

    def __init__(
        self, handlers: Mapping[type, Callable[[Any], None]], failed: Callable[[Order, Exception], None]
    ) -> None:
        self._handlers = handlers
        self._failed = failed
        self._known: OrderedDict[int, None] = OrderedDict()
        self._unsaid: dict[int, None] = {}

    def obey(self, commands: Iterable[Command]) -> None:
        """Obey those that are new. One that has come before is only acknowledged again: that was not heard."""
        for command in commands:
            self._unsaid[command.number] = None
            if command.number in self._known:
                continue
            self._known[command.number] = None
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
            try:
                self._handlers[type(command.order)](command.order)
            except Exception as error:
                self._failed(command.order, error)

    def take_obeyed(self) -> tuple[int, ...]:
        """Numbers for the next batch. One that is lost with its batch is asked for again."""
        obeyed, self._unsaid = tuple(self._unsaid), {}
        return obeyed

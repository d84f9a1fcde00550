"""A command is sent until its agent has given it back, and obeyed once."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from whichrank.agent.agent import Agent
from whichrank.agent.obedience import Obedience
from whichrank.model.commands import Command, Order, Pace, ProbePaths, ReportAgain, TakeStacks
from whichrank.ring.folder import JobFolder
from whichrank.server.commands import MOST_PENDING, Commands
from whichrank.wire.inprocess import InProcessAnalyzerEnd


def orders_of(commands: tuple[Command, ...]) -> list[Order]:
    return [command.order for command in commands]


def test_it_is_sent_until_it_is_given_back() -> None:
    # GIVEN a command that was sent
    server = Commands()
    (first,) = server.give("a", [TakeStacks((1,))], ())
    # WHEN the agent has not given it back THEN it is sent again, once, beside a new one
    again, second = server.give("a", [TakeStacks((1,)), ProbePaths(("b:1",))], ())
    assert again == first
    # WHEN it has THEN only the other is
    assert server.give("a", [], (first.number,)) == (second,)
    assert server.give("a", [], (second.number, 12345)) == ()
    # AND it may be asked for anew, under another number
    (anew,) = server.give("a", [TakeStacks((1,))], ())
    assert anew.number not in (first.number, second.number)


def test_agents_have_commands_of_their_own() -> None:
    server = Commands()
    (of_a,) = server.give("a", [ReportAgain()], ())
    assert server.give("b", [], (of_a.number,)) == ()
    assert server.give("a", [], ()) == (of_a,)


def test_of_paces_only_the_latest_and_only_where_it_changes() -> None:
    server = Commands()
    # GIVEN that the first one is sent, whatever it says: the agent may have obeyed an earlier server
    assert orders_of(server.give("a", [Pace()], ())) == [Pace()]
    # WHEN it changes before it was given back THEN the latest alone is sent
    commands = server.give("a", [Pace(closely=True)], ())
    assert orders_of(commands) == [Pace(closely=True)]
    # AND the same is not sent again
    assert server.give("a", [Pace(closely=True)], [c.number for c in commands]) == ()


def test_an_agent_that_never_answers_costs_little() -> None:
    server = Commands()
    for rank in range(3 * MOST_PENDING):
        commands = server.give("a", [TakeStacks((rank,))], ())
    assert len(commands) == MOST_PENDING
    assert commands[-1].order == TakeStacks((3 * MOST_PENDING - 1,))


def test_it_is_obeyed_once_and_given_back_each_time() -> None:
    done: list[Any] = []
    agent = Obedience({TakeStacks: done.append, Pace: done.append}, lambda *_: pytest.fail("both can be obeyed"))
    stacks, pace = Command(7, TakeStacks((1,))), Command(8, Pace())
    # WHEN the same comes twice, since the answer was lost
    agent.obey((stacks,))
    assert agent.take_obeyed() == (7,)
    agent.obey((stacks, pace))
    # THEN it is obeyed once, and given back again
    assert agent.take_obeyed() == (7, 8)
    assert agent.take_obeyed() == ()
    assert done == [TakeStacks((1,)), Pace()]


def test_what_cannot_be_obeyed_is_said_and_the_rest_is_obeyed() -> None:
    # GIVEN an order on which the agent fails
    def fail(_: TakeStacks) -> None:
        raise OverflowError("too large")

    done: list[Any] = []
    failed: list[str] = []
    agent = Obedience({TakeStacks: fail, Pace: done.append}, lambda order, why: failed.append(f"{order}: {why}"))
    agent.obey((Command(7, TakeStacks((1,))), Command(8, Pace())))
    # THEN it is given back, so that it is not sent for ever
    assert failed == [f"{TakeStacks((1,))}: too large"]
    assert done == [Pace()]
    assert agent.take_obeyed() == (7, 8)


def test_an_agent_obeys_every_order(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN what a real agent is made with
    known: list[type] = []
    monkeypatch.setattr("whichrank.agent.agent.Obedience", lambda handlers, _: known.extend(handlers))
    end = InProcessAnalyzerEnd()
    agent = Agent(JobFolder.create("job", owner_pid=1, base=tmp_path), end.connect(), stay=False)
    agent.close()
    assert set(known) == set(get_args(Order))

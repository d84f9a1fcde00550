"""When the analyzer looks: at what was reported, and now and then without news."""

from __future__ import annotations

from typing import cast

import pytest
from loop_parts import BATCH, TICK_S, Agent, End, Snapshots
from msgspec.structs import replace

from whichrank.model.commands import Pace
from whichrank.server import loop
from whichrank.server.loop import A_STRANGER, OVERDUE_S, QUIET_TICK_S, AnalyzerLoop, Says
from whichrank.server.supervisor import AgentSupervisor
from whichrank.wire.zmq_transport import ZmqAnalyzerEnd


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as its only element."""
    now = [100.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    return now


def test_it_polls_when_something_was_reported_and_seldom_otherwise(clock: list[float]) -> None:
    # GIVEN a run that is stepped through ten times a second, and an agent that says twice in the first second
    end, polls = End(), Snapshots()
    running = AnalyzerLoop(
        cast(ZmqAnalyzerEnd, end), polls, cast(AgentSupervisor, Agent()), TICK_S, cast(Says, None), None
    )
    running.step()
    for tenth in range(1, 41):
        clock[0] = 100 + tenth / 10
        if tenth in (4, 5):
            end.waiting.append((BATCH, True))
        running.step()

    # THEN there is one look at once, one as soon as the first is old enough, and one a second after that
    assert polls.at == pytest.approx([100.0, 100.4, 100.7, 101.7, 102.7, 103.7])
    assert len(end.replies) == 2


def test_the_wait_ends_when_the_next_snapshot_is_due_or_the_agent_may_need_us(clock: list[float]) -> None:
    end, polls = End(), Snapshots()
    running = AnalyzerLoop(
        cast(ZmqAnalyzerEnd, end), polls, cast(AgentSupervisor, Agent()), TICK_S, cast(Says, None), None
    )
    running.step()
    assert running.wait_s() == pytest.approx(TICK_S)
    clock[0] += QUIET_TICK_S - 0.1
    assert running.wait_s() == pytest.approx(0.1)
    running.step()
    clock[0] += 0.1
    running.step()
    clock[0] += 0.1
    end.waiting.append((BATCH, True))
    running.step()
    assert running.wait_s() == pytest.approx(TICK_S - 0.1)


def test_that_messages_were_dropped_is_said_once(clock: list[float]) -> None:
    said: list[str] = []

    class Console:
        def say(self, sentence: str) -> None:
            said.append(sentence)

    end = End()
    running = AnalyzerLoop(
        cast(ZmqAnalyzerEnd, end), Snapshots(), cast(AgentSupervisor, Agent()), TICK_S, cast(Says, Console()), None
    )
    running.step()
    end.refusals.append("it is of another version")
    for _ in range(3):
        clock[0] += 0.1
        end.refused += 1
        end.dropped += 2
        running.step()
    assert said == ["a message was dropped: it is of another version", A_STRANGER]
    # and how many there were when all is over
    end.is_over = True
    running.drain()
    assert said[2:] == [
        "3 connections without the key of this job were refused in all",
        "6 messages were dropped in all",
    ]


def test_a_word_that_all_is_well_is_no_news_and_needs_no_answer(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN an agent that has said something, and then each second that all is well
    end, polls = End(), Snapshots()
    running = AnalyzerLoop(
        cast(ZmqAnalyzerEnd, end), polls, cast(AgentSupervisor, Agent()), TICK_S, cast(Says, None), None
    )
    monkeypatch.setattr(end, "agents", lambda: ["h:1"])
    word = replace(BATCH, sequence=0, is_well=True)
    end.waiting.append((BATCH, True))
    running.step()
    ticks = len(polls.at)
    for _ in range(4):
        clock[0] += 1.0
        end.waiting.append((word, False))
        running.step()
    # THEN the job is not looked at, until that is due or the agent is overdue
    assert len(end.replies) == 1
    assert len(polls.at) == ticks
    clock[0] += OVERDUE_S
    running.step()
    assert len(polls.at) == ticks + 1
    # AND the word is answered while a command is on its way
    polls.pace = Pace(closely=True)
    clock[0] += QUIET_TICK_S
    running.step()
    end.replies.clear()
    for obeyed in ((), (end.commands[-1].number,), ()):
        end.waiting.append((replace(word, obeyed=obeyed), False))
        running.step()
    assert [(reply.acknowledged, len(reply.commands)) for reply in end.replies] == [(1, 1), (1, 0)]


def test_batches_that_come_together_are_answered_once_but_for_the_first_of_an_agent(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN an agent that is heard for the first time, by its fifth batch, and by two more behind it
    end, polls = End(), Snapshots()
    running = AnalyzerLoop(
        cast(ZmqAnalyzerEnd, end), polls, cast(AgentSupervisor, Agent()), TICK_S, cast(Says, None), None
    )
    monkeypatch.setattr(polls, "orders", lambda _agent: [Pace(closely=True)])
    end.waiting += [(replace(BATCH, sequence=number), number == 5) for number in (5, 6, 7)]
    running.step()
    # THEN the first one is answered by itself: what was sent before it is to be sent again, but none of these three
    assert [(reply.acknowledged, reply.resend) for reply in end.replies] == [(5, True), (7, False)]
    # WHEN the first of three others says that a command was obeyed THEN the one answer does not give it again
    number = end.commands[-1].number
    end.replies.clear()
    end.waiting += [(replace(BATCH, sequence=8, obeyed=(number,)), False)]
    end.waiting += [(replace(BATCH, sequence=number), False) for number in (9, 10)]
    running.step()
    assert [(reply.acknowledged, reply.commands) for reply in end.replies] == [(10, ())]


def test_a_word_of_an_agent_that_is_not_known_asks_it_to_report_again(clock: list[float]) -> None:
    end = End()
    running = AnalyzerLoop(
        cast(ZmqAnalyzerEnd, end), Snapshots(), cast(AgentSupervisor, Agent()), TICK_S, cast(Says, None), None
    )
    end.waiting.append((replace(BATCH, sequence=0, is_well=True), True))
    running.step()
    assert [(reply.acknowledged, reply.resend) for reply in end.replies] == [(0, True)]


def test_another_pace_is_said_to_all_agents_at_once(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN two agents that have been answered
    end, polls = End(), Snapshots()
    monkeypatch.setattr(end, "agents", lambda: ["h:1", "h:2", "never heard"])
    running = AnalyzerLoop(
        cast(ZmqAnalyzerEnd, end), polls, cast(AgentSupervisor, Agent()), TICK_S, cast(Says, None), None
    )
    end.waiting += [(BATCH, True), (replace(BATCH, agent="h:2", sequence=7), True)]
    running.step()
    end.replies.clear()
    # WHEN something is suspected THEN both hear it with their last answer, and not again
    polls.pace = Pace(closely=True)
    for _ in range(3):
        clock[0] += 5.0
        running.step()
    assert [reply.acknowledged for reply in end.replies] == [1, 7]
    assert all(reply.commands[0].order == Pace(closely=True) for reply in end.replies)


def test_ticks_that_take_long_come_seldom_while_nothing_is_suspected(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a job of which a tick takes a quarter of a second
    end, polls = End(), Snapshots()
    used_s = iter(range(1_000_000))
    monkeypatch.setattr(loop.time, "thread_time", lambda: next(used_s) / 4)
    running = AnalyzerLoop(
        cast(ZmqAnalyzerEnd, end), polls, cast(AgentSupervisor, Agent()), TICK_S, cast(Says, None), None
    )

    def ticks_in(seconds: float) -> int:
        before = len(polls.at)
        for _ in range(round(seconds * 10)):
            clock[0] += 0.1
            end.waiting.append((replace(BATCH, sequence=len(end.replies) + 2), False))
            running.step()
        return len(polls.at) - before

    running.step()
    # WHEN there is news all the time THEN ticks take a fifth of a core, and more once something is suspected
    assert 7 <= ticks_in(10.0) <= 9
    polls.pace = Pace(closely=True)
    ticks_in(2.0)
    assert ticks_in(10.0) >= 30

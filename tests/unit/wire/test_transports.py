"""Every transport keeps the same promises; ZeroMQ also across a lost and a new analyzer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from whichrank.errors import UsageError, WhichrankError
from whichrank.model.commands import Command, Pace, Reply, TakeStacks
from whichrank.model.telemetry import Batch
from whichrank.wire import transport
from whichrank.wire.address import full_address, is_from_here_only
from whichrank.wire.envelope import Farewell, encode
from whichrank.wire.inprocess import InProcessAnalyzerEnd
from whichrank.wire.transport import AgentEnd, AnalyzerEnd
from whichrank.wire.zmq_transport import ZmqAgentEnd, ZmqAnalyzerEnd

PATIENCE_S = 60.0


def batch(sequence: int, agent: str = "host:1") -> Batch:
    return Batch(1, "job", agent, "host", sequence, 0, 0, -1, 1)


Pair = tuple[AnalyzerEnd, AgentEnd]


@pytest.fixture(params=["inprocess", "ipc", "tcp", "tcp with a key"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    analyzer: AnalyzerEnd
    agent: AgentEnd
    if request.param == "inprocess":
        analyzer = InProcessAnalyzerEnd()
        agent = analyzer.connect()
    else:
        address = f"ipc://{tmp_path}/s" if request.param == "ipc" else "127.0.0.1:0"
        key = "ab" * 32 if request.param == "tcp with a key" else ""
        analyzer = ZmqAnalyzerEnd([address], key)
        agent = ZmqAgentEnd(analyzer.addresses[0], key)
    yield analyzer, agent
    agent.close()
    analyzer.close()


def send(agent: AgentEnd, message: Batch) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not agent.send(message):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def arrivals(analyzer: AnalyzerEnd, count: int) -> list[tuple[int, bool]]:
    found: list[tuple[int, bool]] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline_s
        found += [(arrival.batch.sequence, arrival.is_new_agent) for arrival in analyzer.receive(0.1)]
    return found


def heard(agent: AgentEnd) -> Reply:
    poller = zmq.Poller()
    poller.register(agent.pollable(), zmq.POLLIN)
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline_s
        poller.poll(100)
        if replies := agent.receive():
            return replies[-1]


def test_batches_and_answers(ends: Pair) -> None:
    analyzer, agent = ends
    send(agent, batch(1))
    assert arrivals(analyzer, 1) == [(1, True)]
    reply = Reply(4, 1, commands=(Command(7, TakeStacks((3,))), Command(8, Pace(closely=True))))
    analyzer.reply("host:1", reply)
    assert heard(agent) == reply
    send(agent, batch(2))
    assert arrivals(analyzer, 1) == [(2, False)]


def test_nothing_is_taken_twice_or_out_of_turn(ends: Pair) -> None:
    analyzer, agent = ends
    # GIVEN two batches that came, WHEN the second is sent again, and the fourth before the third
    for sequence in (1, 2):
        send(agent, batch(sequence))
    arrivals(analyzer, 2)
    analyzer.reply("host:1", Reply(4, 2, commands=(Command(7, TakeStacks((5,))),)))
    heard(agent)
    for sequence in (2, 4, 3):
        send(agent, batch(sequence))
    # THEN only the third is taken, and the agent hears the last answer again, with the command that it may have missed
    assert arrivals(analyzer, 1) == [(3, False)]
    assert heard(agent) == Reply(4, 2, commands=(Command(7, TakeStacks((5,))),))


def test_agents_beyond_the_most_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MOST_AGENTS", 2)
    seen = transport.Received()
    assert [seen.arrival(batch(1, f"host:{number}")) is not None for number in range(3)] == [True, True, False]
    assert seen.arrival(batch(2, "host:0")) is not None
    word = Batch(1, "job", "host:0", "host", 0, 0, 0, -1, 1, is_well=True)
    assert seen.arrival(word) is not None
    assert seen.arrival(msgspec.structs.replace(word, agent="host:9")) is None


def test_farewell(ends: Pair) -> None:
    analyzer, agent = ends
    send(agent, batch(1))
    arrivals(analyzer, 1)
    assert analyzer.agents() == ["host:1"]
    agent.farewell("host:1")
    deadline_s = time.monotonic() + PATIENCE_S
    while analyzer.agents() and time.monotonic() < deadline_s:
        analyzer.receive(0.1)
    assert analyzer.agents() == []


def test_answer_to_nobody_is_no_error(ends: Pair) -> None:
    ends[0].reply("nobody:1", Reply(1, 1))


def test_agent_without_analyzer_is_reported_so_and_connects_later(tmp_path: Path) -> None:
    # GIVEN nobody who listens
    agent = ZmqAgentEnd(f"ipc://{tmp_path}/s")
    assert not agent.send(batch(1))
    # WHEN an analyzer comes, THEN the agent reaches it; and again after that one has gone and another has come
    for _ in range(2):
        analyzer = ZmqAnalyzerEnd([f"ipc://{tmp_path}/s"])
        send(agent, batch(7))
        assert arrivals(analyzer, 1) == [(7, True)]
        analyzer.close()
        deadline_s = time.monotonic() + PATIENCE_S
        while agent.send(batch(8)):  # the end of the connection is seen within moments
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    agent.close()


def test_send_never_blocks(tmp_path: Path) -> None:
    # GIVEN an analyzer that reads nothing
    analyzer = ZmqAnalyzerEnd([f"ipc://{tmp_path}/s"])
    agent = ZmqAgentEnd(analyzer.addresses[0])
    start_s = time.monotonic()
    for sequence in range(2000):
        agent.send(Batch(1, "j", "a:1", "h", sequence, 0, 0, -1, 1, records=bytes(80 * 100)))
    assert time.monotonic() - start_s < 5.0
    agent.close()
    analyzer.close()


def test_foreign_messages_are_passed_over_and_it_is_known_why(tmp_path: Path) -> None:
    # GIVEN what is no message of ours, and one of a newer version
    analyzer = ZmqAnalyzerEnd([f"ipc://{tmp_path}/s"])
    stranger = zmq.Context.instance().socket(zmq.DEALER)
    stranger.connect(analyzer.addresses[0])
    stranger.send(b"hello")
    stranger.send_multipart([b"", b"x", os.urandom(100)])
    message = encode(Farewell("a:1"))
    stranger.send(message[:4] + (int.from_bytes(message[4:5], "little") + 1).to_bytes(1, "little") + message[5:])
    deadline_s = time.monotonic() + PATIENCE_S
    # WHEN they are received THEN each reason is kept once
    while len(analyzer.refusals) < 2 and time.monotonic() < deadline_s:
        assert analyzer.receive(0.1) == []
    assert analyzer.refusals[0] == "the message is not from whichrank"
    assert "newer than" in analyzer.refusals[1]
    assert "one whichrank on all machines" in analyzer.refusals[1]
    stranger.close(linger=0)
    analyzer.close()


def test_address_in_use_is_one_sentence() -> None:
    first = ZmqAnalyzerEnd(["127.0.0.1:0"])
    with pytest.raises(WhichrankError, match="cannot listen") as refusal:
        ZmqAnalyzerEnd([first.addresses[0]])
    assert refusal.value.where == first.addresses[0]
    assert "end the process that uses it" in refusal.value.mend
    first.close()


@pytest.mark.parametrize("address", ["no-such-host.invalid:5555", "192.0.2.7:5555"])
def test_an_address_that_this_machine_has_not_is_said_to_be_none_of_it(address: str) -> None:
    with pytest.raises(WhichrankError, match="cannot listen") as refusal:
        ZmqAnalyzerEnd([address])
    assert "one of this machine, such as 0.0.0.0:PORT" in refusal.value.mend


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("5555", "tcp://127.0.0.1:5555"),
        (":5555", "tcp://127.0.0.1:5555"),
        ("node7", "tcp://node7:29480"),
        ("node7:1", "tcp://node7:1"),
        ("tcp://0.0.0.0:5555", "tcp://0.0.0.0:5555"),
        ("[::1]:5555", "tcp://[::1]:5555"),
        ("[::1]", "tcp://[::1]:29480"),
        ("ipc:///run/x", "ipc:///run/x"),
    ],
)
def test_address(text: str, address: str) -> None:
    assert full_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "http://x:1", "host:port", "host:70000", "ipc://", "::1", "tcp://", "a/b:1", "h:\u0663"]
)
def test_address_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        full_address(text)


def test_an_address_is_said_as_agents_have_to_write_it() -> None:
    # GIVEN an analyzer that listens on every interface, and one that a host name has led to the loopback
    for asked, starts, here_only in (("0.0.0.0:0", "tcp://0.0.0.0:", False), ("localhost:0", "tcp://", True)):
        end = ZmqAnalyzerEnd([asked])
        # THEN the address is one that people know, and it is known whether others reach it
        assert "ffff" not in end.addresses[0]
        assert end.addresses[0].startswith(starts)
        assert is_from_here_only(end.addresses[0]) is here_only
        end.close()


def test_a_word_that_all_is_well_has_no_number(ends: Pair) -> None:
    # GIVEN an agent that says so before and between what it reports
    analyzer, agent = ends
    word = Batch(1, "job", "host:1", "host", 0, 0, 0, -1, 1, is_well=True)
    for message in (word, batch(1), word, word, batch(2), word):
        send(agent, message)
    # THEN each comes, and only what was reported makes it known
    assert arrivals(analyzer, 6) == [(0, True), (1, True), (0, False), (0, False), (2, False), (0, False)]


STALLED = """
import sys
from whichrank.wire.zmq_transport import ZmqAnalyzerEnd
end = ZmqAnalyzerEnd([sys.argv[1]])
print(end.addresses[0], flush=True)
sys.stdin.readline()  # nobody reads meanwhile: messages of agents wait
print(any(end.receive(1.0) for _ in range(60)), flush=True)
sys.stdin.readline()
"""
FLOODS = """
import sys, time
from whichrank.model.telemetry import Batch
from whichrank.wire.zmq_transport import ZmqAgentEnd
agent = ZmqAgentEnd(sys.argv[1])
for sequence in range(1, 200):
    while not agent.send(Batch(1, "j", "a:1", "h", sequence, 0, 0, -1, 1, records=bytes(80 * 100))) and sequence < 5:
        time.sleep(0.01)
print("sent", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("listens", ["ipc://{folder}/s", "127.0.0.1:0"])
def test_agents_that_are_killed_while_nobody_reads_do_no_harm(tmp_path: Path, listens: str) -> None:
    # GIVEN an analyzer that does not read for longer than ZeroMQ's own heartbeat would take, and agents that are
    # killed with messages under way
    def start(program: str, argument: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, argument]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with start(STALLED, listens.format(folder=tmp_path)) as analyzer:
        assert analyzer.stdin is not None
        assert analyzer.stdout is not None
        address = analyzer.stdout.readline().strip()
        for _ in range(3):
            with start(FLOODS, address) as agent:
                assert agent.stdout is not None
                assert agent.stdout.readline() == "sent\n"
                agent.kill()
        time.sleep(2.5)
        # THEN it reads on
        analyzer.stdin.write("read\n")
        analyzer.stdin.flush()
        assert analyzer.stdout.readline() == "True\n"
        analyzer.stdin.close()
        assert analyzer.wait(30) == 0

"""An analyzer over TCP hears those who have the key of the job, and counts the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import zmq
from rank_process import eventually

from whichrank.model.telemetry import Batch
from whichrank.wire.envelope import MOST_BYTES, encode
from whichrank.wire.keys import Pair, agent_pair, analyzer_pair, is_key, new_key
from whichrank.wire.zmq_transport import ZmqAgentEnd, ZmqAnalyzerEnd

KEY, OTHER_KEY = "ab" * 32, "cd" * 32


def batch(agent: str, sequence: int = 1) -> Batch:
    return Batch(1, "job", agent, "host", sequence, 0, 0, -1, 1)


@pytest.fixture
def analyzer() -> Iterator[ZmqAnalyzerEnd]:
    end = ZmqAnalyzerEnd(["127.0.0.1:0"], KEY)
    yield end
    end.close()


def heard(analyzer: ZmqAnalyzerEnd, agents: set[str]) -> list[str]:
    """Agents whose batches come until these have been heard."""
    found: list[str] = []

    def are_heard() -> bool:
        found.extend(arrival.batch.agent for arrival in analyzer.receive(0.05))
        return agents <= set(found)

    eventually(are_heard)
    return found


def curve_client(analyzer: ZmqAnalyzerEnd, pair: Pair, server_key: bytes) -> zmq.Socket[bytes]:
    """Somebody with keys of their own."""
    client = zmq.Context.instance().socket(zmq.DEALER)
    client.linger = 0
    client.curve_publickey, client.curve_secretkey = pair
    client.curve_serverkey = server_key
    client.connect(analyzer.addresses[0])
    return client


def test_a_key_is_another_each_time_and_written_as_64_digits() -> None:
    keys = {new_key() for _ in range(20)}
    assert len(keys) == 20
    assert all(map(is_key, keys))
    assert not any(map(is_key, ["", "ab" * 31, "ab" * 33, "xy" * 32, " " + "ab" * 32, "ab" * 32 + "\n"]))


def test_both_pairs_come_from_the_key_alone() -> None:
    pairs = {agent_pair(KEY), analyzer_pair(KEY), agent_pair(OTHER_KEY), analyzer_pair(OTHER_KEY)}
    assert len(pairs) == 4
    assert agent_pair(KEY) == agent_pair(KEY.upper())
    assert KEY not in repr(pairs)


@pytest.mark.parametrize("key", ["", OTHER_KEY])
def test_who_has_no_key_or_another_is_not_heard(analyzer: ZmqAnalyzerEnd, key: str) -> None:
    # GIVEN somebody without the key who sends first, and an agent of the job
    stranger, agent = ZmqAgentEnd(analyzer.addresses[0], key), ZmqAgentEnd(analyzer.addresses[0], KEY)
    eventually(lambda: [analyzer.receive(0.05), analyzer.refused > 0][1])
    assert not stranger.send(batch("stranger:1")), "no connection was made"
    eventually(lambda: agent.send(batch("ours:1")))
    # THEN only the agent is heard
    assert heard(analyzer, {"ours:1"}) == ["ours:1"]
    stranger.close()
    agent.close()


def test_who_knows_only_the_public_key_of_the_analyzer_is_not_heard(analyzer: ZmqAnalyzerEnd) -> None:
    # GIVEN the analyzer's public key in the hands of somebody with keys of their own
    public, secret = zmq.curve_keypair()
    client = curve_client(analyzer, Pair(public, secret), analyzer_pair(KEY).public)
    with contextlib.suppress(zmq.Again):  # refused before it could send
        client.send(encode(batch("stranger:1")), zmq.DONTWAIT)
    # THEN they are refused by the gate
    eventually(lambda: [analyzer.receive(0.05), analyzer.refused > 0][1])
    agent = ZmqAgentEnd(analyzer.addresses[0], KEY)
    eventually(lambda: agent.send(batch("ours:1")))
    assert heard(analyzer, {"ours:1"}) == ["ours:1"]
    client.close()
    agent.close()


def test_an_agent_tells_an_analyzer_without_the_key_nothing() -> None:
    for key in ("", OTHER_KEY):
        false = ZmqAnalyzerEnd(["127.0.0.1:0"], key)
        agent = ZmqAgentEnd(false.addresses[0], KEY)
        for _ in range(10):
            assert not agent.send(batch("ours:1"))
            assert false.receive(0.05) == []
        agent.close()
        false.close()


def test_who_sends_too_much_is_cut_off_and_the_others_are_heard(analyzer: ZmqAnalyzerEnd) -> None:
    # GIVEN one who has the key and sends more than a message may have
    client = curve_client(analyzer, agent_pair(KEY), analyzer_pair(KEY).public)
    client.send(bytes(MOST_BYTES + 1))
    agent = ZmqAgentEnd(analyzer.addresses[0], KEY)
    eventually(lambda: agent.send(batch("ours:1")))
    assert heard(analyzer, {"ours:1"}) == ["ours:1"]
    assert analyzer.dropped == 0, "it did not even come in"
    client.close()
    agent.close()


def test_what_is_not_understood_is_counted(analyzer: ZmqAnalyzerEnd) -> None:
    client = curve_client(analyzer, agent_pair(KEY), analyzer_pair(KEY).public)
    for _ in range(5):
        client.send(b"rubbish")
    eventually(lambda: [analyzer.receive(0.05), analyzer.dropped == 5][1])
    assert analyzer.refusals == ["the message is not from whichrank"]
    client.close()

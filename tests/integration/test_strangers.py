"""Attacks on the port of a real run, by those who have no key and by one who has it: nobody is named for it, the ranks
that are at fault are, and memory stays.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from rank_process import eventually
from tests.integration.side_by_side import Run

from whichrank.model.telemetry import RANK_ROW, VERSION, Batch, ProcessState
from whichrank.server.address import Endpoint, checked_endpoint
from whichrank.wire.envelope import encode
from whichrank.wire.zmq_transport import show_key

pytestmark = pytest.mark.integration

REFUSED = "a connection without the key of this job was refused"
TOO_MUCH = 60_000_000
FORGED_S = 4.0
"""Longer than hard evidence takes to become an alert."""


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Run]:
    """A job of two ranks that serves."""
    with Run(tmp_path / "ours", (0, 2), 2, 1, "--serve", "127.0.0.1:0") as run:
        eventually(lambda: "analyzes at" in run.said())
        yield run


def endpoint_of(run: Run) -> Endpoint:
    return checked_endpoint("--join", run.address())


def connected(endpoint: Endpoint) -> zmq.Socket[bytes]:
    """Somebody who sends what they like."""
    stranger = zmq.Context.instance().socket(zmq.DEALER)
    stranger.linger, stranger.sndhwm = 0, 64
    if endpoint.key:
        show_key(stranger, endpoint.key)
    stranger.connect(endpoint.address)
    return stranger


def push(attacker: zmq.Socket[bytes], data: bytes) -> None:
    """Send it if that can be."""
    with suppress(zmq.Again):
        attacker.send(data, zmq.NOBLOCK)


def flood(address: str) -> socket.socket:
    """A connection that says it is ZeroMQ with CURVE, and then sends 60 MB before any key was asked for."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    end = socket.create_connection((host, int(port)))
    end.settimeout(1.0)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
    with suppress(OSError):  # we may be cut off in the middle of it
        end.sendall(greeting + b"\x06" + TOO_MUCH.to_bytes(8, "big") + bytes(TOO_MUCH))
    return end


def forged(agent: str, sequence: int) -> bytes:
    """Rank 1 was killed, says whoever calls itself this agent."""
    rows = np.zeros(2, RANK_ROW)
    rows["rank"], rows["world_size"], rows["pid"] = [0, 1], 2, [1, 2]
    rows["state"] = ProcessState.SLEEPING, ProcessState.GONE
    rows["exit_status"][1], rows["ended_ns"][1] = 9, 1
    return encode(
        Batch(VERSION, "job", agent, "host", sequence, time.monotonic_ns(), time.time_ns(), -1, 2, ranks=rows.tobytes())
    )


def memory(run: Run) -> int:
    """Resident bytes of the process that analyzes, at most so far."""
    status = Path(f"/proc/{run.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def agent_of(run: Run) -> str:
    """The name of the agent of a run on this host, as one guesses it: the host and the pid."""
    children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    (pid,) = [pid for pid in children if b"whichrank\0agent" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return f"{socket.gethostname()}:{pid}"


def test_a_forged_verdict_is_not_heard(ours: Run) -> None:
    with (
        connected(Endpoint(endpoint_of(ours).address, "")) as stranger,
        connected(Endpoint(endpoint_of(ours).address, "ab" * 32)) as other,
    ):
        for sequence in range(1, 21):
            for attacker in (stranger, other):
                push(attacker, forged("host:1", sequence))
            time.sleep(FORGED_S / 20)
        eventually(lambda: REFUSED in ours.said())
    assert ours.said().count(REFUSED) == 1
    assert not ours.alerts()
    ours.end()
    assert re.search(r"\d+ connections without the key of this job were refused in all", ours.said())


def test_an_agent_cannot_be_silenced_by_its_name(ours: Run) -> None:
    # GIVEN somebody without the key who calls themselves like the agent of the run, with all sequences that may come
    agent = agent_of(ours)
    with connected(Endpoint(endpoint_of(ours).address, "")) as stranger:
        for sequence in range(1, 60):
            push(stranger, forged(agent, sequence))
        eventually(lambda: REFUSED in ours.said())
        # WHEN a rank is stopped THEN that one is named
        ours.stop(0)
        eventually(lambda: bool(ours.alerts()))
    assert {culprit.rank for word in ours.alerts() for culprit in word.culprits} == {0}


@pytest.mark.parametrize("has_key", [False, True])
def test_memory_cannot_be_filled(ours: Run, has_key: bool) -> None:
    # GIVEN twenty connections, each with a message of 60 MB, of one who has the key or not
    endpoint = endpoint_of(ours)
    before = memory(ours)
    if has_key:
        attackers: list[Any] = [connected(endpoint) for _ in range(20)]
        for attacker in attackers:
            attacker.send(bytes(TOO_MUCH), zmq.NOBLOCK, copy=False)
    else:
        attackers = [flood(endpoint.address) for _ in range(20)]
    # WHEN a rank is stopped THEN it is named all the same
    time.sleep(2.0)
    ours.stop(1)
    eventually(lambda: bool(ours.alerts()))
    assert {culprit.rank for word in ours.alerts() for culprit in word.culprits} == {1}
    assert memory(ours) - before < 64 << 20
    for attacker in attackers:
        attacker.close()


def test_a_node_with_another_key_is_told_so_and_its_job_goes_on(ours: Run, tmp_path: Path) -> None:
    address = endpoint_of(ours).address
    with Run(tmp_path / "theirs", (2, 2), 4, 2, "--join", address, WHICHRANK_KEY="cd" * 32) as theirs:
        eventually(lambda: "has another key than this one; still trying" in theirs.said())
        assert REFUSED in ours.said()
        assert theirs.end() == ours.end() == 5
    assert "watched 2 ranks; no alert" in ours.said()


def test_no_key_is_shown_to_whoever_reads_a_log_or_a_list_of_processes(ours: Run) -> None:
    key = endpoint_of(ours).key
    assert (ours.folder / "out" / "join").stat().st_mode & 0o777 == 0o600
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(key.encode() in line for line in lines)
    ours.end()
    assert not (ours.folder / "out" / "join").exists()
    written = [path for path in (ours.folder / "out").iterdir() if path.is_file()]
    assert written
    assert not any(key.encode() in path.read_bytes() for path in [*written, ours.folder / "said"])

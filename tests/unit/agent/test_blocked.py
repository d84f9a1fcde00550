"""For what other process a thread waits, asked of the kernel about real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rank_process import eventually

from whichrank.agent.blocked import Family, source_of
from whichrank.agent.processes import read_process
from whichrank.model.telemetry import ProcessState, Source, SourceKind

HEAD = "import os, socket, subprocess, sys, time, multiprocessing as mp; say = lambda *a: print(*a, flush=True);"


@contextmanager
def rank(code: str, *, stdin: int | None = None, pass_fds: tuple[int, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """A process that is a rank to `Family`, at work on `code` once it has said a line."""
    command = [sys.executable, "-c", HEAD + code]
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True, pass_fds=pass_fds) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def source(of: dict[int, int], pid: int, kind: SourceKind) -> Source:
    """What the main thread of a process waits for, once it is of this kind."""
    found: list[Source | None] = []

    def snapshot() -> bool:
        found.append(source_of(pid, pid, Family(of)))
        return found[-1] is not None and found[-1].kind is kind

    eventually(snapshot, 20.0)
    assert found[-1] is not None
    return found[-1]


@pytest.mark.parametrize(
    "code",
    [
        "q = mp.get_context('fork').Queue(); p = mp.get_context('fork').Process(target=time.sleep, args=(60,));"
        "p.start(); say(); q.get(timeout=60)",
        "p = subprocess.Popen(['sleep', '60'], stdout=subprocess.PIPE); say(); p.stdout.read()",
        "p = subprocess.Popen(['sleep', '60']); say(); p.wait()",
    ],
)
def test_its_own_child(code: str) -> None:
    with rank(code) as one:
        found = source({one.pid: 0}, one.pid, SourceKind.CHILD)
        assert len(found.pids) == 1
        os.kill(found.pids[0], 9)


def test_another_rank_by_a_pipe() -> None:
    read_end, write_end = os.pipe()
    # GIVEN a rank that reads from a pipe which only another rank can write
    with (
        rank("say(); os.read(0, 1)", stdin=read_end) as reader,
        rank("say(); time.sleep(60)", pass_fds=(write_end,)) as writer,
    ):
        os.close(write_end)
        os.close(read_end)
        found = source({reader.pid: 3, writer.pid: 5}, reader.pid, SourceKind.RANK)
        assert (found.ranks, found.pids) == ([5], [writer.pid])


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
@pytest.mark.parametrize("timeout", ["None", "60"])
def test_another_rank_by_a_socket(family: socket.AddressFamily, timeout: str) -> None:
    if family == socket.AF_UNIX:
        one, other = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            one = socket.create_connection(server.getsockname())
            other, _ = server.accept()
    receives = f"s = socket.socket(fileno={one.fileno()}); s.settimeout({timeout}); say(); s.recv(1)"
    with (
        rank(receives, pass_fds=(one.fileno(),)) as reader,
        rank("say(); time.sleep(60)", pass_fds=(other.fileno(),)) as writer,
    ):
        one.close()
        other.close()
        found = source({reader.pid: 0, writer.pid: 1}, reader.pid, SourceKind.RANK)
        assert found.ranks == [1]


def test_a_service_that_several_are_connected_to() -> None:
    # GIVEN a store: the process that answers is not the one whose value is waited for
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"s = socket.create_connection(('127.0.0.1', {port})); say(); s.recv(1)"
        with rank(code) as one, rank(code) as other:
            (first, _), (second, _) = server.accept(), server.accept()
            with first, second:
                found = source({one.pid: 0, other.pid: 1, os.getpid(): 2}, one.pid, SourceKind.JOB)
                assert found.ranks == [2]


def test_somebody_who_is_no_process_of_the_job() -> None:
    # GIVEN a server that has left the tree of the job's processes
    code = "if os.fork(): os._exit(0)\nos.setsid(); s = socket.create_server(('127.0.0.1', 0)); "
    code += "say(s.getsockname()[1], os.getpid()); c, _ = s.accept(); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", HEAD + "\n" + code], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port, pid = map(int, server.stdout.readline().split())
        try:
            with rank(f"s = socket.create_connection(('127.0.0.1', {port})); say(); s.recv(1)") as one:
                found = source({one.pid: 0}, one.pid, SourceKind.ELSEWHERE)
                assert found.address == f"127.0.0.1:{port}"
        finally:
            os.kill(pid, 9)


def test_a_poll_that_was_interrupted() -> None:
    # GIVEN a rank that polls with a timeout, and was stopped and continued meanwhile, as py-spy does it
    with rank("p = subprocess.Popen(['sleep', '60'], stdout=subprocess.PIPE);"
              "import select; q = select.poll(); q.register(p.stdout); say(); q.poll(60000)") as one:  # fmt: skip
        found = source({one.pid: 0}, one.pid, SourceKind.CHILD)
        os.kill(one.pid, signal.SIGSTOP)
        eventually(lambda: read_process(one.pid).state == ProcessState.STOPPED)
        os.kill(one.pid, signal.SIGCONT)
        assert source({one.pid: 0}, one.pid, SourceKind.CHILD) == found
        os.kill(found.pids[0], 9)


@pytest.mark.parametrize("code", ["say(); time.sleep(60)", "say(); [0 for _ in iter(int, 1)]"])
def test_one_that_waits_for_nobody(code: str) -> None:
    with rank(code) as one:
        assert source_of(one.pid, one.pid, Family({one.pid: 0})) is None


def test_a_thread_that_is_gone() -> None:
    assert source_of(os.getpid(), 1 << 22, Family({})) is None

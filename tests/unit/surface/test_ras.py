"""Asking RAS. NCCL needs a GPU, so a server of a few lines stands for it and says what it would."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "intake"))
from test_ras_text import BEHIND, text_of

from whichrank.errors import FormatError, IncompleteDataError, UsageError
from whichrank.surface.ask_ras import ask, place_of, polls
from whichrank.surface.cli.ras import command


def status(counts: dict[int, int], missing: dict[int, bool] | None = None) -> bytes:
    ranks = [
        {"rank": r, "host": "10.0.0.1", "pid": 100 + r, "cuda_dev": r, "collective_counts": {"AllReduce": n}}
        for r, n in counts.items()
    ]
    gone = [{"rank": r, "host": "h", "status": {"considered_dead": dead}} for r, dead in (missing or {}).items()]
    group = {"hash": "0x1", "size": len(counts) + len(gone), "ranks": ranks, "missing_ranks": gone}
    return json.dumps({"nccl_version": "2.29.2", "communicators_count": 1, "communicators": [group]}).encode()


@contextmanager
def server(*answers: bytes) -> Iterator[str]:
    """Answers one connection after the other; the last answer stays."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        asked: list[bytes] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    asked.append(connection.recv(1024))
                    connection.sendall(b"OK\n" + answers[min(len(asked), len(answers)) - 1])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert asked[0] == b"SET FORMAT json\nSTATUS\n"


def test_who_stays_behind_is_named() -> None:
    with server(status({0: 40, 1: 40, 2: 37, 3: 40})) as place:
        result = CliRunner().invoke(command, [place, "--every", "0.01", "--json"], standalone_mode=False)
    said = json.loads(result.output)
    assert [c["rank"] for c in said["incidents"][0]["culprits"]] == [2]
    assert (said["behind"], result.return_value) == ({"2": 3}, 3)


def test_a_job_that_goes_on_is_healthy() -> None:
    with server(status({0: 40, 1: 38}), status({0: 50, 1: 49})) as place:
        result = CliRunner().invoke(command, [place, "--every", "0.01"], standalone_mode=False)
    assert result.output == "1 of 2 ranks have launched less than others, and the job goes on.\n"
    assert result.return_value == 0


def test_ranks_that_do_not_answer_are_reported() -> None:
    with server(status({0: 4, 1: 4}, {2: False})) as place:
        result = CliRunner().invoke(command, [place, "--every", "0.01"], standalone_mode=False)
    assert "Ranks that do not answer: 2" in result.output


def test_an_older_one_is_asked_for_its_text() -> None:
    with server(b"ERROR: unknown command\n", text_of(BEHIND), b"ERROR: unknown command\n", text_of(BEHIND)) as place:
        result = CliRunner().invoke(command, [place, "--every", "0.01", "--json"], standalone_mode=False)
    said = json.loads(result.output)
    assert ([c["rank"] for c in said["incidents"][0]["culprits"]], said["behind"]) == ([5], {"5": 2})


def test_what_is_no_ras_is_said() -> None:
    with server(b"220 mail ready\n") as place, pytest.raises(FormatError, match="is not NCCL's RAS"):
        list(polls(place_of(place), 2, 0.01, 5.0))
    with pytest.raises(IncompleteDataError, match=r"does not answer at 127\.0\.0\.1:1"):
        ask(("127.0.0.1", 1), 1.0)


def test_places() -> None:
    assert place_of("node7") == ("node7", 28028)
    assert place_of("[::1]:9") == ("::1", 9)
    for text in (":1", "a:", "a:x", "a:70000"):
        with pytest.raises(UsageError):
            place_of(text)

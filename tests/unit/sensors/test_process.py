"""Who this process is, and what is noted when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType

import pytest

from whichrank.sensors.process import RANK_PID, exception_hook, exception_note, identity_of

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "TORCHELASTIC_RESTART_COUNT": "2",
}


def test_identity_comes_from_torchruns_variables() -> None:
    identity = identity_of(TORCHRUN | {"WHICHRANK_JOB": "j"}, pid=10)
    assert (identity.rank, identity.local_rank, identity.world_size, identity.local_world_size) == (5, 1, 8, 4)
    assert (identity.restart_count, identity.job) == (2, b"j")


def test_identity_is_unknown_without_them() -> None:
    identity = identity_of({}, pid=10)
    assert (identity.rank, identity.local_rank, identity.world_size, identity.restart_count) == (-1, -1, -1, 0)


def test_helper_of_a_rank_is_not_the_rank() -> None:
    assert identity_of(TORCHRUN | {RANK_PID: "10"}, pid=10).rank == 5
    helper = identity_of(TORCHRUN | {RANK_PID: "9"}, pid=10)
    assert (helper.rank, helper.local_rank, helper.world_size) == (-1, -1, 8)


@pytest.mark.parametrize("text", ["", "abc", "-3", "1.5"])
def test_nonsense_is_unknown(text: str) -> None:
    assert identity_of({"RANK": text}, pid=10).rank == -1


def raised(path: str, message: str) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    try:
        exec(compile(f"raise ValueError({message!r})", path, "exec"))
    except ValueError as error:
        return type(error), error, error.__traceback__
    raise AssertionError


def test_exception_is_one_line_with_its_place() -> None:
    assert exception_note(*raised("train.py", "\nloss is nan\nand more")) == b"ValueError: loss is nan at train.py:1"


def test_exception_without_trace_or_text() -> None:
    assert exception_note(KeyError, KeyError(), None) == b"KeyError: "


def test_long_exception_keeps_its_start_and_the_end_of_its_path() -> None:
    note = exception_note(*raised("/very/long" * 30 + "/train.py", "x" * 500))
    assert len(note) <= 191
    assert note.startswith(b"ValueError: xxx")
    assert b" at .../" in note
    assert note.endswith(b"/train.py:1")


def test_only_the_interpreters_own_call_of_the_hook_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a program that calls the hook to print an exception WHEN it goes on THEN nothing is written down
    noted: list[bytes] = []
    shown: list[BaseException] = []
    hook = exception_hook(noted.append, lambda kind, value, trace: shown.append(value))
    said = raised("train.py", "loss is nan")
    hook(*said)
    assert (noted, shown) == ([], [said[1]])
    # AND an exception that nobody caught is
    monkeypatch.setattr(sys, "last_value", said[1], raising=False)
    hook(*said)
    assert noted == [exception_note(*said)]
    assert len(shown) == 2


def test_autoload_without_whichrank_imports_nothing() -> None:
    look = "from whichrank.sensors.autoload import autoload; autoload(); import sys; print(sorted(sys.modules))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WHICHRANK_")}
    done = subprocess.run([sys.executable, "-c", look], env=environment, capture_output=True, text=True, check=True)
    assert "'whichrank.sensors.process'" not in done.stdout
    assert "'ctypes'" not in done.stdout


def test_autoload_never_raises(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from whichrank.sensors import autoload, process

    def broken() -> None:
        raise OSError("no")

    monkeypatch.setattr(process, "enable", broken)
    monkeypatch.setattr(autoload, "_done_in_pid", 0)
    monkeypatch.setenv("WHICHRANK_DIR", "/nowhere")
    monkeypatch.delenv("WHICHRANK_DISABLE", raising=False)
    autoload.autoload()
    assert capsys.readouterr().err == "whichrank: sensors are off in this process: no\n"

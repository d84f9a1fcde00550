"""Who this process is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from whichrank.sensors.identity import RANK_PID, identity_of

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


def test_autoload_without_whichrank_imports_nothing() -> None:
    snapshot = "from whichrank.sensors.autoload import autoload; autoload(); import sys; print(sorted(sys.modules))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WHICHRANK_")}
    done = subprocess.run([sys.executable, "-c", snapshot], env=environment, capture_output=True, text=True, check=True)
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

"""Ctrl-C and signals while recordings are read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ENDLESS = b"\x80\x02})" + b"2\x86" * 64 + b"K\x01s."
"""A pickle of a dict whose key is a tuple that holds itself twice, 64 times over: hashing it ends with its process."""
AGES_S = 60.0


@pytest.fixture(name="reading")
def _reading(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a session of its own, whose processes are in the midst of something endless."""
    for rank in range(3):
        (tmp_path / f"trace_{rank}").write_bytes(ENDLESS)
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "whichrank", request.param, *(tmp_path / f"trace_{rank}" for rank in range(3))],
        cwd=tmp_path, env=os.environ | {"TMPDIR": str(tmp_path / "temporary")}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_for_busy_child(process.pid)
        yield process
    finally:
        for pid in session(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def session(leader: int) -> list[int]:
    """The processes in a session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def wait_for_busy_child(leader: int) -> None:
    """Until one of its processes has computed for a while."""
    end_s = time.monotonic() + AGES_S
    while time.monotonic() < end_s:
        for pid in session(leader):
            if pid != leader and int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11]) > 80:
                return
        time.sleep(0.05)
    pytest.fail("nothing was begun")


@pytest.mark.parametrize(
    ("reading", "number", "code", "to_all"),
    [
        ("analyze", signal.SIGINT, 130, True),
        ("analyze", signal.SIGINT, 130, False),
        ("analyze", signal.SIGTERM, 143, True),
        ("analyze", signal.SIGTERM, 143, False),
        ("report", signal.SIGTERM, 143, False),
        ("export", signal.SIGHUP, 129, False),
    ],
    indirect=["reading"],
)
def test_signal_ends_all_that_was_started(
    reading: subprocess.Popen[bytes], number: signal.Signals, code: int, to_all: bool, tmp_path: Path
) -> None:
    # WHEN a signal comes, from the terminal or to the command alone
    (os.killpg if to_all else os.kill)(reading.pid, number)
    # THEN it ends with the code for it, without a traceback, and neither a process nor a file is left
    out, err = reading.communicate(timeout=AGES_S)
    assert (reading.returncode, out, err.strip()) == (code, b"", b"")
    assert session(reading.pid) == []
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not (tmp_path / "report.html").exists()


def test_ctrl_c_during_an_import_is_not_lost() -> None:
    # GIVEN a Ctrl-C that comes where Python drops exceptions, as it does in parts of an import
    program = """
import os, signal, weakref
from whichrank.surface.leave import ended_at_once
class Module: pass
module = Module()
reference = weakref.ref(module, lambda _: os.kill(os.getpid(), signal.SIGINT))
with ended_at_once():
    del module
print("went on")
"""
    # THEN the process has ended by it, and says nothing
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=AGES_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")

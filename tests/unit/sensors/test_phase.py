"""`whichrank.phase` marks what a rank does, in the ring, and is harmless where nobody watches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

IN_A_WATCHED_PROCESS = """
import ctypes, sys, whichrank
from whichrank.native import load_core

class Identity(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int32) for n in ("rank", "local_rank", "world", "local_world", "restarts")]
    _fields_ += [("host", ctypes.c_char_p), ("job", ctypes.c_char_p)]

core = load_core()
core.wr_ring_create.restype = ctypes.c_void_p
assert core.wr_ring_create(sys.argv[1].encode(), ctypes.byref(Identity(0, 0, 1, 1, 0, b"host", b"job")))

def marked(word):
    return word.encode() + b"\\0" in open(sys.argv[1], "rb").read()

assert not marked("checkpoint-x")
with whichrank.phase("checkpoint-x"):
    assert marked("checkpoint-x")
    with whichrank.phase("evaluation-x"):
        assert marked("evaluation-x") and not marked("checkpoint-x")
    assert marked("checkpoint-x")
try:
    with whichrank.phase("failing-x"):
        raise KeyError
except KeyError:
    pass
assert not marked("failing-x") and not marked("checkpoint-x")
"""

IN_ANY_OTHER_PROCESS = """
import whichrank
from whichrank.native import loaded_core
with whichrank.phase("checkpoint"):
    assert loaded_core() is None
"""


def run(program: str, *args: str) -> None:
    done = subprocess.run([sys.executable, "-c", program, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_phase_stands_in_the_ring_while_it_lasts(tmp_path: Path) -> None:
    run(IN_A_WATCHED_PROCESS, str(tmp_path / "1.ring"))


def test_phase_does_nothing_where_nobody_watches() -> None:
    run(IN_ANY_OTHER_PROCESS)

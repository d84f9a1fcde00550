"""What the preloaded socket sensor adds to one TCP message.

It cannot be switched off in a process that has it, so a small C program that has it preloaded sends through it and
around it, straight through libc, in turn.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from whichrank.errors import SensorError
from whichrank.native import CORE, INCLUDE, SOCKET, native_path
from whichrank.testbed.bench.overhead_ops import Cost, cost_of

TIMEOUT_S = 120


def socket_cost() -> Cost:
    """The added cost of one message of one byte over loopback, mean of sending and receiving.

    Raises:
        SensorError: There is no C compiler, or the program fails.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SensorError("no C compiler was found", mend="apt-get install gcc")
    core, sensor = native_path(CORE), native_path(SOCKET)
    with tempfile.TemporaryDirectory(prefix="whichrank-socket-") as name:
        program = Path(name) / "socket_cost"
        source = Path(__file__).with_name("socket_cost.c")
        _run([compiler, "-O2", f"-I{native_path(INCLUDE)}", str(source), "-o", str(program), str(core),
              f"-Wl,-rpath,{core.parent}", "-ldl"], {})  # fmt: skip
        reported = json.loads(_run([str(program), str(Path(name) / "cost.ring")], {"LD_PRELOAD": str(sensor)}))
    differences = [on - off for off, on in zip(reported["off"], reported["on"], strict=True)]
    return cost_of("socket sensor, one TCP message", differences, statistics.median(reported["off"]))


def _run(command: list[str], more: dict[str, str]) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "WHICHRANK_DISABLE"} | more
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode:
        said = done.stderr.strip()[-300:] or f"exit code {done.returncode}"
        raise SensorError(f"{Path(command[0]).name} failed: {said}", mend="whichrank doctor")
    return done.stdout

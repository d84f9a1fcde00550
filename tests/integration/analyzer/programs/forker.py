"""Runs jobs one after the other from one process that has torch loaded: a line of JSON in, a line with the code out.

In: `{"env": {...}, "nproc": 4, "command": ["-m", "whichrank.testbed.demo.job", ...], "log": "PATH"}`. Each job has a
process of its own as launcher, `whichrank.testbed.demo.launcher`, whose pid is reported first.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from pathlib import Path

from whichrank.testbed.demo.launcher import PRELOADED, Launcher, Place
from whichrank.testbed.demo.ports import free_port


def launch(order: dict[str, object]) -> None:
    log = os.open(Path(str(order["log"])), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order["env"])  # type: ignore[arg-type]
    place = Place(int(str(order["nproc"])), 0, 1, "127.0.0.1", free_port())
    os._exit(Launcher(place, list(order["command"]), 5.0).run())  # type: ignore[call-overload]


def main() -> None:
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            launch(order)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()

"""Runs a user's script, unmodified, so that SIGUSR2 puts its main thread to sleep.

``launcher --nproc 4 -- -m whichrank.testbed.demo.doze SCRIPT.py ARGS`` or
``torchrun ... -m whichrank.testbed.demo.doze MODULE ARGS``

It is how a rank of a script that was not written for it gets a sleeping rank from outside: Python runs the handler
between two bytecodes of the main thread, so the sleep falls into the user's code, after whatever operation it was
in.
"""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType

from whichrank.testbed.demo.launcher import run_program

_FOREVER_S = 3600


def wait_for_data(_number: int, _frame: FrameType | None) -> None:
    """Sleep in the main thread."""
    time.sleep(_FOREVER_S)


def main() -> None:
    """Install the handler and run the program named by the arguments."""
    signal.signal(signal.SIGUSR2, wait_for_data)
    run_program(sys.argv[1:])


if __name__ == "__main__":
    main()

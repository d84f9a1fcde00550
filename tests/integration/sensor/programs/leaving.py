"""The end of a rank with its groups as they stand: exit hooks run, as those of sensors, and nothing is taken down."""

import atexit
import os
import sys


def leave() -> None:
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

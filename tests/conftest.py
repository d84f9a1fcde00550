"""For all tests: signals as on a terminal, and garbage collections that pass over what collecting tests has made."""

from __future__ import annotations

import gc
import signal

# A shell ignores these for what it starts in the background (or nohup does), and so would all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Thousands of tests live as long as the process, and a collection that sees them takes most of a second."""
    gc.collect()
    gc.freeze()

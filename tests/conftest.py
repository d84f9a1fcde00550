"""For all tests: signals as on a terminal, and garbage collections that pass over what collecting tests has made."""

from __future__ import annotations

import gc
import signal
from collections import Counter

import pytest

# A shell ignores these for what it starts in the background (or nohup does), and so would all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


COUNTED = 2
"""Cases of one test whose branches are counted: others go the same ways, and counting nearly doubles their time."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where branches are counted, count those of the first cases of each test only."""
    if not config.getoption("--cov", default=None):
        return
    cases: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        cases[name] += 1
        if cases[name] > COUNTED:
            item.add_marker(pytest.mark.no_cover)


def pytest_collection_finish() -> None:
    """Thousands of tests live as long as the process, and a collection that sees them takes most of a second."""
    gc.collect()
    gc.freeze()

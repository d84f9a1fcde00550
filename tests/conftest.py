"""For all tests: what collecting them has left in memory is not looked through by each garbage collection."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Thousands of tests live as long as the process, and a collection that sees them takes most of a second."""
    gc.collect()
    gc.freeze()

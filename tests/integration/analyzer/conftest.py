"""Recordings of real jobs, made once and kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from recordings import CASES, Recording, load


@pytest.fixture(scope="session")
def recorded(pytestconfig: pytest.Config) -> Callable[[str], Recording]:
    """A recording by the name of its case."""
    cache = pytestconfig.cache
    assert cache is not None
    made = load(Path(cache.mkdir("whichrank-recordings")), list(CASES))
    return lambda name: made[name]  # a bound method is printed with all that is made

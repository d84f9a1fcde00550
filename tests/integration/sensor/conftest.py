"""Makes `jobs` importable, and builds the C++ sensor once before the tests that use it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def built_sensor() -> Path:
    """The C++ sensor as every rank will find it."""
    from whichrank.sensors import c10d

    before = os.environ.pop("WHICHRANK_DIR", None)
    said: list[str] = []
    c10d.prepare(said.append)
    if before is not None:
        os.environ["WHICHRANK_DIR"] = before
    path = c10d.built_path()
    assert path.exists(), said
    return path

"""Makes writers of rings and ranks importable here, builds the sensor."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from whichrank.testbed.bench.nursery import Nursery

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))


@pytest.fixture(scope="session", autouse=True)
def built_sensor() -> None:
    """The first run on a machine says that it builds the sensor; no test should be the first by chance.

    Some tests keep the cache that the environment names, others do without our variables.
    """
    bare = {name: value for name, value in os.environ.items() if not name.startswith("WHICHRANK_")}
    for environ in (dict(os.environ), bare):
        command = [sys.executable, "-m", "whichrank", "run", "--quiet", "--", "true"]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(command, cwd=folder, env=environ, capture_output=True, timeout=300, check=True)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Path]:
    """Socket of one that has torch loaded, for the preloaded launchers of this worker's tests."""
    with Nursery() as made:
        yield made.path

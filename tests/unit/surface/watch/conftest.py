"""A base for rings of its own for every test of `whichrank watch`."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all jobs."""
    place = tmp_path / "shm"
    place.mkdir()
    monkeypatch.setenv("WHICHRANK_SHM", str(place))
    return place

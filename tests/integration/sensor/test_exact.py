"""Training gives the same bits with and without a sensor."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import finished

pytestmark = pytest.mark.integration


def digests(folder: Path, variant: str) -> list[str]:
    """What each rank hashed from 200 losses and the final parameters, by rank."""
    folder.mkdir()
    rings = finished("exact", 2, folder, variant)
    assert len(rings) == (0 if variant == "off" else 2)
    assert all(ring.header["ordinal"] > 400 for ring in rings)
    return [path.read_text() for path in sorted(folder.glob("digest-*"))]


def test_losses_and_parameters_are_bitwise_equal(tmp_path: Path) -> None:
    bare = digests(tmp_path / "off", "off")
    assert len(bare) == 2
    assert bare == digests(tmp_path / "cpp", "cpp")
    assert bare == digests(tmp_path / "python", "python")

"""A role that is inferred is shown as such."""

from __future__ import annotations

import pytest

from whichrank.surface.watch.frame import CommunicatorNow
from whichrank.surface.watch.tables import _role


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        ({"role": "dp", "role_confidence": 1.0}, "dp"),
        ({"role": "dp", "role_confidence": 0.5}, "dp?"),
        ({"role": None, "role_confidence": None}, ""),
    ],
)
def test_a_role_is_shown_with_its_doubt(known: dict[str, object], shown: str) -> None:
    assert _role(CommunicatorNow(id="1", name="g", **known)) == shown  # type: ignore[arg-type]

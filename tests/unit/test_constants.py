"""Each number by which is decided has a reason, and the page of all of them is up to date."""

from __future__ import annotations

import pytest
from constants_table import PAGE, ROOMS, constants, page


@pytest.mark.parametrize("room", ROOMS)
def test_each_number_has_a_reason(room: str) -> None:
    found = list(constants(room))
    assert found
    assert not [f"{one.file}: {one.name}" for one in found if not one.reason]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python tests/unit/constants_table.py"

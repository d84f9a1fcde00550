"""Numbers and lists of ranks in words."""

from __future__ import annotations

import pytest

from whichrank.verdict.words.amounts import duration, number, ranges, size


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "3"), ([4, 3], "3 and 4"), ([0, 1, 2], "0-2"), ([0, 1, 2, 9], "0-2 and 9"), ([1, 3, 5], "1, 3 and 5")],
)
def test_ranges(ranks: list[int], text: str) -> None:
    assert ranges(ranks) == text


def test_many_ranges_are_cut() -> None:
    assert ranges(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 12 more"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999.7, "1,000 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (1 << 50, "1,024 TiB")]
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250 ms"), (0.9997, "1 s"), (12.345, "12.3 s"), (119.96, "120 s"), (3599.7, "1 h 0 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_number() -> None:
    assert [number(value) for value in (0, 1234.5, -7, 0.000123)] == ["0", "1,234", "-7", "0.000123"]

"""Keys that are the same in every process, on every machine, for ever."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.model.stable_hash import stable_hash

Part = str | int | np.ndarray


def test_it_is_what_it_was() -> None:
    # THEN what other processes and later versions get is what this one gets
    assert stable_hash("dp", np.array([0, 2])) == 6365229222335045189
    assert stable_hash("all", 8, 1 << 64) == 1148507488376250884


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        ((1, 2), (2, 1)),
        (("", 1), (1, "")),
        ((1,), (-1,)),
        ((np.array([1, 2]),), (1, 2)),
        ((np.array([1]), np.array([2])), (np.array([1, 2]),)),
    ],
)
def test_other_parts_have_another_hash(one: tuple[Part, ...], other: tuple[Part, ...]) -> None:
    assert stable_hash(*one) != stable_hash(*other)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, ">i8"])
def test_how_numbers_are_kept_is_not_part_of_it(dtype: str) -> None:
    assert stable_hash(np.array([0, 2], dtype)) == stable_hash(np.array([0, 2]))


def test_an_int64_holds_it() -> None:
    assert all(0 <= stable_hash(number) < 1 << 63 for number in range(1000))

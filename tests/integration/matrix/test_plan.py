"""The plan of the matrix as the tests share it out."""

from __future__ import annotations

import msgspec
from cells import CELLS, cells, is_async, is_death, is_skew

from whichrank.testbed.bench.campaign import key_of


def test_every_cell_is_another_trial() -> None:
    keys = [key_of(msgspec.to_builtins(setup)) for setup in CELLS]
    assert len(set(keys)) == len(keys)


def test_every_cell_is_in_one_of_the_files() -> None:
    shared_out = [*cells(is_death), *cells(is_async), *cells(is_skew)]
    assert sorted(map(repr, shared_out)) == sorted(map(repr, CELLS))

"""Members of large communicators are not listed by each of thousands of agents."""

from __future__ import annotations

import msgspec
import pytest

from whichrank.model.telemetry import SHORTEST_SPACED, CommInfo

MOST = 1 << 20


def info(members: list[int], size: int | None = None, spaced: tuple[int, int] | None = None) -> CommInfo:
    return CommInfo(7, "world", "default_pg", "nccl", len(members) if size is None else size, 0, members, spaced)


@pytest.mark.parametrize("members", [list(range(65536)), list(range(3, 4000, 8))])
def test_members_that_are_evenly_spaced_are_sent_as_two_numbers(members: list[int]) -> None:
    listed = info(members)
    assert len(msgspec.msgpack.encode(listed.shortened())) < 100
    assert listed.shortened().spread(MOST) == listed


@pytest.mark.parametrize(
    "members", [[], [5], list(range(SHORTEST_SPACED - 1)), [*range(40), 50], list(range(40, 0, -1)), [1] * 40]
)
def test_others_are_listed(members: list[int]) -> None:
    assert info(members).shortened() is not None
    assert info(members).shortened().members == members
    assert info(members).spread(MOST).members == members


@pytest.mark.parametrize(
    "wrong",
    [
        info([], 1 << 60, (0, 1)), info([], 100, (-1, 1)), info([], 100, (0, 0)), info([], 100, (0, 1 << 62)),
        info([], 100, (MOST - 50, 1)), info([1, 2], 2, (0, 1)),
    ],
)  # fmt: skip
def test_what_makes_no_sense_lists_nobody(wrong: CommInfo) -> None:
    assert wrong.spread(MOST).members == []
    assert wrong.spread(MOST).spaced is None

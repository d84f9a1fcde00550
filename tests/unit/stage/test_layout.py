"""How ranks are arranged."""

from __future__ import annotations

import pytest

from whichrank.errors import UsageError
from whichrank.stage.layout import MOST_RANKS, ROLES, Layout


def test_it_is_read_and_names_itself() -> None:
    layout = Layout.parse("tp2-cp2-pp4-dp8")
    assert (layout.ranks, layout.name) == (128, "tp2-cp2-dp8-pp4")
    assert Layout.parse(layout.name) == layout
    # Rank 37: tensor 1, context 0, data 1 (of 8), stage 1
    assert [int(layout.place(role)[37]) for role in ("tp", "cp", "dp", "pp")] == [1, 0, 1, 1]
    assert int(layout.group("pp")[37]) == 5


@pytest.mark.parametrize(
    "name", ["", "tp0", "tp2-tp2", "xp2", "tp2pp2", f"dp{MOST_RANKS + 1}", "tp-2", "dp2-ep4", "dp6-ep4"]
)
def test_what_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        Layout.parse(name)


def test_experts_are_shared_by_neighbours_in_data_and_context() -> None:
    # GIVEN four replicas of two context ranks each WHEN experts are shared by four THEN two replicas share them
    layout = Layout.parse("tp2-cp2-dp4-pp2-ep4")
    members = [rank for rank in range(layout.ranks) if layout.group("ep")[rank] == layout.group("ep")[0]]
    assert members == [0, 2, 4, 6]
    assert layout.place("ep")[members].tolist() == [0, 1, 2, 3]


def test_another_order_numbers_ranks_otherwise() -> None:
    # GIVEN pipelines whose ranks are neighbours
    layout = Layout(tp=2, dp=2, pp=3, ep=2, order=("pp", "tp", "cp", "dp"))
    assert [rank for rank in range(12) if layout.group("pp")[rank] == 3] == [3, 4, 5]
    # THEN every group has as many ranks as its degree says, one at each place
    for role in ROLES:
        for group in set(layout.group(role).tolist()):
            mine = layout.place(role)[layout.group(role) == group].tolist()
            assert sorted(mine) == list(range(layout.degree(role)))
    with pytest.raises(UsageError):
        Layout(order=("tp", "tp", "dp", "pp"))

"""Layouts, draws and the choice of operations: pure functions of the seed."""

from __future__ import annotations

from typing import Any

import pytest

from whichrank.testbed.demo.faults import CATALOGUE
from whichrank.testbed.demo.layout import ROLES, Layout, draw_layout, layouts
from whichrank.testbed.demo.plan import FIRST_ITERATION, LAST_ITERATION, draw, fitting_sites


def test_a_layout_name_can_be_read_back() -> None:
    for layout in layouts(8):
        assert Layout.parse(layout.name) == layout


@pytest.mark.parametrize("name", ["", "tp0", "tp2-tp4", "ep2", "tp2_dp4", "2"])
def test_a_wrong_layout_name_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(ValueError, match="for example tp2-pp2-dp2"):
        Layout.parse(name)


@pytest.mark.parametrize("layout", list(layouts(16)), ids=lambda layout: layout.name)
def test_groups_of_a_role_split_the_world(layout: Layout) -> None:
    for role in ROLES:
        groups = layout.groups(role)
        assert sorted(rank for group in groups for rank in group) == list(range(layout.world_size))
        for group in groups:
            assert [layout.index(rank, role) for rank in group] == list(range(layout.degree(role)))


def test_tensor_parallel_ranks_are_neighbours() -> None:
    layout = Layout.parse("tp2-pp2-dp2")
    assert layout.members(5, "tp") == (4, 5)
    assert layout.members(5, "dp") == (5, 7)
    assert layout.members(5, "pp") == (1, 5)


def test_layouts_are_drawn_by_seed_and_have_groups_of_four_among_them() -> None:
    drawn = [draw_layout(8, seed) for seed in range(40)]
    assert drawn == [draw_layout(8, seed) for seed in range(40)]
    assert all(layout.mixed for layout in drawn)
    assert any(layout.degree(role) == 4 for layout in drawn for role in ROLES)
    assert len({layout.name for layout in drawn}) > 3


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_same_seed_gives_the_same_plan(name: str) -> None:
    fault = CATALOGUE[name]
    plans = [draw(fault, 8, seed, "tp2-pp2-dp2") for seed in range(30)]
    assert plans == [draw(fault, 8, seed, "tp2-pp2-dp2") for seed in range(30)]
    assert {plan.variant.name for plan in plans} == {variant.name for variant in fault.variants}
    assert len({plan.victims[0] for plan in plans}) > 4
    for plan in plans:
        assert sorted(plan.victims) == list(range(8))
        assert FIRST_ITERATION <= plan.iteration <= LAST_ITERATION


def test_a_layout_without_a_second_role_is_refused_for_wrong_order() -> None:
    with pytest.raises(ValueError, match="dp8 has nothing that wrong-order could act on"):
        draw(CATALOGUE["wrong-order"], 8, 1, "dp8")
    with pytest.raises(ValueError, match="tp4-dp2 has nothing that skip-op"):
        draw(CATALOGUE["skip-op"], 8, 1, "tp4-dp2", variant="equal-cycle")


def site(kind: str, role: str, numel: int, size: int = 2) -> dict[str, Any]:
    return {"kind": kind, "role": role, "size": size, "signature": [kind, "float32", numel, -1]}


# One iteration: receive, two equal all-reduces over tp, two unequal ones over dp, a broadcast over pp.
SITES = [
    site("recv", "pp", 64),
    site("all_reduce", "tp", 64),
    site("all_reduce", "tp", 64),
    site("all_reduce", "dp", 512),
    site("all_reduce", "dp", 8),
    site("broadcast", "pp", 1),
]


@pytest.mark.parametrize(
    ("fit", "stage", "expected"),
    [
        ("any", 0, [0, 1, 2, 3, 4, 5]),
        ("all_reduce", 0, [1, 2, 3, 4]),
        ("broadcast", 0, [5]),
        ("different-next", 0, [3, 4]),
        ("equal-silent", 0, [1, 2]),
        ("equal-silent", 1, []),
        ("equal-cycle", 0, [5]),
        ("equal-cycle", 1, [1, 2, 5]),
    ],
)
def test_operations_that_are_fit_for_a_fault(fit: str, stage: int, expected: list[int]) -> None:
    assert fitting_sites(SITES, fit, stage) == expected


def test_a_single_element_has_no_smaller_shape() -> None:
    assert fitting_sites([site("all_reduce", "pp", 1), site("all_reduce", "pp", 2)], "all_reduce", 0) == [1]


def test_a_group_of_one_is_no_place_for_a_fault() -> None:
    assert fitting_sites([site("all_reduce", "dp", 8, size=1)], "all_reduce", 0) == []

"""A configuration held against the communicators of a job."""

from __future__ import annotations

import pytest
from made_groups import MEGATRON, MESH, along, communicators, groups_made

from whichrank.stage.agreement import Agreed, Conflict, Source, agreed
from whichrank.stage.config_file import configured
from whichrank.stage.layout import Layout

LAYOUT = Layout.parse("tp2-cp2-dp4-pp2-ep4")
OPTIONS = {"tp": "tensor-model", "pp": "pipeline-model", "cp": "context", "ep": "expert-model"}


def arguments(layout: Layout) -> str:
    return " ".join(f"--{name}-parallel-size {layout.degree(role)}" for role, name in OPTIONS.items())


def test_both_say_the_same() -> None:
    groups = groups_made(communicators(LAYOUT), LAYOUT.ranks)
    assert agreed(groups, configured(arguments(LAYOUT))) == Agreed(LAYOUT, Source.COMMUNICATORS, ())


def test_another_degree_is_a_conflict_and_communicators_count() -> None:
    groups = groups_made(communicators(LAYOUT), LAYOUT.ranks)
    found = agreed(groups, configured(arguments(Layout.parse("tp4-cp2-dp2-pp2-ep4"))))
    assert found.layout == LAYOUT
    assert found.conflicts == (Conflict("tp", "--tensor-model-parallel-size", "4", "2"),)


def test_another_number_of_ranks_is_a_conflict() -> None:
    groups = groups_made(communicators(Layout.parse("tp2-dp3")), 6)
    found = agreed(groups, configured("[layout]\ntp = 2\ndp = 4"))
    assert found.conflicts == (Conflict("dp", "layout.dp", "4", "3"),)
    found = agreed(groups_made([], 6), configured("[layout]\ntp = 2\ndp = 4"))
    assert found == Agreed(None, None, (Conflict("", "", "tp2 x dp4", "6 ranks"),))


def test_another_order_is_a_conflict() -> None:
    groups = groups_made(communicators(LAYOUT), LAYOUT.ranks)
    found = agreed(groups, configured(arguments(LAYOUT) + " --use-tp-pp-dp-mapping"))
    assert found.conflicts == (Conflict("", "", "tp-cp-pp-dp", "tp-cp-dp-pp"),)


def test_gradients_over_context_too_are_no_conflict() -> None:
    # GIVEN groups over data and context together, and none of context
    made = [(MESH["dp"], members) for members in along(Layout.parse("cp2-dp4"), "dp", "cp")]
    found = agreed(groups_made(made, 8), configured("[layout]\ncp = 2\ndp = 4"))
    assert found.conflicts == ()
    # WHEN the configuration says another number of both THEN it is one
    found = agreed(groups_made(made, 8), configured("[layout]\ncp = 2\ndp = 2"))
    assert [one.role for one in found.conflicts] == ["cp", "dp"]


def test_the_configuration_says_what_communicators_leave_open() -> None:
    # GIVEN tensor groups without a description
    made = [(name if name != MEGATRON["tp"] else "undefined", members) for name, members in communicators(LAYOUT)]
    found = agreed(groups_made(made, LAYOUT.ranks), configured(arguments(LAYOUT)))
    assert found == Agreed(LAYOUT, Source.CONFIGURATION, ())


def test_groups_that_lie_elsewhere_are_a_conflict() -> None:
    # GIVEN pipelines of neighbours
    made = [(MEGATRON["pp"], members) for members in along(Layout(tp=4, pp=2, order=("pp", "tp", "cp", "dp")), "pp")]
    found = agreed(groups_made(made, 8), configured("[layout]\ntp = 4\npp = 2"))
    assert found == Agreed(None, None, (Conflict("pp", "layout.pp", "0-4", "0-1"),))


@pytest.mark.parametrize("roles", [("dp",), ("dp", "cp")])
def test_data_may_be_with_context_or_without_where_the_rest_is_open(roles: tuple[str, ...]) -> None:
    made = [(MEGATRON["dp"], members) for members in along(LAYOUT, *roles)]
    found = agreed(groups_made(made, LAYOUT.ranks), configured(arguments(LAYOUT)))
    assert found == Agreed(LAYOUT, Source.CONFIGURATION, ())


def test_two_models_have_no_layout_whatever_the_configuration_says() -> None:
    made = [(MESH["tp"], range(4)), (MESH["tp"], [4, 5]), (MESH["tp"], [6, 7])]
    assert agreed(groups_made(made, 8), configured("[layout]\ntp = 2")) == Agreed(None, None, ())

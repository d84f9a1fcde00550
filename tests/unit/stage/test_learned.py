"""The layout of a job, learned from its communicators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_groups import MEGATRON, MESH, Described, along, communicators, groups_made

from whichrank.model.kinds import Kind
from whichrank.model.telemetry import CommInfo
from whichrank.stage.groups import groups_of
from whichrank.stage.layout import DIMENSIONS, ROLES, Layout
from whichrank.stage.learned import Learned, Reason, learn
from whichrank.store.communicators import Communicators
from whichrank.store.op_kinds import OpKinds
from whichrank.store.rank_columns import RankColumns
from whichrank.testbed.demo.layout import layouts
from whichrank.testbed.sim.communicators import Communicators as SimulatedCommunicators

OPERATIONS = {"tp": Kind.ALL_REDUCE, "dp": Kind.ALL_REDUCE, "pp": Kind.SEND, "ep": Kind.ALL_TO_ALL}


def learned(
    groups: Iterable[Described], ranks: int, operations: Mapping[int, Mapping[Kind, int]] | None = None
) -> Learned:
    return learn(groups_made(groups, ranks, operations))


def degrees_of(layout: Layout) -> dict[str, int]:
    return {role: layout.degree(role) for role in ROLES if role != "ep" or layout.ep > 1}


def groups_agree(one: Layout, other: Layout) -> bool:
    return all(np.array_equal(one.group(role), other.group(role)) for role in ROLES)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize("names", [MEGATRON, MESH], ids=["megatron", "mesh"])
def test_layouts_of_the_demo_are_learned(ranks: int, names: Mapping[str, str]) -> None:
    for demo in layouts(ranks):
        layout = Layout.parse(demo.name)
        made: list[Described] = [(names[role], members) for role in ("tp", "dp", "pp") for members in demo.groups(role)]
        assert learned(made, ranks) == Learned(degrees_of(layout), layout, (), 1.0)


def test_a_simulated_job_has_data_and_context_together() -> None:
    # GIVEN a job that reduces gradients over context ranks too
    layout = Layout.parse("tp2-cp2-pp4-dp4-ep4")
    infos = [(info.desc, info.members) for info in SimulatedCommunicators(layout, "gloo").infos()]
    assert learned(infos, layout.ranks).layout == layout
    # THEN where it shows no context groups, those ranks count as replicas
    without = [(desc, members) for desc, members in infos if desc != "mesh_cp"]
    assert learned(without, layout.ranks).layout == Layout.parse("tp2-pp4-dp8-ep4")


@st.composite
def random_layouts(draw: st.DrawFn) -> Layout:
    tp, cp, dp, pp = (draw(st.sampled_from([1, 1, 2, 3, 4, 8])) for _ in range(4))
    ep = draw(st.sampled_from([one for one in range(1, cp * dp + 1) if cp * dp % one == 0]))
    return Layout(tp, cp, dp, pp, ep, tuple(draw(st.permutations(DIMENSIONS))))


@settings(max_examples=100, deadline=None)
@given(layout=random_layouts(), data=st.data())
def test_any_layout_is_learned(layout: Layout, data: st.DataObject) -> None:
    # GIVEN communicators in any order, with members in any order, some along two dimensions and some that say nothing
    made = communicators(layout, data.draw(st.sampled_from([MEGATRON, MESH])))
    extra = {
        "DATA_PARALLEL_GROUP_WITH_CP": ("dp", "cp"), "MODEL_PARALLEL_GROUP": ("tp", "pp"),
        "TENSOR_AND_DATA_PARALLEL_GROUP": ("tp", "dp"), "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": ("tp", "dp", "cp"),
    }  # fmt: skip
    for name in data.draw(st.sets(st.sampled_from(sorted(extra)))):
        made += [(name, members) for members in along(layout, *extra[name])]
    made += [("EMBEDDING_GROUP", [0, layout.ranks - 1]), ("DATA_PARALLEL_GROUP_GLOO", range(layout.ranks))]
    random = data.draw(st.randoms())
    made = [(name, random.sample(members, len(members))) for name, members in random.sample(made, len(made))]
    # WHEN the layout is learned THEN it predicts the same groups
    found = learned(made, layout.ranks)
    assert found.misfits == ()
    assert found.layout is not None
    assert groups_agree(found.layout, layout)
    assert found.degrees == degrees_of(layout)


@settings(max_examples=100, deadline=None)
@given(layout=random_layouts(), data=st.data())
def test_ranks_that_are_not_known_yet_do_not_contradict(layout: Layout, data: st.DataObject) -> None:
    # GIVEN a part of the communicators
    made = data.draw(st.lists(st.sampled_from(communicators(layout)), unique_by=lambda one: (one[0], tuple(one[1]))))
    # WHEN the layout is learned THEN nothing is said that is not so
    found = learned(made, layout.ranks)
    assert found.misfits == ()
    assert all(layout.degree(role) == many for role, many in found.degrees.items())
    assert found.layout is None or groups_agree(found.layout, replaced_ep(layout, found.layout.ep))


def replaced_ep(layout: Layout, ep: int) -> Layout:
    return Layout(layout.tp, layout.cp, layout.dp, layout.pp, ep, layout.order)


def test_one_group_of_another_size_is_a_misfit() -> None:
    layout = Layout.parse("tp2-dp2-pp4")
    made = communicators(layout)
    at = next(n for n, (name, _) in enumerate(made) if name == MEGATRON["pp"])
    made[at] = (MEGATRON["pp"], [0, 4, 8])
    found = learned(made, layout.ranks)
    assert found.layout is None
    assert found.degrees == {"tp": 2, "dp": 2}
    (misfit,) = found.misfits
    assert (misfit.reason, misfit.dimensions, misfit.comm) == (Reason.DIFFERS, ("pp",), at)
    assert (misfit.members, misfit.size, misfit.usual_size, misfit.groups) == ((0, 4, 8), 3, 4, 1)


@settings(max_examples=100, deadline=None)
@given(layout=random_layouts(), data=st.data())
def test_no_layout_is_learned_where_two_groups_have_exchanged_a_rank(layout: Layout, data: st.DataObject) -> None:
    made = communicators(layout)
    of_role = [
        (a, b)
        for a, (name, _) in enumerate(made)
        for b, (other, _) in enumerate(made)
        if a < b and name == other
    ]  # fmt: skip
    if not of_role:
        return
    a, b = data.draw(st.sampled_from(of_role))
    one, other = list(made[a][1]), list(made[b][1])
    at = data.draw(st.integers(0, len(one) - 1))
    one[at], other[at] = other[at], one[at]
    made[a], made[b] = (made[a][0], one), (made[b][0], other)
    found = learned(made, layout.ranks)
    assert found.layout is None
    assert found.misfits


def test_two_models_with_other_sizes_have_no_single_layout() -> None:
    # GIVEN an actor on ranks 0 to 7 with tp4 and a critic on ranks 8 to 15 with tp2
    made: list[Described] = [("mesh_tp", range(at, at + 4)) for at in (0, 4)]
    made += [("mesh_tp", range(at, at + 2)) for at in (8, 10, 12, 14)]
    found = learned(made, 16)
    assert found.layout is None
    assert [(one.reason, one.size, one.usual_size, one.groups) for one in found.misfits] == [(Reason.DIFFERS, 4, 2, 2)]


def test_two_models_with_equal_sizes_leave_ranks_unexplained() -> None:
    # GIVEN two models of four ranks each THEN the two are no dimension
    found = learned([("mesh_tp", [0, 1]), ("mesh_dp", [0, 2]), ("mesh_tp", [4, 5]), ("mesh_dp", [4, 6])], 8)
    assert found == Learned({"tp": 2, "dp": 2}, None, (), 1.0)


def test_models_on_the_same_ranks_contradict() -> None:
    made: list[Described] = [("mesh_tp", range(at, at + 4)) for at in (0, 4)]
    made += [("TENSOR_AND_DATA_PARALLEL_GROUP", range(8)), ("mesh_dp", [0, 2]), ("mesh_dp", [1, 3])]
    found = learned(made, 8)
    assert found.layout is None
    assert found.misfits[0].reason is Reason.SHARES


def test_groups_across_others_cross() -> None:
    found = learned([("mesh_tp", range(4)), ("mesh_tp", range(4, 8)), ("mesh_dp", [0, 6]), ("mesh_dp", [1, 7])], 24)
    assert [one.reason for one in found.misfits] == [Reason.CROSSES]
    assert found.degrees == {"tp": 4}


def test_ranks_that_are_not_evenly_spaced_are_no_group() -> None:
    found = learned([("mesh_pp", [0, 1, 3])], 6)
    assert [one.reason for one in found.misfits] == [Reason.UNEVEN]


def test_replicas_and_shards_together_are_data_parallel() -> None:
    # GIVEN torchtitan's HSDP: 4 replicas of 2 shards with context 2
    parts = Layout(tp=2, cp=2, dp=2, pp=4)
    made: list[Described] = [("mesh_dp_replicate", members) for members in along(parts, "pp")]
    made += [("mesh_dp_shard_cp", members) for members in along(parts, "cp", "dp")]
    made += [("mesh_cp", members) for members in along(parts, "cp")]
    made += [("mesh_tp", members) for members in along(parts, "tp")]
    assert learned(made, 32).layout == Layout(tp=2, cp=2, dp=8)
    # WHEN replicas lie outside of the pipeline THEN data has two strides, and there is no single layout
    parts = Layout(tp=2, dp=2, pp=2, cp=2, order=("tp", "dp", "pp", "cp"))
    made = [("mesh_dp_replicate", members) for members in along(parts, "cp")]
    made += [("mesh_dp_shard", members) for members in along(parts, "dp")]
    made += [("mesh_pp", members) for members in along(parts, "pp")]
    made += [("mesh_tp", members) for members in along(parts, "tp")]
    found = learned(made, 16)
    assert found.layout is None
    assert [one.reason for one in found.misfits] == [Reason.UNEVEN]


def test_experts_across_tensor_ranks_do_not_fit() -> None:
    # GIVEN experts that are whole on each tensor rank
    layout = Layout.parse("tp2-dp4")
    made = communicators(layout)
    made += [(MEGATRON["ep"], [0, 1, 2, 3]), (MEGATRON["ep"], [4, 5, 6, 7])]
    found = learned(made, 8)
    assert found.layout is None
    assert found.degrees == {"tp": 2, "cp": 1, "dp": 4, "pp": 1, "ep": 4}
    assert [(one.reason, one.groups) for one in found.misfits] == [(Reason.EXPERTS, 2)]


def test_roles_told_from_operations_are_used_where_they_are_sure() -> None:
    # GIVEN groups without any description
    layout = Layout.parse("tp2-dp2-pp4")
    made = communicators(layout, dict.fromkeys(ROLES, "undefined"))
    roles = ["world"] + [role for role in ("tp", "dp", "pp") for _ in range(layout.ranks // layout.degree(role))]
    operations = {n: {OPERATIONS.get(role, Kind.ALL_REDUCE): 10} for n, role in enumerate(roles)}
    # THEN messages tell of the pipeline; reductions could be of tensor or of data
    assert learned(made, layout.ranks, operations) == Learned({"pp": 4}, None, (), 0.8)


def test_all_ranks_are_replicas_only_where_there_are_no_other_groups() -> None:
    everyone: Described = ("default_pg", range(8))
    reduces = {Kind.ALL_REDUCE: 10}
    assert learned([everyone], 8, {0: reduces}) == Learned({"tp": 1, "cp": 1, "dp": 8, "pp": 1}, Layout(dp=8), (), 0.6)
    assert learned([everyone, ("undefined", range(4))], 8, {0: reduces}).degrees == {}
    assert learned([everyone], 8).layout is None


def test_nothing_is_learned_from_nothing() -> None:
    assert learned([], 8) == Learned({}, None, (), 0.0)
    assert learned([], 0) == Learned({}, None, (), 0.0)
    assert learned([], 1).layout == Layout()
    assert learned([("mesh_tp", [-1, 0])], 8) == Learned({}, None, (), 0.0)


def test_a_rank_twice_is_a_misfit() -> None:
    found = learned([("mesh_tp", [0, 1]), ("mesh_tp", [2, 2]), ("mesh_tp", [4, 5])], 6)
    assert [(one.reason, one.members) for one in found.misfits] == [(Reason.DIFFERS, (2, 2))]


def test_a_restart_with_another_layout_is_learned() -> None:
    # GIVEN a job of tp2-dp4 whose processes were replaced
    comms, columns = Communicators(), RankColumns()
    columns.grow(8)
    for layout in (Layout.parse("tp2-dp4"), Layout.parse("tp4-pp2")):
        comms.leave(set(range(8)))
        at = len(comms.info) + 1
        made = enumerate(communicators(layout))
        comms.add(
            [CommInfo(at + n, str(n), desc, "nccl", len(all_), 0, list(all_)) for n, (desc, all_) in made], columns
        )
        # THEN the layout is that of the new ones
        assert learn(groups_of(comms, OpKinds(), 8)).layout == layout

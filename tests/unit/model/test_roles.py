"""What a communicator is for: the tables of descriptions that frameworks use, and the inference where there is none."""

from __future__ import annotations

import pytest

from whichrank.model.incident import Role
from whichrank.model.kinds import Kind
from whichrank.model.roles import dimensions_of_description, infer_role, role_of_description

MEGATRON = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "DATA_PARALLEL_GROUP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp",
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": "dp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "cp",
    "TENSOR_AND_DATA_PARALLEL_GROUP": "tp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
    "EMBEDDING_GROUP": "emb",
    "POSITION_EMBEDDING_GROUP": "emb",
    "DATA_PARALLEL_GROUP_GLOO": "ctrl",
    "EXPERT_DATA_PARALLEL_GROUP_GLOO": "ctrl",
}
TORCHTITAN = {
    "mesh_pp": "pp",
    "mesh_dp_replicate": "dp",
    "mesh_dp_shard": "dp",
    "mesh_dp": "dp",
    "mesh_dp_cp": "dp",
    "mesh_dp_shard_cp": "dp",
    "mesh_dp_shard_in_ep": "edp",
    "mesh_cp": "cp",
    "mesh_tp": "tp",
    "mesh_ep": "ep",
}
OTHERS = {
    "mesh_data_parallel": "dp",
    "mesh_tensor_parallel": "tp",
    "fsdp_reduce_scatter": "dp",
    "edp": "edp",
    "etp": "etp",
}


@pytest.mark.parametrize(("desc", "role"), [*MEGATRON.items(), *TORCHTITAN.items(), *OTHERS.items()])
def test_a_description_names_the_role(desc: str, role: Role) -> None:
    assert role_of_description(desc) == role
    assert infer_role(desc, [0, 1], 8, {Kind.BARRIER: 100}) == (role, 1.0)


@pytest.mark.parametrize(
    "desc", ["", "undefined", "default_pg", "mesh_default", "mesh_dim_0", "mesh_dim_12", "mesh_dp:split:3"]
)
def test_these_say_nothing(desc: str) -> None:
    assert role_of_description(desc) is None


@pytest.mark.parametrize("desc", ["wrapper", "support", "deposit", "happy", "attempt"])
def test_words_are_not_found_inside_other_words(desc: str) -> None:
    assert role_of_description(desc) is None


@pytest.mark.parametrize(
    ("members", "kinds", "role"),
    [
        (range(8), {Kind.ALL_REDUCE: 9}, "dp"),
        (range(8), {Kind.BROADCAST: 9}, "world"),
        (range(8), {}, "world"),
        (range(4), {Kind.ALL_REDUCE: 9}, "tp"),
        ([0, 4], {Kind.ALL_REDUCE: 9}, "dp"),
        ([0, 4], {Kind.ALL_GATHER: 5, Kind.REDUCE_SCATTER: 4}, "dp"),
        ([0, 4], {Kind.SEND: 19, Kind.RECV: 20, Kind.BARRIER: 1}, "pp"),
        ([0, 4], {Kind.ALL_TO_ALL: 9, Kind.BARRIER: 1}, "ep"),
        ([0, 4], {Kind.BARRIER: 19, Kind.BROADCAST: 1}, "ctrl"),
        ([0, 4], {Kind.BROADCAST: 9}, None),
        ([0, 4], {}, None),
        ([], {Kind.SEND: 9}, "pp"),
    ],
)
def test_without_a_description_operations_and_shape_say_with_less_confidence(
    members: list[int], kinds: dict[int, int], role: Role | None
) -> None:
    inferred, confidence = infer_role("undefined", members, 8, kinds)
    assert inferred == role
    assert confidence < 1.0
    assert (confidence > 0) == (role is not None)


@pytest.mark.parametrize(
    ("desc", "dimensions"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"), ("DATA_PARALLEL_GROUP_WITH_CP", "cp dp"),
        ("MODEL_PARALLEL_GROUP", "pp tp"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "cp dp tp"), ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("mesh_fsdp", "dp"), ("mesh_dp_shard_cp", "cp dp"), ("mesh_ep", "ep"),
        # These go along no dimension, along a part of one, or over all ranks.
        ("EXPERT_DATA_PARALLEL_GROUP", ""), ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", ""),
        ("mesh_dp_shard_mod_ep", ""),
        ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", ""), ("HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0", ""),
        ("TP_BOOTSTRAP_GROUP_MPI", ""), ("DATA_PARALLEL_GROUP_GLOO", ""), ("EMBEDDING_GROUP", ""),
        ("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", ""), ("default_pg", ""), ("undefined", ""), ("mesh_dim_0", ""),
    ],
)  # fmt: skip
def test_a_description_names_the_dimensions_of_a_layout(desc: str, dimensions: str) -> None:
    assert dimensions_of_description(desc) == frozenset(dimensions.split())

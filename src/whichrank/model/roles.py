"""What a communicator is for, from its description, else from its operations and shape (facts of torch, section 5).

Megatron-Core and DeviceMesh describe their groups; a plain `new_group` says "undefined" and a pure data-parallel job
runs on the default group. The order of the tests matters: EXPERT_DATA before EXPERT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.incident import Role
from whichrank.model.kinds import BARRIERS, Kind

_CONTEXT_WORDS = frozenset({"cp", "context", "sp"})
_DATA_WORDS = frozenset({"dp", "data", "fsdp", "shard", "replicate", "hsdp"})
_WORDS: tuple[tuple[Role, frozenset[str]], ...] = (
    ("emb", frozenset({"emb", "embedding"})),
    ("pp", frozenset({"pp", "pipeline", "pipe"})),
    ("cp", _CONTEXT_WORDS),
    ("tp", frozenset({"tp", "tensor"})),
    ("dp", _DATA_WORDS),
)
_EXPERT_WORDS = frozenset({"expert", "ep", "edp", "etp"})
_OTHER_WORDS = frozenset({"hierarchical", "hybrid", "partial", "remat", "bootstrap"})
"""Of groups that go along a part of a dimension, along one that no layout has, or over all ranks."""
UNDESCRIBED = frozenset({"", "undefined", "default_pg", "mesh_default"})
MOST_KINDS: Final = 256
"""A kind is a byte on the wire."""
BY_OPERATIONS: Final[tuple[Role | None, ...]] = (None, "world", "pp", "ep", "ctrl", "dp", "tp")
"""Roles that can be told from operations; `roles_of_operations` gives places in it."""


def role_of_description(desc: str) -> Role | None:
    """The role that a group description names, None if it names none."""
    words = _words(desc)
    if "gloo" in words and desc.lower().endswith("_gloo"):
        return "ctrl"
    if words & _EXPERT_WORDS:
        if words & {"data", "edp", "dp"}:
            return "edp"
        return "etp" if words & {"tensor", "etp", "tp"} and "model" not in words else "ep"
    if words & _DATA_WORDS and words & _CONTEXT_WORDS:
        return "dp"  # gradients and shards over data and context ranks together
    for role, names in _WORDS:
        if words & names:
            return role
    return None


def dimensions_of_description(desc: str) -> frozenset[str]:
    """The dimensions of a layout along which a described group goes; none where it does not say, or goes along a part.

    Example: gradients are reduced in DATA_PARALLEL_GROUP_WITH_CP, which goes along dp and cp; its role is dp.
    """
    words = _words(desc)
    if "gloo" in words or words & _OTHER_WORDS:
        return frozenset()
    if words == {"model", "parallel", "group"}:
        return frozenset({"tp", "pp"})
    found = {role for role, names in _WORDS if words & names}
    if words & _EXPERT_WORDS:
        is_whole = not found and not words & {"edp", "etp"}
        return frozenset({"ep"} if is_whole else ())
    return frozenset() if "emb" in found else frozenset(found)


def _words(desc: str) -> set[str]:
    """Of a description, none if it is one that torch makes."""
    text = desc.lower().removeprefix("mesh_")
    if desc in UNDESCRIBED or re.fullmatch(r"dim_\d+", text) or ":split:" in desc:
        return set()
    return set(re.split(r"[^a-z]+", text)) - {""}


def infer_role(
    desc: str, members: Sequence[int], world_size: int, kinds: Mapping[int, int]
) -> tuple[Role | None, float]:
    """The role and how sure that is.

    Args:
        desc: The group's description.
        members: Global ranks, empty if not known.
        world_size: Ranks of the job.
        kinds: Operations seen, by kind.
    """
    named = role_of_description(desc)
    if named:
        return named, 1.0
    counts = np.zeros((1, MOST_KINDS), np.int64)
    for kind, count in kinds.items():
        counts[0, kind] = count
    whole = np.array([len(members) == world_size])
    neighbours = np.array([len(members) > 1 and all(b - a == 1 for a, b in pairwise(members))])
    role, confidence = roles_of_operations(counts, whole, neighbours)
    return BY_OPERATIONS[int(role[0])], float(confidence[0])


def roles_of_operations(
    counts: NDArray[np.integer], whole: NDArray[np.bool_], neighbours: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What operations say of the role of each communicator, and how sure that is.

    Args:
        counts: Operations of each kind, (C, kinds).
        whole: All ranks are members, (C,).
        neighbours: Members have consecutive ranks, (C,).

    Returns:
        Places in BY_OPERATIONS, (C,), and confidences, (C,).
    """
    total = counts.sum(axis=1)
    share = counts / np.maximum(total, 1)[:, None]
    p2p = share[:, Kind.SEND :].sum(axis=1)
    moves = share[:, [Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER]].sum(axis=1) > 0.5
    rules: tuple[tuple[NDArray[np.bool_], Role | None, float], ...] = (
        ((total == 0) & whole, "world", 0.5),
        (total == 0, None, 0.0),
        (p2p > 0.9, "pp", 0.8),
        (share[:, Kind.ALL_TO_ALL] > 0.5, "ep", 0.7),
        (share[:, sorted(BARRIERS)].sum(axis=1) > 0.9, "ctrl", 0.7),
        (whole & moves, "dp", 0.6),
        (whole, "world", 0.6),
        (moves & neighbours, "tp", 0.5),
        (moves, "dp", 0.5),
    )
    conditions = [which for which, _, _ in rules]
    role = np.select(conditions, [np.int64(BY_OPERATIONS.index(one)) for _, one, _ in rules], np.int64(0))
    confidence = np.select(conditions, [sure for _, _, sure in rules], 0.0)
    return role, confidence

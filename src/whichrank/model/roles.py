"""What a communicator is for, from its description, else from its operations and shape (facts of torch, section 5).

Megatron-Core and DeviceMesh describe their groups; a plain `new_group` says "undefined" and a pure data-parallel job
runs on the default group. The order of the tests matters: EXPERT_DATA before EXPERT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from whichrank.model.incident import Role
from whichrank.model.kinds import BARRIERS, Kind, is_message

_CONTEXT_WORDS = frozenset({"cp", "context", "sp"})
_DATA_WORDS = frozenset({"dp", "data", "fsdp", "shard", "replicate", "hsdp"})
_WORDS: tuple[tuple[Role, frozenset[str]], ...] = (
    ("emb", frozenset({"emb", "embedding"})),
    ("pp", frozenset({"pp", "pipeline", "pipe"})),
    ("cp", _CONTEXT_WORDS),
    ("tp", frozenset({"tp", "tensor"})),
    ("dp", _DATA_WORDS),
)
UNDESCRIBED = frozenset({"", "undefined", "default_pg", "mesh_default"})


def role_of_description(desc: str) -> Role | None:
    """The role that a group description names, None if it names none."""
    text = desc.lower().removeprefix("mesh_")
    if desc in UNDESCRIBED or re.fullmatch(r"dim_\d+", text) or ":split:" in desc:
        return None
    if text.endswith("_gloo"):
        return "ctrl"
    words = set(re.split(r"[^a-z]+", text)) - {""}
    if "expert" in words or "ep" in words or "edp" in words or "etp" in words:
        if words & {"data", "edp", "dp"}:
            return "edp"
        return "etp" if words & {"tensor", "etp", "tp"} and "model" not in words else "ep"
    if words & _DATA_WORDS and words & _CONTEXT_WORDS:
        return "dp"  # gradients and shards over data and context ranks together
    for role, names in _WORDS:
        if words & names:
            return role
    return None


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
    total = sum(kinds.values())
    if not total:
        return ("world", 0.5) if len(members) == world_size else (None, 0.0)
    share = {kind: n / total for kind, n in kinds.items()}
    p2p = sum(s for kind, s in share.items() if is_message(kind))
    if p2p > 0.9:
        return "pp", 0.8
    if share.get(Kind.ALL_TO_ALL, 0.0) > 0.5:
        return "ep", 0.7
    if sum(share.get(kind, 0.0) for kind in BARRIERS) > 0.9:
        return "ctrl", 0.7
    reduces = share.get(Kind.ALL_REDUCE, 0.0)
    shards = share.get(Kind.ALL_GATHER, 0.0) + share.get(Kind.REDUCE_SCATTER, 0.0)
    if len(members) == world_size:
        return ("dp", 0.6) if reduces + shards > 0.5 else ("world", 0.6)
    neighbours = len(members) > 1 and all(b - a == 1 for a, b in pairwise(members))
    if reduces + shards > 0.5:
        return ("tp", 0.5) if neighbours else ("dp", 0.5)
    return None, 0.0

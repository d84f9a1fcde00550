"""Communicators of the demo job, made the three ways that users make them.

``mesh`` is what torchtitan and FSDP2 users have (DeviceMesh, descriptions "mesh_tp" ...), ``megatron`` is
`new_group` with Megatron-Core's descriptions, ``plain`` is `new_group` without any, where the role must be
inferred.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from whichrank.testbed.demo.layout import ROLES, Layout

STYLES = ("mesh", "megatron", "plain")
_MEGATRON = {"tp": "TENSOR_MODEL_PARALLEL_GROUP", "pp": "PIPELINE_MODEL_PARALLEL_GROUP", "dp": "DATA_PARALLEL_GROUP"}


@dataclass(frozen=True)
class Group:
    """One communicator as this rank sees it.

    Args:
        role: tp, pp, dp or world.
        handle: torch's process group.
        ranks: global ranks of the members, in group order.
        me: my position in `ranks`.
    """

    role: str
    handle: dist.ProcessGroup
    ranks: tuple[int, ...]
    me: int

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.ranks)


def make_groups(layout: Layout, rank: int, style: str, timeout_s: float) -> dict[str, Group]:
    """Make the communicators of `rank`; every rank must call it at the same point.

    Returns:
        Groups by role; roles of degree one are left out, ``world`` is always there.
    """
    world = dist.group.WORLD
    assert world is not None
    everyone = tuple(range(layout.world_size))
    handles: dict[str, dist.ProcessGroup] = {}
    roles = [role for role in ROLES if layout.degree(role) > 1]
    if style == "mesh":
        mesh = init_device_mesh("cpu", tuple(layout.degree(r) for r in roles), mesh_dim_names=tuple(roles))
        handles = {role: mesh.get_group(role) for role in roles}
        for handle in handles.values():  # a mesh has no argument for it, and does not take the world's
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s), handle)
    else:
        for role in roles:
            for members in layout.groups(role):
                description = _MEGATRON[role] if style == "megatron" else None
                made = dist.new_group(list(members), timeout=timedelta(seconds=timeout_s), group_desc=description)
                if rank in members:
                    handles[role] = made
    groups = {
        role: Group(role, handle, layout.members(rank, role), layout.index(rank, role))
        for role, handle in handles.items()
    }
    groups["world"] = Group("world", world, everyone, rank)
    return groups

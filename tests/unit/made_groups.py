"""Communicators as frameworks make and describe them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from whichrank.model.kinds import Kind
from whichrank.model.telemetry import CommInfo
from whichrank.stage.groups import Groups, groups_of
from whichrank.stage.layout import ROLES, Layout
from whichrank.store.communicators import Communicators
from whichrank.store.op_kinds import OpKinds
from whichrank.store.rank_columns import RankColumns

MEGATRON = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "cp": "CONTEXT_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
}
MESH = {role: f"mesh_{role}" for role in ROLES}
Described = tuple[str, Sequence[int]]


def of_labels(labels: np.ndarray) -> list[list[int]]:
    order = np.argsort(labels, kind="stable")
    return [part.tolist() for part in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)]


def along(layout: Layout, *roles: str) -> list[list[int]]:
    """Groups along several dimensions."""
    labels = np.arange(layout.ranks)
    for role in roles:
        labels = labels - layout.place(role) * layout.stride(role)
    return of_labels(labels)


def communicators(layout: Layout, names: Mapping[str, str] = MEGATRON) -> list[Described]:
    found: list[Described] = [("default_pg", range(layout.ranks))]
    for role in ROLES:
        if role in names and layout.degree(role) > 1:
            found += [(names[role], members) for members in of_labels(layout.group(role))]
    return found


def groups_made(
    groups: Iterable[Described], ranks: int, operations: Mapping[int, Mapping[Kind, int]] | None = None
) -> Groups:
    """The groups of a store that has seen these communicators."""
    comms, kinds, columns = Communicators(), OpKinds(), RankColumns()
    columns.grow(ranks)
    infos = [CommInfo(n + 1, str(n), desc, "nccl", len(all_), 0, list(all_)) for n, (desc, all_) in enumerate(groups)]
    comms.add(infos, columns)
    for comm, counts in (operations or {}).items():
        for kind, count in counts.items():
            kinds.add(np.full(count, comm, np.int64), np.full(count, kind, np.uint8))
    return groups_of(comms, kinds, ranks)

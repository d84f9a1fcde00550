"""Ops that libraries issue are seen too, whichever way they come: C++ reducer, FSDP2, DTensor, pipelining, inductor."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import VARIANTS, Ring, finished, text

from whichrank.model.kinds import Kind

pytestmark = pytest.mark.integration

STEPS, MICROBATCHES = 2, 4


def counts(ring: Ring, comm: str) -> dict[Kind, int]:
    """Completed operations of one communicator, by kind."""
    slot = next(i for i, c in enumerate(ring.raw["comm"]) if c["state"] and text(c["desc"]) == comm)
    kinds = [Kind(int(row["kind"])) for row in ring.records if row["comm_slot"] == slot]
    return {kind: kinds.count(kind) for kind in set(kinds)}


@pytest.mark.parametrize("variant", VARIANTS)
def test_operations_of_libraries_are_seen(variant: str, tmp_path: Path, nursery: Path) -> None:
    rings = finished("training", 4, tmp_path, variant, nursery)
    assert len(rings) == 4
    for ring in rings:
        assert ring.in_flight == ring.waits == []
        ddp = counts(ring, "DDP")
        assert ddp[Kind.ALL_REDUCE] == STEPS  # one bucket, reduced by C++ in backward
        assert ddp[Kind.BROADCAST] >= 1  # the first parameters
        # Each layer is gathered for forward and again for backward, the last one stays; each is reduced once.
        shard = counts(ring, "mesh_shard")
        assert shard[Kind.ALL_GATHER] >= 3 * STEPS
        assert shard[Kind.REDUCE_SCATTER] == 2 * STEPS
        # Forward of the row-parallel layer each step, and the compiled function.
        assert counts(ring, "mesh_tp")[Kind.ALL_REDUCE] >= 2 * STEPS
        # Activations one way, gradients the other, per microbatch, step and schedule; shapes are agreed on before.
        pipeline = counts(ring, "mesh_pp")
        crossings = MICROBATCHES * STEPS * 2
        assert pipeline[Kind.SEND] >= crossings
        assert pipeline[Kind.RECV] >= crossings
    for name in ("default_pg", "DDP", "mesh_shard", "mesh_tp"):
        by_id: dict[int, set[tuple[int, int]]] = {}
        for ring in rings:
            comm = ring.comms[name]
            by_id.setdefault(int(comm["comm_id"]), set()).add((int(comm["issued"]), int(comm["done"])))
        assert all(len(seen) == 1 for seen in by_id.values()), name
        assert all(issued == done for seen in by_id.values() for issued, done in seen)
    # What one stage sent the other received, pair by pair.
    for first, second in ((0, 2), (1, 3)):
        flows = [pair_counts(rings[first]), pair_counts(rings[second])]
        assert flows[0][Kind.SEND] == flows[1][Kind.RECV]
        assert flows[1][Kind.SEND] == flows[0][Kind.RECV]


def pair_counts(ring: Ring) -> dict[Kind, int]:
    return {kind: sum(int(p["done"]) for p in ring.pairs if p["kind"] == kind) for kind in (Kind.SEND, Kind.RECV)}

"""Which passes slow links of a pipeline hold up."""

from __future__ import annotations

import pytest
from batches import Node, comm_info

from whichrank.model.links import SlowLink
from whichrank.slow.directions import phase_of_links
from whichrank.store.store import Store


def of(*pairs: tuple[int, int], pipeline: str = "mesh_pp") -> str | None:
    """Two pipelines of four stages, ranks 0, 2, 4, 6 and 1, 3, 5, 7; pairs of neighbours share a group as well."""
    store = Store()
    comms = [comm_info(7, [0, 2, 4, 6], pipeline), comm_info(8, [1, 3, 5, 7], pipeline)]
    comms += [comm_info(10 + at, [2 * at, 2 * at + 1], "mesh_dp") for at in range(4)]
    store.feed(Node("a:1", list(range(8)), 8).comm(*comms).batch(1.0), 1.0)
    return phase_of_links(store, [SlowLink(src, dst, 1.0, 2.0, "path", 1.0, 0, 1) for src, dst in pairs])


@pytest.mark.parametrize(
    ("pairs", "phase"),
    [
        ([(2, 4)], "forward"),
        ([(4, 2)], "backward"),
        ([(2, 4), (3, 5)], "forward"),
        ([(2, 4), (5, 3)], None),
        ([(0, 4)], None),
        ([(6, 0)], None),
        ([(0, 1)], None),
        ([(0, 1), (2, 4)], None),
        ([(2, 5)], None),
    ],
)
def test_links_to_the_next_stage_carry_forward_passes(pairs: list[tuple[int, int]], phase: str | None) -> None:
    assert of(*pairs) == phase


def test_two_stages_are_before_and_behind_each_other() -> None:
    store = Store()
    store.feed(Node("a:1", [0, 1], 2).comm(comm_info(7, [0, 1], "mesh_pp")).batch(1.0), 1.0)
    assert phase_of_links(store, [SlowLink(0, 1, 1.0, 2.0, "path", 1.0, 0, 1)]) is None


def test_links_of_no_pipeline_have_no_phase() -> None:
    assert of((2, 4), pipeline="mesh_dp") is None

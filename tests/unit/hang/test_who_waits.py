"""Who waits for whom, for people: every rank that waits is shown once, whatever it waits in."""

from __future__ import annotations

import numpy as np
from batches import WORLD, Node, analyzer, comm_info

from whichrank.analyzer import Analyzer
from whichrank.hang.who_waits import Waiting, among, who_waits
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import PAIR_ROW


def waits_in(node: Node, *pairs: tuple[int, Kind, int, int]) -> tuple[Waiting, ...]:
    """Who waits for whom in what this node says; `pairs` are sends and receives: rank, kind, peer, how many issued."""
    one: Analyzer = analyzer()
    rows = np.zeros(len(pairs), PAIR_ROW)
    for row, (rank, kind, peer, issued) in zip(rows, pairs, strict=True):
        row["rank"], row["comm_id"], row["kind"], row["peer"], row["issued"] = rank, 7, kind, peer, issued
    one.feed(node.batch(10.0, pairs=rows.tobytes()), 5010.0)
    return who_waits(one.case, one.store.picture(5010.0))


def shown(waits: tuple[Waiting, ...]) -> list[tuple[str, list[int], list[int], int]]:
    return [(one.what, one.ranks.tolist(), one.targets.tolist(), one.distance) for one in waits]


def test_distances_lead_to_who_waits_for_nobody() -> None:
    # GIVEN ranks 0 and 1 that wait for rank 2, which waits for rank 3
    pair = comm_info(8, [2, 3], "mesh_tp")
    node = Node("a:1", [0, 1, 2, 3], 4).comm(WORLD, pair).did(2, 7, 8).did(3, 7, 8).did(3, 8, 4)
    node.waits(0, 7, 9, since_s=1.0).waits(1, 7, 9, since_s=1.0).waits(2, 8, 5, since_s=1.0)
    # THEN it is one step from rank 2 and from the others, which wait for rank 3 too
    assert shown(waits_in(node)) == [
        ("all_reduce #9 on default_pg", [0, 1], [2, 3], 1),
        ("all_reduce #5 on tp", [2], [3], 1),
    ]


def test_a_receive_that_was_answered_is_shown_with_its_sender() -> None:
    # GIVEN rank 1 in a receive that rank 0 has sent already, and rank 0 in a send that rank 2 has not received
    node = Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    node.waits(1, 7, 5, since_s=1.0, kind=Kind.RECV, peer=0)
    node.waits(0, 7, 1, since_s=1.0, kind=Kind.SEND, peer=2)
    waits = waits_in(node, (0, Kind.SEND, 1, 5), (1, Kind.RECV, 0, 5), (0, Kind.SEND, 2, 1))
    # THEN both stand in a box: no edge leads from rank 1, and it waits nevertheless
    assert shown(waits) == [("send on default_pg", [0], [2], 1), ("recv on default_pg", [1], [0], 2)]


def test_a_round_that_all_have_entered_waits_for_nobody() -> None:
    node = Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    for rank in range(4):
        node.waits(rank, 7, 9, since_s=1.0)
    assert shown(waits_in(node)) == [("all_reduce #9 on default_pg", [0, 1, 2, 3], [], 0)]


def test_nobody_waits() -> None:
    assert waits_in(Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)) == ()


def test_some_ranks_of_waits() -> None:
    waits = (
        Waiting("a", 3, np.array([1, 2, 5]), np.array([9]), 1),
        Waiting("b", 1, np.array([7]), np.array([9]), 1),
    )
    assert [(one.what, one.operations, one.ranks.tolist()) for one in among(waits, np.array([2, 3]))] == [("a", 1, [2])]

"""All-to-alls of sizes that differ each time: who left one out is known by the sizes, never by who aborts over it."""

from __future__ import annotations

import numpy as np
from batches import T0, Node, S, analyzer, comm_info, records, watch

from whichrank.model.codes import Flag
from whichrank.model.incident import Cause, Incident
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import SPLITS_REPORTED, Event, ProcessState

SENDS = {9: [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]], 10: [[20 + r] * 4 for r in range(4)]}
"""By round of the program, what each rank sends to each."""


def splits_of(meant: dict[int, int]) -> bytes:
    """What each rank sends and expects in round 9 of the communicator: that of the program's round given for it."""
    rows = np.zeros(len(meant), SPLITS_REPORTED)
    for reported, (rank, number) in zip(rows, meant.items(), strict=True):
        reported["rank"], reported["row"]["comm_id"], reported["row"]["counter"], reported["row"]["splits"] = (
            rank,
            7,
            9,
            4,
        )
        reported["row"]["split_in"][:4] = SENDS[number][rank]
        reported["row"]["split_out"][:4] = [SENDS[number][other][rank] for other in range(4)]
    return rows.tobytes()


def aborted(splits: bytes) -> list[Incident]:
    """Rank 0 aborts in round 9, in which rank 1 and 3 are as well; rank 2 has completed it and is in round 10."""
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(comm_info(7, [0, 1, 2, 3], "ep"))
    uneven = {"kind": Kind.ALL_TO_ALL, "flags": Flag.UNEVEN}
    rows = [records(rank, 7, 1, 8, **uneven) for rank in range(4)] + [records(2, 7, 9, 1, **uneven)]
    a.feed(n.batch(0.0, np.concatenate(rows)), T0 / S)
    for rank in range(4):
        n.waits(
            rank, 7, 10 if rank == 2 else 9, 0.5, Kind.ALL_TO_ALL, ordinal=10 if rank == 2 else 9, flags=Flag.UNEVEN
        )
    said = watch(a, n, first_s=0.5, last_s=1.0)
    n.is_(0, ProcessState.GONE, ended_ns=n.ns(1.2), exit_status=6)
    ended = [Event("exit", 0, 100, n.ns(1.2), status=6)]
    flights = n.batch(1.3, events=ended, splits=splits)
    a.feed(flights, T0 / S + 1.3)
    return said + watch(a, n, first_s=1.5, last_s=6.0)


def test_who_left_an_uneven_exchange_out_is_reported_by_the_sizes() -> None:
    # GIVEN rank 2 left round 9 out, and met the others with the sizes of the next WHEN rank 0 aborts over it
    said = aborted(splits_of({0: 9, 1: 9, 2: 10, 3: 9}))
    # THEN rank 2 is named, and what does not fit is reported
    assert {c.rank for i in said for c in i.culprits} == {2}
    last = said[-1]
    assert last.cause is Cause.INCONSISTENT
    assert any("sent to rank" in fact.what for fact in last.evidence)
    assert "whose sizes do not match those of its peers" in last.culprits[0].why


def test_of_one_pair_whose_sizes_do_not_match_both_ends_are_candidates_and_what_would_decide_is_said() -> None:
    said = aborted(splits_of({0: 9, 2: 10}))
    assert not [c for i in said for c in i.culprits]
    assert {c.rank for c in said[-1].candidates} == {0, 2}
    assert said[-1].next[0].startswith("compare what rank ")


def test_a_rank_that_aborts_where_sizes_are_not_known_is_a_candidate_and_no_culprit() -> None:
    # GIVEN the same, but what others send and expect is not known WHEN rank 0 aborts
    said = aborted(b"")
    # THEN it may be the doing of any member that takes part
    assert said
    assert not [c for i in said for c in i.culprits]
    assert {c.rank for c in said[-1].candidates} >= {0}

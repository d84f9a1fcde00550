"""Network requests of NCCL that are late: who is at their ends."""

from __future__ import annotations

from typing import Any

from whichrank.intake.grammar import worded
from whichrank.intake.late_requests import LateRequests, Process
from whichrank.model.reports import Told

RANK_OF: dict[Process, int] = {("n", 50 + rank): rank for rank in range(4)}
STALL, SLOW = "NCCL: a request that is late", "NCCL: a request that was slow"


def see(requests: LateRequests, name: str, rank: int, other: int, **more: Any) -> None:
    fields = {"own_gid": f"fe80::{rank}", "gid": f"fe80::{other}", "qpn": 100 + rank, "peer_qpn": 100 + other}
    fields |= {"host": "n", "pid": 50 + rank, "tid": 1, "local": 0, "peer": f"10.0.0.{other}<4791>", "in_flight": 3}
    assert requests.see(("n", 50 + rank), worded(name, **{**fields, "age_ns": 10**9, **more}))


def test_who_is_an_end_of_most_is_first() -> None:
    requests = LateRequests()
    for rank, other in ((1, 2), (2, 3), (0, 2)):
        see(requests, STALL, rank, other)
    (report,) = requests.reports(RANK_OF)
    assert (report.told, report.ranks) == (Told.REQUESTS_LATE, (2, 0, 1))
    assert "rank 1 to rank 2 by mlx5_0: 3 in flight for 1.0 s" in report.text


def test_the_queue_pair_says_which_of_the_ranks_of_one_port_it_is() -> None:
    # GIVEN ranks 2 and 3 share a port, and rank 1 waits for the queue pair of rank 3
    requests = LateRequests()
    see(requests, STALL, 2, 0, own_gid="fe80::9")
    see(requests, STALL, 3, 0, own_gid="fe80::9")
    see(requests, STALL, 1, 3, gid="fe80::9", age_ns=9 * 10**9)
    (report,) = requests.reports(RANK_OF)
    assert report.text.startswith("rank 1 to rank 3 by mlx5_0")
    assert report.ranks == (3, 1, 2)


def test_slow_requests_count_only_where_none_stalls() -> None:
    requests = LateRequests()
    for _ in range(2):
        see(requests, SLOW, 0, 1, age_ns=3 * 10**9)
    (report,) = requests.reports(RANK_OF)
    assert (report.told, report.text) == (Told.REQUESTS_SLOW, "rank 0 to 10.0.0.1<4791> by mlx5_0: 2 of up to 3.0 s")
    see(requests, STALL, 2, 3)
    (report,) = requests.reports(RANK_OF)
    assert (report.told, report.ranks) == (Told.REQUESTS_LATE, (2,))


def test_a_process_whose_rank_is_not_known_is_said_as_it_is() -> None:
    requests = LateRequests()
    see(requests, STALL, 0, 1)
    (report,) = requests.reports({})
    assert (report.ranks, report.text) == ((), "n:50 to 10.0.0.1<4791> by mlx5_0: 3 in flight for 1.0 s")

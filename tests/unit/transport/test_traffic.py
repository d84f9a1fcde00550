"""Transfers from rank to rank, from two snapshots of their connections; and which links are slow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.tcp_rows import end

from whichrank.locate.links import ends_of
from whichrank.locate.slow_links import LinkPast, matrix_of, rates_of, slow_links, without_paths_back
from whichrank.model.links import SlowLink, Transfers
from whichrank.transport.traffic import Traffic

S = 1_000_000_000
MB = 1_000_000
NODE = np.array([0, 0, 1, 1, 2, 2])


def address(rank: int) -> str:
    return f"10.0.0.{NODE[rank]}"


def snapshot(at_s: float, counters: dict[tuple[int, int], dict[str, int]]) -> np.ndarray:
    """What all kernels say: for each pair of ranks the counters of one connection, of the first one's end."""
    rows = [
        end(src, f"{address(src)}/{5000 + src}", f"{address(dst)}/{5000 + dst}", read_ns=int(at_s * S), **reported)
        for (src, dst), reported in counters.items()
    ]
    return np.concatenate(rows)


def traffic(*polls: np.ndarray) -> Traffic:
    known = Traffic()
    for rows in polls:
        known.sample(ends_of(rows, NODE[rows["rank"]]), rows)
    return known


def both_paths(pairs: list[tuple[int, int]], **counters: int) -> dict[tuple[int, int], dict[str, int]]:
    return {pair: dict(counters) for a, b in pairs for pair in ((a, b), (b, a))}


def test_what_counters_grew_by_is_what_went_over() -> None:
    # GIVEN two snapshots of a connection, ten seconds apart
    before = both_paths([(0, 2)], bytes_acked=5 * MB, busy_us=100_000)
    after = both_paths([(0, 2)], bytes_acked=25 * MB, busy_us=2_100_000, rwnd_limited_us=500_000, notsent_bytes=7)
    reported = traffic(snapshot(10, before), snapshot(20, after)).transfers(60)

    # THEN 20 MB went over in 2 s, of which the receiver had room for 1.5
    assert reported.src.tolist() == [0, 2]
    assert reported.dst.tolist() == [2, 0]
    assert reported.bytes_acked.tolist() == [20 * MB, 20 * MB]
    assert reported.active_s == pytest.approx([1.5, 1.5])
    assert reported.unsent_bytes.tolist() == [7, 7]
    assert reported.lasted_s == 10
    assert rates_of(reported).by_kernel == pytest.approx([20 * MB / 1.5] * 2)


def test_a_connection_on_which_nothing_went_over_says_no_delivery_rate() -> None:
    # GIVEN two connections of a rank to another, of which one has been idle since it delivered at a high rate
    def two(acked: int) -> np.ndarray:
        carried = {5000: (3 * MB, 900 * MB), 5001: (acked, 25 * MB)}
        back = [end(2, f"{address(2)}/5002", f"{address(0)}/{port}") for port in carried]
        out = [
            end(
                0, f"{address(0)}/{port}", f"{address(2)}/5002",
                read_ns=acked * S // MB, bytes_acked=sent, delivery_rate=rate,
            )
            for port, (sent, rate) in carried.items()
        ]  # fmt: skip
        return np.concatenate(out + back)

    reported = traffic(two(10 * MB), two(20 * MB)).transfers(60)
    assert reported.delivery[reported.src == 0].tolist() == [25 * MB]


def test_only_the_window_counts() -> None:
    polls = [snapshot(at_s, both_paths([(0, 2)], bytes_acked=at_s * MB)) for at_s in range(0, 60, 5)]
    assert traffic(*polls).transfers(10).bytes_acked.tolist() == [10 * MB, 10 * MB]


def test_the_same_snapshot_reported_again_is_no_news() -> None:
    one, two = (
        snapshot(10, both_paths([(0, 2)], bytes_acked=MB)),
        snapshot(20, both_paths([(0, 2)], bytes_acked=3 * MB)),
    )
    assert traffic(one, two, two, two).transfers(60).bytes_acked.tolist() == [2 * MB, 2 * MB]


def test_a_connection_that_is_new_has_sent_nothing_yet() -> None:
    reported = traffic(
        snapshot(10, both_paths([(0, 2)], bytes_acked=MB)), snapshot(20, both_paths([(1, 3)], bytes_acked=MB))
    )
    assert reported.transfers(60).bytes_acked.tolist() == [0, 0]
    assert Traffic().transfers(60).src.tolist() == []


def test_what_arrived_is_reported_of_the_path_to_the_rank_that_read_it() -> None:
    # GIVEN rank 2 that reads from rank 0 at 6 MB/s at first and then at 5 GB/s, and what lies unread at it
    def reported(arrived: int, rate: float, unread: int) -> dict[tuple[int, int], dict[str, Any]]:
        ours = {"bytes_acked": arrived, "unsent_bytes": 90_000}
        return {(0, 2): ours, (2, 0): {"arrived_bytes": arrived, "arrival_rate": rate, "unread_bytes": unread}}

    known = traffic(
        snapshot(5, reported(MB, 1e6, 3)),
        snapshot(10, reported(7 * MB, 6e6, 4)),
        snapshot(15, reported(11 * MB, 5e9, 0)),
    )
    path = known.transfers(60)

    # THEN most of it came slowly, and it is a matter of the path from rank 0 to rank 2
    assert path.arrived_bytes.tolist() == [10 * MB, 0]
    assert path.arrival[0] == 6e6
    assert np.isnan(path.arrival[1])
    assert (path.unread_bytes.tolist(), path.unacked_bytes[0] > 0) == ([7, 0], True)
    # AND in a shorter window it is what came last
    assert known.transfers(7).arrival[0] == 5e9


def test_connections_that_carry_alike_add_up() -> None:
    # GIVEN two connections between two ranks, and a third that carries little
    def reported(times: int) -> list[np.ndarray]:
        sent = [end(0, f"10.0.0.0/{port}", f"10.0.0.1/{port}", read_ns=times * S) for port in (7000, 7001, 7002)]
        return sent + [
            end(2, f"10.0.0.1/{port}", f"10.0.0.0/{port}", read_ns=times * S, arrived_bytes=times * mb * MB,
                arrival_rate=6e6 if times > 1 else 0.0)
            for port, mb in ((7000, 10), (7001, 10), (7002, 1))
        ]  # fmt: skip

    rows = [np.concatenate(reported(times)) for times in (1, 2)]
    assert traffic(*rows).transfers(60).arrival[0] == pytest.approx(6e6 * 2.1)


def transfers(rate: dict[tuple[int, int], float], **more: dict[tuple[int, int], float]) -> Transfers:
    """20 MB over each of these links in a window of 10 s, at so many MB/s."""
    pairs = list(rate)
    n = len(pairs)

    def column(name: str, default: float = 0.0) -> np.ndarray:
        return np.array([more.get(name, {}).get(pair, default) for pair in pairs])

    return Transfers(
        src=np.array([p[0] for p in pairs]), dst=np.array([p[1] for p in pairs]), bytes_acked=np.full(n, 20.0 * MB),
        busy_s=np.array([20 / rate[pair] for pair in pairs]) + column("receiver_s"), receiver_s=column("receiver_s"),
        sender_s=column("sender_s"), steady_bytes=column("steady_bytes", 10.0 * MB), resent=column("resent"),
        resent_lately=column("resent_lately"),
        unsent_bytes=column("unsent_bytes"),
        unacked_bytes=column("unacked_bytes"), unread_bytes=column("unread_bytes"),
        delivery=np.array([more.get("delivery", {}).get(pair, np.inf) for pair in pairs]),
        arrived_bytes=np.array([20.0 * MB * (pair in more.get("arrival", {})) for pair in pairs]),
        arrival=np.array([more.get("arrival", {}).get(pair, np.nan) for pair in pairs]), lasted_s=10.0,
    )  # fmt: skip


RING = {(0, 2): 50.0, (2, 4): 50.0, (4, 0): 50.0, (1, 3): 50.0, (3, 5): 50.0, (5, 1): 50.0}


def test_one_slow_link_is_reported_and_no_other() -> None:
    # GIVEN six links of which one goes at a quarter of the rate, with bytes left unsent
    reported = transfers(RING | {(2, 4): 12.5}, unsent_bytes={(2, 4): 80_000.0})

    # THEN it alone is slow, its path is named, and what it costs
    (link,) = slow_links(reported, NODE, LinkPast())
    assert (link.src, link.dst, link.end, link.unsent_bytes) == (2, 4, "path", 80_000)
    assert link.lost_s == pytest.approx(1.6 - 0.4)


def test_a_receiver_that_does_not_read_makes_no_link_slow() -> None:
    # GIVEN a rank that computes for long and reads late, so that its window closes
    assert slow_links(transfers(RING, receiver_s={(0, 2): 6.0}), NODE, LinkPast()) == []


@pytest.mark.parametrize("end_at_fault", ["sender", "receiver"])
def test_the_end_that_limits_is_named(end_at_fault: str) -> None:
    reported = transfers(RING | {(2, 4): 5.0}, **{f"{end_at_fault}_s": {(2, 4): 5.0}})
    assert slow_links(reported, NODE, LinkPast())[0].end == end_at_fault


def test_the_path_back_of_a_slow_link_is_not_slow() -> None:
    # GIVEN what rank 2 sends is limited, so that its acknowledgements to rank 0 come late, too
    reported = transfers(RING | {(2, 4): 12.5, (0, 2): 14.0}, delivery={(2, 4): 6.0 * MB, (0, 2): 11_000.0 * MB})
    # THEN what it sends is slow on its path, and of the path back nobody says where
    assert {(s.src, s.dst): s.end for s in slow_links(reported, NODE, LinkPast())} == {(2, 4): "path", (0, 2): None}


def test_links_within_a_node_are_no_network() -> None:
    assert slow_links(transfers(RING | {(0, 1): 1.0}), NODE, LinkPast()) == []


def test_two_links_are_compared_with_their_past_only() -> None:
    # GIVEN two links, of which one is slower by nature
    usual = transfers({(0, 2): 50.0, (2, 0): 10.0})
    past = LinkPast()
    assert slow_links(usual, NODE, past) == []

    # WHEN what is usual is known, and the first becomes slow THEN it alone is reported
    past.learn(usual, NODE)
    assert slow_links(usual, NODE, past) == []
    assert [
        (s.src, s.dst)
        for s in slow_links(transfers({(0, 2): 12.0, (2, 0): 10.0}, delivery={(0, 2): 12.0 * MB}), NODE, past)
    ] == [(0, 2)]


FAST: dict[tuple[int, int], float] = dict.fromkeys(RING, 5000.0 * MB)


def reported_links(reported: Transfers, past: LinkPast | None = None) -> list[tuple[int, int]]:
    slow = without_paths_back(slow_links(reported, NODE, past or LinkPast()), NODE)
    assert all(link.end == "path" for link in slow)
    return [(link.src, link.dst) for link in slow]


def test_the_path_on_which_data_arrive_slowly_is_reported_and_not_the_path_back() -> None:
    # GIVEN two paths of node 2 that are both slow for the senders' kernels, with bytes that wait on both
    kernel = RING | {(2, 4): 6.0, (4, 0): 6.5}
    waiting = {(2, 4): 90_000.0, (4, 0): 90_000.0}
    # THEN that one is reported on which data arrive slowly
    for path in ((2, 4), (4, 0)):
        reported = transfers(kernel, unsent_bytes=waiting, unacked_bytes=waiting, arrival=FAST | {path: 6.0 * MB})
        assert reported_links(reported) == [path]


def test_both_paths_of_a_node_can_be_slow() -> None:
    slow = {(2, 4): 6.0 * MB, (4, 0): 6.0 * MB}
    kernel = RING | dict.fromkeys(slow, 5.0)
    reported = transfers(kernel, unacked_bytes=dict.fromkeys(slow, 90_000.0), arrival=FAST | slow)
    assert sorted(reported_links(reported)) == sorted(slow)


def test_a_receiver_that_seldom_gets_to_read_makes_no_path_slow() -> None:
    # GIVEN reads that find data long after they came in: they lie unread, and the sender's kernel delivers as ever
    late = {(2, 4): 40.0 * MB}
    reported = transfers(RING, unread_bytes={(2, 4): 90_000.0}, arrival=FAST | late)
    assert slow_links(reported, NODE, LinkPast()) == []
    # AND at a pace that the kernels saw exceeded, nobody knows where as long as its own estimate is high
    late = {(2, 4): 30.0 * MB}
    reported = transfers(RING, unread_bytes={(2, 4): 90_000.0}, arrival=FAST | late)
    assert reported_links(reported) == []
    assert [(s.src, s.dst, s.end) for s in slow_links(reported, NODE, LinkPast())] == [(2, 4, None)]
    # BUT it is the path if that estimate is as low
    delivered = transfers(RING, unread_bytes={(2, 4): 9.0}, arrival=FAST | late, delivery={(2, 4): 50.0 * MB})
    assert reported_links(delivered) == [(2, 4)]


def test_where_a_receiver_came_late_before_its_path_is_no_slower_than_it_was() -> None:
    # GIVEN cables of 26 MB/s, and a window in which a receiver came late and found most of its data ready
    limited = dict.fromkeys(RING, 26.0 * MB)
    kernel, past = dict.fromkeys(RING, 18.0), LinkPast()
    waiting = dict.fromkeys(RING, 90_000.0)
    past.learn(transfers(kernel, arrival=limited | {(2, 4): 154.0 * MB, (4, 0): 5000.0 * MB}), NODE)
    # THEN data that come at the pace of the cable again are no news
    assert slow_links(transfers(kernel, arrival=limited, unacked_bytes=waiting), NODE, past) == []
    # BUT a cable that carries less is
    kernel[2, 4], limited[2, 4] = 5.0, 6.0 * MB
    reported = slow_links(transfers(kernel, arrival=limited, unacked_bytes=waiting), NODE, past)
    assert [(link.src, link.dst, link.end) for link in reported] == [(2, 4, "path")]


@pytest.mark.parametrize(("pace", "is_slow"), [(5000.0, False), (1000.0, True)])
def test_data_that_lie_ready_are_copied_at_paces_that_differ(pace: float, is_slow: bool) -> None:
    # GIVEN small messages that lie ready when they are read, so that they come at the pace of a copy
    kernel, ready, past = dict.fromkeys(RING, 9.0), dict.fromkeys(RING, 21_000.0 * MB), LinkPast()
    past.learn(transfers(kernel, arrival=ready), NODE)
    # WHEN one path is copied from at another pace, and its sender's kernel sees less than half of what it saw
    now = transfers(kernel | {(2, 4): 4.2}, arrival=ready | {(2, 4): pace * MB}, delivery={(2, 4): 500.0 * MB})
    # THEN that is no slow way, unless the pace is far from any copy's
    assert [(link.src, link.dst) for link in slow_links(now, NODE, past)] == [(2, 4)] * is_slow


def test_the_one_pace_of_all_paths_is_what_they_carry_though_kernels_see_less() -> None:
    # GIVEN cables of 26 MB/s, and messages so small that kernels see ten
    kernel, even, past = dict.fromkeys(RING, 10.0), dict.fromkeys(RING, 26.0 * MB), LinkPast()
    past.learn(transfers(kernel, arrival=even), NODE)
    # WHEN data on one of them come at eight, which is little less than kernels see
    slower = even | {(2, 4): 8.0 * MB}
    waiting = {(2, 4): 90_000.0}
    now = transfers(kernel | {(2, 4): 6.0}, arrival=slower, unacked_bytes=waiting)
    # THEN it is slow
    assert reported_links(now, past) == [(2, 4)]
    # BUT not where its kernel sees it as fast as ever, it was never at that pace, or the others have several
    assert slow_links(transfers(kernel, arrival=slower, unacked_bytes=waiting), NODE, past) == []
    assert slow_links(now, NODE, LinkPast()) == []
    uneven = {path: (place + 1) * 20.0 * MB for place, path in enumerate(RING)} | {(2, 4): 8.0 * MB}
    assert slow_links(transfers(kernel | {(2, 4): 6.0}, arrival=uneven, unacked_bytes=waiting), NODE, past) == []


@pytest.mark.parametrize(("kernel", "is_slow"), [(4.0, True), (14.3, False)])
def test_a_path_over_which_more_goes_than_data_seem_to_come_is_not_slow(kernel: float, is_slow: bool) -> None:
    # GIVEN cables of 25 MB/s, of which kernels see 19, and data of one sender that come at 12, since it paces them
    past, usual, even = LinkPast(), dict.fromkeys(RING, 19.3), dict.fromkeys(RING, 25.4 * MB)
    past.learn(transfers(usual, arrival=even), NODE)
    waiting = {(2, 4): 230_000.0}
    now = transfers(usual | {(2, 4): kernel}, arrival=even | {(2, 4): 12.2 * MB}, unacked_bytes=waiting)
    # THEN its path is slow if its kernel sees no more than that, either
    assert [(link.src, link.dst) for link in slow_links(now, NODE, past)] == [(2, 4)] * is_slow


def test_a_path_that_was_hardly_used_before_can_have_become_slow() -> None:
    # GIVEN a sound path on which something was under way for less than a fiftieth of the time
    past = LinkPast()
    past.learn(transfers(dict.fromkeys(RING, 4000.0), arrival=FAST), NODE)
    slow = transfers(RING | {(2, 4): 20.0}, arrival=FAST | {(2, 4): 25.0 * MB}, unacked_bytes={(2, 4): 90_000.0})
    assert [(link.src, link.dst) for link in slow_links(slow, NODE, past)] == [(2, 4)]


def test_a_pace_that_costs_nothing_is_not_slow() -> None:
    # GIVEN a path that is a quarter as fast, at which 20 MB take a hundredth of a second
    reported = transfers(RING, unacked_bytes={(2, 4): 9.0}, arrival=FAST | {(2, 4): 1250.0 * MB})
    assert slow_links(reported, NODE, LinkPast()) == []


@pytest.mark.parametrize(("slow", "back"), [((2, 4), (4, 0)), ((4, 0), (2, 4))])
def test_a_path_that_is_answered_where_the_pace_is_slow_is_not_reported_by_its_kernel(
    slow: tuple[int, int], back: tuple[int, int]
) -> None:
    # GIVEN one path of node 2 on which data arrive slowly, and the other one, of which no pace is known any more
    past = LinkPast()
    past.learn(transfers(RING, arrival=FAST), NODE)
    waiting = dict.fromkeys((slow, back), 90_000.0)
    arrival = {path: pace for path, pace in FAST.items() if path != back} | {slow: 6.0 * MB}
    reported = transfers(RING | {slow: 6.0, back: 6.0}, unsent_bytes=waiting, unacked_bytes=waiting, arrival=arrival)
    # THEN its sender's kernel, to which answers come late, is not believed
    assert reported_links(reported, past) == [slow]

    # NOR if it sends a little again for that BUT if it sends much again, that is lost
    def reported_at(resent: float) -> list[tuple[int, int]]:
        both = RING | {slow: 6.0, back: 6.0}
        more = {"unsent_bytes": waiting, "unacked_bytes": waiting, "arrival": arrival}
        return sorted(reported_links(transfers(both, resent={back: resent}, **more), past))

    assert reported_at(0.006) == [slow]
    assert reported_at(0.065) == sorted([slow, back])


def test_a_slow_path_whose_receiver_often_finds_data_ready_costs_what_the_kernel_says() -> None:
    # GIVEN more than half of the data are read at a pace that would cost a thirtieth of a second
    arrival, delivery = FAST | {(2, 4): 650.0 * MB}, dict.fromkeys(RING, 4700.0 * MB)
    kernel = RING | {(2, 4): 12.0, (0, 2): 20.0}
    # WHEN the sender's kernel delivers slowly as well THEN the path is reported, and what it costs by that kernel
    reported, past = transfers(kernel, arrival=arrival, delivery=delivery | {(2, 4): 25.0 * MB}), LinkPast()
    past.learn(transfers(RING, arrival=FAST, delivery=delivery), NODE)
    (link,) = slow_links(reported, NODE, past)
    assert (link.src, link.dst, link.end) == (2, 4, "path")
    assert (link.rate, link.lost_s) == (pytest.approx(12.0 * MB), pytest.approx(20 / 12 - 20 / 50))
    # BUT not if it delivers as ever, or data lie ready nowhere now, or the pace is nearly as usual
    assert slow_links(transfers(kernel, arrival=arrival, delivery=delivery), NODE, past) == []
    waited_for = dict.fromkeys(RING, 700.0 * MB) | {(2, 4): 650.0 * MB}
    assert slow_links(transfers(kernel, arrival=waited_for, delivery=delivery | {(2, 4): 25.0 * MB}), NODE, past) == []
    nearly = transfers(kernel, arrival=FAST | {(2, 4): 1600.0 * MB}, delivery=delivery | {(2, 4): 25.0 * MB})
    assert slow_links(nearly, NODE, past) == []
    # NOR if that kernel has never seen it faster: small messages, say, where other paths carry large ones
    assert slow_links(reported, NODE, LinkPast()) == []


def test_paths_that_carry_other_messages_are_not_compared_by_what_their_receivers_find() -> None:
    # GIVEN cables of 26 MB/s; one path round a ring small messages are waited for, on the other large ones lie ready
    back = {(dst, src): 160.0 * MB for src, dst in RING}
    kernel = dict.fromkeys(RING, 6.0) | dict.fromkeys(back, 16.0)
    reported = transfers(
        kernel, arrival=dict.fromkeys(RING, 25.0 * MB) | back, unsent_bytes=dict.fromkeys(kernel, 3000.0),
        unacked_bytes=dict.fromkeys(kernel, 90_000.0), delivery=dict.fromkeys(RING, 14.0 * MB),
    )  # fmt: skip
    assert slow_links(reported, NODE, LinkPast()) == []


def test_a_path_that_loses_data_is_reported_though_what_arrives_arrives_at_once() -> None:
    def reported_at(rate: float, resent: float) -> list[tuple[int, int]]:
        return reported_links(transfers(RING | {(2, 4): rate}, arrival=FAST, resent={(2, 4): resent}))

    assert reported_at(12.0, 0.01) == [(2, 4)]
    assert reported_at(12.0, 0.001) == []
    # AND sooner than one that loses less, since so much sent again shows by itself that something is wrong with it
    assert reported_at(35.0, 0.03) == [(2, 4)]
    assert reported_at(47.0, 0.03) == reported_at(35.0, 0.01) == reported_at(35.0, 0.0) == []


def test_a_path_that_loses_far_more_than_the_others_is_reported_soonest() -> None:
    path = (2, 4)

    def reported_beside(others: float, rate: float) -> list[tuple[int, int]]:
        resent = dict.fromkeys(RING, others) | {path: 0.05}
        return reported_links(transfers(RING | {path: rate}, arrival=FAST, resent=resent))

    assert reported_beside(0.0, 43.0) == reported_beside(0.01, 43.0) == [path]
    # BUT not in a network that is full: all lose some
    assert reported_beside(0.03, 43.0) == []
    assert reported_beside(0.03, 35.0) == [path]


def test_what_is_sent_again_since_answers_come_late_is_no_loss() -> None:
    # GIVEN a node that sends slowly, by pace and kernel; a little of what is sent to it is sent again
    past = LinkPast()
    past.learn(transfers(RING, arrival=FAST), NODE)
    kernel, resent = RING | {(2, 4): 20.0}, {(2, 4): 0.012}
    late = transfers(kernel | {(4, 0): 20.0}, arrival=FAST | {(4, 0): 2000.0 * MB}, resent=resent)
    assert reported_links(late, past) == []
    # BUT where it sends as ever, or much is sent again, that is lost
    assert reported_links(transfers(kernel, arrival=FAST, resent=resent), past) == [(2, 4)]
    much = transfers(kernel | {(4, 0): 20.0}, arrival=FAST | {(4, 0): 2000.0 * MB}, resent={(2, 4): 0.03})
    assert reported_links(much, past) == [(2, 4)]


def test_a_path_that_carries_something_once_is_not_reported() -> None:
    # GIVEN a model that was sent to all when the job began, by a kernel that was the slower the later it was looked at
    slow, unsent = RING | {(2, 4): 5.0}, {(2, 4): 1e6}
    assert reported_links(transfers(slow, unsent_bytes=unsent)) == [(2, 4)]
    assert reported_links(transfers(slow, unsent_bytes=unsent, steady_bytes={(2, 4): 0.0})) == []


def test_what_is_sent_again_counts_where_it_is_so_all_the_time() -> None:
    # GIVEN looks every half window WHEN a hundredth is sent again, all the time, in the later half, or few segments
    def seen(*again: int, carried: int = 10 * MB) -> Transfers:
        polls = [
            snapshot(5 * at, both_paths([(0, 2)], bytes_acked=at * carried, total_retrans=total))
            for at, total in enumerate(again)
        ]
        return traffic(*polls).transfers(10)

    def resent(*again: int, carried: int = 10 * MB) -> tuple[float, float]:
        reported = seen(*again, carried=carried)
        return round(float(reported.resent[0]), 3), float(reported.steady_bytes[0])

    assert resent(0, 70, 140) == (0.01, 10 * MB)
    assert resent(0, 0, 70) == (0.0, 10 * MB)
    assert [round(float(reported.resent_lately[0]), 3) for reported in (seen(0, 0, 70), seen(0, 70, 70))] == [0.01, 0.0]
    assert resent(0, 9, 18, carried=100_000) == (0.0, 100_000)
    # AND a connection that is younger than a window has not carried anything all the time
    assert resent(0, 70) == (0.0, 0.0)


def test_rates_of_the_two_kinds_are_never_compared() -> None:
    # GIVEN a past in which the pace of arrival was known WHEN it no longer is THEN the kernel's rate is not held to it
    past = LinkPast()
    past.learn(transfers({(0, 2): 50.0}, arrival={(0, 2): 5000.0 * MB}), NODE)
    assert slow_links(transfers({(0, 2): 45.0}), NODE, past) == []
    (cell,) = matrix_of(transfers({(0, 2): 45.0}, arrival={(0, 2): 4000.0 * MB}), NODE, past, 9)
    assert (cell.rate, cell.best) == (4000 * MB, 5000 * MB)
    # AND its cell is given no rate of the other kind, which would look like a fault; the best is never below the latest
    assert matrix_of(transfers({(0, 2): 45.0}), NODE, past, 9) == ()
    (cell,) = matrix_of(transfers({(0, 2): 45.0}, arrival={(0, 2): 6000.0 * MB}), NODE, past, 9)
    assert (cell.rate, cell.best) == (6000 * MB, 6000 * MB)
    kernels = LinkPast()
    kernels.learn(transfers({(0, 2): 50.0}), NODE)
    (cell,) = matrix_of(transfers({(0, 2): 45.0}), NODE, kernels, 9)
    assert (cell.rate, cell.best, cell.paced) == (45 * MB, 50 * MB, False)


def test_a_link_that_is_reported_has_its_cell_though_its_pace_is_not_known_any_more() -> None:
    past = LinkPast()
    past.learn(transfers(RING, arrival=FAST), NODE)
    now = transfers(RING | {(2, 4): 5.0}, arrival={path: rate for path, rate in FAST.items() if path != (2, 4)})
    reported = slow_links(now, NODE, past)
    assert [(link.src, link.dst) for link in reported] == [(2, 4)]
    slowest = matrix_of(now, NODE, past, 9, reported)[0]
    assert (slowest.src, slowest.dst, slowest.rate, slowest.paced) == (2, 4, 5 * MB, False)


def test_what_a_path_within_a_node_could_do_is_no_past_of_one_between_nodes() -> None:
    # GIVEN two ranks that were on one node WHEN they are placed on two
    past = LinkPast()
    past.learn(transfers({(0, 1): 9000.0, (0, 2): 50.0}), NODE)
    apart = np.arange(6)
    assert slow_links(transfers({(0, 1): 50.0, (0, 2): 50.0}), apart, past) == []


def test_few_bytes_say_nothing() -> None:
    reported = transfers(RING | {(2, 4): 5.0})
    few = Transfers(**{**reported.__dict__, "bytes_acked": reported.bytes_acked / 1000})
    assert slow_links(few, NODE, LinkPast()) == []


@pytest.mark.parametrize("seen", ["there", "back", "both"])
@pytest.mark.parametrize("dst", [2, 0], ids=["of three nodes", "of two nodes"])
def test_late_acknowledgements_of_a_node_whose_links_are_slow_accuse_nobody(seen: str, dst: int) -> None:
    # GIVEN what node 2 sends is slow, and what is sent to it waits for its acknowledgements: bytes pile up somewhere
    slow = [
        SlowLink(0, 4, 7e6, 1e8, "path" if seen != "there" else None, 3.0, 90_000),
        SlowLink(4, dst, 6e6, 1e8, "path" if seen != "back" else None, 2.0, 0),
    ]
    # THEN the slower path is reported, and the other one is not
    assert [(link.src, link.dst, link.end) for link in without_paths_back(slow, NODE)] == [(4, dst, "path")]


@pytest.mark.parametrize("back", [6.1e6, 6e6, 3e6])
def test_two_paths_of_a_node_of_which_either_may_be_the_slow_one_are_not_reported(back: float) -> None:
    slow = [SlowLink(0, 4, back, 1e8, "path", 3.0, 90_000), SlowLink(4, 2, 6e6, 1e8, "path", 2.0, 0)]
    assert without_paths_back(slow, NODE) == []


def test_a_slow_link_of_which_no_kernel_says_anything_is_not_reported() -> None:
    assert without_paths_back([SlowLink(0, 4, 6e6, 1e8, None, 3.0, 0)], NODE) == []


def test_an_end_that_limits_is_reported_wherever_it_is() -> None:
    slow = [SlowLink(0, 4, 6e6, 1e8, "receiver", 3.0, 0), SlowLink(4, 2, 6e6, 1e8, "path", 2.0, 0)]
    assert without_paths_back(slow, NODE) == slow


def test_a_path_that_stalls_is_reported_though_what_comes_after_a_pause_comes_at_once() -> None:
    # GIVEN paths of 50 MB/s, one of which has something under way most of the time, at a rate far below its own
    past = LinkPast()
    past.learn(transfers(RING, arrival=FAST), NODE)

    def reported(now: dict[tuple[int, int], float], before: LinkPast) -> list[tuple[int, int]]:
        seen = transfers(now, arrival=FAST, unsent_bytes=dict.fromkeys(now, 1e6))
        return [(link.src, link.dst) for link in slow_links(seen, NODE, before) if link.end]

    assert reported(RING | {(2, 4): 3.5}, past) == [(2, 4)]
    # AND not where it is under way for a part of the time, or others are no faster now
    assert reported(RING | {(2, 4): 6.0}, past) == reported(dict.fromkeys(RING, 3.5), past) == []
    # AND one that was never faster where it is far below the others, not where they are not much better
    assert reported(RING | {(2, 4): 3.5}, LinkPast()) == [(2, 4)]
    assert reported(dict.fromkeys(RING, 8.0) | {(2, 4): 3.5}, LinkPast()) == []


def test_a_path_that_is_slow_now_and_then_is_reported_though_most_arrives_at_its_usual_pace() -> None:
    # GIVEN paths that were at 4.0 to 4.4 MB/s, and are; one has something under way at two thirds of that
    past, waiting = LinkPast(), dict.fromkeys(RING, 1e5)
    for rate in (4.4, 4.0):
        past.learn(transfers(dict.fromkeys(RING, rate), arrival=FAST), NODE)
    now = dict.fromkeys(RING, 4.2)

    def reported(rate: float, unsent: dict[tuple[int, int], float]) -> list[tuple[int, int]]:
        seen = transfers(now | {(2, 4): rate}, arrival=FAST, unsent_bytes=unsent)
        return [(link.src, link.dst) for link in slow_links(seen, NODE, past) if link.end == "path"]

    assert reported(2.7, waiting) == [(2, 4)]
    # BUT not within what it was at least, where no bytes wait, or without a past: what goes over once is none
    assert reported(2.9, waiting) == reported(2.7, {}) == []
    past = LinkPast()
    past.learn(transfers(dict.fromkeys(RING, 4.0), arrival=FAST, steady_bytes=dict.fromkeys(RING, 0.0)), NODE)
    assert reported(2.7, waiting) == []


def test_what_goes_over_once_is_not_what_a_path_can_do() -> None:
    # GIVEN all paths share the cables of their nodes; then a model is gathered, one path after the other
    past, once = LinkPast(), dict.fromkeys(RING, 0.0)
    past.learn(transfers(RING, steady_bytes=once), NODE, only_new=True)
    past.learn(transfers(dict.fromkeys(RING, 150.0), steady_bytes=once), NODE)
    assert past.usual(transfers(RING)).by_kernel == pytest.approx(50 * MB)
    # AND what goes over all the time counts
    past.learn(transfers(dict.fromkeys(RING, 60.0)), NODE, only_new=True)
    assert past.usual(transfers(RING)).by_kernel == pytest.approx(50 * MB)
    past.learn(transfers(dict.fromkeys(RING, 60.0)), NODE)
    assert past.usual(transfers(RING)).by_kernel == pytest.approx(60 * MB)


def test_of_a_great_many_paths_the_one_that_became_slow_is_found() -> None:
    # GIVEN many paths of small messages, slow as ever, beside a few that are fast and one that was
    node = np.arange(40)
    small = {(a, b): 3.0 for a in range(20) for b in range(20, 40)}
    fast = {(a + 20, a): 100.0 for a in range(6)}
    past = LinkPast()
    past.learn(transfers(small | fast), node)
    now = transfers(small | fast | {(20, 0): 4.0}, unsent_bytes={(20, 0): 1e6})
    assert (20, 0) in [(link.src, link.dst) for link in slow_links(now, node, past) if link.end == "path"]


def test_paths_back_that_carry_little_are_not_compared_with_what_carries_much() -> None:
    # GIVEN what is sent to a node is slow, and its small answers wait behind it
    def link(src: int, dst: int, rate: float, carried: int) -> SlowLink:
        return SlowLink(src, dst, rate, 4 * rate, "path", 1.0, 9, carried)

    into, back = [link(0, 2, 3.0, 25 * MB), link(4, 2, 3.0, 25 * MB)], [link(2, 0, 0.25, MB), link(2, 4, 0.25, MB)]
    assert without_paths_back([*into, *back], NODE) == []
    # AND where both carry alike the slower one is reported
    alike = [link(2, 0, 0.25, 20 * MB), link(2, 4, 0.25, 20 * MB)]
    assert without_paths_back([*into, *alike], NODE) == alike


def test_of_connections_that_stall_both_paths_no_path_is_reported_but_they_are() -> None:
    # GIVEN a connection with something under way both paths most of the time, and no kernel that knows why
    past = LinkPast()
    past.learn(transfers(RING, arrival=FAST), NODE)
    both = RING | {(2, 4): 3.5, (4, 2): 3.5}
    slow = slow_links(transfers(both, arrival=FAST | {(4, 2): 5000.0 * MB}), NODE, past)
    reported = [(link.src, link.dst, link.end) for link in without_paths_back(slow, NODE)]
    assert sorted(reported) == [(2, 4, None), (4, 2, None)]

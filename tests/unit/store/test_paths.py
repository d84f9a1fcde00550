"""A node that is lost, a path that is dead: by the kernels' own word, and never by silence alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import T0, Node, S, analyzer, comm_info
from tests.unit.tcp_rows import dead_end, end

from whichrank.analyzer import Analyzer
from whichrank.model.commands import Pace, ProbePaths
from whichrank.model.incident import Cause, Incident
from whichrank.model.telemetry import TCP_ROW, WORD_EVERY_S, WORD_TO_NEIGHBOUR_EVERY_S, Event, Probe
from whichrank.store.paths import MOST_OF_A_RANK, Paths, those_that_matter

ALL = comm_info(7, [0, 1, 2, 3, 4, 5], "default_pg")
HEALTHY = {"last_ack_recv_ms": 10}


def three_nodes() -> list[Node]:
    """Two ranks on each of three nodes; 4 and 5, on the third, have not entered the round in which the others wait."""
    nodes = [Node(f"{host}:1", [2 * i, 2 * i + 1], 6).comm(ALL) for i, host in enumerate("abc")]
    for rank in range(6):
        node = nodes[rank // 2]
        node.did(rank, 7, 8) if rank > 3 else node.waits(rank, 7, 9, since_s=1.0)
    return nodes


def at(rank: int) -> str:
    return f"10.0.0.{rank // 2}/{5000 + rank}"


def ends(*pairs: tuple[int, int], dead: bool) -> bytes:
    made = [dead_end(a, at(a), at(b)) if dead else end(a, at(a), at(b), **HEALTHY) for a, b in pairs]
    return b"".join(row.tobytes() for row in made)


def fed(a: Analyzer, reporter: Node, at_s: float, connections: bytes = b"", **more: Any) -> None:
    """A batch with connections that were looked at just then."""
    rows = np.frombuffer(connections, TCP_ROW).copy()
    rows["read_ns"] = reporter.ns(at_s)
    a.feed(reporter.batch(at_s, connections=rows.tobytes(), **more), T0 / S + at_s)


def reported(
    dead: dict[int, bytes],
    silent_after_s: float = 2.0,
    beside: int = -1,
    until_s: float = 12.0,
    probes: dict[int, tuple[int, int]] | None = None,
) -> list[Incident]:
    """Node 2 (ranks 4 and 5) falls silent; the kernels of the others then say `dead`, by node.

    `probes` says of a node how many of 16 its agent got answered by node 2, and by the other one.
    """
    a, nodes = analyzer(), three_nodes()
    said: list[Incident] = []
    for step in range(int(2 * until_s)):
        at_s = step / 2
        for number, node in enumerate(nodes):
            if number == 2 and at_s > silent_after_s:
                continue
            more: dict[str, Any] = {"beside_analyzer": number == beside}
            if step == 0:  # all is well: who is where
                there = {0: [(0, 4), (1, 5)], 1: [(2, 4), (3, 5)], 2: [(4, 0), (5, 1), (4, 2), (5, 3)]}[number]
                more["connections"] = ends(*there, dead=False)
            elif at_s > silent_after_s and number in dead:
                more["connections"] = dead[number]
            if probes and number in probes and at_s > silent_after_s:
                targets = ("10.0.0.2", f"10.0.0.{1 - number}")
                answers = [Probe(to, 16, got, 1) for to, got in zip(targets, probes[number], strict=True)]
                more["events"] = [Event("probe", -1, 0, 0, probe=probe) for probe in answers]
            fed(a, node, at_s, **more)
        said += a.tick(T0 / S + at_s + 0.1)
    return said


def test_a_silent_node_that_two_others_cannot_reach_is_lost() -> None:
    said = reported({0: ends((0, 4), dead=True), 1: ends((2, 4), (3, 5), dead=True)})

    # THEN its ranks are named soon, long before the hang timeout
    assert said[-1].cause == Cause.NODE_LOST
    assert [c.rank for c in said[-1].culprits] == [4, 5]
    assert said[-1].severity == "alert"
    assert not said[-1].complete
    assert set(said[-1].victims.ranks) == {0, 1, 2, 3}


def test_where_each_other_node_knows_by_itself_not_all_answers_are_waited_for() -> None:
    # GIVEN two nodes with dead connections to a silent one; one of them has probed there in vain, or mostly in vain
    dead = {0: ends((0, 4), dead=True), 1: ends((2, 4), (3, 5), dead=True)}
    soon, some, later = (reported(dead, probes=probes) for probes in ({0: (0, 16)}, {0: (5, 16)}, None))
    # THEN the other one's answer is waited for no more; if some are answered it is no lost node
    assert soon[0].cause == later[0].cause == Cause.NODE_LOST
    assert soon[0].detected < later[0].detected
    assert not any(incident.culprits for incident in some)


def test_the_analyzers_own_node_is_a_witness_by_the_silence_itself() -> None:
    assert reported({1: ends((2, 4), dead=True)}, beside=0)[-1].cause == Cause.NODE_LOST


@pytest.mark.parametrize("beside", [-1, 1])
def test_the_word_of_one_other_node_is_not_enough(beside: int) -> None:
    # GIVEN one node whose connections are dead, be it the analyzer's own: it may be the one that is cut off
    said = reported({1: ends((2, 4), dead=True)}, beside=beside)

    # THEN nobody is named, and the path is: long before the hang timeout
    assert all(not i.culprits for i in said)
    assert (said[-1].severity, said[-1].cause, said[-1].fault_class) == ("alert", Cause.TRANSPORT, "H3")
    assert [(link.src, link.dst) for link in said[-1].links] == [(2, 4)]


def test_silence_alone_names_nobody() -> None:
    # GIVEN a node whose agent has died, and whose ranks go on answering
    said = reported({0: ends((0, 4), dead=False), 1: ends((2, 4), dead=False)}, until_s=30.0)

    assert all(i.cause == Cause.UNKNOWN for i in said)
    assert all(not i.culprits for i in said)


def test_one_connection_that_is_answered_shows_that_the_node_lives() -> None:
    said = reported({0: ends((0, 4), dead=False), 1: ends((2, 4), (3, 5), dead=True)}, beside=0, until_s=6.0)

    assert all(i.cause != Cause.NODE_LOST for i in said)


def test_half_of_a_job_or_more_that_is_silent_is_no_lost_node() -> None:
    # GIVEN the node that is silent has most ranks
    a = analyzer()
    few, many = Node("a:1", [0, 1], 6).comm(ALL), Node("b:1", [2, 3, 4, 5], 6).comm(ALL)
    for rank in range(6):
        few.waits(rank, 7, 9, since_s=1.0) if rank < 2 else many.did(rank, 7, 8)
    fed(a, many, 0.0, ends((4, 0), (2, 1), dead=False))
    said: list[Incident] = []
    for step in range(16):
        few_ends = ends((0, 4), (1, 2), dead=step > 1)
        fed(a, few, step / 2, few_ends, beside_analyzer=True)
        said += a.tick(T0 / S + step / 2 + 0.1)

    assert all(not i.culprits for i in said)


def test_a_dead_path_between_ranks_that_run_is_reported_at_once_with_its_link() -> None:
    # GIVEN all have entered and all nodes are heard, and what rank 1 sends to rank 4 is never acknowledged
    a, nodes = analyzer(), three_nodes()
    for rank in (4, 5):
        nodes[2].waits(rank, 7, 9, since_s=1.0)
    said: list[Incident] = []
    for step in range(12):
        at_s = step / 2
        for number, node in enumerate(nodes):
            there = {0: [(1, 4)], 1: [], 2: [(4, 1)]}[number]
            rows = ends(*there, dead=number == 0 and at_s > 2)
            fed(a, node, at_s, rows)
        said += a.tick(T0 / S + at_s + 0.1)

    assert (said[-1].cause, said[-1].severity, said[-1].fault_class) == (Cause.TRANSPORT, "alert", "H3")
    assert [(link.src, link.dst) for link in said[-1].links] == [(1, 4)]
    assert any(e.what.startswith("retransmissions") and e.value == 4 for e in said[-1].evidence)
    assert not said[-1].culprits


def test_ends_that_were_polled_long_ago_say_nothing_of_now() -> None:
    a, nodes = analyzer(), three_nodes()
    for rank in (4, 5):
        nodes[2].waits(rank, 7, 9, since_s=1.0)
    said: list[Incident] = []
    for step in range(20):
        for number, node in enumerate(nodes):
            first = step == 0 and number == 0
            fed(a, node, step / 2, ends((1, 4), dead=True) if first else b"")
        if step > 12:
            said += a.tick(T0 / S + step / 2 + 0.1)

    assert all(not i.links for i in said)


def test_what_was_reported_late_is_as_old_as_its_snapshot() -> None:
    # GIVEN a look at a kernel that is reported again and again
    a, nodes = analyzer(), three_nodes()
    for rank in (4, 5):
        nodes[2].waits(rank, 7, 9, since_s=1.0)
    old = np.frombuffer(ends((1, 4), dead=True), TCP_ROW).copy()
    old["read_ns"] = nodes[0].ns(0.0)
    said: list[Incident] = []
    for step in range(20):
        for number, node in enumerate(nodes):
            a.feed(node.batch(step / 2, connections=old.tobytes() if number == 0 else b""), T0 / S + step / 2)
        if step > 12:
            said += a.tick(T0 / S + step / 2 + 0.1)

    assert all(not i.links for i in said)


def partition(silent: list[int], dead: dict[int, bytes], beside: int = 0, until_s: float = 12.0) -> list[Incident]:
    """Five nodes of two ranks; these fall silent at once, and the kernels of others say `dead`."""
    world = comm_info(7, list(range(10)), "default_pg")
    nodes = [Node(f"{host}:1", [2 * i, 2 * i + 1], 10).comm(world) for i, host in enumerate("abcde")]
    for rank in range(10):
        node = nodes[rank // 2]
        node.did(rank, 7, 8) if rank // 2 in silent else node.waits(rank, 7, 9, since_s=1.0)
    a, said = analyzer(), []
    everybody = [(x, y) for x in range(10) for y in range(10) if x // 2 != y // 2]
    for step in range(int(2 * until_s)):
        at_s = step / 2
        for number, node in enumerate(nodes):
            if number in silent and at_s > 2:
                continue
            mine = ends(*[(x, y) for x, y in everybody if x // 2 == number], dead=False) if step == 0 else b""
            fed(a, node, at_s, dead.get(number, b"") if at_s > 2 else mine, beside_analyzer=number == beside)
        said += a.tick(T0 / S + at_s + 0.1)
    return said


def test_a_network_that_falls_apart_is_no_lost_node() -> None:
    # GIVEN a switch that splits the nodes two and three, the analyzer on the smaller side; and one that splits off two
    three = partition([2, 3, 4], {0: ends((0, 4), (0, 6), dead=True), 1: ends((2, 8), dead=True)})
    two = partition([3, 4], {0: ends((0, 6), dead=True), 1: ends((2, 8), dead=True), 2: ends((4, 8), dead=True)})

    assert all(not i.culprits for i in three + two)


def test_half_of_a_job_that_is_silent_is_reported_before_one_node() -> None:
    # GIVEN the analyzer's own node is cut off, so that all others are silent; and one of five that is lost
    own = partition([1, 2, 3, 4], {0: ends((0, 4), dead=True)})
    one = partition([4], {0: ends((0, 8), dead=True), 3: ends((6, 9), dead=True)})
    # THEN paths are reported sooner than a node is named
    assert (own[0].cause, one[0].cause) == (Cause.TRANSPORT, Cause.NODE_LOST)
    assert not own[-1].culprits
    assert own[0].detected < one[0].detected


def test_where_no_node_can_be_named_nobody_waits_for_answers() -> None:
    # GIVEN half of the nodes, to which connections are dead; nobody has answered yet whether what probes gets through
    said = partition([2, 3, 4], {0: ends((0, 4), (0, 6), dead=True)}, until_s=6.0)
    assert said[-1].severity == "alert"
    assert [(link.src, link.dst) for link in said[-1].links] == [(0, 4), (0, 6)]
    # BUT one node of five may be lost
    assert not partition([4], {0: ends((0, 8), dead=True)}, until_s=6.0)


def test_one_of_five_that_is_lost_is_named() -> None:
    said = partition([4], {0: ends((0, 8), dead=True), 3: ends((6, 9), dead=True)})
    assert [c.rank for c in said[-1].culprits] == [8, 9]


def test_agents_on_one_machine_are_one_witness_and_one_node() -> None:
    # GIVEN two agents on host a, whose network is cut off, and one on c, which seems silent from there
    a, nodes = analyzer(), three_nodes()
    said: list[Incident] = []
    for step in range(24):
        for number, node in enumerate(nodes):
            if number == 2 and step > 4:
                continue
            there = {0: [(0, 4), (1, 5)], 1: [(2, 4)], 2: [(4, 0), (5, 1), (4, 2)]}[number]
            rows = ends(*there, dead=step > 4)
            fed(a, node, step / 2, rows, node="machine-a" if number < 2 else "machine-c", beside_analyzer=number == 0)
        said += a.tick(T0 / S + step / 2 + 0.1)

    # THEN it is one word against another
    assert said
    assert all(not i.culprits for i in said)


def test_the_analyzers_own_agent_that_is_started_again_is_no_second_witness() -> None:
    # GIVEN two nodes, the analyzer's agent restarted, and the other node out of reach
    world = comm_info(7, [0, 1, 2, 3], "default_pg")
    a, said = analyzer(), []
    mine, other = (Node(f"{h}:1", r, 4).comm(world) for h, r in (("a", [0, 1]), ("b", [2, 3])))
    again = Node("a:2", [0, 1], 4).comm(world)
    for node in (mine, again):
        for rank in (0, 1):
            node.waits(rank, 7, 9, since_s=1.0)
    for rank in (2, 3):
        other.did(rank, 7, 8)
    for step in range(24):
        at_s = step / 2
        node = mine if step < 3 else again
        fed(a, node, at_s, ends((0, 2), (1, 3), dead=step > 4), beside_analyzer=True)
        if step < 5:
            fed(a, other, at_s, ends((2, 0), (3, 1), dead=False))
        said += a.tick(T0 / S + at_s + 0.1)

    assert all(not i.culprits for i in said)


def test_of_an_agent_that_was_started_anew_only_what_it_says_now_counts() -> None:
    # GIVEN connections that an agent reported WHEN another one on its node says the same ranks
    a, nodes = analyzer(), three_nodes()
    fed(a, nodes[0], 0.0, ends((0, 4), (1, 5), dead=False))
    fed(a, nodes[1], 0.0, ends((2, 4), (3, 5), dead=False))
    nodes[0].agent = "a:2"
    fed(a, nodes[0], 1.0, ends((0, 4), (1, 5), dead=False))
    # THEN each connection is known once
    joined, agent, rows = a.store.paths.joined()
    assert sorted(joined.rank.tolist()) == [0, 1, 2, 3]
    assert len(agent) == len(rows) == 4
    assert len(a.store.paths._rows) == 2


def at_ease() -> tuple[list[Node], list[bytes]]:
    """Three nodes on which nobody waits, and connections between them, by node."""
    nodes = [Node(f"{host}:1", [2 * i, 2 * i + 1], 6).comm(ALL) for i, host in enumerate("abc")]
    return nodes, [ends((0, 4), dead=False), ends((2, 4), dead=False), ends((4, 0), (4, 2), dead=False)]


def test_a_node_that_falls_silent_is_probed_before_anybody_waits_and_not_for_ever() -> None:
    # GIVEN three nodes that are heard twice a second, of which all that is known is where they are
    a = analyzer()
    nodes, there = at_ease()
    asked: list[float] = []
    for step in range(30):
        at_s = step / 2
        for number, node in enumerate(nodes):
            if number < 2 or at_s <= 2.0:
                fed(a, node, at_s, there[number])
        a.tick(T0 / S + at_s + 0.1)
        if any(isinstance(order, ProbePaths) and "10.0.0.2" in order.addresses for order in a.orders("a:1")):
            asked.append(at_s)
    # THEN the others probe once the silence is unusual, and no more when the agent must have ended
    assert asked
    assert 3.0 <= asked[0] <= 3.5
    assert asked[-1] < 8.0


def test_an_agent_that_sleeps_beside_the_analyzer_is_not_taken_for_a_silent_one() -> None:
    # GIVEN three nodes of which all is well, the first beside the analyzer, whose agent says so more seldom
    a = analyzer()
    nodes, there = at_ease()
    asked: list[int] = []
    for step in range(40):
        at_s = step / 4
        for number, node in enumerate(nodes):
            beside, every_s = number == 0, WORD_EVERY_S if number else WORD_TO_NEIGHBOUR_EVERY_S
            if step == 0:
                fed(a, node, at_s, there[number], beside_analyzer=beside)
            elif at_s % every_s == 0 and (number or at_s < 6.0):
                a.feed(node.batch(at_s, is_well=True, sequence=0, ranks=b"", comms=b""), T0 / S + at_s)
        a.tick(T0 / S + at_s + 0.1)
        if any(isinstance(order, ProbePaths) and "10.0.0.0" in order.addresses for order in a.orders("b:1")):
            asked.append(step)
    # THEN nobody probes its node before it is overdue
    assert asked
    assert asked[0] / 4 >= 5.0 + WORD_TO_NEIGHBOUR_EVERY_S


def test_a_link_in_doubt_asks_for_connections_and_for_nothing_else() -> None:
    # GIVEN three nodes at ease
    a = analyzer()
    nodes, there = at_ease()
    for node, connections in zip(nodes, there, strict=True):
        fed(a, node, 0.0, connections)
    a.tick(T0 / S + 0.1)
    for in_doubt in (False, True):
        # WHEN it is in doubt where one of their links is slow, or not
        a.slowness.links.in_doubt = in_doubt
        # THEN they are asked accordingly
        assert a.orders("a:1") == [Pace(closely=False, connections=in_doubt, every_s=a.pace.every_s)]


def test_a_node_that_has_left_the_job_long_ago_is_not_blamed_for_a_later_hang() -> None:
    # GIVEN the third node fell silent, the job went on without it, and hangs long after
    a = analyzer()
    nodes, there = at_ease()
    said: list[Incident] = []
    for step in range(240):
        at_s = step / 2
        for number, node in enumerate(nodes):
            if step == 200:
                for rank in node.ranks:
                    node.waits(rank, 7, 9, since_s=at_s)
            if number < 2 or at_s <= 2.0:
                dead = ends((2 * number, 4), dead=True) if at_s > 100 else there[number]
                fed(a, node, at_s, dead)
        said += a.tick(T0 / S + at_s + 0.1)
    # THEN its ranks are not named
    assert not {c.rank for i in said for c in i.culprits} & {4, 5}


@pytest.mark.parametrize(("again", "dead"), [(0, True), (60, False)])
def test_paths_that_lose_data_are_dead_one_try_later(again: int, dead: bool) -> None:
    # GIVEN a node that has sent some segments of one connection again, and got answers
    paths, reporter = Paths(), three_nodes()[0]
    polls = [
        end(0, at(0), at(2), total_retrans=0, data_segs_out=100),
        end(0, at(0), at(2), total_retrans=again, data_segs_out=1100),
        end(0, at(0), at(2), total_retrans=again + 3, data_segs_out=1103, retransmits=3, unacked=1),
    ]
    # WHEN nothing comes through for three tries in a row THEN only if it had not is the connection dead
    for number, rows in enumerate(polls):
        rows["read_ns"] = reporter.ns(float(number))
        paths.take(reporter.batch(float(number), connections=rows.tobytes()), 0, float(number))
    assert paths.ends(2.0)[0].dead.tolist() == [dead]


def test_of_many_connections_of_a_rank_those_that_matter_are_kept() -> None:
    # GIVEN 200 connections of one rank and three of another, of which the least used one is losing data
    rows = np.zeros(203, TCP_ROW)
    rows["rank"][200:] = 1
    rows["info"]["bytes_acked"] = np.random.default_rng(0).permutation(203) + 1
    rows["remote_port"] = np.arange(203)
    least = int(rows["info"]["bytes_acked"][:200].argmin())
    rows["info"]["backoff"][least] = 3
    # THEN the most used of each rank are kept, and that one, in their order
    kept = those_that_matter(rows)["remote_port"].tolist()
    most = np.argsort(-rows["info"]["bytes_acked"][:200].astype(np.int64))[:MOST_OF_A_RANK]
    assert kept == sorted({*most.tolist(), least, 200, 201, 202})
    # AND of few nothing is left out
    assert len(those_that_matter(rows[:MOST_OF_A_RANK])) == MOST_OF_A_RANK


def test_ranks_that_are_connected_between_two_nodes_are_found_whatever_the_order() -> None:
    # GIVEN two ranks on each of three nodes, with connections between all nodes and within one
    a, nodes = analyzer(), three_nodes()
    there = {0: [(0, 4), (1, 3), (0, 1)], 1: [(3, 1), (2, 5)], 2: [(4, 0), (5, 2)]}
    for number, node in enumerate(nodes):
        fed(a, node, 1.0, ends(*there[number], dead=False))
    paths, node_of = a.store.paths, np.array([0, 0, 1, 1, 2, 2])
    # THEN each pair between the nodes that are asked about is found once, the lower rank first
    assert paths.connected([(2, 0)], node_of) == [(0, 4, 0)]
    assert paths.connected([(0, 1), (1, 2)], node_of) == [(1, 3, 0), (2, 5, 0)]
    assert paths.connected([], node_of) == []
    # AND none of a rank whose node is not known
    assert paths.connected([(0, 1)], np.array([0, -1, 1, 1, 2, 2])) == []

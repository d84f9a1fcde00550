"""Ranks that wait for others outside of operations: in remote calls, in stores, on sockets, for a stopped process."""

from __future__ import annotations

from typing import Any

import numpy as np
from batches import WORLD, Node, analyzer, comm_info, watch

from whichrank.model.codes import WaitHow
from whichrank.model.incident import Cause, Incident, Reason
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import WAIT_REPORTED, Batch, Event, ProcessState, Source, SourceKind, Stack, WaitChannel

LIBRARY = "/opt/venv/lib/python3.11/site-packages"
SERVES = f"_run_function ({LIBRARY}/torch/distributed/rpc/internal.py:214)"
IDLE = ["wait (/usr/lib/python3.11/threading.py:327)", "shutdown (/opt/torch/distributed/rpc/api.py:382)"]
MINE = "step (/home/me/train.py:12)"


class Remote(Node):
    """Two trainers (0, 1) with a group of their own, and a server (2) that makes no process group."""

    def __init__(self, world: int = 3, trainers: int = 2) -> None:
        super().__init__("a:1", list(range(world)), world)
        self.comm(comm_info(7, list(range(trainers)), "default_pg"))
        self.calls: list[tuple[int, int, float]] = []
        self.threads: dict[int, list[Stack]] = {}
        for rank in range(trainers):
            self.did(rank, 7, 8)
        for rank in range(trainers, world):
            self.row[rank]["init_ns"] = 0

    def call(self, rank: int, peer: int, since_s: float) -> Remote:
        """A thread of this rank waits for the answer of that one; -1 unknown."""
        self.calls.append((rank, peer, since_s))
        return self

    def threads_of(self, rank: int, *stacks: Stack) -> Remote:
        self.threads[rank] = list(stacks)
        return self

    def _wait_rows(self) -> np.ndarray[Any, Any]:
        rows = np.zeros(len(self.calls), WAIT_REPORTED)
        for reported, (rank, peer, since_s) in zip(rows, self.calls, strict=True):
            reported["rank"], row = rank, reported["row"]
            row["tid"], row["how"], row["peer"], row["kind"] = 100 + rank, WaitHow.CALL, peer, Kind.REMOTE_CALL
            row["comm_slot"], row["since_ns"] = 0xFFFF, self.ns(since_s)
        return np.concatenate((super()._wait_rows(), rows))

    def batch(
        self, at_s: float, records: np.ndarray[Any, Any] | None = None, events: list[Event] | None = None, **more: Any
    ) -> Batch:
        polled = [Event("stacks", r, 100 + r, self.ns(at_s), stacks=stacks) for r, stacks in self.threads.items()]
        return super().batch(at_s, records, (events or []) + polled, **more)


def main(*frames: str, source: Source | None = None, **more: Any) -> Stack:
    channel = WaitChannel.IO if source else WaitChannel.UNKNOWN
    return Stack("MainThread", True, False, list(frames), source=source, channel=channel, **more)


def names(said: list[Incident]) -> set[int]:
    return {c.rank for incident in said for c in incident.culprits}


def alerts(said: list[Incident]) -> list[Incident]:
    return [incident for incident in said if incident.severity == "alert"]


# ---- remote calls --------------------------------------------------------------------------------------------------


def test_a_stopped_server_is_named_by_those_who_call_it() -> None:
    # GIVEN two trainers that both wait for the answer of a server, which is stopped and has no process group
    node = Remote().call(0, 2, 1.0).call(1, 2, 1.1).is_(2, ProcessState.STOPPED)

    # WHEN the job is looked at for three seconds from then on
    said = alerts(watch(analyzer(), node, first_s=1.0, last_s=4.0))

    # THEN the server is named, and the two wait for it
    assert names(said) == {2}
    assert said[0].reason == Reason.STOPPED
    assert said[0].victims.ranks == (0, 1)
    assert said[0].op is not None
    assert said[0].op.kind == "remote_call"


def test_a_trainer_that_waits_for_its_reply_is_a_victim_of_the_stopped_server() -> None:
    # GIVEN a trainer that waits in an operation for one that waits for the server
    node = Remote().call(0, 2, 1.0).waits(1, 7, 9, since_s=1.0).is_(2, ProcessState.STOPPED)
    said = alerts(watch(analyzer(), node, first_s=1.0, last_s=4.0))
    assert names(said) == {2}
    assert said[0].victims.ranks == (0, 1)


def test_a_server_that_sleeps_in_its_function_is_named_and_not_who_waits_for_it() -> None:
    node = Remote().call(0, 2, 1.0).waits(1, 7, 9, since_s=1.0)
    serving = Stack("Dummy-1", False, False, ["look_up (/home/me/server.py:3)", SERVES])
    node.threads_of(2, main(*IDLE), serving).threads_of(0, main(MINE))
    said = watch(analyzer(), node, first_s=1.0, last_s=40.0)
    assert names(said) == {2}
    assert alerts(said)
    assert "server.py:3" in said[-1].culprits[0].why


def test_a_server_that_is_at_nothing_is_a_candidate_only() -> None:
    # GIVEN a server that has answered nothing and runs nothing: it may wait for what a third one has to send
    node = Remote().call(0, 2, 1.0).waits(1, 7, 9, since_s=1.0).threads_of(2, main(*IDLE)).threads_of(0, main(MINE))
    said = watch(analyzer(), node, first_s=1.0, last_s=40.0)
    assert not names(said)
    assert {c.rank for c in said[-1].candidates} == {2}
    assert said[-1].cause == Cause.UNKNOWN


def test_a_server_whose_main_thread_holds_the_gil_is_a_candidate() -> None:
    # GIVEN trainers that wait for a server, which computes all the time and runs nothing for them
    node = Remote().call(0, 2, 1.0).call(1, 2, 1.1)
    node.threads_of(2, Stack("MainThread", True, True, [MINE], channel=WaitChannel.NONE))
    node.computing = {0, 1, 2}  # RPC polls in threads of its own
    said = watch(analyzer(), node, first_s=1.0, last_s=40.0)
    # THEN it is reported with the usual patience what it does, but nobody is named
    assert said
    assert names(said) == set()
    assert [c.rank for c in said[-1].candidates] == [2]
    at = "step() (/home/me/train.py:12)"
    assert said[-1].candidates[0].why.endswith(f"2 ranks wait, and its main thread holds the GIL in {at}")
    # BUT not if it runs a function for a call, which may take long
    node = Remote().call(0, 2, 1.0).call(1, 2, 1.1)
    serving = Stack("Dummy-1", False, True, ["add (/home/me/serve.py:3)", SERVES], channel=WaitChannel.NONE)
    node.computing = {0, 1, 2}
    assert watch(analyzer(), node.threads_of(2, serving, main(*IDLE)), first_s=1.0, last_s=40.0) == []


def test_a_function_that_waits_for_another_thread_of_the_server_names_nobody() -> None:
    node = Remote().call(0, 2, 1.0).waits(1, 7, 9, since_s=1.0)
    held = Stack("Dummy-1", False, False, [IDLE[0], "push (/home/me/server.py:9)", SERVES])
    said = watch(analyzer(), node.threads_of(2, main(*IDLE), held), first_s=1.0, last_s=40.0)
    assert not names(said)


def test_the_chain_of_calls_is_followed_to_its_end() -> None:
    # GIVEN a server that itself calls a second one, which is stopped
    node = Remote(world=4).call(0, 2, 1.0).call(2, 3, 1.0).waits(1, 7, 9, since_s=1.0).is_(3, ProcessState.STOPPED)
    assert names(alerts(watch(analyzer(), node, first_s=1.0, last_s=4.0))) == {3}


def test_of_two_servers_that_are_waited_for_the_stopped_one_is_named() -> None:
    node = Remote(world=4).call(0, 2, 1.0).call(0, 3, 1.0).waits(1, 7, 9, since_s=1.0).is_(3, ProcessState.STOPPED)
    node.threads_of(2, main(*IDLE))
    assert names(alerts(watch(analyzer(), node, first_s=1.0, last_s=4.0))) == {3}


def test_of_two_servers_the_stopped_one_may_have_answered_before() -> None:
    # GIVEN a wait for two answers WHEN one of the two is stopped, and the other is not seen to be idle
    node = Remote(world=4).call(0, 2, 1.0).call(0, 3, 1.0).waits(1, 7, 9, since_s=1.0).is_(3, ProcessState.STOPPED)
    assert not names(watch(analyzer(), node, first_s=1.0, last_s=8.0))
    serving = Stack("Dummy-1", False, False, ["look_up (/home/me/server.py:3)", SERVES])
    node.threads_of(2, main(*IDLE), serving)
    assert 3 not in names(watch(analyzer(), node, first_s=1.0, last_s=8.0))


def test_a_call_to_an_unknown_rank_rests_on_the_only_stopped_one() -> None:
    node = Remote(world=4).call(0, -1, 1.0).waits(1, 7, 9, since_s=1.0).is_(3, ProcessState.STOPPED)
    said = watch(analyzer(), node, first_s=1.0, last_s=9.0)
    assert not names(said)  # a distributed backward pass is such a wait, and may take seconds
    assert names(alerts(watch(analyzer(), node, first_s=1.0, last_s=14.0))) == {3}


def test_a_call_to_itself_is_no_wait_for_another() -> None:
    node = Remote(world=4).call(0, 0, 1.0).is_(3, ProcessState.STOPPED)
    assert not names(watch(analyzer(), node, first_s=1.0, last_s=14.0))


def test_a_call_to_an_unknown_rank_names_nobody_where_two_are_stopped() -> None:
    node = Remote(world=4).call(0, -1, 1.0).waits(1, 7, 9, since_s=1.0)
    node.is_(3, ProcessState.STOPPED).is_(2, ProcessState.STOPPED)
    assert not names(watch(analyzer(), node, first_s=1.0, last_s=40.0))


def test_a_stopped_trainer_is_named_though_it_has_called() -> None:
    node = Remote().call(0, 2, 1.0).waits(1, 7, 9, since_s=1.0).is_(0, ProcessState.STOPPED)
    assert names(alerts(watch(analyzer(), node, first_s=1.0, last_s=4.0))) == {0}


def test_a_rank_that_is_late_in_its_own_code_is_named_beside_one_that_calls() -> None:
    # GIVEN three trainers: one waits, one calls a server that answers soon after, one is late by itself
    node = Remote(world=4, trainers=3).call(0, 3, 1.0).waits(1, 7, 9, since_s=1.0).threads_of(2, main(MINE))
    said = watch(analyzer(), node, first_s=1.0, last_s=15.0)
    assert names(said) == {2}


def test_a_master_that_waits_for_its_trainers_is_no_hang() -> None:
    # GIVEN a master that has called both trainers, which compute
    node = Remote().call(2, 0, 0.0).call(2, 1, 0.0)
    node.computing = {0, 1}
    assert not watch(analyzer(), node, first_s=1.0, last_s=60.0, every_s=2.0)


def test_a_server_that_sleeps_is_named_though_rpc_keeps_its_process_busy() -> None:
    # GIVEN two trainers that wait for a server whose function sleeps; RPC polls in threads of its own
    node = Remote().call(0, 2, 1.0).call(1, 2, 1.0)
    node.computing = {0, 1, 2}
    serving = Stack("Dummy-1", False, False, ["look_up (/home/me/server.py:3)", SERVES], channel=WaitChannel.SLEEP)
    assert names(watch(analyzer(), node.threads_of(2, main(*IDLE), serving), first_s=1.0, last_s=15.0)) == {2}
    # But nobody is named while the function computes
    node = Remote().call(0, 2, 1.0).call(1, 2, 1.0)
    node.computing = {0, 1, 2}
    serving = Stack("Dummy-1", False, False, ["train (/home/me/server.py:3)", SERVES], channel=WaitChannel.NONE)
    assert not watch(analyzer(), node.threads_of(2, main(*IDLE), serving), first_s=1.0, last_s=60.0, every_s=2.0)


# ---- other waits ---------------------------------------------------------------------------------------------------


def waiting_for(rank: int, source: Source) -> Node:
    """All wait in a round for this rank, which is seen to wait for another process."""
    node = Remote(world=4, trainers=4).threads_of(rank, main(MINE, source=source))
    for other in range(4):
        if other != rank:
            node.waits(other, 7, 9, since_s=1.0)
    return node


def test_a_rank_that_waits_for_a_key_in_a_store_is_not_named() -> None:
    said = watch(analyzer(), waiting_for(1, Source(SourceKind.JOB)), first_s=1.0, last_s=40.0)
    assert said
    assert not names(said)
    assert {c.rank for c in said[-1].candidates} == {1}


def test_a_rank_that_waits_for_its_own_child_is_named_with_it() -> None:
    said = watch(analyzer(), waiting_for(1, Source(SourceKind.CHILD, pids=[4711])), first_s=1.0, last_s=40.0)
    assert names(said) == {1}
    assert "child process 4711" in said[-1].culprits[0].why


def test_a_rank_that_waits_for_an_outside_service_is_named_with_its_address() -> None:
    source = Source(SourceKind.ELSEWHERE, address="198.51.100.7:443")
    said = watch(analyzer(), waiting_for(1, source), first_s=1.0, last_s=40.0)
    assert names(said) == {1}
    assert "198.51.100.7:443" in said[-1].culprits[0].why


def test_a_data_loader_keeps_its_reason() -> None:
    node = waiting_for(1, Source(SourceKind.CHILD, pids=[4711]))
    assert isinstance(node, Remote)
    loader = f"_try_get_data ({LIBRARY}/torch/utils/data/dataloader.py:1275)"
    node.threads_of(1, main("poll (/usr/lib/python3.11/multiprocessing/connection.py:257)", loader, MINE))
    said = watch(analyzer(), node, first_s=1.0, last_s=40.0)
    assert names(said) == {1}
    assert said[-1].reason == Reason.DATA_WAIT


def test_all_wait_in_a_store_for_a_stopped_rank() -> None:
    # GIVEN no operation anywhere: three wait for a key, and the rank that sets it is stopped
    node = Remote(world=4, trainers=4).is_(2, ProcessState.STOPPED)
    for rank in (0, 1, 3):
        node.threads_of(rank, main(MINE, source=Source(SourceKind.JOB)))
    assert names(alerts(watch(analyzer(), node, first_s=1.0, last_s=8.0))) == {2}


def test_a_stopped_rank_beside_others_that_work_is_not_named() -> None:
    node = Remote(world=4, trainers=4).is_(2, ProcessState.STOPPED)
    node.computing = {0, 1, 3}
    for rank in (0, 1, 3):
        node.threads_of(rank, main(MINE))
    assert not names(watch(analyzer(), node, first_s=1.0, last_s=15.0))
    # Also where one of them waits for another process meanwhile
    node.threads_of(0, main(MINE, source=Source(SourceKind.JOB)))
    assert not names(watch(analyzer(), node, first_s=1.0, last_s=15.0))


def test_a_stopped_rank_is_named_by_others_that_all_wait_though_their_processes_poll() -> None:
    node = Remote().is_(2, ProcessState.STOPPED)
    node.computing = {0, 1}
    for rank in (0, 1):
        node.threads_of(rank, main(MINE, source=Source(SourceKind.JOB)))
    assert names(alerts(watch(analyzer(), node, first_s=1.0, last_s=8.0))) == {2}


# ---- threads -------------------------------------------------------------------------------------------------------


def test_the_line_is_that_of_the_thread_that_trains() -> None:
    # GIVEN a rank whose loop runs in a thread, while the main thread sleeps
    node = Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    for rank in (0, 1, 3):
        node.waits(rank, 7, 9, since_s=1.0)
    node.did(2, 7, 8)
    loop = Stack("Thread-1 (loop)", False, False, ["loop (/home/me/train.py:5)"], tid=102, trains=True)
    idle = Stack("MainThread", True, False, ["<module> (/home/me/train.py:9)"], tid=200)
    events = [Event("stacks", 2, 102, node.ns(2.0), stacks=[loop, idle])]
    one = analyzer()
    one.feed(node.batch(2.0, events=events), 5002.0)
    said = watch(one, node, first_s=2.5, last_s=12.0)
    # THEN the verdict shows the line of the loop, and says which thread it is
    assert names(said) == {2}
    assert "train.py:5" in said[-1].culprits[0].why
    assert any(fact.what == "thread 'Thread-1 (loop)' at" for fact in said[-1].evidence)


def test_of_two_servers_that_are_waited_for_the_one_at_work_is_named() -> None:
    node = Remote(world=4).call(0, 2, 1.0).call(0, 3, 1.0).waits(1, 7, 9, since_s=1.0).threads_of(2, main(*IDLE))
    serving = Stack("Dummy-1", False, False, ["look_up (/home/me/server.py:3)", SERVES])
    said = watch(analyzer(), node.threads_of(3, main(*IDLE), serving), first_s=1.0, last_s=15.0)
    assert names(said) == {3}
    # But nobody while only one of them was looked at
    node = Remote(world=4).call(0, 2, 1.0).call(0, 3, 1.0).waits(1, 7, 9, since_s=1.0)
    said = watch(analyzer(), node.threads_of(3, main(*IDLE), serving), first_s=1.0, last_s=15.0)
    assert not names(said)


def test_the_line_is_that_of_the_thread_that_took_the_place_of_one_that_has_ended() -> None:
    # GIVEN a rank whose thread that issued operations has ended (0), and whose main thread waits for the next one
    node = Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    for rank in (0, 1, 3):
        node.waits(rank, 7, 9, since_s=1.0)
    node.did(2, 7, 8)
    made = node._comm_rows

    def without_thread() -> np.ndarray[Any, Any]:
        rows = made()
        rows["last_tid"][rows["rank"] == 2] = 0
        return rows

    node._comm_rows = without_thread  # type: ignore[method-assign]
    joins = main("join (/usr/lib/python3.11/threading.py:1119)", "<module> (/home/me/train.py:9)", tid=102)
    epoch = Stack("epoch-4", False, False, ["epoch (/home/me/train.py:5)"], tid=300)
    one = analyzer()
    one.feed(node.batch(2.0, events=[Event("stacks", 2, 102, node.ns(2.0), stacks=[joins, epoch])]), 5002.0)
    said = watch(one, node, first_s=2.5, last_s=12.0)
    assert names(said) == {2}
    assert "train.py:5" in said[-1].culprits[0].why

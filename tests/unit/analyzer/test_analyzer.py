"""The analyzer on telemetry out of plain data: what it says, when, and of whom."""

from __future__ import annotations

import numpy as np
import pytest
from batches import CONFIG, T0, Node, S, analyzer, comm_info, records, watch

from whichrank.analyzer import Analyzer
from whichrank.hang.order import what_hangs
from whichrank.model.incident import Cause, Incident, Reason
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import Event, ProcessState
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import one_f_one_b
from whichrank.testbed.sim.halts import Halt, Where
from whichrank.testbed.sim.run import Run, Times
from whichrank.testbed.sim.telemetry import Agents
from whichrank.verdict.words.text import headline

NOW_S = T0 / S
TP = comm_info(7, [0, 1, 2, 3])


def node(name: str = "a:1", ranks: tuple[int, ...] = (0, 1, 2, 3), **more: float) -> Node:
    return Node(name, list(ranks), 4, **more).comm(TP)


def hung(missing: int = 2, counter: int = 9) -> Node:
    """All but one wait in a round since second 1."""
    n = node()
    for rank in range(4):
        if rank == missing:
            n.did(rank, 7, counter - 1)
        else:
            n.waits(rank, 7, counter, since_s=1.0 + rank / 100)
    return n


def reported(said: list[Incident]) -> list[tuple[str, str, list[int]]]:
    return [(i.severity, i.status, [c.rank for c in i.culprits]) for i in said]


def test_a_rank_that_does_not_enter_is_a_notice_then_an_alert_then_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN three ranks that wait for the fourth (notice after 5 s, alert after 20 s)
    a, n = analyzer(), hung()
    assert not watch(a, n, first_s=1.5, last_s=5.5)
    (notice,) = watch(a, n, first_s=6.0, last_s=20.0)
    assert reported([notice]) == [("notice", "open", [2])]
    assert (notice.cause, notice.reason, notice.fault_class) == (Cause.NOT_ENTERED, Reason.USER_CODE, "H1")
    assert notice.victims.ranks == (0, 1, 3)
    assert notice.complete
    (alert,) = watch(a, n, first_s=20.5, last_s=23.0)
    assert reported([alert]) == [("alert", "open", [2])]
    assert alert.id == notice.id
    # WHEN it enters at last THEN the incident has its end, and no link is judged by what went over until then
    begun_anew: list[bool] = []
    monkeypatch.setattr(a.slowness, "examine", lambda *_: [])
    monkeypatch.setattr(a.slowness.links, "begin_anew", lambda: begun_anew.append(True))
    for rank in range(4):
        n.moves_on(rank).did(rank, 7, 12)
    (end,) = watch(a, n, first_s=23.5, last_s=26.0)
    assert reported([end]) == [("alert", "recovered", [2])]
    assert begun_anew == [True]


def test_a_fault_of_slowness_ends_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a part of ours that fails wherever it is asked
    def fail(*_: object) -> None:
        raise IndexError("index 12 is out of bounds")

    a, n = analyzer(), hung()
    for name in ("feed", "see", "examine"):
        monkeypatch.setattr(a.slowness, name, fail)
    # WHEN a rank does not enter THEN that is reported as ever, and the fault is kept for those who watch
    said = watch(a, n, first_s=1.5, last_s=23.0)
    assert [severity for severity, _, names in reported(said) if names == [2]] == ["notice", "alert"]
    assert isinstance(a.slowness_failed, IndexError)


@pytest.mark.parametrize(("inside", "cause"), [(False, Cause.NOT_ENTERED), (True, Cause.DEVICE)])
def test_a_stopped_rank_is_an_alert_at_once(inside: bool, cause: Cause) -> None:
    a, n = analyzer(), hung()
    if inside:
        n.did(2, 7, 9, 8)
    n.is_(2, ProcessState.STOPPED)
    said = watch(a, n, first_s=1.5, last_s=4.0)
    assert reported(said) == [("alert", "open", [2])]
    assert (said[0].cause, said[0].reason) == (cause, Reason.STOPPED)
    assert said[0].next == (f"on a: kill -CONT {102}",)


def test_all_stopped_is_nobodys_fault_though_one_agent_is_late() -> None:
    # GIVEN two nodes in a running job; then every process is stopped, and node b falls silent for four seconds
    a_node, b_node = node("a:1", (0, 1)), node("b:1", (2, 3))
    for rank, own in ((0, a_node), (1, a_node), (2, b_node)):
        own.waits(rank, 7, 9, since_s=1.9)
    b_node.did(3, 7, 8)
    a = analyzer()
    said = watch(a, a_node, b_node, first_s=2.0, last_s=2.0)
    for own in (a_node, b_node):
        for rank in own.ranks:
            own.is_(rank, ProcessState.STOPPED)
    said += watch(a, a_node, first_s=2.5, last_s=6.0)
    said += watch(a, a_node, b_node, first_s=6.5, last_s=8.0)
    # THEN nobody is named, and there is no alert
    assert not [i for i in said if i.severity == "alert" or i.culprits]


def test_a_cut_off_analyzer_claims_nothing() -> None:
    # GIVEN waits of a healthy job, and then no word from anybody
    a, n = analyzer(), node()
    for rank in (0, 1, 3):
        n.waits(rank, 7, 9, since_s=1.0)
    watch(a, n, first_s=1.5, last_s=2.0)
    assert not [i for at in range(200) for i in a.tick(NOW_S + 2.5 + at / 4)]


def test_a_dead_agent_makes_nobody_a_culprit() -> None:
    # GIVEN ranks 0 and 1 wait for 2 and 3, which had not entered when their agent died
    a_node = node("a:1", (0, 1)).waits(0, 7, 9, since_s=1.0).waits(1, 7, 9, since_s=1.0)
    b_node = node("b:1", (2, 3)).did(2, 7, 8).did(3, 7, 8)
    a = analyzer()
    said = watch(a, a_node, b_node, first_s=1.5, last_s=2.0)
    said += watch(a, a_node, first_s=2.5, last_s=30.0)
    # THEN the alert says that it is not known, and that telemetry is missing
    assert not any(i.culprits for i in said)
    assert said[-1].severity == "alert"
    assert said[-1].cause == Cause.UNKNOWN
    assert {c.rank for c in said[-1].candidates} == {2, 3}
    assert not said[-1].complete


def test_the_timeout_of_a_wait_that_has_just_begun_does_not_hurry_the_alert() -> None:
    # GIVEN a hang of six seconds, and a rank that polls a group with a timeout of four seconds again and again
    ctrl = comm_info(8, [0, 3], "ctrl")
    a, n = analyzer(), hung()
    n.comm(ctrl)
    said: list[Incident] = []
    for step in range(1, 14):
        at_s = 1.0 + step / 2
        n.waits(3, 8, 40 + step, since_s=at_s - 0.1, timeout_ms=4000).did(0, 8, 40 + step)
        said += watch(a, n, first_s=at_s, last_s=at_s)
    # THEN it is a notice yet
    assert {i.severity for i in said} == {"notice"}


def test_the_alert_comes_before_the_operation_times_out() -> None:
    a, n = analyzer(), hung()
    for rank in (0, 1, 3):
        n.waiting[rank]["timeout_ms"] = 10_000
    said = watch(a, n, first_s=1.5, last_s=9.5)
    assert reported(said)[-1] == ("alert", "open", [2])


def test_an_agent_that_was_started_again_goes_on_where_the_old_one_ended() -> None:
    # GIVEN the old agent reported a hang, died, and the job moved on before the new one looked
    a, old = analyzer(), hung()
    watch(a, old, first_s=1.5, last_s=3.0)
    new = node("a:2")
    said: list[Incident] = []
    for step in range(60):
        for rank in range(4):
            new.did(rank, 7, 20 + step)
        said += watch(a, new, first_s=4.0 + step / 2, last_s=4.0 + step / 2)
    assert not said


def test_a_killed_rank_is_named_and_those_that_follow_are_not() -> None:
    # GIVEN a running job in which rank 2 is killed; the others fail and are terminated by the launcher
    a, n = analyzer(), hung()
    watch(a, n, first_s=1.1, last_s=1.2)
    n.is_(2, ProcessState.GONE, ended_ns=n.ns(1.4))
    events = [Event("exit", 2, 102, n.ns(1.4), status=9)]
    a.feed(n.batch(1.5, events=events), NOW_S + 1.5)
    for rank in (0, 1, 3):
        n.moves_on(rank)
        n.is_(
            rank,
            ProcessState.GONE,
            ended_ns=n.ns(1.8),
            first_failure_ns=n.ns(1.6),
            failure=b"Connection closed by peer",
        )
        a.feed(
            n.batch(2.0 + rank / 10, events=[Event("exit", rank, 100 + rank, n.ns(1.8), status=15)]),
            NOW_S + 2.0 + rank / 10,
        )
    said = [i for at in range(20) for i in a.tick(NOW_S + 2.4 + at / 4)] + a.finish(NOW_S + 8.0)
    assert {tuple(c.rank for c in i.culprits) for i in said} == {(2,)}
    assert said[-1].cause == Cause.PROCESS_EXIT
    assert said[-1].status == "final"


def test_a_rank_that_aborts_is_not_named_while_its_peers_part_is_not_known() -> None:
    # GIVEN rank 0 aborted inside an operation; what rank 2 on the other node issued there was not reported yet
    tp = comm_info(9, [0, 2], "mesh_tp")
    a_node = Node("a:1", [0, 1], 4).comm(tp).waits(0, 9, 5, since_s=1.0)
    b_node = Node("b:1", [2, 3], 4).comm(tp).did(2, 9, 4)
    a = analyzer()
    for own in (a_node, b_node):
        a.feed(own.batch(0.9), NOW_S + 0.9)
    a_node.is_(0, ProcessState.GONE, ended_ns=a_node.ns(1.1))
    a.feed(a_node.batch(1.2, events=[Event("exit", 0, 100, a_node.ns(1.1), status=6)]), NOW_S + 1.2)
    early = [i for at in range(12) for i in a.tick(NOW_S + 1.3 + at / 4)]
    assert not any(i.culprits for i in early)
    # WHEN it turns out to be larger, against what rank 2 is used to, or both are without a past
    b_node.waits(2, 9, 5, since_s=1.0, count=4096)
    a.feed(b_node.batch(4.5), NOW_S + 4.5)
    late = [i for at in range(8) for i in a.tick(NOW_S + 4.6 + at / 4)]
    # THEN rank 0 is at most one of two candidates
    assert not any(0 in [c.rank for c in i.culprits] for i in late)


@pytest.mark.parametrize(("ranks", "named"), [((1, 2), {1, 2}), ((0, 1, 2, 3), set())])
def test_several_that_raise_the_same_are_named_together_and_most_of_all_ranks_are_not(
    ranks: tuple[int, ...], named: set[int]
) -> None:
    # GIVEN ranks that raise the same exception at the same place, one after the other
    a, n = analyzer(), node("a:1")
    a.feed(n.batch(1.0), NOW_S + 1.0)
    for rank in ranks:
        at_s = 1.2 + rank / 10
        text = f"ValueError: loss {rank} is NaN at train.py:9".encode()
        n.is_(rank, ProcessState.GONE, ended_ns=n.ns(at_s + 0.1), exception_ns=n.ns(at_s), exception=text)
        event = Event("exit", rank, 100 + rank, n.ns(at_s + 0.1), status=1 << 8)
        a.feed(n.batch(at_s + 0.2, events=[event]), NOW_S + at_s + 0.2)
    said = [i for at in range(12) for i in a.tick(NOW_S + 2.0 + at / 4)] + a.finish(NOW_S + 8.0)
    # THEN all of them are named, or nobody: what most ranks raise is the program's doing, or its data's
    assert said
    assert {c.rank for c in said[-1].culprits} == named
    assert all({c.rank for c in i.culprits} <= named for i in said)
    assert {i.reason for i in said} == {Reason.EXCEPTION}
    if not named:
        assert ("raised at the same place", 4) in {(e.what, e.value) for e in said[-1].evidence}


def raises(n: Node, rank: int, at_s: float, text: str, **more: object) -> Event:
    """This rank raises, and its process ends a moment later."""
    row = {"exception_ns": n.ns(at_s), "exception": text.encode(), "exit_status": 1 << 8, **more}
    n.is_(rank, ProcessState.GONE, ended_ns=n.ns(at_s + 0.1), **row)
    return Event("exit", rank, 100 + rank, n.ns(at_s + 0.1), status=1 << 8)


def end_of(n: Node, *events: Event) -> list[Incident]:
    a = analyzer()
    a.feed(n.batch(1.0), NOW_S + 1.0)
    a.feed(n.batch(1.6, events=list(events)), NOW_S + 1.6)
    return [i for at in range(12) for i in a.tick(NOW_S + 1.7 + at / 4)] + a.finish(NOW_S + 6.0)


def texts_of(incident: Incident) -> list[object]:
    return [fact.value for fact in incident.evidence if fact.what == "exception"]


def test_ranks_that_differ_in_numbers_share_a_text_and_others_do_not() -> None:
    # GIVEN all ranks raise at one place, each with its own number THEN the text says what they have in common
    n = node("a:1")
    said = end_of(
        n, *(raises(n, r, 1.2, f"RuntimeError: device {r} lost, 0x{r}f of 8 at train.py:9") for r in range(4))
    )
    assert texts_of(said[-1]) == ["RuntimeError: device … lost, … of 8 at train.py:9"]
    assert 'all 4 ranks raised RuntimeError: "device … lost, … of 8", at train.py:9; no rank differs' in headline(
        said[-1]
    )
    # BUT where one says something else, it is not said that none differs
    n = node("a:1")
    other = "RuntimeError: uncorrectable ECC error at train.py:9"
    events = [raises(n, r, 1.2, other if r == 2 else "RuntimeError: it was aborted at train.py:9") for r in range(4)]
    (*_, last) = end_of(n, *events)
    assert texts_of(last) == ["RuntimeError: it was aborted at train.py:9", other]
    assert headline(last).endswith(
        "all 4 ranks raised RuntimeError at train.py:9, with texts that differ; the evidence names no rank"
    )


def test_all_that_raised_did_so_although_the_launcher_then_ended_some() -> None:
    # GIVEN a store that none of the ranks could use; the launcher ends those that are still on their way out
    n = node("a:1")
    text = "DistStoreError: wait timeout after 0ms, keys: /rpc_prefix_0/0/0 at train.py:18"
    events = [raises(n, rank, 1.2, text) for rank in range(4)]
    for rank in (1, 2):
        n.is_(rank, ProcessState.GONE, ended_ns=n.ns(1.3), exit_status=15)
        events[rank] = Event("exit", rank, 100 + rank, n.ns(1.3), status=15)
    said = end_of(n, *events)
    # THEN no rank is a candidate
    assert said
    assert not any(i.culprits or i.candidates for i in said)
    assert "all 4 ranks raised DistStoreError" in headline(said[-1])


def test_what_an_operation_raises_in_all_ranks_is_said_of_all() -> None:
    # GIVEN an operation that fails in each rank, whose sizes are not known to contradict each other
    n = node("a:1")
    said_by_op = "ProcessGroupGloo::alltoall: invalid tensor size (expected 1, got 4)"
    events = []
    for rank in range(4):
        n.waits(rank, 7, 6, since_s=1.1)
        failed = {"first_failure_ns": n.ns(1.2), "failure": f"{said_by_op}\nException raised from x at /a.cpp".encode()}
        events.append(raises(n, rank, 1.21, f"RuntimeError: {said_by_op} at train.py:9", **failed))
    said = end_of(n, *events)
    # THEN all are reported, and nobody named; but one of them may have caused it
    assert not any(i.culprits or i.candidates for i in said)
    assert headline(said[-1]).endswith("at train.py:9; the evidence names no rank")
    assert 'all 4 ranks raised RuntimeError: "ProcessGroupGloo::alltoall' in headline(said[-1])


def test_the_job_fails_for_all_others_whoever_noticed() -> None:
    # GIVEN one rank that raises, one whose operation fails, and two that are in no operation
    n = node("a:1")
    event = raises(n, 2, 1.2, "KeyError: 'missing' at data.py:7")
    n.is_(0, ProcessState.SLEEPING, first_failure_ns=n.ns(1.3), failure=b"Connection closed by peer")
    said = end_of(n, event)
    assert [c.rank for c in said[-1].culprits] == [2]
    assert said[-1].victims.ranks == (0, 1, 3)


@pytest.mark.parametrize("further", [False, True])
def test_ranks_that_were_ended_before_they_came_to_the_place_do_not_differ(further: bool) -> None:
    # GIVEN two of four ranks that raise the same; the launcher ends the others
    n = node("a:1")
    text = "ValueError: no such layer at train.py:9"
    events = [raises(n, 0, 1.2, text), raises(n, 3, 1.21, text)]
    for rank in (1, 2):
        if further:  # in an operation that the two had not come to
            n.waits(rank, 7, 9, since_s=1.2)
        n.is_(rank, ProcessState.GONE, ended_ns=n.ns(1.4), exit_status=15)
        events.append(Event("exit", rank, 100 + rank, n.ns(1.4), status=15))
    said = end_of(n, *events)
    # THEN nobody is named, unless the others had gone further
    assert {c.rank for c in said[-1].culprits} == ({0, 3} if further else set())
    assert said[-1].reason is Reason.EXCEPTION


def test_one_that_died_of_something_else_before_is_not_hidden_by_the_others() -> None:
    # GIVEN rank 2 raises, and a tenth of a second later all others, who miss it in a library of their own
    n = node("a:1")
    events = [raises(n, 2, 1.2, "KeyError: 'missing' at data.py:7")]
    events += [raises(n, rank, 1.3, "PeerLost: step 7 was given up at train.py:9") for rank in (0, 1, 3)]
    said = end_of(n, *events)
    assert [c.rank for c in said[-1].culprits] == [2]


def test_what_a_dead_worker_makes_a_rank_raise_says_nothing_of_who_killed_them_all() -> None:
    # GIVEN somebody who kills all processes, also the data loader's, and a rank that notices that before it is killed
    n = node("a:1")
    text = "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. at data.py:7"
    events = [raises(n, 2, 1.2, text)]
    for rank in (0, 1, 3):
        n.is_(rank, ProcessState.GONE, ended_ns=n.ns(1.4), exit_status=9)
        events.append(Event("exit", rank, 100 + rank, n.ns(1.4), status=9))
    # THEN it is not named
    assert not any(i.culprits for i in end_of(n, *events))


@pytest.mark.parametrize(("raised_s", "named"), [(1.2, {2}), (1.38, set()), (1.5, set())])
@pytest.mark.parametrize("in_operation", [False, True])
def test_who_raised_before_the_launcher_ended_the_others_is_named_though_their_ends_are_not_known(
    in_operation: bool, raised_s: float, named: set[int]
) -> None:
    # GIVEN a rank that raises and the others, which the launcher ends unseen: how they ended cannot be had any more
    n = node("a:1")
    events = [raises(n, 2, raised_s, "KeyError: 'missing' at data.py:7")]
    for rank in (0, 1, 3):
        if in_operation:
            n.waits(rank, 7, 6, since_s=1.1)
        n.is_(rank, ProcessState.GONE, ended_ns=n.ns(1.4 + rank / 1000), exit_status=-1)
        events.append(Event("exit", rank, 100 + rank, n.ns(1.4 + rank / 1000), status=-1))
    said = end_of(n, *events)
    # THEN it is named if it was the first
    assert {c.rank for c in said[-1].culprits} == named
    assert all({c.rank for c in i.culprits} <= named for i in said)


def test_all_ranks_that_report_a_lost_peer_at_one_place_have_lost_none() -> None:
    # GIVEN a backend that none of the ranks can use
    n = node("a:1")
    text = "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found! at train.py:4"
    said = end_of(n, *(raises(n, rank, 1.2 + rank / 50, text) for rank in range(4)))
    assert (said[-1].severity, said[-1].culprits, said[-1].reason) == ("alert", (), Reason.EXCEPTION)
    assert ("raised at the same place", 4) in {(e.what, e.value) for e in said[-1].evidence}
    assert said[-1].victims.count == 0, "nobody is at fault for what the others raised"


def test_several_that_died_on_several_hosts_are_candidates() -> None:
    # GIVEN a rank of each host was killed; whose clock says it earlier says nothing
    a_node, b_node = node("a:1", (0, 1)), node("b:1", (2, 3), clock_s=-4.0)
    a = analyzer()
    for own, rank in ((a_node, 0), (b_node, 3)):
        own.is_(rank, ProcessState.GONE, ended_ns=own.ns(1.0 + rank / 10))
        a.feed(own.batch(2.0, events=[Event("exit", rank, 100 + rank, own.ns(1.0), status=9)]), NOW_S + 2.0)
    said = [i for at in range(16) for i in a.tick(NOW_S + 2.1 + at / 4)]
    assert said
    assert not any(i.culprits for i in said)
    assert {c.rank for c in said[-1].candidates} == {0, 3}


# ---- larger jobs, made up --------------------------------------------------------------------------------------------


def simulated(layout: str) -> Run:
    """A job of four microbatches without chance."""
    parsed = Layout.parse(layout)
    return Run(parsed, one_f_one_b(parsed.pp, 4), layers=1, times=Times(spread=0.0, pauses=0.0))


def feed_all(a: Analyzer, run: Run, agents: Agents, count: int, at_s: float) -> None:
    for batch in agents.report([run.iterate() for _ in range(count)]):
        a.feed(batch, at_s)


def halt_at(halt: Halt, run: Run, agents: Agents, a: Analyzer, at_s: float) -> float:
    """The job goes on until it stands still, and agents have reported that. Returns the true time of it."""
    halt.install(run)
    feed_all(a, run, agents, halt.onset - 1, at_s)
    last = run.iterate()
    halt.correct(run, last)
    stood_s = max(float(max(ops["t_issue_ns"].max(), ops["t_end_ns"].max())) for ops in last.ops) / 1e9
    for batch in agents.report([last], stood_s + 1.0):
        a.feed(batch, at_s + 1.0)
    return stood_s + 1.0


@pytest.mark.parametrize("where", ["tp", "world"])
@pytest.mark.parametrize("rank", [0, 21, 63])
@pytest.mark.parametrize("layout", ["tp8-dp4-pp2", "tp4-dp4-pp4", "tp2-dp32"])
def test_the_missing_rank_of_a_3d_parallel_job_is_named_alone(layout: str, rank: int, where: Where) -> None:
    # GIVEN a job of 64 ranks in lockstep; one rank does not enter, everybody stands as a real job would
    a, run = Analyzer(CONFIG, "simulated", 0.0), simulated(layout)
    agents = Agents(run)
    stood_s = halt_at(Halt(where, rank, 7), run, agents, a, 19.0)
    said: list[Incident] = []
    for after_s in range(30):
        for batch in agents.report([], stood_s + after_s):
            a.feed(batch, 20.0 + after_s)
        said += a.tick(20.1 + after_s)
    # THEN it and nobody else is named, and all others are its victims
    assert {tuple(c.rank for c in i.culprits) for i in said} == {(rank,)}
    assert said[-1].victims.count == 63
    assert said[-1].communicator is not None
    # AND where, by who has waited for it longest: its tensor-parallel peers, or a neighbour in the pipeline
    in_pipeline = {"pp"} if "pp" in layout else set()
    assert said[-1].communicator.role in {"tp": {"tp", *in_pipeline}, "world": {"dp"}}[where]


def test_a_healthy_job_in_lockstep_says_nothing() -> None:
    a, run = Analyzer(CONFIG, "simulated", 0.0), simulated("tp4-dp4-pp4")
    agents, said = Agents(run), list[Incident]()
    for snapshot in range(60):
        feed_all(a, run, agents, 2, 10.0 + snapshot / 2)
        said += a.tick(10.2 + snapshot / 2)
    assert not said
    assert a.store.iteration_of(5) is not None


def test_waits_in_messages_make_edges_in_a_pipeline() -> None:
    # GIVEN the last stage of a pipeline is missing in its tensor-parallel group
    a, run = Analyzer(CONFIG, "simulated", 0.0), simulated("tp2-dp2-pp4")
    halt_at(Halt("tp", 12, 7), run, Agents(run), a, 19.0)
    picture = a.store.picture(20.0)
    # THEN the stages in front stand in receives of what it would have sent back
    in_messages = picture.waits[picture.waits["kind"] == Kind.RECV]
    assert set(in_messages["rank"].tolist()) >= {0, 4, 8}
    found = what_hangs(a.case, picture, 0.6)
    assert found is not None
    assert found.names == {12}


def test_members_that_have_completed_the_round_are_witnesses_too() -> None:
    # GIVEN four ranks; in round 51 ranks 1 and 3 have completed a broadcast, rank 0 is in it, rank 2 in an all-reduce
    a, n = analyzer(), Node("a:1", [0, 1, 2, 3], 4).comm(comm_info(7, [0, 1, 2, 3]))
    rows = [records(rank, 7, 1, 50) for rank in range(4)]
    rows += [records(rank, 7, 51, 1, kind=Kind.BROADCAST, peer=0) for rank in (1, 3)]
    for rank in range(4):
        n.did(rank, 7, 51 if rank in (1, 3) else 50)
    a.feed(n.batch(0.0, np.concatenate(rows)), NOW_S)
    n.waits(0, 7, 51, 0.5, kind=Kind.BROADCAST, peer=0, ordinal=51).waits(2, 7, 51, 0.5, ordinal=51)
    said = watch(a, n, first_s=1.0, last_s=8.0)
    # THEN what three of four do for the first time is the program's doing, and the fourth has not followed
    assert {c.rank for i in said for c in i.culprits} == {2}

"""What a frame says of the jobs on a node: ranks, communicators, who is waited for, and what cannot be read."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

import msgspec
import pytest
from incident_cases import RANK_5, RECOVERED, UNKNOWN, not_entered
from rank_process import RankProcess, eventually
from ring_fleet import Fleet

from whichrank.errors import UsageError
from whichrank.ring.layout import RING
from whichrank.surface.watch import job as watched_job
from whichrank.surface.watch.frame import JobNow, RankNow
from whichrank.surface.watch.node import NodeReader
from whichrank.surface.watch.words import operation_text

SEND, RECV, BROADCAST = 32, 33, 2


def only_job() -> JobNow:
    with NodeReader() as node:
        (job,) = node.read().jobs
    return job


def of(job: JobNow, rank: int) -> RankNow:
    return next(row for row in job.ranks if row.rank == rank)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits count at once, so that no test has to wait two seconds."""
    monkeypatch.setattr(watched_job, "AWAITED_AFTER_S", 0.0)


def test_no_job(base: Path) -> None:
    with NodeReader() as node:
        assert node.read().jobs == ()


def test_laggard_of_a_collective_is_awaited_and_stands_first(base: Path) -> None:
    # GIVEN four ranks, of which rank 2 has not entered the 11th operation
    fleet = Fleet(base, 4)
    fleet.comm("mesh_tp", [0, 1, 2, 3])
    for rank in range(4):
        fleet.ops(rank, "mesh_tp", 10)
    for rank in (0, 1, 3):
        fleet.blocked(rank, "mesh_tp")
    # WHEN the node is looked at
    job = only_job()
    # THEN rank 2 is awaited and on top, and the others say on what they are blocked
    assert [(row.rank, row.mark) for row in job.ranks] == [(2, "awaited"), (0, ""), (1, ""), (3, "")]
    operation = of(job, 0).operation
    assert operation is not None
    assert (operation.kind, operation.counter, operation.communicator) == ("all_reduce", 11, "tp")
    assert of(job, 0).blocked_s is not None
    assert of(job, 2).idle_s is not None
    # AND the communicator shows the laggard
    (tp,) = job.communicators
    assert (tp.name, tp.role, tp.size, tp.here, tp.issued_min, tp.issued_max) == ("tp", "tp", 4, 4, 10, 11)
    assert (tp.behind, tp.awaited, tp.waiting) == ((2,), (2,), 3)


def test_waits_in_no_operation_are_shown(base: Path) -> None:
    # GIVEN ranks that have called rank 0, one that does not say whom, and one that makes a communicator
    fleet = Fleet(base, 5)
    for rank in (1, 2):
        fleet.writers[rank].calls(0)
    fleet.writers[3].calls(-1)
    fleet.writers[4].meets(3, 1, 2)
    # WHEN the node is looked at THEN they are blocked on that, and the one that was called is awaited
    job = only_job()
    said = {row.rank: row.operation and operation_text(row.operation) for row in job.ranks}
    assert said == {0: None, 1: "remote call to 0", 2: "remote call to 0", 3: "remote call", 4: "makes a communicator"}
    assert all(of(job, rank).blocked_s is not None for rank in range(1, 5))
    assert {row.rank for row in job.ranks if row.mark == "awaited"} == {0}


def test_rank_that_waits_itself_is_not_awaited(base: Path) -> None:
    # GIVEN rank 0 waiting for rank 1 on dp, and rank 1 waiting for rank 2 on tp
    fleet = Fleet(base, 3)
    fleet.comm("mesh_dp", [0, 1], name="1")
    fleet.comm("mesh_tp", [1, 2], name="2")
    fleet.blocked(0, "mesh_dp")
    fleet.blocked(1, "mesh_tp")
    # THEN rank 1, a victim, is behind on dp but not awaited
    job = only_job()
    assert {row.rank: row.mark for row in job.ranks} == {0: "", 1: "", 2: "awaited"}
    assert {comm.name: (comm.behind, comm.awaited) for comm in job.communicators} == {
        "dp": ((1,), ()),
        "tp": ((2,), (2,)),
    }


def test_broadcast_waits_for_its_root_only(base: Path) -> None:
    fleet = Fleet(base, 3)
    fleet.comm("mesh_dp", [0, 1, 2])
    fleet.blocked(2, "mesh_dp", BROADCAST, peer=1)
    assert {row.rank: row.mark for row in only_job().ranks} == {0: "", 1: "awaited", 2: ""}


@pytest.mark.parametrize("answered", [False, True])
def test_receive_waits_for_its_sender(base: Path, answered: bool) -> None:
    # GIVEN rank 1 blocked on a receive from rank 0, which has sent or not
    fleet = Fleet(base, 2)
    fleet.comm("mesh_pp", [0, 1])
    fleet.blocked(1, "mesh_pp", RECV, peer=0)
    if answered:
        writer = fleet.writers[0]
        writer.issued(writer.begin(fleet.slots[0, "mesh_pp"], SEND, peer=1))
    # THEN rank 0 is awaited only if it has not
    job = only_job()
    assert of(job, 0).mark == ("" if answered else "awaited")
    operation = of(job, 1).operation
    assert operation is not None
    assert (operation.kind, operation.peer) == ("recv", 0)
    assert job.communicators[0].p2p == 1


def test_iteration_is_known_at_once_and_posted_operations_do_not_hold_it_up(base: Path) -> None:
    # GIVEN a rank that posts an operation, and then runs 20 iterations of five operations
    fleet = Fleet(base, 1)
    fleet.comm("mesh_tp", [0], name="1")
    fleet.comm("mesh_dp", [0], name="2")
    fleet.writers[0].issued(fleet.writers[0].begin(fleet.slots[0, "mesh_dp"], RECV))
    for _ in range(20):
        fleet.ops(0, "mesh_tp", 4)
        fleet.ops(0, "mesh_dp", 1)
    # WHEN it is looked at for the first time
    row = of(only_job(), 0)
    # THEN its iteration is counted, and what is in flight blocks nobody
    assert (row.iteration, row.ops, row.in_flight, row.operation) == (20, 101, 1, None)


def test_iterations_go_on_after_records_were_lost(base: Path) -> None:
    fleet = Fleet(base, 1)
    fleet.comm("mesh_tp", [0], name="1")
    fleet.comm("mesh_dp", [0], name="2")

    def iterate(times: int) -> None:
        for _ in range(times):
            fleet.ops(0, "mesh_tp", 4)
            fleet.ops(0, "mesh_dp", 1)

    iterate(10)
    with NodeReader() as node:
        assert of(node.read().jobs[0], 0).iteration == 10
        iterate(2000)  # more operations than a ring holds
        assert of(node.read().jobs[0], 0).iteration == 2010


def test_incidents_mark_ranks(base: Path) -> None:
    # GIVEN an alert that names rank 5, candidates of another incident, and one that is over
    fleet = Fleet(base, 8)
    me = os.getpid()
    named = msgspec.structs.replace(RANK_5, pid=me)
    fleet.incidents(
        msgspec.structs.replace(RECOVERED, id="old"),
        msgspec.structs.replace(UNKNOWN, id="unknown"),
        not_entered(id="new", culprits=(named,)),
    )
    job = only_job()
    # THEN ranks are marked by their own incident only
    assert {row.rank: row.mark for row in job.ranks if row.mark} == {5: "blamed", 2: "suspected", 6: "suspected"}
    assert [row.rank for row in job.ranks][:3] == [5, 2, 6]
    assert job.incidents[0].id == "new"
    assert job.incidents[-1].id == "old"


def test_blame_of_an_earlier_process_is_not_passed_on(base: Path) -> None:
    fleet = Fleet(base, 6)
    fleet.incidents(not_entered())  # it names another pid of rank 5
    assert {row.mark for row in only_job().ranks} == {""}


def test_incident_of_the_run_that_analyzes_marks_the_rank_of_another_job(base: Path) -> None:
    # GIVEN a job that an agent says about, and the run that analyzes it: its alert names a process of this host
    Fleet(base, 6, "told-by-agent")
    here = msgspec.structs.replace(RANK_5, pid=os.getpid(), host=socket.gethostname())
    Fleet(base, 0, "analyzer").incidents(not_entered(culprits=(here,)))
    # THEN that rank is marked, and a frame says where the incidents are
    with NodeReader() as node:
        jobs = {job.job: job for job in node.read().jobs}
    assert next((row.rank, row.mark) for row in jobs["told-by-agent"].ranks) == (5, "blamed")
    assert {name: job.recorded for name, job in jobs.items()} == {"told-by-agent": False, "analyzer": True}


def test_states_of_processes_in_words(base: Path, tmp_path: Path) -> None:
    # GIVEN a rank that is stopped and one that was killed
    fleet = Fleet(base, 1)
    with (
        RankProcess(fleet.folder.path, 1, 3) as stopped,
        RankProcess(fleet.folder.path, 2, 3) as killed,
        NodeReader() as node,
    ):
        assert len(node.read().jobs[0].ranks) == 3
        os.kill(stopped.pid, signal.SIGSTOP)
        os.kill(killed.pid, signal.SIGKILL)
        # THEN words say so, and both stand before the one that is well
        eventually(lambda: of(node.read().jobs[0], 1).state == "stopped")
        eventually(lambda: of(node.read().jobs[0], 2).state == "SIGKILL")
        assert [row.rank for row in node.read().jobs[0].ranks] == [1, 2, 0]
        assert of(node.read().jobs[0], 2).ended


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(base: Path) -> None:
    # GIVEN a good ring, a foreign file, one of a newer version, one that is too short, and a fifo; all of them old
    fleet = Fleet(base, 1)
    good = fleet.ring(0).read_bytes()
    (fleet.folder.path / "1.ring").write_bytes(b"x" * RING.itemsize)
    (fleet.folder.path / "2.ring").write_bytes(good[:8] + b"\x63\0\0\0" + good[12:])
    (fleet.folder.path / "3.ring").write_bytes(good[:5000])
    os.mkfifo(fleet.folder.path / "4.ring")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whichrank.agent.rings.PATIENCE_S", -1.0)
        job = only_job()
    # THEN one sentence each
    assert [row.rank for row in job.ranks] == [0]
    assert [fault.split(":")[0] for fault in job.faults] == [f"ring {n}.ring" for n in (1, 2, 3, 4)]
    assert "newer than" in job.faults[1]


def test_ring_being_made_is_no_fault(base: Path) -> None:
    fleet = Fleet(base, 1)
    (fleet.folder.path / "3.ring").write_bytes(b"")
    assert only_job().faults == ()


def test_ring_cut_short_keeps_what_was_read(base: Path) -> None:
    fleet = Fleet(base, 1)
    fleet.comm("mesh_tp", [0])
    fleet.ops(0, "mesh_tp", 7)
    with NodeReader() as node:
        node.read()
        shutil.copyfile(fleet.ring(0), base / "copy")  # truncating the mapped file itself would kill this process
        os.truncate(base / "copy", 4096)
        reader = next(iter(node._readers.values()))
        watch = next(iter(reader._here.ranks.values()))
        os.dup2(os.open(base / "copy", os.O_RDONLY), watch.reader._fd)
        row = of(node.read().jobs[0], 0)
    assert row.fault
    assert row.ops == 7


def test_incidents_of_an_older_job_in_the_same_folder_are_not_those_of_this_one(base: Path) -> None:
    # GIVEN a job whose folder held an alert of another one before it began
    fleet = Fleet(base, 8)
    who = msgspec.structs.replace(RANK_5, host=None, pid=None)
    fleet.incidents(not_entered(job="older", culprits=(who,)))
    with NodeReader() as node:
        node.read()
        (fleet.output / "job.json").write_text('{"job": "job-1"}')
        # THEN from its first snapshot on nobody is blamed for what was before
        (job,) = node.read().jobs
    assert job.incidents == ()
    assert {row.mark for row in job.ranks} == {""}


def test_damaged_record_of_incidents_is_said(base: Path) -> None:
    fleet = Fleet(base, 1)
    fleet.incidents(not_entered())
    with (fleet.output / "incidents.jsonl").open("ab") as file:
        file.write(b"nonsense\n")
    job = only_job()
    assert len(job.incidents) == 1
    assert "line 2" in job.faults[0]


def test_job_that_ends_stays_with_its_verdict(base: Path) -> None:
    # GIVEN a job with an alert, seen once
    fleet = Fleet(base, 2)
    fleet.incidents(not_entered())
    with NodeReader() as node:
        node.read()
        # WHEN its folder goes
        shutil.rmtree(fleet.folder.path)
        # THEN it is still there
        (job,) = node.read().jobs
        assert (job.state, len(job.ranks), len(job.incidents)) == ("ended", 2, 1)


def test_new_job_is_found_and_one_of_them_can_be_chosen(base: Path) -> None:
    with NodeReader() as node:
        assert node.read().jobs == ()
        fleets = [Fleet(base, 1, "a"), Fleet(base, 1, "b")]
        assert sorted(job.job for job in node.read().jobs) == ["a", "b"]
    with NodeReader("a") as node:
        assert [job.job for job in node.read().jobs] == ["a"]
    with pytest.raises(UsageError, match="no job 'c'"):
        NodeReader("c")
    assert len(fleets) == 2


def test_names_from_the_job_are_made_printable(base: Path) -> None:
    fleet = Fleet(base, 2)
    fleet.comm("evil\x1b[2J\n", [0, 1])
    fleet.blocked(0, "evil\x1b[2J\n")
    job = only_job()
    assert job.communicators[0].name == "evil?[2J?"
    operation = of(job, 0).operation
    assert operation is not None
    assert operation.communicator == "evil?[2J?"


def test_operation_that_others_wait_in_is_reported_where_a_rank_is_inside_of_it(base: Path) -> None:
    # GIVEN a rank that waits in an operation, one that has issued it and does not wait, and one that has not issued it
    fleet = Fleet(base, 3)
    fleet.comm("mesh_tp", [0, 1, 2])
    fleet.comm("mesh_pp", [1, 2])
    fleet.blocked(0, "mesh_tp")
    for desc in ("mesh_pp", "mesh_tp"):  # the first one nobody waits in
        writer = fleet.writers[1]
        writer.issued(writer.begin(fleet.slots[1, desc], 1))
    job = only_job()
    # THEN the second is inside of it, and the third is in nothing
    entered = {row.rank: row.entered and (row.entered.counter, row.entered.communicator) for row in job.ranks}
    assert entered == {0: None, 1: (1, "tp"), 2: None}

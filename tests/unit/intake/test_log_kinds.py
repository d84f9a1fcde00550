"""Kinds of logs that people post, each made anew of the words in the grammar, and what is said of them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from random import Random

import pytest

from whichrank.errors import FormatError
from whichrank.intake.grammar import HINTS, TABLE, Entry, worded
from whichrank.intake.logs import read_log
from whichrank.intake.read import read
from whichrank.intake.recording import Recording
from whichrank.model.incident import Cause, Incident, Reason
from whichrank.server.analyze import analyze
from whichrank.testbed.bench.logs import jobs
from whichrank.testbed.bench.logs.faults import FAULTS
from whichrank.testbed.bench.logs.jobs import VERSIONS, Job
from whichrank.verdict.words.text import paragraph

NEWEST = VERSIONS[-1]
FIELDS = {
    "place": 3, "rank": 3, "ranks": "3", "other": 4, "asker": 1, "seq": 52, "before": 51, "op": "ALLREDUCE",
    "numel": 64,
    "timeout_ms": 600000, "ran_ms": 600001, "pg": "0", "desc": "default_pg", "enqueued": 54, "completed": 51,
    "state": "started", "other_op": "BROADCAST", "address": "10.0.0.3", "port": 43214, "stamp": "2026-06-01_03:00:09",
    "host": "node1", "clock": "03:00:00",
    "local": 3, "code": 1, "pid": 6003, "signal": 11, "signal_name": "SIGSEGV", "left": 2,
    "attempt": 1,
    "how": "Killed", "job": 7, "tid": 9, "comm": "0x55", "world": 8, "bus_id": "b3000", "comm_id": "0x1", "text": "x",
    "function": "AllReduce", "count": 5, "peer": "10.0.0.4<4791>", "gid": "fe80::2", "age_ns": 9, "in_flight": 3,
    "qpn": 1201, "peer_qpn": 1302, "own_gid": "fe80::1", "sxid": 20034, "severity": "Fatal", "cpu": 12,
    "status": 0xBE00000000800400, "reason": "OOMKilled",
    "bus": "0000:b3:00", "xid": 79, "exception": "ValueError: no labels",
}  # fmt: skip
ON_THEIR_OWN = ("torchrun: when", "torchrun: where", "torchrun: who", "torchrun: why", "heartbeat of the watchdog",
                "torchrun: another attempt", "torchrun: number of the attempt", "torchrun: environment",
                "desync: number of a snapshot", "desync: ranks of a snapshot", "desync: ranks of a snapshot, done",
                "slurmstepd: out of memory", "slurmstepd: the job is queued again", "NCCL: a collective is enqueued",
                "monitored barrier: who has come", "NCCL: an answer of RAS", "Ray: where a rank is",
                "Ray: a rank begins",
                "Kubernetes: name of a pod", "Kubernetes: a container ran out of memory", "DeepSpeed: ranks of hosts",
                "Kubernetes: a pod was evicted", "DeepSpeed: a process begins",
                "Lightning: how many ranks there are", "Ray: another attempt",
                "Ray: another attempt, by its state", "Ray: another size, by its state",
                "Ray: all workers have started", "Ray: all workers have started, before", "JobSet: another attempt",
                "Kubernetes: how often a container was started")  # fmt: skip
"""Entries that say nothing of a rank without others beside them."""


def job_of(culprit: int = 5, world: int = 8, version: jobs.Version = NEWEST, seed: int = 1) -> Job:
    return Job(world, culprit, version, 167, 3, "ALLREDUCE", 4096, Random(seed))


def text_of(lines: list[tuple[int, str]]) -> str:
    return "".join(f"{text}\n" for _, text in lines)


def recorded(folder: Path, *files: str | bytes) -> Recording:
    for number, content in enumerate(files):
        data = content.encode() if isinstance(content, str) else content
        (folder / f"part-{number}.log").write_bytes(data)
    (recording,) = read([folder]).recordings
    return recording


def said(folder: Path, *files: str | bytes) -> Incident:
    (incident,) = analyze(recorded(folder, *files))
    return incident


def names(incident: Incident) -> list[int]:
    return [culprit.rank for culprit in incident.culprits]


def candidates(incident: Incident) -> list[int]:
    return [candidate.rank for candidate in incident.candidates]


# ---- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_each_entry_has_a_hint_and_a_source_and_is_read(entry: Entry) -> None:
    text = entry.template.format(**FIELDS | {"state": "finished" if b"finished" in entry.hint else "started"})
    assert entry.hint.decode() in text
    assert entry.hint in HINTS
    assert entry.source
    if entry.name in ON_THEIR_OWN:
        with pytest.raises(FormatError, match="says nothing of ranks"):
            read_log(io.BytesIO(text.encode()))
    else:
        line = f"[rank3]:{text}\n" if entry.writer == "torch" else f"{text}\n"
        assert read_log(io.BytesIO(line.encode())).says_something


# ---- the plain case in other words and clothes -----------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_words_of_each_version(version: jobs.Version, tmp_path: Path) -> None:
    incident = said(tmp_path, text_of(jobs.late(job_of(version=version)).lines))
    assert (names(incident), candidates(incident)) == (([5], []) if version.asked else ([], [5]))
    assert incident.victims.ranks == (0, 1, 2, 3, 4, 6, 7)


def test_an_archive_as_people_attach_it(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../logs/node0.log", text_of(jobs.late(job_of()).lines))
        archive.writestr("notes/", "")
    assert names(said(tmp_path, file.getvalue())) == [5]
    assert [path.name for path in tmp_path.iterdir()] == ["part-0.log"]  # nothing was unpacked


def test_what_was_enqueued_is_not_said_to_be_entered(tmp_path: Path) -> None:
    words = paragraph(said(tmp_path, text_of(jobs.late(job_of()).lines)))
    assert "its call of all_reduce #167 on default_pg had not returned, or was never made" in words
    assert "not on the device" not in words


# ---- half of the logs ------------------------------------------------------------------------------------------------


def test_a_world_is_as_large_as_some_line_says(tmp_path: Path) -> None:
    # GIVEN the log of the first node of a job of which a line mentions rank 40
    text = text_of(jobs.late(job_of()).lines).replace("from  rank 7", "from  rank 40")
    for asker in range(8):
        text = text.replace(f"timeout from  rank {asker} and", "timeout from  rank 40 and")
    recording = recorded(tmp_path, text)
    (incident,) = analyze(recording)
    assert set(recording.unread) == set(range(8, 41))
    assert (names(incident), candidates(incident)[:2]) == ([], [5, 8])


def test_a_lonely_waiter_may_itself_be_ahead(tmp_path: Path) -> None:
    lines = [line for line in jobs.one_too_many(job_of()).lines if line[0] in (5, 6)]
    assert candidates(said(tmp_path, text_of(lines)))[0] == 5


@pytest.mark.parametrize("world", [2, 8])
def test_one_operation_too_many(world: int, tmp_path: Path) -> None:
    incident = said(tmp_path, text_of(jobs.one_too_many(job_of(culprit=1, world=world)).lines))
    assert names(incident) == []
    assert set(candidates(incident)) == set(range(world))
    assert world == 2 or candidates(incident)[0] == 1


@pytest.mark.parametrize(("op", "beyond"), [("ALLREDUCE", 0), ("BROADCAST", 0), ("BROADCAST", 1)])
def test_what_all_others_have_completed_makes_a_candidate(op: str, beyond: int, tmp_path: Path) -> None:
    job = job_of()
    others = [line for rank in job.others() for line in jobs.was_asked(job, rank, job.seq + beyond)]
    incident = said(tmp_path, text_of([*jobs.gave_up(job, 5, op=op), *others]))
    assert (names(incident), candidates(incident)) == ([], [5])
    assert "does not complete" in incident.candidates[0].why


def test_a_later_round_that_needs_it_too_makes_it_a_device(tmp_path: Path) -> None:
    job = job_of()
    others = [line for rank in job.others() for line in jobs.was_asked(job, rank, job.seq + 1)]
    incident = said(tmp_path, text_of([*jobs.gave_up(job, 5), *others]))
    assert (names(incident), incident.cause) == ([5], Cause.DEVICE)


def test_a_silent_member_of_a_subgroup_is_the_first_candidate(tmp_path: Path) -> None:
    incident = said(tmp_path, text_of(jobs.in_a_subgroup(job_of(culprit=3)).lines))
    assert (names(incident), candidates(incident)[0]) == ([], 3)


def test_a_silent_last_member_of_a_subgroup_is_a_candidate(tmp_path: Path) -> None:
    # GIVEN ranks 4 to 6 wait as the first three of a group, so that there is likely a fourth
    job = job_of(culprit=7)
    lines = [line for place in range(3) for line in jobs.gave_up(job, 4 + place, place=place, pg="21", desc="tp")]
    incident = said(tmp_path, text_of([*lines, *jobs.was_asked(job, 7, 12)]))
    assert (names(incident), candidates(incident)[0]) == ([], 7)


def test_a_member_alone_waits_for_a_group_that_is_not_known(tmp_path: Path) -> None:
    job = job_of()
    lines = jobs.gave_up(job, 9, place=1, pg="37", desc="TENSOR_MODEL_PARALLEL_GROUP")
    incident = said(tmp_path, text_of([*lines, *jobs.was_asked(job, 0, 62)]))
    assert (names(incident), incident.victims.ranks) == ([], (9,))
    assert "members not known" in paragraph(incident)


def test_timeouts_of_messages_name_nobody(tmp_path: Path) -> None:
    lines = [line for rank in range(4) for line in jobs.gave_up(job_of(), rank, seq=40 + rank, op="RECV", pg="9")]
    incident = said(tmp_path, text_of(lines))
    assert (names(incident), candidates(incident), incident.victims.count) == ([], [], 4)


@pytest.mark.parametrize("silent", [[5], list(range(8, 40))])
def test_all_ranks_that_wrote_nothing_are_candidates_however_many(silent: list[int], tmp_path: Path) -> None:
    job = job_of(culprit=silent[-1], world=64)
    lines = [line for line in jobs.silent(job).lines if line[0] not in silent]
    incident = said(tmp_path, text_of(lines))
    assert (names(incident), candidates(incident)) == ([], silent)
    assert len(paragraph(incident)) < 1200


@pytest.mark.parametrize("is_said", [True, False])
def test_where_no_line_says_how_many_ranks_there_are_there_may_be_more(is_said: bool, tmp_path: Path) -> None:
    # GIVEN the last of eight ranks and another one wrote nothing, so no line mentions the last one
    lines = [line for line in jobs.silent(job_of(culprit=7)).lines if line[0] != 3]
    world = worded("Ray: a rank begins", **FIELDS | {"address": "10.0.0.2", "rank": 0})
    incident = said(tmp_path, text_of([*lines, *[(0, world)] * is_said]))
    assert candidates(incident) == ([3, 7] if is_said else [3])
    assert ("one beyond rank 6 may be at fault too" in paragraph(incident)) != is_said


def test_a_desync_report_that_has_lost_its_ends_of_lines(tmp_path: Path) -> None:
    lines = jobs.desynchronised(job_of()).lines
    assert names(said(tmp_path, " ".join(text for _, text in lines))) == [5]


def test_a_restart_in_a_log_that_has_lost_its_ends_of_lines(tmp_path: Path) -> None:
    told = jobs.restarted(job_of(version=VERSIONS[3]))
    (tmp_path / "job.log").write_text(" ".join(text for _, text in told.lines))
    intake = read([tmp_path])
    found = [one for recording in intake.recordings for one in analyze(recording)]
    assert (intake.attempts, [candidates(one) for one in found]) == (2, [[5]])


# ---- what libraries, launchers and the kernel say themselves ---------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "cause", "reason"),
    [
        ("desync report", Cause.NOT_ENTERED, None),
        ("monitored barrier", Cause.NOT_ENTERED, None),
        ("mismatch in DETAIL", Cause.INCONSISTENT, None),
        ("killed", Cause.PROCESS_EXIT, Reason.SIGNAL),
        ("out of memory", Cause.PROCESS_EXIT, Reason.OUT_OF_MEMORY),
        ("crashed", Cause.PROCESS_EXIT, Reason.SIGNAL),
        ("raised", Cause.PROCESS_EXIT, Reason.EXCEPTION),
        ("device lost", Cause.DEVICE, Reason.DEVICE_ERROR),
        ("NCCL's COLL lines", Cause.NOT_ENTERED, None),
    ],
)
@pytest.mark.parametrize("culprit", [2, 7])
def test_who_it_is_and_why(fault: str, cause: Cause, reason: Reason | None, culprit: int, tmp_path: Path) -> None:
    told = FAULTS[fault](job_of(culprit, seed=6))
    incident = said(tmp_path, text_of(told.lines))
    assert told.decides
    assert (names(incident), incident.cause, incident.reason) == ([culprit], cause, reason)


def test_the_sentence_beside_an_error_of_a_device_does_not_blame_the_host(tmp_path: Path) -> None:
    words = paragraph(said(tmp_path, text_of(jobs.lost_device(job_of()).lines)))
    assert "Xid 79 of PCI:0000:a1:00" in words
    assert "CPU" not in words


def test_an_end_that_launchers_cause_names_nobody(tmp_path: Path) -> None:
    # GIVEN rank 5 was killed a second after the others gave up, as a launcher does it
    text = text_of(jobs.killed(job_of()).lines).replace("_02:50:09", "_03:00:10")
    incident = said(tmp_path, text)
    assert (names(incident), candidates(incident)) == ([], [5])


def test_a_device_and_an_ending_are_joined_by_the_process(tmp_path: Path) -> None:
    ended = worded("torchrun: a failure", **FIELDS | {"code": -6, "signal": 6, "signal_name": "SIGABRT"})
    xid = worded("NVIDIA's driver: an error of a device", **FIELDS | {"text": "GPU has fallen off the bus."})
    incident = said(tmp_path, ended, xid)
    assert (names(incident), incident.reason) == ([3], Reason.DEVICE_ERROR)
    (tmp_path / "part-1.log").write_text(xid.replace("6003", "6004"))
    recording = recorded(tmp_path)
    assert [names(one) for one in analyze(recording)] == [[]]
    assert any("no line says whose device that is" in text for text in recording.remarks)


def test_an_xid_that_only_reports_an_end_is_no_error_of_a_device(tmp_path: Path) -> None:
    ended = worded("torchrun: a failure", **FIELDS | {"code": -6})
    xid = worded("NVIDIA's driver: an error of a device", **FIELDS | {"xid": 45})
    incident = said(tmp_path, ended, xid)
    assert (names(incident), candidates(incident), incident.reason) == ([], [3], None)


def test_errors_of_gloo_are_said_and_nobody_is_named(tmp_path: Path) -> None:
    lines = [worded(name, **FIELDS | {"op": "recv"}) for name in
             ("Gloo: an operation has timed out", "Gloo: a peer has closed")]  # fmt: skip
    recording = recorded(tmp_path, "\n".join(lines))
    assert analyze(recording) == ()
    assert recording.left_open
    assert "a recv of Gloo timed out after 600 s" in recording.remarks[0]
    assert "the peer at 10.0.0.3 closed" in recording.remarks[1]


def test_the_earliest_of_several_endings_counts_by_its_own_time(tmp_path: Path) -> None:
    blocks = [
        worded("torchrun: a failure", **FIELDS | {"rank": rank, "stamp": f"2026-06-01_0{hour}:00:09", "code": -11})
        for rank, hour in ((1, 4), (6, 3), (2, 5))
    ]
    assert names(said(tmp_path, "\n".join(blocks))) == [6]


@pytest.mark.parametrize("has_timeouts", [True, False])
def test_the_end_of_an_earlier_run_in_the_same_log_does_not_count(has_timeouts: bool, tmp_path: Path) -> None:
    # GIVEN rank 2 crashed hours before, and the log was written on by the next run
    before = worded("torchrun: a failure", **FIELDS | {"rank": 2, "stamp": "2026-05-31_20:00:09", "code": -11})
    now = worded("torchrun: a failure", **FIELDS | {"rank": 5, "stamp": "2026-06-01_02:50:09", "code": -9})
    lines = jobs.silent(job_of()).lines if has_timeouts else []
    incident = said(tmp_path, f"{before}\n{text_of(lines)}{now}\n")
    assert (names(incident), candidates(incident)) == (([5], []) if has_timeouts else ([], [5]))


def test_requests_without_a_completion_make_candidates(tmp_path: Path) -> None:
    lines = [text for rank in (2, 6) for text in (
        worded("NCCL: who is where", **FIELDS | {"rank": rank, "pid": 50 + rank}),
        worded("NCCL: a request that is late", **FIELDS | {"pid": 50 + rank, "age_ns": 4 * 10**9, "gid": f"f{rank}"}),
    )]  # fmt: skip
    incident = said(tmp_path, "\n".join(lines))
    assert (names(incident), candidates(incident)) == ([], [2, 6])
    assert "3 in flight for 4.0 s" in paragraph(incident)


def test_who_is_at_an_end_of_late_requests_is_a_candidate_before_who_wrote_nothing(tmp_path: Path) -> None:
    # GIVEN rank 5 wrote nothing, and requests of ranks 2 and 3 have no completion
    requests = [
        text
        for rank, pid in ((2, 52), (3, 53))
        for text in (
            worded("NCCL: who is where", **FIELDS | {"rank": rank, "pid": pid}),
            worded(
                "NCCL: a request that is late", **FIELDS | {"pid": pid, "own_gid": f"f{rank}", "gid": f"f{5 - rank}"}
            ),
        )
    ]
    incident = said(tmp_path, text_of(jobs.silent(job_of()).lines) + "\n".join(requests))
    assert (names(incident), candidates(incident)) == ([], [2, 3, 5])


def test_errors_that_follow_from_others_name_nobody_and_are_said(tmp_path: Path) -> None:
    raised = (
        "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, remote process exited or there was a network error"
    )
    lines = [f"[rank{rank}]: {line}" for rank in range(3) for line in ("Traceback (most recent call last):", raised)]
    recording = recorded(tmp_path, "\n".join(lines))
    assert analyze(recording) == ()
    assert recording.remarks[1].startswith("rank 1: raised torch.distributed.DistBackendError")


def test_two_attempts_in_one_log(tmp_path: Path) -> None:
    told = jobs.restarted(job_of())
    (tmp_path / "job.log").write_text(text_of(told.lines))
    intake = read([tmp_path])
    verdicts = [analyze(one) for one in (*intake.recordings, *intake.earlier[0].recordings)]
    assert [names(incident) for (incident,) in verdicts] == [[5], [told.first_culprit]]


# ---- stacks ----------------------------------------------------------------------------------------------------------

PY_SPY = (
    'Process {pid}: python train.py\nPython v3.12.1 (/usr/bin/python3)\n\nThread {pid} (idle): "MainThread"\n{frames}'
)
IN_REDUCE = "    all_reduce (torch/distributed/distributed_c10d.py:{line})\n    train (train.py:88)\n"
IN_DATA = "    read (fsspec/spec.py:1900)\n    train (train.py:80)\n"
FAULT = 'Thread 0x00007f01 (most recent call first):\n  File "a.py", line 3 in work\n\nCurrent thread 0x00007f02 ' \
        '(most recent call first):\n{frames}'  # fmt: skip
FAULT_REDUCE = '  File "/x/distributed_c10d.py", line {line} in all_reduce\n  File "train.py", line 88 in train\n'
FAULT_DATA = '  File "/x/spec.py", line 1900 in read\n  File "train.py", line 80 in train\n'


@pytest.mark.parametrize(
    ("whole", "alike", "apart"),
    [(PY_SPY, IN_REDUCE, IN_DATA), (FAULT, FAULT_REDUCE, FAULT_DATA)],
    ids=["py-spy", "fault"],
)
def test_who_stands_elsewhere_than_most(whole: str, alike: str, apart: str, tmp_path: Path) -> None:
    for rank in range(5):
        frames = apart if rank == 3 else alike.format(line=2800 + rank)
        (tmp_path / f"stack-rank{rank}.txt").write_text(whole.format(pid=100 + rank, frames=frames))
    incident = said(tmp_path)
    assert (names(incident), candidates(incident), incident.victims.ranks) == ([], [3], (0, 1, 2, 4))
    assert "spec.py:1900" in paragraph(incident)


def test_stacks_of_which_no_place_has_most_say_nothing(tmp_path: Path) -> None:
    for rank in range(4):
        frames = (IN_DATA if rank % 2 else IN_REDUCE).format(line=2800)
        (tmp_path / f"rank_{rank}.txt").write_text(PY_SPY.format(pid=rank, frames=frames))
    with pytest.raises(Exception, match=r"says something of ranks|no recording"):
        read([tmp_path])

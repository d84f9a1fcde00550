"""What a restart without the slow or broken part needs."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from incident_cases import culprit, incident

from whichrank.model.clause import Says, clause
from whichrank.model.incident import Cause, Incident, Link, Reason
from whichrank.server.mitigations_file import MitigationNow
from whichrank.server.record import JobSummary, Record
from whichrank.surface.handover import JSON_FILE, TEXT_FILE, handover_lines, handover_of, write_handover

AT = datetime(2026, 11, 29, 5, 0, 0, tzinfo=UTC)
SLOW = culprit(5, clause(Says.SUSPENDED), host="node-b")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def run_of(folder: Path, *incidents: Incident, now: MitigationNow | None = None, checkpoints: str = "") -> Path:
    """The folder of a run that has found these."""
    record = Record(folder)
    record.begin(JobSummary(job="job-1", command=["torchrun", "my train.py"], started=AT, checkpoints=checkpoints))
    for one in incidents:
        record.write(one)
    record.write_mitigation(now)
    record.remove_if_empty()  # it closes its file
    return folder


def text_of(folder: Path) -> str:
    return "\n".join(handover_lines(handover_of(folder)))


def slow(**changes: object) -> Incident:
    return incident(Cause.COMPUTE_SLOW, **{"kind": "slow", "culprits": (SLOW,), **changes})


def test_node_that_is_named_is_to_be_left_out_with_the_reason(folder: Path) -> None:
    now = MitigationNow(mode="advise", level=1, impact_s=750.0, healthy_s=1.0, now_s=1.5)
    text = text_of(run_of(folder, slow(), now=now))
    assert "Leave out: node node-b (rank 5)" in text
    assert "sbatch --exclude=node-b ..." in text
    assert "kubectl cordon node-b" in text
    assert "An iteration takes 1.5 s, and 1 s if all is well; lost so far: 12 min 30 s." in text
    assert "torchrun 'my train.py'" in text
    assert "none was written for whichrank" in text


@pytest.mark.parametrize(
    "harmless",
    [
        slow(reason=Reason.DATA_WAIT),
        slow(reason=Reason.GARBAGE_COLLECTION),
        incident(Cause.PROCESS_EXIT, kind="failed", reason=Reason.EXCEPTION, culprits=(SLOW,)),
        incident(Cause.INCONSISTENT, culprits=(SLOW,)),
    ],
)
def test_no_node_is_left_out_for_what_the_program_does(harmless: Incident, folder: Path) -> None:
    found = handover_of(run_of(folder, harmless))
    assert found.leave_out == ()
    assert [one.is_of_a_node for one in found.named] == [False]
    assert "another node may not mend it" in text_of(folder)


@pytest.mark.parametrize(
    "over",
    [
        slow(status="recovered", ended=AT),
        slow(severity="notice"),
        incident(Cause.UNKNOWN, candidates=(SLOW,)),
    ],
)
def test_nothing_is_left_out_for_what_is_over_or_not_known(over: Incident, folder: Path) -> None:
    found = handover_of(run_of(folder, over))
    assert (found.leave_out, found.named) == ((), ())
    assert "no reason to leave a node out" in text_of(folder)


def test_slow_link_of_which_no_end_is_named_leaves_no_node_out(folder: Path) -> None:
    link = incident(Cause.COMMUNICATION_SLOW, kind="slow", links=(Link(src=1, dst=5),))
    found = handover_of(run_of(folder, link))
    assert [one.is_of_a_node for one in found.named] == [True]
    assert found.leave_out == ()
    assert "which end of it is at fault is not known" in text_of(folder)


def test_newest_whole_checkpoint_is_told(folder: Path, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    for name, whole in (("iteration-9000", True), ("iteration-1000", True), ("iteration-2000", False), ("other", True)):
        (checkpoints / name).mkdir(parents=True)
        if whole:
            (checkpoints / name / "checkpoint.json").write_text("{}")
            written_s = AT.timestamp() - 60 * (name == "iteration-9000")  # of an older job
            os.utime(checkpoints / name / "checkpoint.json", (written_s, written_s))
    found = handover_of(run_of(folder, slow(), checkpoints=str(checkpoints)))
    assert found.checkpoint is not None
    assert (found.checkpoint.iterations, found.checkpoint.written) == (1000, AT)
    assert f"{checkpoints}/iteration-1000" in text_of(folder)


def test_it_is_written_for_people_and_for_programs_for_the_user_alone(folder: Path) -> None:
    found = handover_of(run_of(folder, slow()))
    assert write_handover(folder, found) == folder / TEXT_FILE
    assert json.loads((folder / JSON_FILE).read_text())["leave_out"] == [
        {"host": "node-b", "ranks": [5], "incidents": ["i-1"]}
    ]
    assert all((folder / name).stat().st_mode & 0o077 == 0 for name in (JSON_FILE, TEXT_FILE))


def test_host_that_could_be_a_command_is_in_none(folder: Path) -> None:
    evil = msgspec.structs.replace(SLOW, host="b; rm -rf /\x1b[31m")
    text = text_of(run_of(folder, slow(culprits=(evil,))))
    assert "sbatch" not in text
    assert "kubectl" not in text
    assert "\x1b" not in text

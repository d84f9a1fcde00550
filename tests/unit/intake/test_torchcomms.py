"""Dumps of torchcomms' own Flight Recorder: verdicts as of PyTorch's, and no name where counts do not say it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from whichrank.errors import WhichrankError
from whichrank.intake.flight_dump import COMPLETED, parse, read_json
from whichrank.intake.read import read
from whichrank.intake.torchcomms import counted_anew, is_torchcomms
from whichrank.model.incident import Incident
from whichrank.model.kinds import Kind
from whichrank.server.analyze import analyze
from whichrank.testbed.bench.dumps.cases import Case, cases
from whichrank.testbed.bench.dumps.played import dump_of, play

RINGS = (2000, 120, 60)


def torchcomms_dump(case: Case, rank: int, ring: int = 2000, *, backend: str = "ncclx", on_cuda: bool = True) -> Any:
    """What torchcomms' recorder of a rank would hold: all is counted together, and no message has a peer."""
    played = play(case.programs, case.fault)
    mine = [group for group in case.groups if rank in group.members]
    entries = []
    for at, unit in enumerate(played.programs[rank][: played.issued[rank]]):
        is_done = at < played.done[rank]
        for op in unit:
            number = len(entries)
            times = {"time_discovered_started_ns": None, "time_discovered_completed_ns": None}
            if is_done and on_cuda:
                times = dict.fromkeys(times, 1_760_000_000_000_000_000 + number * 200_000)
            entries.append({
                "record_id": number, "pg_id": mine.index(op.group), "process_group": (op.group.name, backend),
                "thread_name": "python", "thread_id": "139", "collective_seq_id": number, "p2p_seq_id": 0,
                "op_id": number, "profiling_name": f"{backend}:{op.kind}",
                "time_created_ns": 1_760_000_000_000_000_000 + number * 200_000 + rank,
                "input_sizes": [[op.count]], "input_dtypes": ["Float"], "output_sizes": [[op.count]],
                "output_dtypes": ["Float"], "state": "completed" if is_done and on_cuda else "scheduled", **times,
                "retired": is_done, "timeout_ms": 600000, "is_p2p": False,
            })  # fmt: skip
    config = {
        group.name: {"name": group.name, "desc": backend, "ranks": f"[{','.join(map(str, group.members))}]"}
        for group in mine
    }
    return {
        "version": "2.10", "pg_config": config, "comm_lib_version": "", "pg_status": {}, "entries": entries[-ring:],
    }  # fmt: skip


def written(case: Case, folder: Path, ring: int, *, on_cuda: bool, as_json: bool) -> None:
    for rank in range(len(case.programs)):
        if rank not in case.fault.unsent:
            dump = torchcomms_dump(case, rank, ring, on_cuda=on_cuda)
            data = json.dumps(dump).encode() if as_json else pickle.dumps(dump, 2)
            (folder / f"rank_{rank}").write_bytes(data)


def verdicts(folder: Path) -> list[Incident]:
    return [incident for recording in read([folder]).recordings for incident in analyze(recording)]


CASES = [case for case in cases() if len(case.programs) <= 8 and not case.name.startswith("batches")]


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("number", range(0, len(CASES), 2))
def test_no_other_rank_is_named(number: int, ring: int, tmp_path: Path) -> None:
    case = CASES[number]
    truth = {*case.culprits, *case.candidates}
    written(case, tmp_path, ring, on_cuda=number % 4 == 0, as_json=number % 3 == 0)
    for incident in verdicts(tmp_path):
        assert {culprit.rank for culprit in incident.culprits} <= truth
        if incident.candidates:
            assert truth & {candidate.rank for candidate in incident.candidates}


DATA_PARALLEL = [case for case in cases() if ", dp8, " in case.name and "stopped" in case.name]


@pytest.mark.parametrize("number", range(len(DATA_PARALLEL)))
@pytest.mark.parametrize("ring", RINGS)
def test_a_job_that_does_the_same_everywhere_has_its_culprit_named_also_where_rings_wrapped(
    number: int, ring: int, tmp_path: Path
) -> None:
    case = DATA_PARALLEL[number]
    written(case, tmp_path, ring, on_cuda=True, as_json=False)
    assert {culprit.rank for incident in verdicts(tmp_path) for culprit in incident.culprits} == set(case.culprits)


def test_what_says_that_a_dump_is_of_torchcomms() -> None:
    case = DATA_PARALLEL[0]
    assert is_torchcomms(parse(torchcomms_dump(case, 0)))
    assert is_torchcomms(parse(torchcomms_dump(case, 0, backend="gloo")))
    assert not any(
        is_torchcomms(parse(dump_of(play(one.programs, one.fault), 0, one.groups, one.style))) for one in cases()
    )


def test_operations_are_counted_by_communicator_and_retired_ones_are_complete() -> None:
    """GIVEN collectives on two communicators with messages between them THEN only collectives are counted, on each."""
    case = next(case for case in cases() if "tp2-dp2-pp2" in case.name)
    raw = {rank: torchcomms_dump(case, rank, on_cuda=False) for rank in range(8)}
    dumps = {rank: read_json(json.dumps(one).encode()) for rank, one in raw.items()}
    found, uncounted = counted_anew(dumps)
    assert uncounted == {}
    for rank, dump in found.items():
        rows = dump.entries
        assert dump.hides_messages
        assert not set(rows["kind"].tolist()) & {Kind.SEND, Kind.RECV, Kind.RECV_ANY}
        for at in set(rows["group"].tolist()):
            mine = rows["seq"][rows["group"] == at]
            assert mine.tolist() == list(range(1, len(mine) + 1))
        retired = sum(e["retired"] for e in raw[rank]["entries"] if e["profiling_name"][6:] not in ("send", "recv"))
        assert (rows["state"] == COMPLETED).sum() == retired
    assert [group.desc for group in found[0].groups].count("default_pg") <= 1


def test_numbers_that_differ_between_members_say_nothing(tmp_path: Path) -> None:
    """GIVEN rings that have wrapped, and a rank that has issued one operation more on a communicator of its own."""
    case = DATA_PARALLEL[0]
    for rank in range(8):
        dump = torchcomms_dump(case, rank, 60)
        if rank == 2:
            for entry in dump["entries"]:
                entry["record_id"] += 1
                entry["collective_seq_id"] += 1
                entry["input_sizes"] = [[entry["record_id"]]]
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dump, 2))
    assert verdicts(tmp_path) == []
    (recording,) = read([tmp_path]).recordings
    assert set(recording.unread) == set(range(8))
    assert "TORCHCOMM_FR_BUFFER_SIZE" in recording.unread[0]


def test_dumps_of_what_is_under_way_alone_say_nothing(tmp_path: Path) -> None:
    case = DATA_PARALLEL[0]
    for rank in range(8):
        dump = torchcomms_dump(case, rank)
        dump["entries"] = [entry for entry in dump["entries"] if not entry["retired"]]
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dump, 2))
    for incident in verdicts(tmp_path):
        assert {culprit.rank for culprit in incident.culprits} <= set(case.culprits)


def test_a_pickle_that_asks_for_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_bytes(pickle.dumps({"version": "2.10", "entries": [Path]}, 2))
    with pytest.raises(WhichrankError, match="code is never run"):
        read([tmp_path])

"""One dump of the Flight Recorder, as it is read."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from whichrank.errors import FormatError
from whichrank.intake.flight_dump import COMPLETED, SCHEDULED, parse, rank_in_name, read_json, read_pickle
from whichrank.model.kinds import Kind


def entry(record: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "record_id": record, "pg_id": 3, "process_group": ("7", "mesh_tp"), "collective_seq_id": record + 1,
        "p2p_seq_id": 0, "op_id": record + 1, "profiling_name": "nccl:all_reduce", "time_created_ns": 1000 + record,
        "input_sizes": [[2, 3]], "input_dtypes": ["BFloat16"], "output_sizes": [[2, 3]], "output_dtypes": ["BFloat16"],
        "state": "scheduled", "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        "retired": False, "timeout_ms": 600000, "is_p2p": False, **more,
    }  # fmt: skip


def dump(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
                      "7": {"name": "7", "desc": "mesh_tp", "ranks": "[2, 3]"},
                      "8": {"name": "8", "desc": "mesh_dp", "ranks": "[1, 3]"}},
        "pg_status": {"3": {"last_enqueued_collective": 5, "last_completed_collective": 4}},
        "entries": list(entries),
        **more,
    }  # fmt: skip


def test_the_columns_of_a_pickle() -> None:
    # GIVEN a dump with a complete collective and a message under way
    raw = dump(
        entry(0, state="completed", time_discovered_completed_ns=5000),
        entry(1, profiling_name="nccl:recv 1<-0", is_p2p=True, p2p_seq_id=9, input_dtypes=["Long"]),
    )
    # WHEN it is read
    read = read_pickle(pickle.dumps(raw, 2))
    # THEN its fields are columns, and the rank is the one that all its groups have in common
    first, second = read.entries
    assert (read.rank, read.backend, read.status) == (3, "nccl", {3: (5, 4)})
    assert [group.name for group in read.groups] == ["0", "7", "8"]
    assert (first["kind"], first["count"], first["dtype"], first["state"]) == (Kind.ALL_REDUCE, 6, 15, COMPLETED)
    assert (first["completed_ns"], first["seq"], read.groups[first["group"]].desc) == (5000, 1, "mesh_tp")
    assert (second["kind"], second["peer"], second["p2p_seq"], second["p2p"]) == (Kind.RECV, 0, 9, True)
    assert (second["state"], second["dtype"], second["completed_ns"]) == (SCHEDULED, 4, 0)


def test_json_says_the_same_as_the_pickle() -> None:
    # GIVEN the same dump as JSON, in which counts of a status are texts and unknown times are 0
    raw = dump(entry(0, time_discovered_completed_ns=0, time_discovered_started_ns=0))
    raw["pg_status"] = {"3": {"last_enqueued_collective": "5", "last_completed_collective": "4"}}
    as_json = read_json(json.dumps(raw).encode())
    as_pickle = read_pickle(pickle.dumps(dump(entry(0)), 2))
    assert as_json.entries.tolist() == as_pickle.entries.tolist()
    assert (as_json.rank, as_json.status, as_json.groups) == (as_pickle.rank, as_pickle.status, as_pickle.groups)


def test_json_without_entries_is_a_rank_in_no_operation() -> None:
    raw = dump()
    del raw["entries"]
    assert len(read_json(json.dumps(raw).encode()).entries) == 0


def test_an_early_version_has_fewer_fields() -> None:
    # GIVEN version 1, with one count for everything, and no groups but those of its operations
    old = entry(4, seq_id=12)
    for name in ("collective_seq_id", "p2p_seq_id", "is_p2p", "op_id", "timeout_ms", "input_dtypes"):
        del old[name]
    read = parse({"version": "1.5", "entries": [old]})
    assert (read.entries["seq"].tolist(), read.rank) == ([12], None)
    assert [group.name for group in read.groups] == ["7"]


def test_gloo_hides_messages() -> None:
    # GIVEN collectives between which the group has counted something else
    def read(*counts: int) -> bool:
        return parse(
            dump(*(entry(n, op_id=count, profiling_name="gloo:all_reduce") for n, count in enumerate(counts)))
        ).hides_messages

    assert read(2, 4, 6)
    assert not read(1, 2, 3)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("_dump_12", 12), ("dumps/trace_rank_3.json", 3), ("nccl_trace_rank_7", 7), ("host12-rank5.pkl", 5),
        ("fr_trace_0", 0), ("node3/fr.14.gz", 14), ("LICENSE", None), ("archive.tar:dir/trace_31", 31),
    ],
)  # fmt: skip
def test_the_rank_in_a_name(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "3.1"}, "version 3.1, and versions 1 and 2"),
        ({"entries": "many"}, "no list of operations"),
        ({"entries": [7]}, "a field that does not fit"),
        ({"entries": [entry(0, record_id="first")]}, "a field that does not fit"),
        ({"entries": [entry(0, state="dreaming")]}, "a field that does not fit"),
        ({"pg_config": {"0": {"ranks": "[0, one]"}}}, "a field that does not fit"),
        ({"pg_config": {"0": {"ranks": [-1]}}}, "are no ranks"),
        ({"pg_status": {"x": {}}}, "a field that does not fit"),
        ({"version": 2}, "whose version is no text"),
        ({"pg_config": {"0": {"desc": 7}}}, "type int stands where a text belongs"),
        ({"entries": [entry(0, process_group=("7", 1.5))]}, "type float stands where none belongs"),
        ({"entries": [entry(0, input_dtypes=[7])]}, "type int stands where none belongs"),
        ({"entries": [entry(0, retired="no")]}, "type str stands where none belongs"),
        ({"entries": [entry(0, input_sizes=[[-4]])]}, "a tensor has a size that is none"),
        ({"entries": [entry(0, input_sizes=[[2, -4]])]}, "a tensor has a size that is none"),
        ({"entries": [entry(0, output_sizes=[[2**63]])]}, "a tensor has a size that is none"),
        ({"entries": [entry(0, output_sizes=[[2**40, 2**40]])]}, "a tensor has a size that is none"),
    ],
)
def test_what_does_not_fit_is_said(change: dict[str, Any], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse(dump(entry(0)) | change)


def test_other_content_is_no_dump() -> None:
    for value in (None, 7, [], {}, {"version": "2.1"}, {"entries": []}):
        with pytest.raises(FormatError, match="no dump of the Flight Recorder"):
            parse(value)


def nested(depth: int) -> Any:
    """A tuple that holds itself twice, so many times over: small in a pickle, without end for whoever walks it."""
    value: Any = ()
    for _ in range(depth):
        value = (value, value)
    return value


FIELDS = (
    "record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name", "state",
    "time_created_ns", "input_sizes", "output_sizes", "input_dtypes", "retired", "timeout_ms", "is_p2p", "frames",
)  # fmt: skip


def test_values_without_end_are_refused_before_they_are_walked(tmp_path: Path) -> None:
    # GIVEN dumps in which one field, or a part of one, takes longer to hash or to write than anybody waits
    endless = nested(60)
    raws = [dump(entry(0)) | {"version": endless}, dump(entry(0)) | {"entries": [endless]}]
    raws += [dump(entry(0), pg_config={"0": {"desc": of[0], "ranks": of[1]}}) for of in ((endless, []), ("", endless))]
    raws += [dump(entry(0), pg_status={"3": {"last_enqueued_collective": endless}})]
    raws += [dump(entry(0, **{name: value})) for name in FIELDS for value in (endless, [endless], [[endless]])]
    raws += [dump(entry(0, frames=[{"name": endless, "filename": "train.py", "line": 7}]))]
    (tmp_path / "dumps").write_bytes(b"".join(pickle.dumps(raw, 2) for raw in raws))
    # WHEN they are read THEN each is refused at once
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, str(tmp_path / "dumps")], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.split()) == (0, ["FormatError"] * len(raws)), done.stderr


READ_ALL = """
import pickle, sys
from whichrank.errors import FormatError
from whichrank.intake.flight_dump import parse
with open(sys.argv[1], "rb") as file:
    while file.peek(1):
        try:
            parse(pickle.load(file))
            print("read")
        except FormatError:
            print("FormatError")
"""

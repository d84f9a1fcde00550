"""Whatever bytes come: one sentence, no traceback, and nothing of them is run."""

from __future__ import annotations

import copy
import gzip
import io
import json
import lzma
import pickle
import random
import sys
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from iteration_logs import PROGRAMS, log_of, times
from pipeline_logs import logs_of
from test_inspector import lines
from test_megatrace import line
from test_ras_text import BEHIND, text_of
from test_torchcomms import torchcomms_dump
from test_watchdog import timed_out
from traces import trace_of

from whichrank.errors import WhichrankError
from whichrank.intake.by_kind import of_dumps
from whichrank.intake.flight_dump import parse
from whichrank.intake.grammar import TABLE
from whichrank.intake.log_job import Said
from whichrank.intake.parts import look_into
from whichrank.intake.read import read
from whichrank.intake.recording import Note
from whichrank.server.analyze import analyze
from whichrank.testbed.bench.dumps.cases import cases
from whichrank.testbed.bench.dumps.played import dump_of, play
from whichrank.testbed.bench.logs.jobs import VERSIONS, Job, late

TRIES = 30
PIECES = (
    b"\x00", b"\xff" * 9, b"9" * 400, b"-1", b"1e999", b"[" * 2000, b'{"a":' * 500, b"\x80\x05", b"\xed\xa0\x80", b"\n",
)  # fmt: skip


def flight_dump() -> dict[str, object]:
    case = next(iter(cases()))
    return dump_of(play(case.programs, case.fault), 0, case.groups, case.style)


def parquet() -> bytes:
    pyarrow, tables = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    columns = {"rank": ["dp0_pp0"] * 8, "step": [1, 1, 2, 2] * 2, "name": ["forward"] * 8, "start": [0.1] * 8}
    tables.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def tar_of(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("a_0", "b_1"):
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return out.getvalue()


def made_log(number: int) -> bytes:
    """Text of the watchdog of a job whose rank is late."""
    job = Job(8, number % 8, VERSIONS[-1], 167, 3, "ALLREDUCE", 4096, random.Random(number))
    return "\n".join(text for _, text in late(job).lines).encode()


def zip_of(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("job.log", data)
    return out.getvalue()


SEEDS: dict[str, Callable[[], bytes]] = {
    "pickle": lambda: pickle.dumps(flight_dump(), 2),
    "json": lambda: json.dumps(flight_dump()).encode(),
    "kineto": lambda: json.dumps(trace_of(0, 4, [[100.0, 50.0]] * 8, [200.0] * 8)).encode(),
    "torchcomms": lambda: pickle.dumps(torchcomms_dump(next(iter(cases())), 0, 60), 2),
    "ras": lambda: b'{"communicators_count": 1, "communicators": [{"size": 2, "ranks": [{"rank": 0, "pid": 3}]}]}',
    "ras text": lambda: text_of(BEHIND) * 2,
    "inspector": lambda: "".join(json.dumps(one) + "\n" for one in lines(0, None, iterations=8)).encode(),
    "megatrace": lambda: "\n".join(line(n, 0) for n in range(40)).encode(),
    "log": lambda: (timed_out(0) + "srun: error: n: tasks 1-3: Killed\nNVRM: Xid (PCI:0): 79, pid=3, x\n").encode(),
    "log of all kinds": lambda: "\n".join(entry.template for entry in TABLE).encode(),
    "log of a hung job": lambda: made_log(9),
    "log in UTF-16": lambda: made_log(9).decode().encode("utf-16"),
    "log that was wrapped": lambda: b"\n".join(made_log(9)[at : at + 90] for at in range(0, 9000, 90)),
    "iteration times": lambda: "".join(
        log_of(random.Random(1), program, times(random.Random(1), 30)) for program in PROGRAMS
    ).encode(),
    "pipeline": lambda: "".join(logs_of(random.Random(1), lambda *_: 1.0, stages=2, micro=3, steps=3)).encode(),
    "zip": lambda: zip_of(made_log(9)),
    "stack": lambda: b'Process 3: python\nPython v3.12\n\nThread 3 (idle): "MainThread"\n    read (a.py:3)\n' * 3,
    "parquet": parquet,
    "gzip": lambda: gzip.compress(pickle.dumps(flight_dump(), 2)),
    "xz": lambda: lzma.compress(random.Random(1).randbytes(100_000) + pickle.dumps(flight_dump(), 2)),
    "tar": lambda: tar_of(random.Random(1).randbytes(100_000)),
    "tar of pickles": lambda: tar_of(pickle.dumps(flight_dump(), 2)),
}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """With some bytes changed, put in, left out, or cut off."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        how = rng.randrange(5)
        if how == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            changed[at:at] = rng.choice(PIECES)
        elif how == 2:
            del changed[at : at + rng.randint(1, 40)]
        elif how == 3:
            changed[at : at + 8] = changed[rng.randrange(len(changed) + 1) :][:8]
        elif rng.random() < 0.3:
            del changed[at:]
    return bytes(changed)


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    data, rng = SEEDS[name](), random.Random(name)
    path = tmp_path / "trace_0"
    for _ in range(TRIES):
        path.write_bytes(damaged(data, rng))
        for part in look_into(path):
            assert part.note.state in ("read", "empty", "damaged", "ignored")
            assert part.note.what.isprintable()
            if part.content is None:
                assert part.note.what


READ = ("json", "kineto", "inspector", "megatrace", "log", "ras text", "iteration times", "pipeline", "torchcomms")


@pytest.mark.parametrize("name", READ)
def test_what_is_read_of_damaged_files_is_analyzed_or_refused(name: str, tmp_path: Path) -> None:
    data, rng = SEEDS[name](), random.Random(name)
    path = tmp_path / "trace_0"
    for _ in range(4):
        path.write_bytes(damaged(data, rng))
        with suppress(WhichrankError):
            intake = read([path])
            found = [incident for recording in intake.recordings for incident in analyze(recording)]
            assert all(len(incident.culprits) <= 4 for incident in found)


VALUES = (
    0, -1, 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 2**80, None, "", "x", True, "9" * 50, 1e300, float("nan"), (),
    [], {}, [1, 2], ("a", "b"), [[2**60, 2**60]], "nccl:send 0->1", "nccl:recv 1<-0", "nccl:coalesced", "[0, 1]",
    "completed",
)  # fmt: skip


def with_another(value: Any, rng: random.Random) -> Any:
    """With one value in it, at any depth, that may be of another kind."""
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        value[key] = copy.deepcopy(rng.choice(VALUES)) if rng.random() < 0.15 else with_another(value[key], rng)
        return value
    if isinstance(value, list) and value:
        at = rng.randrange(len(value))
        value[at] = with_another(value[at], rng)
        return value
    return copy.deepcopy(rng.choice(VALUES))


@pytest.mark.parametrize("seed", range(4))
def test_dumps_with_strange_values_are_analyzed_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    case = rng.choice([case for case in cases() if len(case.programs) <= 8])
    played = play(case.programs, case.fault)
    raw = {rank: dump_of(played, rank, case.groups, case.style) for rank in range(len(case.programs))}
    for _ in range(6):
        changed, found = copy.deepcopy(raw), []
        for _ in range(rng.randint(1, 12)):
            rank = rng.choice(list(changed))
            changed[rank] = with_another(changed[rank], rng)
        for rank, dump in changed.items():
            with suppress(WhichrankError):
                found.append((Note(f"trace_{rank}", "flight_recorder", "read", rank), parse(dump)))
        if found:
            with suppress(WhichrankError):
                analyze(of_dumps(found, [note for note, _ in found], "job", Said()))

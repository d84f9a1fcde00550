"""Large recordings, and how long readers take for them: dumps of a thousand ranks, a trace of a gigabyte.

What is made is realistic in size and in shape, not in what it says. Ratios to what others do with the same files are
taken in one run on one machine, one process after the other.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from whichrank.testbed.bench.dumps.cases import Layout, programs_of
from whichrank.testbed.bench.dumps.compare import PREFIX
from whichrank.testbed.bench.dumps.peer import Run, named_by_torchfrtrace, run_limited
from whichrank.testbed.bench.dumps.played import Fault, Style, dump_of, play

LAYOUT: Final = Layout(tp=8, dp=16, pp=8)
CULPRIT: Final = 517
EVENTS_AT_ONCE: Final = 20_000
_LOAD: Final = "import json, sys; print(len(json.load(open(sys.argv[1]))['traceEvents']))"
_UNPICKLE: Final = """
import pathlib, pickle, sys
print(sum(len(pickle.load(open(path, 'rb'))['entries']) for path in pathlib.Path(sys.argv[1]).iterdir()))
"""


class Read(msgspec.Struct, frozen=True):
    """A reader on a large recording.

    Attributes:
        what: The recording in words.
        reader: Who read it.
        took_s: Wall time of the process.
        most_bytes: Resident memory of it and all that it started.
        says: What came of it.
    """

    what: str
    reader: str
    took_s: float
    most_bytes: int
    says: str


def write_dumps(
    folder: Path, entries: int, layout: Layout = LAYOUT,
    show_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> None:  # fmt: skip
    """Dumps of all ranks of a job that hangs, each with so many entries.

    Args:
        folder: Where.
        entries: Of each dump.
        layout: Of the job.
        show_progress: Called with how many are written, and how many there are.
    """
    groups = layout.groups()
    mine = [[group for group in groups if rank in group.members] for rank in range(layout.size)]
    per_iteration = len(programs_of(layout, groups, 1)[CULPRIT])
    programs = programs_of(layout, groups, entries // per_iteration + 3)
    played = play(programs, Fault({CULPRIT: len(programs[CULPRIT]) - per_iteration}))
    for rank in range(layout.size):
        data = pickle.dumps(dump_of(played, rank, mine[rank], Style("whole", ring=entries)), 2)
        (folder / f"{PREFIX}{rank}").write_bytes(data)
        show_progress(rank + 1, layout.size)


def write_trace(
    path: Path, size_bytes: int, show_progress: Callable[[int, int], None] = lambda _done, _total: None
) -> None:
    """A trace of about this size: kernels, calls from the host and their arguments, as the profiler writes them."""
    about = {"backend": "nccl", "rank": 0, "world_size": 1}
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{"schemaVersion": 1, "distributedInfo": {json.dumps(about)},\n"traceEvents": [\n')
        at, number = 1e9, 0
        while file.tell() < size_bytes:
            events = []
            for _ in range(EVENTS_AT_ONCE):
                number += 1
                at += 12.5
                events.append(json.dumps(_event(number, at), indent=2))
            file.write(",\n".join(events) + ",\n")
            show_progress(file.tell(), size_bytes)
        file.write(json.dumps({"ph": "M", "name": "end", "ts": at}) + '\n],\n"traceName": "made"}\n')


def _event(number: int, at: float) -> dict[str, object]:
    args: dict[str, object]
    if number % 3:
        name = "cudaLaunchKernel" if number % 3 == 1 else "aten::addmm"
        kind = "cuda_runtime" if number % 3 == 1 else "cpu_op"
        args = {"External id": number, "cbid": 211, "correlation": number, "Record function id": 0, "Ev Idx": number}
        return {"ph": "X", "cat": kind, "name": name, "pid": 4711, "tid": 4711, "ts": at, "dur": 5.25, "args": args}
    args = {
        "External id": number, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": number,
        "registers per thread": 96, "shared memory": 87568, "blocks per SM": 0.07, "warps per SM": 1.26,
        "grid": [8, 1, 1], "block": [544, 1, 1], "est. achieved occupancy %": 12,
    }  # fmt: skip
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float)"
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": 9.5, "args": args}


def read_dumps(folder: Path, entries: int) -> list[Read]:
    """Ours, torch's own reader, and a bare unpickler in one process, on the same dumps."""
    what = f"{LAYOUT.size:,} dumps of {entries:,} entries"
    ours = run_limited([sys.executable, "-m", "whichrank", "analyze", "--json", str(folder)])
    theirs = run_limited(
        [
            sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder), "-p", PREFIX,
            "--allow-incomplete-ranks",
        ]
    )  # fmt: skip
    bare = run_limited([sys.executable, "-c", _UNPICKLE, str(folder)])
    named = sorted(named_by_torchfrtrace(theirs.words))
    said = f"names {len(named)} ranks" if named else theirs.last_words or "names nobody"
    return [
        read_of(what, "whichrank", ours, _culprits(ours)),
        read_of(what, "torchfrtrace", theirs, said + (f", of {CULPRIT} too" if CULPRIT in named else "")),
        read_of(what, "pickle.load alone", bare, f"{bare.words.strip()} entries"),
    ]


def read_trace(path: Path) -> list[Read]:
    """Ours, and `json.load`, on the same trace."""
    what = f"a trace of {path.stat().st_size / 1e9:.2f} GB"
    ours = run_limited([sys.executable, "-m", "whichrank", "analyze", str(path)])
    bare = run_limited([sys.executable, "-c", _LOAD, str(path)])
    return [
        read_of(what, "whichrank", ours, f"exit code {ours.code}"),
        read_of(what, "json.load alone", bare, f"{bare.words.strip()} events"),
    ]


def read_of(what: str, reader: str, run: Run, says: str) -> Read:
    """Of a run."""
    return Read(what, reader, round(run.took_s, 2), run.most_bytes, says)


def _culprits(run: Run) -> str:
    try:
        incidents = json.loads(run.words)["incidents"]
    except (ValueError, KeyError, TypeError):
        return f"failed: {run.last_words}"
    return f"names {', '.join(str(one['rank']) for incident in incidents for one in incident['culprits']) or 'nobody'}"


def reading_table(results: list[Read]) -> str:
    """Markdown."""
    lines = ["| recording | reader | s | times ours | MiB | what it says |", "|---|---|--:|--:|--:|---|"]
    ours = {one.what: one.took_s for one in results if one.reader.startswith("whichrank")}
    for one in results:
        ratio, mib = one.took_s / ours[one.what], one.most_bytes / 2**20
        lines.append(f"| {one.what} | {one.reader} | {one.took_s:.1f} | {ratio:.2f} | {mib:,.0f} | {one.says} |")
    return "\n".join(lines)

"""Two readers of dumps on the same folders: `whichrank analyze`, and `torchfrtrace`, which comes with torch.

Both run as a user runs them, in a process of their own, on the same files. A reader is *right* where it names exactly
the culprits; each other rank that it names is a wrong name; naming nobody is neither, and right only where nobody is at
fault, or where the culprit's dump is not there and it says so as a candidate.
"""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from whichrank.testbed.bench.dumps.cases import Case
from whichrank.testbed.bench.dumps.peer import Run, named_by_torchfrtrace, run_limited
from whichrank.testbed.bench.dumps.played import dump_of, play

PREFIX: Final = "trace_"
Verdict = Literal["right", "unnamed", "wrong name", "failed"]


class Said(msgspec.Struct, frozen=True):
    """What one reader made of a folder.

    Attributes:
        named: Ranks, sorted.
        candidates: Ranks that it might be, by its own word.
        verdict: Against the truth.
        took_s: Wall time of the process.
        most_bytes: Resident memory, at most.
        last_words: Of one that failed.
    """

    named: tuple[int, ...]
    candidates: tuple[int, ...]
    verdict: Verdict
    took_s: float
    most_bytes: int
    last_words: str = ""


class Compared(msgspec.Struct, frozen=True):
    """Both on one folder.

    Attributes:
        name: Of the case.
        kind: Made by `played`, or recorded by others.
        ranks: Of the job.
        culprits: The truth.
        readers: By name.
    """

    name: str
    kind: Literal["simulated", "recorded"]
    ranks: int
    culprits: tuple[int, ...]
    readers: dict[str, Said]


@dataclass(frozen=True)
class Folder:
    """Dumps, and who is to be named.

    Attributes:
        name: In the table.
        path: Where they lie.
        kind: See `Compared`.
        ranks: Of the job.
        culprits: Who is to be named.
        candidates: Who may be a candidate instead, where nobody is to be named.
        prefix: Of the file names, before the rank.
    """

    name: str
    path: Path
    kind: Literal["simulated", "recorded"]
    ranks: int
    culprits: tuple[int, ...]
    candidates: tuple[int, ...] = ()
    prefix: str = PREFIX


def write_case(case: Case, path: Path) -> Folder:
    """The dumps of a job that is played through, as torch names them."""
    played = play(case.programs, case.fault)
    for rank in range(len(case.programs)):
        if rank not in case.fault.unsent:
            data = pickle.dumps(dump_of(played, rank, case.groups, case.style), 2)
            (path / f"{PREFIX}{rank}").write_bytes(data)
    return Folder(case.name, path, "simulated", len(case.programs), case.culprits, case.candidates)


def recorded(path: Path, culprits: tuple[int, ...]) -> Folder:
    """A folder of dumps that others recorded, one file for each rank with the rank at the end of its name."""
    names = [file.name for file in path.iterdir() if file.name[-1:].isdigit()]
    prefix = names[0].rstrip("0123456789") if names else PREFIX
    return Folder(path.name, path, "recorded", len(names), culprits, prefix=prefix)


def compare(folder: Folder) -> Compared:
    """Let both read a folder."""
    ours = run_limited([sys.executable, "-m", "whichrank", "analyze", "--json", str(folder.path)])
    theirs = run_limited(
        [
            sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder.path), "-p", folder.prefix,
            "--allow-incomplete-ranks",
        ]
    )  # fmt: skip
    named, candidates = _named_by_us(ours)
    readers = {
        "whichrank": _said(folder, ours, named, candidates, failed=ours.code not in (0, 3, 4, 5)),
        "torchfrtrace": _said(folder, theirs, named_by_torchfrtrace(theirs.words), (), failed=theirs.code != 0),
    }
    return Compared(folder.name, folder.kind, folder.ranks, folder.culprits, readers)


def compare_all(
    cases: Iterable[Case], folders: Iterable[Folder], show_progress: Callable[[Compared], None] = lambda _: None
) -> Iterator[Compared]:
    """All of them, one after the other."""
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="whichrank-dumps-") as path:
            found = compare(write_case(case, Path(path)))
        show_progress(found)
        yield found
    for folder in folders:
        found = compare(folder)
        show_progress(found)
        yield found


def _named_by_us(run: Run) -> tuple[set[int], set[int]]:
    try:
        incidents: list[dict[str, Any]] = json.loads(run.words)["incidents"]
    except (ValueError, KeyError, TypeError):
        return set(), set()
    named, candidates = (
        {one["rank"] for incident in incidents for one in incident[key]} for key in ("culprits", "candidates")
    )
    return named, candidates


def _said(folder: Folder, run: Run, named: set[int], candidates: Iterable[int], *, failed: bool) -> Said:
    truth = set(folder.culprits)
    if failed:
        verdict: Verdict = "failed"
    elif named - truth:
        verdict = "wrong name"
    elif named == truth and (truth or set(candidates) == set(folder.candidates)):
        verdict = "right"
    else:
        verdict = "unnamed"
    return Said(
        tuple(sorted(named)), tuple(sorted(candidates)), verdict, round(run.took_s, 3), run.most_bytes, run.last_words
    )


def table_of(results: Iterable[Compared]) -> str:
    """Markdown: a row for each folder, and one for all, recorded and simulated apart."""
    results = list(results)
    readers = list(results[0].readers) if results else []
    lines = [
        "| dumps | ranks | culprits | " + " | ".join(f"{reader} | s | MiB" for reader in readers) + " |",
        "|---|--:|---|" + "---|--:|--:|" * len(readers),
    ]
    for kind in ("recorded", "simulated"):
        mine = [result for result in results if result.kind == kind]
        lines += [_row(result) for result in mine]
        if mine:
            lines.append(f"| **{kind}, all {len(mine)}** | | | " + " | ".join(_sum(mine, r) for r in readers) + " |")
    return "\n".join(lines)


def _row(result: Compared) -> str:
    cells = [
        f"{said.verdict}{_names(said)} | {said.took_s:.1f} | {said.most_bytes / 2**20:.0f}"
        for said in result.readers.values()
    ]
    culprits = ", ".join(map(str, result.culprits)) or "-"
    return f"| {result.name} | {result.ranks} | {culprits} | " + " | ".join(cells) + " |"


def _names(said: Said) -> str:
    if said.verdict != "wrong name":
        return ""
    listed = ", ".join(map(str, said.named[:4])) + (", ..." if len(said.named) > 4 else "")
    return f" ({listed})"


def _sum(results: list[Compared], reader: str) -> str:
    said = [result.readers[reader] for result in results]
    counts = [f"{n} {word}" for word in ("right", "unnamed", "wrong name", "failed") if (n := _count(said, word))]
    took_s = sorted(one.took_s for one in said)[len(said) // 2]
    return f"{', '.join(counts)} | {took_s:.1f} | {max(one.most_bytes for one in said) / 2**20:.0f}"


def _count(said: list[Said], verdict: str) -> int:
    return sum(one.verdict == verdict for one in said)

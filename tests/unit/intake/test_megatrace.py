"""Logs of Megatrace."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from whichrank.errors import FormatError
from whichrank.intake.megatrace import read_megatrace
from whichrank.intake.read import read
from whichrank.model.incident import Incident
from whichrank.model.rows import Kind
from whichrank.surface.analyze import analyze


def line(number: int, rank: int, kind: str = "AllReduce", count: int = 64, group: str = "a1") -> str:
    hash_ = f" groupHash {group}" if group else ""
    at = f"[save_count {number}] [1764000000.{number:09d}]"
    return f"{at} [Rank {rank}] Fun {kind} Data {count} stream 0x7f opCount 0{hash_}"


def written(folder: Path, issued: dict[int, int], group: str = "a1") -> Path:
    """Ranks that have enqueued so many operations each."""
    for rank, count in issued.items():
        text = "\n".join(line(n, rank, group=group) for n in range(count))
        (folder / f"log_{rank}").write_text(f"{text}\n[save_count {count}] cut of")
    return folder


def found_in(folder: Path) -> tuple[Incident, ...]:
    (recording,) = read([folder]).recordings
    return analyze(recording)


def test_a_line_of_each_operation() -> None:
    text = f"hello\n{line(2, 5, 'AllGather', 12)}\n{line(1, 5, count=9)}\n{line(3, 5, 'Send')}\nnonsense [save_count 4]"
    (one,) = read_megatrace(io.BytesIO(text.encode())).ranks
    assert (one.rank, one.groups) == (5, ("a1",))
    assert [row[1:3] for row in one.rows] == [(Kind.ALL_REDUCE, 9), (Kind.ALL_GATHER, 12)]
    with pytest.raises(FormatError, match="no operation"):
        read_megatrace(io.BytesIO(b"[save_count 1] nothing"))


@pytest.mark.parametrize("group", ["a1", ""])
def test_who_has_enqueued_least_is_named(group: str, tmp_path: Path) -> None:
    (incident,) = found_in(written(tmp_path, {0: 40, 1: 40, 2: 33, 3: 40, 4: 39}, group))
    assert [culprit.rank for culprit in incident.culprits or incident.candidates] == [2]
    assert bool(incident.culprits) == bool(group)  # without a hash it may do less by design


def test_a_log_that_begins_later_has_lost_lines_and_is_not_behind(tmp_path: Path) -> None:
    written(tmp_path, {0: 40, 1: 40, 3: 40})
    (tmp_path / "log_2").write_text("\n".join(line(n, 2) for n in range(15, 40)))
    (recording,) = read([tmp_path]).recordings
    assert [c.rank for i in analyze(recording) for c in i.culprits] == []


def test_equal_counts_tell_nothing(tmp_path: Path) -> None:
    assert found_in(written(tmp_path, dict.fromkeys(range(4), 20))) == ()

"""Logs of Megatrace."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from whichrank.errors import FormatError
from whichrank.intake.megatrace import read_megatrace
from whichrank.intake.read import read
from whichrank.model.incident import Incident
from whichrank.model.kinds import Kind
from whichrank.server.analyze import analyze
from whichrank.surface.report.make import gather
from whichrank.surface.report.page import page_of

A_WRITE = 20
"""Operations after which the process writes its lines to the file."""


def line(
    number: int, rank: int, kind: str = "AllReduce", count: int = 64, group: str = "a1", *, write: int = 0,
    stream: str = "0x7f", at_s: int = 1764000000,
) -> str:  # fmt: skip
    """The `number`th operation of a rank; all that a process writes to its file at once has one `save_count`."""
    hash_ = f" groupHash {group}" if group else ""
    at = f"[save_count {write or 1 + number // A_WRITE}] [{at_s}.{number:09d}]"
    return f"{at} [Rank {rank}] Fun {kind} Data {count} stream {stream} opCount {number}{hash_}"


def lines(rank: int, numbers: range, group: str = "a1", at_s: int = 1764000000) -> str:
    return "".join(f"{line(n, rank, group=group, at_s=at_s)}\n" for n in numbers)


def written(folder: Path, issued: dict[int, int], group: str = "a1") -> Path:
    """Ranks that have enqueued so many operations each."""
    for rank, count in issued.items():
        (folder / f"log_{rank}").write_text(f"{lines(rank, range(count), group)}[save_count 3] cut of")
    return folder


def found_in(folder: Path) -> tuple[Incident, ...]:
    (recording,) = read([folder]).recordings
    return analyze(recording)


def test_a_line_of_each_operation() -> None:
    text = (
        f"hello\n{line(2, 5, 'AllGather', 12, write=2)}\n{line(1, 5, count=9, write=1)}\n"
        f"{line(3, 5, 'Send')}\nnonsense [save_count 4]"
    )
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


def test_the_lines_of_one_write_are_different_operations() -> None:
    (one,) = read_megatrace(io.BytesIO(lines(3, range(2 * A_WRITE)).encode())).ranks
    assert (len(one.rows), one.first, one.last) == (2 * A_WRITE, 1, 2)


@pytest.mark.parametrize(("world", "odd"), [(2, 0), (3, 1), (4, 3), (8, 1)])
def test_without_groups_other_operations_of_a_rank_contradict_nothing(world: int, odd: int, tmp_path: Path) -> None:
    # GIVEN ranks with two streams each, one of which issues something else on the second one, by design
    for rank in range(world):
        other = ("Broadcast", 16) if rank == odd else ("AllReduce", 24)
        between = line(0, rank, *other, group="", stream="0xb0")
        (tmp_path / f"rank_{rank}.log").write_text(
            f"{lines(rank, range(10), '')}{between}\n{lines(rank, range(10, 15), '')}"
        )
    # WHEN they are read THEN nobody is named, and it is said why the recording does not show who waits
    (recording,) = read([tmp_path]).recordings
    assert analyze(recording) == ()
    assert "do not say to which communicator" in recording.left_open


def test_without_groups_a_job_with_messages_is_not_compared(tmp_path: Path) -> None:
    for rank, count in enumerate((40, 40, 40, 36)):
        message = line(0, rank, "Recv" if rank else "Send", group="", stream="0xc0", write=1)
        (tmp_path / f"rank_{rank}.log").write_text(f"{message}\n{lines(rank, range(count), '')}")
    (recording,) = read([tmp_path]).recordings
    assert (analyze(recording), "exchange messages" in recording.left_open) == ((), True)


def test_hashes_below_zero_are_hashes(tmp_path: Path) -> None:
    (incident,) = found_in(written(tmp_path, {0: 40, 1: 40, 2: 37}, "-8127"))
    assert [culprit.rank for culprit in incident.culprits] == [2]


def test_a_log_that_begins_later_has_lost_lines_and_is_not_behind(tmp_path: Path) -> None:
    written(tmp_path, {0: 40, 1: 40, 3: 40})
    (tmp_path / "log_2").write_text(lines(2, range(25, 40)))
    assert [c.rank for i in found_in(tmp_path) for c in i.culprits] == []


def test_nobody_is_named_beside_a_log_that_has_lost_its_beginning(tmp_path: Path) -> None:
    # GIVEN that the rank without a beginning may be the one that is late
    written(tmp_path, {0: 40, 1: 40, 3: 38})
    (tmp_path / "log_2").write_text(lines(2, range(25, 37)))
    assert [c.rank for i in found_in(tmp_path) for c in i.culprits] == []


@pytest.mark.parametrize("kept", [range(20), [*range(11), *range(15, 40)]])
def test_a_log_that_was_cut_or_has_gaps_is_not_behind(kept: range | list[int], tmp_path: Path) -> None:
    written(tmp_path, {0: 40, 1: 40, 3: 40})
    (tmp_path / "log_2").write_text("".join(f"{line(n, 2)}\n" for n in kept))
    assert [c.rank for i in found_in(tmp_path) for c in i.culprits] == []


def test_all_logs_cut_at_their_beginning_say_nothing(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"log_{rank}").write_text(lines(rank, range(A_WRITE + 3 * rank, 50)))
    (recording,) = read([tmp_path]).recordings
    assert (analyze(recording), bool(recording.left_open)) == ((), True)


def test_a_rank_without_a_log_may_be_the_one_that_is_late(tmp_path: Path) -> None:
    # GIVEN the log of rank 2, the late one, is missing, and hosts ran ahead by different lengths
    incidents = found_in(written(tmp_path, {0: 39, 1: 40, 3: 40}))
    assert [c.rank for i in incidents for c in i.culprits] == []


def test_a_rank_that_may_wait_in_a_receive_is_not_named(tmp_path: Path) -> None:
    written(tmp_path, {0: 40, 1: 40, 3: 40})
    (tmp_path / "log_2").write_text(f"{lines(2, range(36))}{line(36, 2, 'Recv', stream='0xc0', write=2)}\n")
    (incident,) = found_in(tmp_path)
    assert (incident.culprits, [c.rank for c in incident.candidates]) == ((), [2])


@pytest.mark.parametrize("in_one_file", [True, False])
def test_the_last_attempt_is_reported(in_one_file: bool, tmp_path: Path) -> None:
    # GIVEN rank 1 was late in the first attempt, and rank 2 is in the second one
    for rank in range(4):
        first = lines(rank, range(36 if rank == 1 else 40))
        second = lines(rank, range(17 if rank == 2 else 19), at_s=1764003600)
        if in_one_file:
            (tmp_path / f"rank_{rank}.log").write_text(first + second)
        else:
            (tmp_path / f"b_rank_{rank}.log").write_text(first)
            (tmp_path / f"a_rank_{rank}.log").write_text(second)
    (incident,) = found_in(tmp_path)
    assert [c.rank for c in incident.culprits] == [2]


def test_parts_of_a_rotated_log_are_one(tmp_path: Path) -> None:
    written(tmp_path, {0: 40, 2: 37, 3: 40})
    (tmp_path / "log_1.1").write_text(lines(1, range(A_WRITE)))
    (tmp_path / "log_1").write_text(lines(1, range(A_WRITE, 40)))
    (incident,) = found_in(tmp_path)
    assert [c.rank for c in incident.culprits] == [2]


def test_equal_counts_say_nothing(tmp_path: Path) -> None:
    (recording,) = read([written(tmp_path, dict.fromkeys(range(4), 20))]).recordings
    assert (analyze(recording), "equally many" in recording.left_open) == ((), True)
    # AND a report says it, and not that there was no incident
    source = gather([tmp_path])
    page = page_of(source.gathered)
    assert "does not show which rank waits for which" in page
    assert "equally many" in page
    assert "o incident" not in page
    assert not source.is_complete

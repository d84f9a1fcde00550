"""What NCCL's RAS says as text: who is behind in two snapshots, who is dead, and what is not known from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.errors import FormatError, IncompleteDataError
from whichrank.intake.ras import Ras, read_snapshots
from whichrank.intake.ras_text import is_ras_text, read_ras_text
from whichrank.intake.read import read
from whichrank.server.analyze import analyze

HEAD = """\
NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         8         8         8   RUNNING  {state}
    1         4         1         2         2         8   RUNNING  OK

Errors
======

{errors}
Warnings
========

"""
BEHIND = """\
#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 640
  Rank 5 has launched up to operation 638 -- GPU 5 managed by process 4715 on node 10.0.0.1

"""
AHEAD = """\
#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllGather operation counts
  6 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 2 -- GPU 2 managed by process 4712 on node 10.0.0.1
  Rank 3 -- GPU 3 (NVML 7) managed by process 4713 on node 10.0.0.1

"""
DEAD = """\
DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 4715 on node 10.0.0.1 managing GPU 5

#0-0 (fa93daea854b060b) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 5 -- GPU 5 managed by process 4715 on node 10.0.0.1
  Rank 6 -- GPU 6 managed by process 4716 on node 10.0.0.1

"""


def text_of(warnings: str = "", errors: str = "", state: str = "MISMATCH") -> bytes:
    return (HEAD.format(errors=errors, state=state) + warnings).encode()


def snapshot(text: bytes) -> Ras:
    (one,) = read_ras_text(text).polls
    return one


def test_who_is_behind_is_listed() -> None:
    ras = snapshot(text_of(BEHIND))
    assert is_ras_text(text_of(BEHIND))
    assert (ras.version, ras.world_size, ras.behind) == ("2.26.2", 8, {5: 2})
    assert (ras.facts[0].rank, ras.facts[0].host, ras.facts[0].pid) == (5, "10.0.0.1", 4715)


def test_who_is_listed_may_be_ahead() -> None:
    ras = snapshot(text_of(AHEAD))
    assert ras.behind == dict.fromkeys((0, 1, 4, 5, 6, 7), 1)


def test_counts_of_several_kinds_are_added() -> None:
    more = BEHIND + AHEAD.split("MISMATCH\n")[1]
    assert snapshot(text_of(more)).behind == {0: 1, 1: 1, 4: 1, 5: 3, 6: 1, 7: 1}


def test_ranks_that_have_launched_nothing() -> None:
    none = BEHIND.replace("has launched up to operation 638", "has not launched any operations")
    assert snapshot(text_of(none)).behind == {5: 640}


def test_who_is_dead_and_who_does_not_answer() -> None:
    ras = snapshot(text_of(errors=DEAD, state="INCOMPLETE"))
    assert [(fact.rank, fact.is_dead) for fact in ras.facts] == [(5, True), (6, False)]
    assert ras.unresponsive == (5, 6)
    assert ras.launched == {}


def test_counts_of_which_nobody_is_listed_say_nothing() -> None:
    # GIVEN two sets of ranks that are both too large to be listed
    neither = AHEAD.split("  Rank 2")[0] + "\n"
    assert snapshot(text_of(neither)).launched == {}


def test_communicators_that_are_not_of_all_say_nothing_of_ranks() -> None:
    assert snapshot(text_of(BEHIND.replace("#0-0", "#1-2"))).launched == {}


def test_two_snapshots_alike_name_who_is_behind_and_one_does_not(tmp_path: Path) -> None:
    # GIVEN what a loop has written into one file
    (tmp_path / "ras.txt").write_bytes(text_of(BEHIND) + text_of(BEHIND))
    (recording,) = read([tmp_path]).recordings
    (incident,) = analyze(recording)
    assert [c.rank for c in incident.culprits] == [5]
    # WHEN the job goes on between the snapshots THEN nothing is said
    later = text_of(BEHIND.replace("640", "650").replace("638", "648"))
    assert len(read_ras_text(text_of(BEHIND) + later).polls) == 2
    (tmp_path / "ras.txt").write_bytes(text_of(BEHIND) + later)
    with pytest.raises(Exception, match="two answers"):
        read([tmp_path])


@pytest.mark.parametrize("cut", range(0, 900, 37))
def test_what_is_cut_off_is_read_or_refused(cut: int) -> None:
    text = text_of(BEHIND, DEAD)[:cut]
    if cut < text_of().index(b"RUNNING  MISMATCH"):
        with pytest.raises(FormatError, match="no communicators"):
            read_ras_text(text)
    else:
        assert snapshot(text).world_size == 8


def test_huge_numbers_are_no_ranks() -> None:
    huge = HEAD.replace("         8         8   RUNNING  {state}", " 999999999 999999999   RUNNING  {state}")
    with pytest.raises(FormatError):
        read_ras_text(huge.format(errors="", state="OK").encode())


def test_a_file_may_hold_several_snapshots_as_json() -> None:
    one = b'{\n"communicators_count": 1, "communicators": [{"size": 2, "ranks": [{"rank": 0}, {"rank": 1}]}]\n}'
    assert len(read_snapshots(one + b"\n" + one + b"\n").polls) == 2


def test_one_that_stands_while_the_others_advance_is_the_one(tmp_path: Path) -> None:
    # GIVEN two looks between which seven ranks have launched more, and rank 5 nothing
    for number, most in enumerate((640, 655)):
        (tmp_path / f"look-{number}.txt").write_bytes(text_of(BEHIND.replace("operation 640", f"operation {most}")))
    (recording,) = read([tmp_path]).recordings
    assert [c.rank for i in analyze(recording) for c in i.culprits] == [5]
    # BUT if it moves too the job goes on
    moved = BEHIND.replace("operation 640", "operation 655").replace("operation 638", "operation 653")
    (tmp_path / "look-1.txt").write_bytes(text_of(moved))
    with pytest.raises(IncompleteDataError, match="two answers some seconds apart"):
        read([tmp_path])


def test_who_gives_no_answer_in_two_looks_is_named_and_in_one_it_may_be(tmp_path: Path) -> None:
    silent = DEAD.partition("\n\n")[2]
    (tmp_path / "look-0.txt").write_bytes(text_of(errors=silent, state="INCOMPLETE"))
    (recording,) = read([tmp_path]).recordings
    (incident,) = analyze(recording)
    assert ([c.rank for c in incident.culprits], [c.rank for c in incident.candidates]) == ([], [5, 6])
    (tmp_path / "look-1.txt").write_bytes(text_of(errors=silent, state="INCOMPLETE") + b" ")
    (recording,) = read([tmp_path]).recordings
    assert [c.rank for i in analyze(recording) for c in i.culprits] == [5, 6]


def test_an_answer_and_lines_of_a_log_may_share_a_file(tmp_path: Path) -> None:
    killed = b"srun: error: n1: task 5: Segmentation fault (core dumped)\n"
    (tmp_path / "all.txt").write_bytes(text_of(BEHIND) + text_of(BEHIND) + killed)
    intake = read([tmp_path])
    assert [note.format for note in intake.notes] == ["ras", "log"]
    assert [c.rank for i in analyze(intake.recordings[0]) for c in i.culprits] == [5]

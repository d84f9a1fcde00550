"""Logs of launchers and kernels, the status of RAS, and what they add to dumps."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from whichrank.errors import FormatError, IncompleteDataError
from whichrank.intake import logs, standings
from whichrank.intake.facts import Fact, Xid, joined, status_of_code, with_xids
from whichrank.intake.logs import Log, read_log
from whichrank.intake.ras import is_ras, read_ras
from whichrank.intake.read import look_into, read
from whichrank.model.incident import Cause, Incident
from whichrank.server.analyze import analyze
from whichrank.testbed.bench.dumps.cases import cases
from whichrank.testbed.bench.dumps.compare import write_case

TORCHRUN = """\
epoch 1 loss 0.3
E1124 10:00:00.000 4 torch/distributed/elastic/multiprocessing/api.py:1000] failed (exitcode: 1) local_rank: 1
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-24_10:00:03
  host      : node1
  rank      : {other} (local_rank: 6)
  exitcode  : -6 (pid: 776)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 776
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-24_10:00:01
  host      : node1
  rank      : {rank} (local_rank: 1)
  exitcode  : {code} (pid: 771)
  error_file: /tmp/error.json
  traceback : Traceback (most recent call last):
    File "train.py", line 88, in main
      loss = model(batch)
  ValueError: batch 17 has no labels

============================================================
"""


def log_of(text: str) -> Log:
    return read_log(io.BytesIO(text.encode()))


def test_torchruns_summary_of_failures() -> None:
    found = joined(log_of(TORCHRUN.format(rank=9, other=14, code=1)).facts)
    assert (found[14].host, found[14].pid, found[14].status) == ("node1", 776, 6)
    assert (found[9].pid, found[9].status, found[9].exception) == (771, 1 << 8, "ValueError: batch 17 has no labels")
    assert found[9].has_ended


@pytest.mark.parametrize(
    ("line", "ranks", "status"),
    [
        ("srun: error: node003: task 5: Killed", [5], 9),
        ("srun: error: node003: tasks 4-6,9: Exited with exit code 3", [4, 5, 6, 9], 3 << 8),
        ("srun: error: n1: task 0: Segmentation fault (core dumped)", [0], 11),
        ("2026-11-24 srun: error: n1: task 7: Out Of Memory", [7], 9),
    ],
)
def test_sruns_errors(line: str, ranks: list[int], status: int) -> None:
    facts = log_of(f"hello\n{line}\n").facts
    assert [fact.rank for fact in facts] == ranks
    assert {fact.status for fact in facts} == {status}


def test_xids_of_the_kernel() -> None:
    log = log_of(
        "Nov 24 10:00:00 node7 kernel: [12.3] NVRM: Xid (PCI:0000:b3:00): 79, pid='<unknown>', GPU has fallen off.\n"
        "NVRM: Xid (PCI:0000:1a:00): 48, pid=4711, name=python, DBE (double bit error)\n"
    )
    first, second = log.xids
    assert (first.number, first.device, first.host, first.pid) == (79, "PCI:0000:b3:00", "node7", 0)
    assert (second.number, second.pid) == (48, 4711)


def test_nccl_says_who_is_where_and_what_went_wrong_first() -> None:
    # GIVEN what four processes log, of the communicator of all and of one of two, with a time before some lines
    said = "NCCL INFO ncclCommInitRank comm 0x1 rank"
    lines = [f"node{r // 2}:70{r}:80{r} [{r % 2}] {said} {r} nranks 4 cudaDev 0 - Init COMPLETE" for r in range(4)]
    lines.insert(2, f"node0:700:800 [0] {said} 1 nranks 2 cudaDev 0 - Init COMPLETE")
    lines.append("[2026-11-24 10:00:00] node1:703:811 [1] transport/net_ib.cc:94 NCCL WARN NET/IB : status=12")
    lines += ["node1:703:811 [1] x.cc:1 NCCL WARN later"] * 9
    # THEN each is known by its rank in the larger one, and by its first warnings
    facts = joined(log_of("\n".join(lines)).facts)
    assert [(facts[rank].host, facts[rank].pid) for rank in range(4)] == [
        ("node0", 700), ("node0", 701), ("node1", 702), ("node1", 703),
    ]  # fmt: skip
    assert facts[3].words == ("NCCL warns: NET/IB : status=12", "NCCL warns: later", "NCCL warns: later")


def test_an_xid_is_of_the_rank_whose_process_met_it() -> None:
    facts = {3: Fact(3, "node7", 4711), 4: Fact(4, "node8", 4711), 5: Fact(5, "node8", 12)}
    xids = [Xid(48, "PCI:1", "node8", 4711, "DBE"), Xid(79, "PCI:2", "", 4711, ""), Xid(31, "PCI:3", "node8", 0, "")]
    found = with_xids(facts, xids)
    assert {rank: fact.words for rank, fact in found.items()} == {
        3: (),
        4: ("Xid 48 of device PCI:1 on node8: DBE",),
        5: (),
    }


def test_a_text_that_says_nothing_is_no_log() -> None:
    for text in ("", "nothing here\n" * 100, "rank      : 3\n", "srun: error: something else"):
        with pytest.raises(FormatError, match="says nothing of ranks"):
            log_of(text)


def test_exit_codes_are_statuses() -> None:
    assert [status_of_code(code) for code in (0, 1, -9, 137, 255)] == [0, 256, 9, 9, 255 << 8]


def test_the_first_word_on_a_rank_counts() -> None:
    facts = joined([Fact(3, status=11, words=("a",)), Fact(3, "n1", 7, status=6, words=("b", "a"))])
    assert facts[3] == Fact(3, "n1", 7, 11, words=("a", "b"))


# ---- RAS -------------------------------------------------------------------------------------------------------------


def ras_of(size: int, missing: dict[int, bool], behind: dict[int, int] | None = None, at: str = "10:00:00") -> bytes:
    """As NCCL 2.28.9 writes it, without the comma behind missing ranks."""

    def rank(number: int, **more: Any) -> dict[str, Any]:
        return {
            "rank": number,
            "host": f"10.0.0.{number // 8}",
            "pid": 700 + number,
            "cuda_dev": 0,
            "nvml_dev": 0,
            **more,
        }

    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    ranks = [
        rank(r, status=status, collective_counts={"Broadcast": 1, "AllReduce": 40 - (behind or {}).get(r, 0)})
        for r in range(size)
        if r not in missing
    ]
    gone = [rank(r, status={"unresponsive": True, "considered_dead": dead}) for r, dead in missing.items()]
    communicator = {"hash": "0x1", "size": size, "ranks": ranks, "missing_ranks": gone}
    value = {"nccl_version": "2.28.9", "timestamp": at, "communicators_count": 1, "communicators": [communicator]}
    text = json.dumps(value, indent=1)
    return re.sub(r'("nvml_dev": \d+),(\s*"status": \{\s*"unresponsive)', r"\1\2", text).encode()


def test_ras_with_the_missing_comma() -> None:
    data = ras_of(16, {9: True, 11: False}, behind={3: 2})
    with pytest.raises(json.JSONDecodeError):
        json.loads(data)
    assert is_ras(data)
    ras = read_ras(data)
    assert (ras.version, ras.world_size, ras.behind, ras.unresponsive) == ("2.28.9", 16, {3: 2}, (9, 11))
    by_rank = joined(ras.facts)
    assert (by_rank[9].is_dead, by_rank[11].is_dead, by_rank[3].pid) == (True, False, 703)


def test_two_snapshots_that_find_the_same_name_who_is_behind(tmp_path: Path) -> None:
    # GIVEN looks at a job of 16 ranks in which rank 3 has launched less
    for number in range(2):
        (tmp_path / f"look-{number}").write_bytes(ras_of(16, {}, behind={3: 2}, at=f"10:00:0{number}"))
    (recording,) = read([tmp_path]).recordings
    (incident,) = analyze(recording)
    assert [(c.rank, c.host, c.pid) for c in incident.culprits] == [(3, "10.0.0.0", 703)]
    # BUT one snapshot, or two between which it went on, say nothing
    (tmp_path / "look-1").write_bytes(ras_of(16, {}, behind={3: 1}, at="10:00:01"))
    with pytest.raises(IncompleteDataError, match="two answers some seconds apart"):
        read([tmp_path])
    # NOR does one that is there twice
    (tmp_path / "look-1").write_bytes(ras_of(16, {}, behind={3: 2}, at="10:00:00"))
    with pytest.raises(IncompleteDataError, match="two answers some seconds apart"):
        read([tmp_path])
    (tmp_path / "look-1").unlink()
    with pytest.raises(IncompleteDataError, match="two answers some seconds apart"):
        read([tmp_path])


@pytest.mark.parametrize(
    "data", [b"{", b'{"communicators_count": 0}', b'{"communicators": [{"ranks": [{"rank": -1}]}]}']
)
def test_other_content_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_ras(data)


# ---- beside dumps ----------------------------------------------------------------------------------------------------


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """Dumps of a job of eight ranks, of which that of the culprit, rank 5, is missing."""
    case = next(case for case in cases() if case.name == "killed, no dump, dp8, whole")
    assert case.candidates == (5,)
    write_case(case, tmp_path)
    return tmp_path


def the_incident(folder: Path) -> Incident:
    (recording,) = read([folder]).recordings
    (incident,) = analyze(recording)
    return incident


def test_without_a_log_it_is_a_candidate(folder: Path) -> None:
    incident = the_incident(folder)
    assert (incident.cause, [c.rank for c in incident.candidates]) == (Cause.UNKNOWN, [5])


def test_an_exception_of_its_own_makes_it_the_culprit(folder: Path) -> None:
    (folder / "train.log").write_text(TORCHRUN.format(rank=5, other=2, code=1))
    incident = the_incident(folder)
    (culprit,) = incident.culprits
    assert (incident.cause, culprit.rank, culprit.host, culprit.pid) == (Cause.PROCESS_EXIT, 5, "node1", 771)
    assert "batch 17 has no labels" in incident.culprits[0].why
    assert "exitcode 1 (torchrun, 2026-11-24_10:00:01)" in [
        fact.value for fact in incident.evidence if fact.what == "log"
    ]


def test_a_crash_too(folder: Path) -> None:
    (folder / "slurm-1.out").write_text("srun: error: n1: task 5: Segmentation fault (core dumped)\n")
    assert [c.rank for c in the_incident(folder).culprits] == [5]


@pytest.mark.parametrize("how", ["Killed", "Terminated", "Aborted"])
def test_what_a_launcher_may_have_done_does_not(how: str, folder: Path) -> None:
    (folder / "slurm-1.out").write_text(f"srun: error: n1: task 5: {how}\n")
    incident = the_incident(folder)
    assert (incident.culprits, [c.rank for c in incident.candidates]) == ((), [5])
    assert incident.candidates[0].host == "n1"


def test_a_rank_that_living_peers_found_dead_is_the_culprit(folder: Path) -> None:
    (folder / "ras.txt").write_bytes(ras_of(8, {5: True}))
    incident = the_incident(folder)
    assert (incident.cause, [c.rank for c in incident.culprits]) == (Cause.PROCESS_EXIT, [5])
    (folder / "ras.txt").write_bytes(ras_of(8, {5: False}))
    assert the_incident(folder).culprits == ()


def test_the_end_of_a_rank_that_has_a_dump_came_after_it(folder: Path) -> None:
    (folder / "train.log").write_text(TORCHRUN.format(rank=2, other=3, code=1))
    assert [c.rank for c in the_incident(folder).candidates] == [5]


WARNING = "node1:71:72 [0] misc/socket.cc:57 NCCL WARN socketProgress: peer node2<40001> {text}\n"


def test_warnings_beyond_the_first_ones_of_a_process_say_nothing_and_hide_nothing() -> None:
    # GIVEN a process that warns a thousand times, and another one whose line begins within one of them
    text = "".join(WARNING.format(text=number) for number in range(1000))
    text += WARNING.format(text="srun: error: node3: task 5: Killed") + WARNING.replace(":71:", ":81:").format(text="x")
    log = read_log(io.BytesIO(text.encode()))
    # THEN both processes and the line within are known
    assert [words.partition(": NCCL")[0] for words in log.warnings] == ["node1:71", "node1:81"]
    assert [fact.rank for fact in log.facts] == [5]


def test_facts_that_come_again_are_kept_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN more lines of ends than are kept, of two tasks
    monkeypatch.setattr(logs, "MOST_FACTS", 16)
    text = "".join(f"2026-06-01T03:00:{at:02d}Z srun: error: node3: tasks 4-5: Killed\n" for at in range(60))
    log = read_log(io.BytesIO(text.encode()))
    # THEN the first and the latest line of each are, and neither is refused
    assert len(log.facts) <= 16
    assert {fact.rank: fact.at_s for fact in log.facts[:2]} == dict.fromkeys((4, 5), log.facts[0].at_s)
    assert log.facts[-1].at_s - log.facts[0].at_s == 59


def test_lines_of_earlier_parts_that_are_left_out_are_counted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN more lines of the watchdog than are kept before a restart, and few behind it
    monkeypatch.setattr(standings, "MOST_LINES", 100)
    line = "[rank{0}]:[E601 0{3}:00:00.1 a.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank {0}] last enqueued work: {1}, "
    line += "last completed work: {2}\n"
    before, behind = (
        "".join(line.format(at % 4, at, at - 1, hour) for at in range(n)) for hour, n in ((3, 2000), (5, 8))
    )
    again = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    (tmp_path / "job.log").write_text(before + again + behind)
    # WHEN it is read THEN it is said once how many of all lines were left out
    (part,) = look_into(tmp_path / "job.log")
    assert re.match(r"1,[89]\d\d of 2,008 lines of PyTorch's watchdog were left out", part.note.what)
    assert part.note.what.count("were left out") == 1


def test_lines_that_are_left_out_are_counted_in_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN more lines of the watchdog than are kept, each of another operation
    monkeypatch.setattr(standings, "MOST_LINES", 100)
    line = "[rank{0}]:[E601 03:00:00.1 a.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank {0}] last enqueued work: {1}, last "
    line += "completed work: {2}\n"
    text = "".join(line.format(at % 4, at, at - 1) for at in range(2000))
    (tmp_path / "job.log").write_text(text)
    (part,) = look_into(tmp_path / "job.log")
    # THEN the note says how many, and the last line of each rank is known
    assert part.note.state == "read"
    assert re.match(r"1,[89]\d\d of 2,000 lines of PyTorch's watchdog were left out", part.note.what)
    assert isinstance(part.content, Log)
    assert {one.rank: one.enqueued for one in part.content.standings} == {0: 1996, 1: 1997, 2: 1998, 3: 1999}

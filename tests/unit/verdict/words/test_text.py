"""Headline and paragraph: all that the fields say, in sentences that are read once, and nothing more."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from incident_cases import (
    DEADLOCK,
    EVERY,
    IMBALANCE,
    INCONSISTENT,
    KILLED,
    NODE_LOST,
    ONSET,
    RANK_5,
    RECOVERED,
    SLOW,
    SUSPENDED,
    TRANSPORT,
    UNKNOWN,
    culprit,
    incident,
    not_entered,
)

from whichrank.model.clause import Says, clause
from whichrank.model.evidence import (
    AT,
    ITERATION,
    QUICK_LINK,
    QUICK_LINKS,
    RAISED_ALIKE,
    RAISED_AT,
    SKEWED,
    TIME_BLOCKED,
    Evidence,
)
from whichrank.model.incident import Cause, Communicator, Culprit, Incident, Link, Op, Reason, Spent, Stage, Victims
from whichrank.surface.lines import fitted
from whichrank.verdict.words.text import headline, paragraph

DOCS = Path(__file__).parents[4] / "docs"
MEMBERS = Communicator(id="1", name="dp_0", role="dp", members=tuple(range(8)))
STOPPED = culprit(
    6,
    clause(Says.NOT_ENTERED, op="all_reduce #7 on dp_0"),
    clause(Says.SUSPENDED),
    confidence=0.99,
    host="gpu07",
    pid=4211,
)
OVER = {"status": "recovered", "ended": ONSET + timedelta(seconds=40)}
ENDED = culprit(5, clause(Says.KILLED, number=9, signal="SIGKILL"), confidence=0.99)


def stopped(**changes: object) -> Incident:
    """Rank 6 has not entered the all-reduce that seven ranks wait in, since it is stopped."""
    fields = {
        "culprits": (STOPPED,), "communicator": MEMBERS, "victims": Victims(count=7, ranks=(0, 1, 2, 3, 4, 5, 7)),
        "stage": Stage(iteration=1204, phase="dp_sync", op="all_reduce #7 on dp_0"),
        "evidence": (
            Evidence(what=TIME_BLOCKED, value=12.345, unit="s", where="rank 3"),
            Evidence(what="process state", value="stopped (T)", where="rank 6, pid 4211"),
        ),
        "next": ("on gpu07: kill -CONT 4211",),
    }  # fmt: skip
    return not_entered(**{**fields, **changes})


def test_verdict_is_a_headline_two_sentences_and_lines() -> None:
    # GIVEN a hang of a stopped rank THEN the headline has who, what and why, and can be read aloud
    assert headline(stopped()) == (
        "ALERT hang: rank 6 (node gpu07) has not entered the all-reduce on dp that 7 ranks wait in; "
        "its process is suspended"
    )
    # AND below it two sentences say who, why, and who waits since when, and lines say the rest
    assert paragraph(stopped()).split("\n") == [
        "Rank 6 (node gpu07, pid 4211) has not entered all_reduce #7 on dp_0, and its process is suspended. "
        "Ranks 0-5 and 7 have waited since 2026-01-02 03:04:05 UTC.",
        "  where       iteration 1,204, dp_sync, all_reduce #7 on dp_0 (dp, 8 ranks, 64 MiB, bfloat16)",
        "  detected    2.5 s after it began",
        "  confidence  99%",
        "  evidence    process state: stopped (T) (rank 6, pid 4211)",
        "  next        on gpu07: kill -CONT 4211",
    ]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_lines_fit_a_terminal_and_stay_beside_their_label(columns: int) -> None:
    lines = fitted(paragraph(stopped()), columns).split("\n")
    assert max(map(len, lines)) <= columns
    below = lines[next(n for n, line in enumerate(lines) if line.startswith("  where")) :]
    assert all(line[:2] == "  " and (line[2:14].strip() == "" or line[13] == " ") for line in below)
    assert "".join(lines).replace(" ", "") == paragraph(stopped()).replace(" ", "").replace("\n", "")


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            KILLED,
            ["Rank 3 (node node-b) was ended by SIGKILL. It happened at", "were affected", "exit code: -9 (rank 3)"],
        ),
        (INCONSISTENT, ["Rank 2 called broadcast where 7 peers called all-reduce. Ranks"]),
        (DEADLOCK, ["Ranks 1 and 2 entered operations in the wrong order", "90%, rank 1: it entered tp_0 before dp_0"]),
        (SUSPENDED, ["All processes are suspended; no rank is at fault. Ranks 0-4, 6 and 7 have been suspended since"]),
        (TRANSPORT, ["Nothing comes through from rank 1 to rank 4", "rank 1 to rank 4: the fault is at the sender"]),
        (UNKNOWN, ["The culprit may be rank 2 or rank 6.", "candidates  rank 2: it is one op behind"]),
        (UNKNOWN, ["missing     telemetry of at least one rank", "to decide   whichrank stacks --suspects"]),
        (RECOVERED, ["had not entered", "waited for 3 min 20 s, from"]),
        (NODE_LOST, ["Ranks 8-15 (node node-c) are lost with their node", "80%, each of ranks 8-15 (node node-c)"]),
        (SLOW, ["Rank 5 (node node-a, pid 4211, cuda:1) computes slowly", "have been slowed down since"]),
        (IMBALANCE, ["The ranks have unequal numbers of tokens; no rank is at fault"]),
    ],
)
def test_each_cause_says_its_own(case: Incident, said: list[str]) -> None:
    for part in said:
        assert part in paragraph(case)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (stopped(), "that 7 ranks wait in; its process is suspended"),
        (stopped(victims=Victims(count=1, ranks=(3,))), "that rank 3 waits in; its process is suspended"),
        # Some wait elsewhere, for those that wait here.
        (stopped(victims=Victims(count=9, ranks=(*range(6), 7, 8, 9))), "that holds up 9 ranks; its process is"),
        (stopped(victims=Victims()), "has not entered the all-reduce on dp; its process is suspended"),
        (stopped(op=Op(trace_id=None, kind="recv")), "has not answered the recv on dp that holds up 7 ranks; its"),
        (stopped(culprits=(STOPPED, RANK_5)), "ranks 5 and 6 have not entered the all-reduce on dp that 7 ranks "
         "wait in; reason: a suspended process"),
    ],
)  # fmt: skip
def test_who_waits_in_an_operation_is_said_as_it_is(case: Incident, said: str) -> None:
    assert said in headline(case)


@pytest.mark.parametrize(
    ("cause", "reason", "said"),
    [
        (Cause.COMPUTE_SLOW, None, "computes slowly"),
        (Cause.COMPUTE_SLOW, Reason.DATA_WAIT, "loads its data slowly"),
        (Cause.COMPUTE_SLOW, Reason.CHECKPOINT, "writes its checkpoint slowly"),
        (Cause.COMPUTE_SLOW, Reason.CPU_CONTENTION, "computes slowly; it competes for the CPU"),
        (Cause.COMPUTE_SLOW, Reason.STOPPED, "is held up in each iteration; its process is suspended"),
        (Cause.COMPUTE_SLOW, Reason.MEMORY_PRESSURE, "is held up in each iteration; its node is short of memory"),
        (Cause.MIXED_SLOW, Reason.DATA_WAIT, "loads its data slowly, and communication is slow besides"),
    ],
)
def test_what_a_slow_rank_does_slowly_depends_on_the_reason(cause: Cause, reason: Reason | None, said: str) -> None:
    # GIVEN a slow rank, and why THEN one that waits for data is not said to compute slowly
    five = (Culprit(rank=5, confidence=0.9, why=""),)
    case = incident(cause, kind="slow", reason=reason, culprits=five, stage=Stage(iteration=7))
    assert headline(case) == f"ALERT slowdown: rank 5 {said}"


@pytest.mark.parametrize(
    ("phase", "said", "where"),
    [
        ("forward", "before its backward passes", "iteration 7, forward of microbatch 2"),
        ("backward", "in its backward passes", "iteration 7, backward of microbatch 2"),
        ("optimizer", "after its last backward pass", "iteration 7, optimizer of microbatch 2"),
    ],
)
def test_phase_in_which_alone_a_rank_is_slow_is_said(phase: str, said: str, where: str) -> None:
    case = incident(
        Cause.COMPUTE_SLOW,
        kind="slow",
        culprits=(Culprit(rank=5, confidence=0.9, why=""),),
        stage=Stage(iteration=7, phase=phase, microbatch=2),
    )
    assert headline(case) == f"ALERT slowdown: rank 5 computes slowly {said}"
    assert where in paragraph(case)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (None, "the ranks take unequally long"),
        (Reason.MORE_TOKENS, "the ranks have unequal numbers of tokens"),
        (Reason.CPU_CONTENTION, "the ranks take unequally long (competition for the CPU)"),
    ],
)
def test_of_what_is_uneven_the_work_is_blamed_only_if_it_is_the_work(reason: Reason | None, said: str) -> None:
    case = incident(Cause.IMBALANCE, kind="slow", reason=reason)
    assert headline(case) == f"ALERT imbalance: {said}; no rank is at fault"


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ((), "the evidence names no rank"),
        ((2,), "the culprit may be rank 2, but that is not proved"),
        ((2, 6), "the culprit may be rank 2 or rank 6"),
        ((1, 2, 6), "the culprit may be rank 1, rank 2 or rank 6"),
        ((1, 2, 3, 6), "the culprit may be one of ranks 1-3 and 6"),
    ],
)
def test_who_it_may_be_stands_in_the_headline(ranks: tuple[int, ...], said: str) -> None:
    candidates = tuple(Culprit(rank=rank, confidence=0.2, why="") for rank in ranks)
    assert headline(incident(Cause.UNKNOWN, candidates=candidates)) == f"ALERT hang: 7 ranks wait; {said}"


def test_what_most_ranks_raised_alike_is_said_of_all_and_asks_for_no_stacks() -> None:
    facts = (
        Evidence(what=RAISED_ALIKE, value=4, where="of 4"),
        Evidence(what="exception", value="NotImplementedError: no such thing at /home/me/train.py:41", where="rank 0"),
    )
    case = incident(Cause.UNKNOWN, kind="failed", reason=Reason.EXCEPTION, evidence=facts, next=())
    said = 'all 4 ranks raised NotImplementedError: "no such thing", at train.py:41; no rank differs'
    assert headline(case) == f"ALERT failure: {said}"
    assert paragraph(case).startswith(f"A{said[1:]}. It happened at")
    assert "stacks" not in paragraph(case)


def test_waits_that_are_no_operation_of_a_group_are_said_so() -> None:
    case = stopped(op=Op(trace_id=None, kind="remote_call"), communicator=None, stage=None)
    assert "has not answered remote calls, and 7 ranks wait; its process is suspended" in headline(case)


def test_message_of_an_exception_is_cut_at_words_and_keeps_its_place() -> None:
    why = f"its process raised ValueError: {'batch 17 is bad ' * 20}at /home/me/train.py:88"
    case = incident(Cause.PROCESS_EXIT, kind="failed", reason=Reason.EXCEPTION,
                    culprits=(Culprit(rank=3, confidence=0.99, why=why),))  # fmt: skip
    assert re.search(r"batch 17 is bad (batch |17 |is |bad )*… at train.py:88$", headline(case))
    assert len(headline(case)) < 200
    assert why in paragraph(case)


def test_lines_of_code_of_both_sides_stand_together() -> None:
    # GIVEN ranks at two places, and one that raised
    facts = (
        Evidence(what="operation issued", value="broadcast of 8", where="rank 3, #7"),
        *(Evidence(what=AT, value="step (/home/me/train.py:91)", where=f"rank {rank}") for rank in (0, 1)),
        Evidence(what="thread 'loop' at", value="step (/home/me/train.py:88)", where="rank 3"),
        Evidence(what=RAISED_AT, value="/home/me/train.py:95", where="rank 4"),
    )
    case = msgspec.structs.replace(INCONSISTENT, culprits=(Culprit(rank=3, confidence=0.9, why="it"),), evidence=facts)
    assert headline(case) == (
        "ALERT hang: rank 3 issued an operation on dp that contradicts its peers, and 7 ranks wait; "
        "it is in step (train.py:88)"
    )
    lines = paragraph(case).split("\n")
    at = lines.index("  code        ranks 0 and 1 are at /home/me/train.py:91, in step")
    assert lines[at + 1 : at + 3] == [
        "              rank 3 is at /home/me/train.py:88, in step (thread 'loop')",
        "              rank 4 raised at /home/me/train.py:95",
    ]
    # AND they are no evidence besides
    assert not any("thread at" in line or "loop' at" in line for line in lines)


def test_headline_has_the_line_of_code_of_a_rank_in_its_own_code() -> None:
    at = Evidence(what=AT, value="wait_for_a_file() (/tmp/first/train_waits.py:16)", where="rank 6")
    case = stopped(reason=Reason.USER_CODE, evidence=(at,))
    assert headline(case).endswith("that 7 ranks wait in; it is in wait_for_a_file() (train_waits.py:16)")
    assert headline(stopped(reason=Reason.USER_CODE)).endswith("; it is in its own code")


def test_same_fact_of_several_ranks_is_one_line() -> None:
    evidence = tuple(
        Evidence(what="operation issued", value="all_reduce of 8", where=f"rank {rank}, #7") for rank in (0, 1, 2, 5)
    )
    assert "  evidence    operation issued: all_reduce of 8 (ranks 0-2 and 5, #7)" in paragraph(
        not_entered(evidence=evidence)
    )


def test_where_an_iteration_goes() -> None:
    # GIVEN a slow rank, and peers of whom one is reported, or several
    times = tuple(Spent(rank=r, own_s=o, transfer_s=0.01, waiting_s=w) for r, o, w in ((5, 0.2, 0.0), (1, 0.1, 0.1)))
    reported = msgspec.structs.replace(SLOW, times=times)
    assert paragraph(reported).split("\n")[-3:-1] == [
        "  time spent  rank 5, per iteration on average: 200 ms of own time, 10 ms in transfers, "
        "0 ms waiting for others",
        "              rank 1, in its position: 100 ms of own time, 10 ms in transfers, 100 ms waiting for others",
    ]
    more = (*times, Spent(rank=2, own_s=0.3, transfer_s=0.02, waiting_s=0.2))
    assert "median of 2 ranks in its position: 200 ms of own time, 15 ms in" in paragraph(
        msgspec.structs.replace(reported, times=more)
    )
    # AND a rank that has no peers stands alone
    assert "position" not in paragraph(msgspec.structs.replace(reported, times=times[:1]))


def test_recovered_incident_of_a_rank_that_ended_does_not_let_it_come_late() -> None:
    # GIVEN a rank that died, whose job was then started again
    gone = incident(Cause.PROCESS_EXIT, kind="failed", reason=Reason.SIGNAL, culprits=(ENDED,), **OVER)
    # THEN it ended, and nobody says that this rank did anything after its end
    assert headline(gone) == (
        "ALERT failure (recovered): rank 5 left the job; its process was killed by signal 9 (SIGKILL)"
    )
    assert "late" not in paragraph(gone)


@pytest.mark.parametrize(
    ("cause", "kind", "said"),
    [
        (Cause.NOT_ENTERED, "all_reduce", "had not entered the all-reduce on dp that 7 ranks waited in"),
        (Cause.NOT_ENTERED, "recv", "had not answered the recv on dp that held up 7 ranks"),
        (Cause.DEVICE, "all_reduce", "did not complete the all-reduce on dp that 7 ranks waited in"),
    ],
)
def test_recovered_incident_claims_no_more_than_that_it_is_over(cause: Cause, kind: str, said: str) -> None:
    # GIVEN a rank that was stopped, and was perhaps killed and replaced afterwards: the incident does not say
    case = msgspec.structs.replace(stopped(**OVER), cause=cause, op=Op(trace_id=None, kind=kind))
    # THEN neither does the text, and it gives no command for a pid that may be another process by now
    assert headline(case) == f"ALERT hang (recovered): rank 6 (node gpu07) {said}; its process was suspended"
    assert "kill" not in paragraph(case)
    assert "kill" in paragraph(stopped())


@pytest.mark.parametrize("status", ["recovered", "final"])
def test_what_is_over_is_reported_in_the_past(status: str) -> None:
    # GIVEN a hang of a stopped rank once the job has gone on or has ended
    text = paragraph(stopped(status=status, ended=ONSET + timedelta(seconds=40)))
    # THEN nothing in it is said of now, and no command is given for processes that are not as they were
    assert (
        "had not entered all_reduce #7 on dp_0, and its process was suspended. Ranks 0-5 and 7 waited for 40 s" in text
    )
    assert not re.search(r"\b(has not|have|is|are|waits?)\b", text)
    assert "next" not in text


@pytest.mark.parametrize("cause", [Cause.INCONSISTENT, Cause.DEADLOCK, Cause.TRANSPORT, Cause.DEVICE, Cause.NODE_LOST])
@pytest.mark.parametrize("names", [0, 1, 2])
def test_every_hang_that_has_ended_is_reported_in_the_past(cause: Cause, names: int) -> None:
    culprits = (RANK_5, culprit(7, clause(Says.LEFT_ALONE, op="all_reduce #7 on dp")))[:names]
    links = (Link(src=1, dst=4, end="sender"),)
    case = incident(cause, status="final", culprits=culprits, links=links)
    for text in (headline(case), paragraph(case)):
        assert not re.search(r"\b(are|has|have|waits?|shows|disagrees?|includes|comes)\b", text)


@pytest.mark.parametrize(
    ("links", "status", "said"),
    [
        ([(1, 4)], "open", "ALERT slowdown: the link from rank 1 to rank 4 is slow"),
        ([(1, 4)], "final", "ALERT slowdown: the link from rank 1 to rank 4 was slow"),
        ([(1, 4), (2, 4)], "open", "ALERT slowdown: 2 links are slow: rank 1 to rank 4, rank 2 to rank 4"),
        ([(n, 9) for n in range(9)], "final", "ALERT slowdown: 9 links were slow: rank 0 to rank 9"),
    ],
)
def test_slow_links_stand_in_the_headline(links: list[tuple[int, int]], status: str, said: str) -> None:
    named = tuple(Link(src=src, dst=dst, end="path") for src, dst in links)
    case = incident(Cause.COMMUNICATION_SLOW, kind="slow", status=status, culprits=(), links=named)
    assert headline(case).startswith(said)
    assert len(links) <= 8 or headline(case).endswith("; and 1 more")


def test_of_a_connection_that_is_slow_one_way_or_the_other_both_ends_are_said_once() -> None:
    both = (Link(src=7, dst=0, scope="inter_node"), Link(src=0, dst=7, scope="inter_node"))
    case = incident(Cause.COMMUNICATION_SLOW, kind="slow", culprits=(), links=both)
    assert headline(case) == "ALERT slowdown: the link between ranks 0 and 7 is slow"
    said = "between ranks 0 and 7, between nodes: which of the two directions is slow is not known"
    assert paragraph(case).count(said) == 1


def test_unknown_that_is_over_asks_for_nothing_that_can_no_longer_be_done() -> None:
    commands = ("see who waits: whichrank stacks --suspects", "see what ended it: dmesg")
    over = incident(Cause.UNKNOWN, status="final", next=commands)
    assert paragraph(over).endswith("\n  to decide   see what ended it: dmesg")
    left = paragraph(incident(Cause.UNKNOWN, status="final"))
    assert left.endswith("\n  to decide   the stacks of the ranks, if it happens again: whichrank stacks")


def test_pages_show_what_is_printed() -> None:
    # GIVEN the incident of the tutorial
    ranks = Communicator(id="1", name="default_pg", role="dp", members=(0, 1, 2, 3))
    began = datetime(2026, 11, 20, 12, 17, 54, 400_000, UTC)
    case = not_entered(
        culprits=(culprit(2, clause(Says.NOT_ENTERED, op="all_reduce #238 on default_pg"), clause(Says.SUSPENDED),
                          confidence=0.99, host="vm", pid=29152),),
        communicator=ranks, op=Op(trace_id=None, kind="all_reduce", bytes=16640, dtype="float32"),
        stage=Stage(iteration=237, phase="dp_sync", op="all_reduce #238 on default_pg"),
        onset=began, detected=began + timedelta(seconds=1.51), victims=Victims(count=3, ranks=(0, 1, 3)),
        evidence=(
            Evidence(what=TIME_BLOCKED, value=1.51, unit="s", where="rank 3"),
            Evidence(what="waiting directly for rank 2, not for another waiting rank", value=3, unit="ranks"),
            Evidence(what="process state", value="stopped (T)", where="rank 2, pid 29152"),
        ), next=("on vm: kill -CONT 29152",),
    )  # fmt: skip
    over = msgspec.structs.replace(case, status="recovered", ended=began + timedelta(seconds=12.8))
    # AND that of the rank in its own code, once it is an alert
    began = datetime(2026, 11, 20, 12, 21, 58, 100_000, UTC)
    waits = msgspec.structs.replace(
        case, reason=Reason.USER_CODE, onset=began, detected=began + timedelta(seconds=10.2),
        victims=Victims(count=3, ranks=(0, 2, 3)),
        culprits=(culprit(1, clause(Says.NOT_ENTERED, op="all_reduce #106 on default_pg"),
                          clause(Says.OWN_CODE_IN, place="wait_for_a_file() (/tmp/first/train_waits.py:16)"),
                          confidence=0.95, host="vm", pid=1783),),
        stage=Stage(iteration=105, phase="dp_sync", op="all_reduce #106 on default_pg"),
        evidence=(
            Evidence(what=TIME_BLOCKED, value=20.2, unit="s", where="rank 0"),
            Evidence(what="waiting directly for rank 1, not for another waiting rank", value=3, unit="ranks"),
            Evidence(what="process state", value="sleeping", where="rank 1, pid 1783"),
            Evidence(what=AT, value="wait_for_a_file() (/tmp/first/train_waits.py:16)", where="rank 1"),
        ), next=("on vm: whichrank stacks --rank 1 20261120-122142-vm-1766",),
    )  # fmt: skip
    # THEN the pages show them as they are printed, open and over
    for page, each in (("tutorial/first-hung-rank.md", case), ("tutorial/first-hung-rank.md", over),
                       ("how-to/read-a-verdict.md", waits)):  # fmt: skip
        shown = " ".join((DOCS / page).read_text(encoding="utf-8").split())
        assert headline(each) in shown
        assert " ".join(paragraph(each).split()) in shown


def test_communicator_of_a_mesh_has_one_name() -> None:
    mesh = Communicator(id="1", name="mesh_tp", role=None, members=(0, 1))
    case = not_entered(communicator=mesh, stage=Stage(op="all_reduce #7 on tp"))
    assert "all_reduce #7 on tp (2 ranks, 64 MiB, bfloat16)" in paragraph(case)
    assert "the all-reduce on tp that" in headline(case)
    assert "mesh_tp" not in paragraph(case)
    # AND where that is its role, too, it is not said twice
    both = msgspec.structs.replace(case, communicator=msgspec.structs.replace(mesh, role="tp"))
    assert "on tp (2 ranks" in paragraph(both)


def test_verdict_without_a_name_says_so() -> None:
    assert "no rank is named" in paragraph(incident(Cause.NOT_ENTERED))
    assert "no rank is named" in headline(incident(Cause.PROCESS_EXIT))


def test_what_is_not_known_is_not_said() -> None:
    bare = incident(
        Cause.NOT_ENTERED, culprits=(Culprit(rank=5, confidence=0.5, why=""),), communicator=None, op=None, stage=None,
        onset=None, located=None, victims=Victims(), evidence=(), next=(),
    )  # fmt: skip
    assert paragraph(bare) == (
        "Rank 5 has not reached the point where others wait. The recording does not say when.\n  confidence  50%"
    )


def test_how_long_it_lasts_is_one_number() -> None:
    # GIVEN the longest wait, measured when the incident was written last, and a fault that was detected before
    said = paragraph(not_entered(evidence=(Evidence(what=TIME_BLOCKED, value=12.345, unit="s", where="rank 3"),)))
    assert "detected    2.5 s after it began" in said
    assert TIME_BLOCKED not in said
    assert "12.3" not in said


def test_what_ended_a_wait_is_said() -> None:
    # GIVEN ranks that waited until the job ended, and ranks that went on
    ended = ONSET + timedelta(seconds=40)
    assert "waited for 40 s, from 2026-01-02 03:04:05 UTC until the job ended." in paragraph(
        not_entered(status="final", ended=ended)
    )
    assert "waited for 40 s, from 2026-01-02 03:04:05 UTC." in paragraph(not_entered(status="recovered", ended=ended))
    # AND of a job whose end was not seen it is not said how long
    assert "waited from 2026-01-02 03:04:05 UTC until the job ended." in paragraph(not_entered(status="final"))


def test_who_may_be_the_culprit_of_a_failure_is_not_called_affected() -> None:
    candidates = tuple(Culprit(rank=rank, confidence=0.5, why="") for rank in (0, 1))
    case = incident(Cause.UNKNOWN, kind="failed", candidates=candidates, victims=Victims(count=3, ranks=(0, 1, 2)))
    assert "; rank 2 is affected." in paragraph(case)
    assert "affected" not in paragraph(msgspec.structs.replace(case, victims=Victims(count=2, ranks=(0, 1))))


def test_where_no_rank_and_no_link_is_slow_iterations_are() -> None:
    all_slow = msgspec.structs.replace(IMBALANCE, cause=Cause.COMPUTE_SLOW, reason=None)
    assert "Iterations have taken longer since 2026-01-02 03:04:05 UTC." in paragraph(all_slow)


def test_what_is_uneven_need_not_have_changed() -> None:
    assert "It began at 2026-01-02 03:04:05 UTC." in paragraph(IMBALANCE)


def test_a_size_that_differs_by_rank_is_said_of_no_operation() -> None:
    assert "bfloat16" in paragraph(not_entered())
    assert "bfloat16" not in paragraph(incident(Cause.INCONSISTENT))


@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("hang", "final", "Ranks 0, 1 and 3 waited; the recording does not say since when."),
        ("hang", "open", "Ranks 0, 1 and 3 wait; the recording does not say since when."),
        ("failed", "final", "Ranks 0, 1 and 3 were affected; the recording does not say when."),
        ("slow", "final", "Ranks 0, 1 and 3 were slowed down; the recording does not say since when."),
    ],
)
def test_when_it_was_read_is_not_when_it_happened(kind: str, status: str, said: str) -> None:
    victims = Victims(count=3, ranks=(0, 1, 3))
    timeless = incident(Cause.UNKNOWN, kind=kind, status=status, onset=None, located=None, victims=victims)
    first = paragraph(timeless).partition("\n")[0]
    assert first.endswith(said)
    assert "UTC" not in first


def test_operation_of_no_known_kind_is_called_an_operation() -> None:
    other = not_entered(op=Op(trace_id=None, kind="other"), stage=None)
    assert "has not entered the operation on" in headline(other)
    assert "other" not in headline(other)
    assert "\n  where       operation on" in paragraph(other)


def test_rank_that_others_wait_for_in_the_rendezvous_has_not_reached_it() -> None:
    outside = not_entered(communicator=None, op=None, victims=Victims(count=3, ranks=(0, 1, 3)))
    assert "has not reached the point where 3 ranks wait" in headline(outside)
    over = msgspec.structs.replace(outside, status="ended")
    assert "had not reached the point where 3 ranks waited" in headline(over)


def test_missing_telemetry_is_said() -> None:
    assert "\n  missing     telemetry of at least one rank" in paragraph(not_entered(complete=False))
    assert "missing" not in paragraph(not_entered())


def test_cut_list_of_victims_says_so() -> None:
    many = Victims(count=65_535, ranks=(0, 1, 2))
    assert "65,535 ranks (among them 0-2) have waited since" in paragraph(not_entered(victims=many))
    assert "Rank 3 has waited since" in paragraph(not_entered(victims=Victims(count=1, ranks=(3,))))


def test_long_lists_are_cut_with_their_number() -> None:
    evidence = tuple(Evidence(what=f"fact {i}", value=i) for i in range(11))
    assert "              fact 7: 7\n              and 3 more" in paragraph(not_entered(evidence=evidence))


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (Evidence(what="unsent", value=3 << 20, unit="B", where="rank 1"), "unsent: 3 MiB (rank 1)"),
        (Evidence(what="age", value=0.0123, unit="s"), "age: 12.3 ms"),
        (Evidence(what="age", value=4000, unit="s"), "age: 1 h 6 min"),
        (Evidence(what="ops", value=1234567), "ops: 1,234,567"),
        (Evidence(what="rate", value=0.98765, unit="GB/s"), "rate: 0.988 GB/s"),
        (Evidence(what="rate", value=6_188_825, unit="B/s"), "rate: 50 Mbit/s"),
        (Evidence(what="without a CPU", value=0.633, unit="s/s"), "without a CPU: 63% of the time"),
        (Evidence(what="state", value="T"), "state: T"),
        (Evidence(what="GIL held", value=True), "GIL held: yes"),
    ],
)
def test_evidence_has_number_unit_and_place(item: Evidence, said: str) -> None:
    assert f"\n  evidence    {said}\n" in paragraph(not_entered(evidence=(item,)))


def test_text_of_the_job_cannot_break_the_terminal() -> None:
    hostile = Culprit(rank=1, host="a\x1b[2Jb", confidence=1, why="first\nsecond\t\x07third")
    text = paragraph(not_entered(culprits=(hostile,)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "first second third" in text


RANKS = st.integers(0, 65_535)
WORDS = st.text(max_size=20)


@given(
    cause=st.sampled_from([cause for cause in Cause if cause not in {Cause.UNKNOWN, Cause.IMBALANCE, Cause.SUSPENDED}]),
    culprits=st.lists(st.builds(Culprit, rank=RANKS, confidence=st.floats(0, 1), why=st.just(""), host=st.none(),
                                pid=st.none(), device=st.none()), max_size=8),
    links=st.lists(
        st.builds(Link, src=RANKS, dst=RANKS, end=st.sampled_from(["sender", "receiver", "path", None])), max_size=3
    ),
)  # fmt: skip
def test_no_rank_is_named_that_the_fields_do_not_name(cause: Cause, culprits: list[Culprit], links: list[Link]) -> None:
    case = incident(
        cause, culprits=tuple(culprits), links=tuple(links), victims=Victims(), evidence=(), next=(), stage=None
    )
    named = {culprit.rank for culprit in culprits} | {end for link in links for end in (link.src, link.dst)}
    said = {int(number) for number in re.findall(r"\brank (\d+)", paragraph(case))}
    assert said <= named


@given(words=WORDS, kind=WORDS, name=WORDS)
def test_any_words_give_lines_that_are_printable(words: str, kind: str, name: str) -> None:
    case = not_entered(
        culprits=(Culprit(rank=1, host=words, confidence=1, why=words),),
        op=Op(trace_id=None, kind=kind),
        communicator=Communicator(id="1", name=name, role=None, members=()),
        stage=Stage(phase=words),
        next=(words,),
    )
    assert all(line.isprintable() for line in paragraph(case).split("\n"))
    assert headline(case).isprintable()


def test_same_incident_same_text() -> None:
    assert [paragraph(case) for case in EVERY.values()] == [paragraph(case) for case in EVERY.values()]


@pytest.mark.parametrize(("operations", "said"), [(1, "left out an operation"), (2, "left out operations")])
def test_a_headline_says_whether_it_was_one_operation(operations: int, said: str) -> None:
    evidence = (Evidence(what=SKEWED + "left out", value=operations, where="rank 5, tp"),)
    skew = incident(Cause.INCONSISTENT, kind="failed", op=None, evidence=evidence, culprits=(RANK_5,))
    assert f"{said} on dp" in headline(skew)


@pytest.mark.parametrize(("what", "count"), [(QUICK_LINK, 1), (QUICK_LINKS, 2)])
def test_what_slow_links_cost_is_said(what: str, count: int) -> None:
    evidence = (Evidence(what=ITERATION, value=1.5, unit="s"), Evidence(what=what, value=1.25, unit="s"))
    links = tuple(Link(src=at, dst=at + 2, end="path") for at in range(count))
    slow = incident(Cause.COMMUNICATION_SLOW, kind="slow", fault_class="S2", links=links, evidence=evidence)
    first = paragraph(slow).partition("\n")[0]
    assert "; that makes an iteration take 1.5 s instead of 1.25 s." in first
    # BUT not where it is not known what it would take
    unknown = msgspec.structs.replace(slow, evidence=evidence[:1])
    assert "instead of" not in paragraph(unknown)

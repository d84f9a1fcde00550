"""The paragraph: all that the fields say, and nothing more."""

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
    incident,
    not_entered,
)

from whichrank.model.incident import (
    Cause,
    Communicator,
    Culprit,
    Evidence,
    Incident,
    Link,
    Op,
    Reason,
    Spent,
    Stage,
    Victims,
)
from whichrank.surface.tense import past
from whichrank.surface.text import duration, headline, number, paragraph, ranges, size

DOCS = Path(__file__).parents[3] / "docs"


def test_hang_of_a_stopped_rank() -> None:
    assert paragraph(not_entered()) == (
        "Hang: rank 5 (node-a, pid 4211, cuda:1) has not entered all-reduce (64 MiB, bfloat16) on dp_0 (dp, 8 ranks). "
        "Reason: the process is stopped. "
        "It began at 2026-01-02 03:04:05 UTC and was detected after 2.5 s. "
        "7 ranks wait (0-4, 6 and 7). "
        "Stage: iteration 1,204, backward of microbatch 3, layer 17, all-reduce of 64 MiB on tp. "
        "Rank 5, confidence 97%: its process is in state T. "
        "Evidence: time blocked 12.3 s (rank 3). "
        "Next: `whichrank stacks --suspects`."
    )
    assert headline(not_entered()) == "ALERT hang: rank 5 has not entered all-reduce on dp"


def test_where_an_iteration_goes() -> None:
    # GIVEN a slow rank, and peers of whom one is told, or several
    times = tuple(Spent(rank=r, own_s=o, transfer_s=0.01, waiting_s=w) for r, o, w in ((5, 0.2, 0.0), (1, 0.1, 0.1)))
    told = msgspec.structs.replace(SLOW, times=times)
    assert (
        "Of an iteration rank 5 spends 200 ms by itself, 10 ms in transfers and 0 ms waiting; rank 1 in the same"
        " position spends 100 ms by itself, 10 ms in transfers and 100 ms waiting."
    ) in paragraph(told)
    more = (*times, Spent(rank=2, own_s=0.3, transfer_s=0.02, waiting_s=0.2))
    over = msgspec.structs.replace(told, times=more, status="final")
    assert "; 2 ranks in the same position spent in the median 200 ms by itself, 15 ms in" in paragraph(over)
    # AND a rank that has no peers stands alone
    alone = msgspec.structs.replace(told, times=times[:1])
    assert "Of an iteration rank 5 spends 200 ms by itself, 10 ms in transfers and 0 ms waiting." in paragraph(alone)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            KILLED,
            [
                "Failure: rank 3 (node-b) left the job",
                "Reason: a signal",
                "exit code -9 (rank 3)",
                "showed in all-reduce",
            ],
        ),
        (INCONSISTENT, ["rank 2 disagrees with its peers in all-reduce", "called broadcast where 7 peers"]),
        (DEADLOCK, ["ranks 1 and 2 wait for each other in a cycle", "it entered tp_0 before dp_0", "confidence 90%"]),
        (SUSPENDED, ["Notice, no alarm", "no rank is at fault: everything was stopped"]),
        (TRANSPORT, ["communication has stopped", "link from rank 1 to rank 4; the fault is at the sender"]),
        (UNKNOWN, ["does not say which rank is at fault", "Candidates: rank 2: it is one op behind; rank 6 (node-b)"]),
        (UNKNOWN, ["What would decide it: the telemetry that is missing; `whichrank stacks --suspects`"]),
        (
            RECOVERED,
            ["Notice, no alarm: recovered hang: rank 5", "had not entered", "7 ranks waited", "after 3 min 20 s"],
        ),
        (NODE_LOST, ["ranks 8-15 are lost with their node"]),
        (SLOW, ["Slowdown: rank 5", "is slow in computation", "Reason: a CPU limit", "7 ranks lose time"]),
        (IMBALANCE, ["no rank is at fault: the work itself is uneven", "more tokens than its peers"]),
    ],
)
def test_each_cause_says_its_own(case: Incident, said: list[str]) -> None:
    for part in said:
        assert part in paragraph(case)


@pytest.mark.parametrize("cause", list(Cause))
@pytest.mark.parametrize("status", ["open", "recovered", "final"])
@pytest.mark.parametrize("names", [0, 1, 2])
def test_every_cause_status_and_number_of_names_reads(cause: Cause, status: str, names: int) -> None:
    # GIVEN any cause in any state, with as many culprits as it may have
    nobody = cause in {Cause.UNKNOWN, Cause.IMBALANCE, Cause.SUSPENDED}
    culprits = () if nobody else tuple(Culprit(rank=rank, confidence=0.5, why="") for rank in (41, 43)[:names])
    ended = ONSET + timedelta(hours=2) if status == "recovered" else None
    case = incident(cause, status=status, ended=ended, culprits=culprits)
    # THEN the text is one line of sentences that names exactly them
    text = paragraph(case)
    assert "\n" not in text
    assert text.endswith(".")
    assert "None" not in text
    assert "{" not in text
    for rank in (41, 43):
        assert (str(rank) in text) == (rank in {culprit.rank for culprit in culprits})
        assert (str(rank) in headline(case)) == (rank in {culprit.rank for culprit in culprits})
    assert len(headline(case)) < 120


ENDED = Culprit(rank=5, confidence=0.99, why="its process was killed by signal 9 (SIGKILL)")
OVER = {"status": "recovered", "ended": ONSET + timedelta(seconds=40)}


def test_recovered_incident_of_a_rank_that_ended_does_not_let_it_come_late() -> None:
    # GIVEN a rank that died, whose job was then started again
    gone = incident(Cause.PROCESS_EXIT, kind="failed", reason=Reason.SIGNAL, culprits=(ENDED,), **OVER)
    raised = incident(Cause.NOT_ENTERED, reason=Reason.EXCEPTION, culprits=(ENDED,), **OVER)
    # THEN it ended, the job has gone on, and nobody says that this rank did anything after its end
    assert headline(gone) == "ALERT failure (recovered): rank 5 left the job, and the job has gone on"
    assert headline(raised) == (
        "ALERT hang (recovered): rank 5 ended: it had not entered all-reduce on dp, and the job has gone on"
    )
    for case in (gone, raised):
        assert "late" not in paragraph(case)


@pytest.mark.parametrize(
    ("cause", "kind", "said"),
    [
        (Cause.NOT_ENTERED, "all_reduce", "had not entered all-reduce on dp, and the job has gone on"),
        (Cause.NOT_ENTERED, "recv", "had not answered recv on dp, and the job has gone on"),
        (Cause.DEVICE, "all_reduce", "had not completed all-reduce on dp, and the job has gone on"),
    ],
)
def test_recovered_incident_claims_no_more_than_that_it_is_over(cause: Cause, kind: str, said: str) -> None:
    # GIVEN a rank that was stopped, and was perhaps killed and replaced afterwards: the incident does not say
    case = incident(cause, reason=Reason.STOPPED, culprits=(RANK_5,), op=Op(trace_id=None, kind=kind), **OVER)
    # THEN neither does the text, and it gives no command for a pid that may be another process by now
    assert headline(case) == f"ALERT hang (recovered): rank 5 {said}"
    assert "Next:" not in paragraph(case)
    assert "Next:" in paragraph(not_entered())


@pytest.mark.parametrize("status", ["recovered", "final"])
def test_what_is_over_is_told_in_the_past(status: str) -> None:
    # GIVEN a hang of a stopped rank, and the same once the job has gone on or has ended
    why = "it has not entered all_reduce #7 on dp, and its process 4211 is stopped"
    who = Culprit(rank=5, confidence=0.99, why=why)
    text = paragraph(not_entered(culprits=(who,), status=status, ended=ONSET + timedelta(seconds=40)))
    # THEN nothing in it is said of now, and no command is given for processes that are not as they were
    for said in ("rank 5 had not entered", "the process was stopped", "7 ranks waited (", "it had not entered all_red"):
        assert said in text
    assert "its process 4211 was stopped" in text
    assert not re.search(r"\b(has not|have not|is|are|waits?)\b", text)
    assert "Next:" not in text
    assert "7 ranks wait (" in paragraph(not_entered(culprits=(who,)))


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
    assert headline(case).startswith("ALERT slowdown: the link between ranks 0 and 7 is slow")
    said = "It shows on the link between ranks 0 and 7, between nodes; which of its two ways is slow is not known."
    assert paragraph(case).count(said) == 1


@pytest.mark.parametrize("cause", [Cause.INCONSISTENT, Cause.DEADLOCK, Cause.TRANSPORT, Cause.DEVICE, Cause.NODE_LOST])
@pytest.mark.parametrize("names", [0, 1, 2])
def test_every_hang_that_has_ended_is_told_in_the_past(cause: Cause, names: int) -> None:
    culprits = (RANK_5, Culprit(rank=7, confidence=0.5, why="it waits in all_reduce #7 on dp"))[:names]
    links = (Link(src=1, dst=4, end="sender"),)
    case = incident(cause, status="final", culprits=culprits, links=links)
    for text in (headline(case), paragraph(case)):
        assert not re.search(r"\b(is|are|has|have|waits?|shows|disagrees?|includes)\b", text)


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("it has not entered recv #3 on pp, and it runs its own code; it is in f (/a/is.py:3)",
         "it had not entered recv #3 on pp, and it ran its own code; it was in f (/a/is.py:3)"),
        ("it entered all_reduce #7 on dp, and its process 12 is stopped",
         "it entered all_reduce #7 on dp, and its process 12 was stopped"),
        ("its main thread sleeps in the kernel while it holds the GIL",
         "its main thread slept in the kernel while it held the GIL"),
        ("it writes files, or its child processes work", "it wrote files, or its child processes worked"),
        ("it waits for something that is no operation", "it waited for something that was no operation"),
        ("it waits for data; it is in next (loader.py:9)", "it waited for data; it was in next (loader.py:9)"),
        ("it is in no operation while others wait, and its process writes",
         "it was in no operation while others waited, and its process wrote"),
        ("it has ended in order, and 3 wait for it in barrier #2 on dp",
         "it had ended in order, and 3 waited for it in barrier #2 on dp"),
        ("it waits in barrier #2 on dp for ranks that have ended in order",
         "it waited in barrier #2 on dp for ranks that had ended in order"),
        ("it has not reached what 3 ranks wait in, and it is in the phase 'eval' that the script marked",
         "it had not reached what 3 ranks waited in, and it was in the phase 'eval' that the script marked"),
        ("its node is silent for 9 s, and 3 connections to it get no answer",
         "its node was silent for 9 s, and 3 connections to it got no answer"),
        ("the others have completed all_reduce #7", "the others had completed all_reduce #7"),
        ("others wait for it, and its ring was not read", "others waited for it, and its ring was not read"),
        ("its process raised ValueError: it is wrong, others have more",
         "its process raised ValueError: it is wrong, others have more"),
        ("it issued all_reduce of 8 float32 where its group issued barrier",
         "it issued all_reduce of 8 float32 where its group issued barrier"),
    ],
)  # fmt: skip
def test_words_of_the_analyzer_in_the_past(now: str, then: str) -> None:
    assert past(now) == then


def test_unknown_that_is_over_asks_for_nothing_that_can_no_longer_be_done() -> None:
    commands = ("see who waits: whichrank stacks --suspects", "see what ended it: dmesg")
    over = incident(Cause.UNKNOWN, status="final", next=commands)
    assert paragraph(over).endswith("What would decide it: `see what ended it: dmesg`.")
    assert "would have decided it: the stacks" in paragraph(incident(Cause.UNKNOWN, status="final"))


def test_tutorial_shows_what_is_printed() -> None:
    # GIVEN the incident of the tutorial
    ranks = Communicator(id="1", name="default_pg", role="dp", members=(0, 1, 2, 3))
    began = datetime(2026, 11, 20, 12, 17, 54, 400_000, UTC)
    case = not_entered(
        culprits=(Culprit(rank=2, host="vm", pid=29152, confidence=0.99, why="it has not entered all_reduce #238 on "
                          "default_pg, and its process 29152 is stopped"),),
        communicator=ranks, op=Op(trace_id=None, kind="all_reduce", bytes=16640, dtype="float32"),
        stage=Stage(iteration=237, phase="dp_sync", op="all_reduce #238 on default_pg"),
        onset=began, detected=began + timedelta(seconds=1.51), victims=Victims(count=3, ranks=(0, 1, 3)),
        evidence=(
            Evidence(what="time blocked", value=1.51, unit="s", where="rank 3"),
            Evidence(what="ranks waiting for rank 2 directly", value=3),
            Evidence(what="process state", value="stopped (T)", where="rank 2, pid 29152"),
        ), next=("on vm: kill -CONT 29152",),
    )  # fmt: skip
    over = msgspec.structs.replace(case, status="recovered", ended=began + timedelta(seconds=12.8))
    # THEN its pages show it as it is printed, open and over
    page = " ".join((DOCS / "tutorial" / "first-hung-rank.md").read_text(encoding="utf-8").split())
    for each in (case, over):
        assert headline(each) in page
        assert paragraph(each) in page


def test_communicator_of_a_mesh_has_one_name() -> None:
    mesh = Communicator(id="1", name="mesh_tp", role=None, members=(0, 1))
    case = not_entered(communicator=mesh, stage=Stage(op="all_reduce #7 on tp"))
    assert "on tp (2 ranks)" in paragraph(case)
    assert headline(case).endswith("all-reduce on tp")
    assert "mesh_tp" not in paragraph(case)
    # AND where that is its role, too, it is not said twice
    both = msgspec.structs.replace(case, communicator=msgspec.structs.replace(mesh, role="tp"))
    assert "on tp (2 ranks)" in paragraph(both)


def test_of_several_that_had_not_entered_one_reason_says_nothing_of_the_others() -> None:
    case = incident(Cause.NOT_ENTERED, reason=Reason.SIGNAL, culprits=(ENDED, RANK_5), **OVER)
    assert "ended" not in headline(case)


def test_one_and_several_that_were_lost_for_a_while_are_told_in_their_number() -> None:
    for culprits, who in (((RANK_5,), "rank 5"), ((ENDED, RANK_5), "ranks ")):
        case = incident(Cause.NODE_LOST, culprits=culprits, **OVER)
        assert who in headline(case)
        assert headline(case).endswith(" ran on a node that was out of reach")


def test_verdict_without_a_name_says_so() -> None:
    assert "the evidence names no rank" in paragraph(incident(Cause.NOT_ENTERED))
    assert "the evidence names no rank" in headline(incident(Cause.PROCESS_EXIT))


def test_what_is_not_known_is_not_said() -> None:
    bare = incident(
        Cause.NOT_ENTERED,
        culprits=(Culprit(rank=5, confidence=0.5, why=""),),
        communicator=None,
        op=None,
        stage=None,
        onset=None,
        located=None,
        victims=Victims(),
        evidence=(),
        next=(),
    )
    assert paragraph(bare) == (
        "Hang: rank 5 has not entered an operation. It was detected at 2026-01-02 03:04:07 UTC. Rank 5, confidence 50%."
    )


def test_missing_telemetry_is_said() -> None:
    assert "Telemetry of at least one rank was missing." in paragraph(not_entered(complete=False))
    assert "missing" not in paragraph(not_entered())


def test_unknown_without_hints_names_the_stacks() -> None:
    text = paragraph(incident(Cause.UNKNOWN, next=()))
    assert text.endswith("What would decide it: the stacks of the ranks, by `whichrank stacks`.")


def test_cut_list_of_victims_says_so() -> None:
    assert "65,535 ranks wait (among them 0-2)" in paragraph(
        not_entered(victims=Victims(count=65_535, ranks=(0, 1, 2)))
    )
    assert "1 rank waits (3)" in paragraph(not_entered(victims=Victims(count=1, ranks=(3,))))


def test_long_lists_are_cut_with_their_number() -> None:
    evidence = tuple(Evidence(what=f"fact {i}", value=i) for i in range(11))
    assert "fact 7 7; and 3 more." in paragraph(not_entered(evidence=evidence))


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (Evidence(what="unsent", value=3 << 20, unit="B", where="rank 1"), "unsent 3 MiB (rank 1)"),
        (Evidence(what="age", value=0.0123, unit="s"), "age 12.3 ms"),
        (Evidence(what="age", value=4000, unit="s"), "age 1 h 6 min"),
        (Evidence(what="ops", value=1234567), "ops 1,234,567"),
        (Evidence(what="rate", value=0.98765, unit="GB/s"), "rate 0.988 GB/s"),
        (Evidence(what="rate", value=6_188_825, unit="B/s"), "rate 5.9 MiB/s"),
        (Evidence(what="state", value="T"), "state T"),
        (Evidence(what="GIL held", value=True), "GIL held yes"),
    ],
)
def test_evidence_has_number_unit_and_place(item: Evidence, said: str) -> None:
    assert f"Evidence: {said}." in paragraph(not_entered(evidence=(item,)))


def test_text_of_the_job_cannot_break_the_terminal() -> None:
    hostile = Culprit(rank=1, host="a\x1b[2Jb", confidence=1, why="first\nsecond\t\x07third")
    text = paragraph(not_entered(culprits=(hostile,)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "first second third" in text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "3"), ([4, 3], "3 and 4"), ([0, 1, 2], "0-2"), ([0, 1, 2, 9], "0-2 and 9"), ([1, 3, 5], "1, 3 and 5")],
)
def test_ranges(ranks: list[int], text: str) -> None:
    assert ranges(ranks) == text


def test_many_ranges_are_cut() -> None:
    assert ranges(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 12 more"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999.7, "1,000 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (1 << 50, "1,024 TiB")]
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250 ms"), (0.9997, "1 s"), (12.345, "12.3 s"), (119.96, "120 s"), (3599.7, "1 h 0 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_number() -> None:
    assert [number(value) for value in (0, 1234.5, -7, 0.000123)] == ["0", "1,234", "-7", "0.000123"]


RANKS = st.integers(0, 65_535)
WORDS = st.text(max_size=20)


@given(
    cause=st.sampled_from([cause for cause in Cause if cause not in {Cause.UNKNOWN, Cause.IMBALANCE, Cause.SUSPENDED}]),
    culprits=st.lists(
        st.builds(
            Culprit,
            rank=RANKS,
            confidence=st.floats(0, 1),
            why=st.just(""),
            host=st.none(),
            pid=st.none(),
            device=st.none(),
        ),
        max_size=8,
    ),
    links=st.lists(
        st.builds(Link, src=RANKS, dst=RANKS, end=st.sampled_from(["sender", "receiver", "path", None])), max_size=3
    ),
)
def test_no_rank_is_named_that_the_fields_do_not_name(cause: Cause, culprits: list[Culprit], links: list[Link]) -> None:
    case = incident(
        cause, culprits=tuple(culprits), links=tuple(links), victims=Victims(), evidence=(), next=(), stage=None
    )
    named = {culprit.rank for culprit in culprits} | {end for link in links for end in (link.src, link.dst)}
    said = {int(number) for number in re.findall(r"\brank (\d+)", paragraph(case))}
    assert said <= named


@given(words=WORDS, kind=WORDS, name=WORDS)
def test_any_words_give_one_line(words: str, kind: str, name: str) -> None:
    case = not_entered(
        culprits=(Culprit(rank=1, host=words, confidence=1, why=words),),
        op=Op(trace_id=None, kind=kind),
        communicator=Communicator(id="1", name=name, role=None, members=()),
        stage=Stage(phase=words),
        next=(words,),
    )
    assert paragraph(case).isprintable()
    assert headline(case).isprintable()


def test_same_incident_same_text() -> None:
    assert [paragraph(case) for case in EVERY.values()] == [paragraph(case) for case in EVERY.values()]
    assert RANK_5.why in paragraph(SLOW)

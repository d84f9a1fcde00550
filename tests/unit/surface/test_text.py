"""The paragraph: all that the fields say, and nothing more."""

from __future__ import annotations

import re
from datetime import timedelta

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
    Stage,
    Victims,
)
from whichrank.surface.text import duration, headline, number, paragraph, ranges, size


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


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            KILLED,
            ["Failure: rank 3 (node-b) is gone", "Reason: a signal", "exit code -9 (rank 3)", "shows in all-reduce"],
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
    assert headline(gone) == "ALERT failure (recovered): rank 5 ended, and the job has gone on"
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


def test_of_several_that_had_not_entered_one_reason_says_nothing_of_the_others() -> None:
    case = incident(Cause.NOT_ENTERED, reason=Reason.SIGNAL, culprits=(ENDED, RANK_5), **OVER)
    assert "ended" not in headline(case)


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

"""What is said of actions on something slow."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from whichrank.server.mitigations_file import Mitigated, MitigationNow, Planned
from whichrank.surface.mitigated import now_line, plan_lines, sentence_of

AT = datetime(2026, 11, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            Mitigated(
                at=AT, what="made", level=2, why="impact", before=(4, 4, 4), after=(5, 4, 3), now_s=1.5, predicted_s=0.9
            ),
            "mitigation: replica 0 computes 5 microbatches instead of 4, replica 2 computes 3 microbatches instead of"
            " 4, since an iteration takes 1.5 s and would take 900 ms",
        ),
        (
            Mitigated(at=AT, what="advised", step=3, level=2, before=(1, 3), after=(2, 2), now_s=1.5, predicted_s=1.0),
            "mitigation 3: it would help if replica 0 computes 2 microbatches instead of 1, replica 1 computes 2"
            " microbatches instead of 3: an iteration takes 1.5 s and would take 1 s; to have it done: whichrank"
            " mitigate apply 3",
        ),
        (
            Mitigated(at=AT, what="made", level=2, before=(4,) * 20, after=(5,) * 20, now_s=2, predicted_s=1),
            f"mitigation: {', '.join(f'replica {at} computes 5 microbatches instead of 4' for at in range(8))}, and so"
            " on, since an iteration takes 2 s and would take 1 s",
        ),
        (
            Mitigated(at=AT, what="made", level=1, why="relief", now_s=1, predicted_s=1),
            "mitigation: all replicas compute as many microbatches again, since all are as quick as before",
        ),
        (
            Mitigated(at=AT, what="made", level=1, why="no_gain", now_s=1, predicted_s=1),
            "mitigation: all replicas compute as many microbatches again, since it gains much less than expected",
        ),
        (
            Mitigated(
                at=AT, what="made", level=3, changes="places", before=(0, 1, 2), after=(0, 2, 1), now_s=2, predicted_s=1
            ),
            "mitigation: rank 2 takes the place of rank 1, rank 1 takes the place of rank 2, since an iteration takes"
            " 2 s and would take 1 s",
        ),
        (
            Mitigated(at=AT, what="made", level=1, why="by_hand", changes="places"),
            "mitigation: all ranks are in their first places again, since somebody wanted that",
        ),
        (
            Mitigated(at=AT, what="undone", step=2, problem="in force no more, since ranks were started anew"),
            "mitigation 2: in force no more, since ranks were started anew",
        ),
        (
            Mitigated(at=AT, what="saved", overhead_s=12.34),
            "mitigation: all ranks have written a checkpoint, 12.3 s after they were told to",
        ),
        (
            Mitigated(at=AT, what="refused", step=2, problem="nothing is changed"),
            "mitigation 2: not done: nothing is changed",
        ),
        (
            Mitigated(at=AT, what="measured", level=2, now_s=1.5, predicted_s=0.9, measured_s=0.95),
            "mitigation: an iteration takes 950 ms; it took 1.5 s, and 900 ms was expected",
        ),
    ],
)
def test_sentence(line: Mitigated, sentence: str) -> None:
    assert sentence_of(line) == sentence


PLANNED = Planned(step=2, level=2, overhead_s=3.0, predicted_s=0.9, before=(4, 4), after=(5, 3))


@pytest.mark.parametrize(
    ("now", "line", "when"),
    [
        (
            MitigationNow(mode="auto", level=1, impact_s=1.0, healthy_s=0.8, now_s=1.5, plan=PLANNED),
            "mitigation: nothing is changed; iterations take 1.5 s, 800 ms if all is well; lost so far 1 s; next, at"
            " 3 s: other shares of the work (step 2)",
            "it is done when the slowness has cost as much; to have it done now: whichrank mitigate apply 2",
        ),
        (
            MitigationNow(mode="advise", level=1, impact_s=9.0, healthy_s=0.8, now_s=1.5, plan=PLANNED),
            "mitigation: nothing is changed; iterations take 1.5 s, 800 ms if all is well; lost so far 9 s; waits for a"
            " yes: whichrank mitigate apply 2",
            "to have it done: whichrank mitigate apply 2",
        ),
        (
            MitigationNow(mode="auto", level=2, steps=(1,), impact_s=9.0, healthy_s=0.8, now_s=0.9),
            "mitigation: other shares of the work (step 1); iterations take 900 ms, 800 ms if all is well; lost so far"
            " 9 s",
            "Nothing is planned: nothing is slow, or nothing would gain anything.",
        ),
    ],
)
def test_how_it_is_now(now: MitigationNow, line: str, when: str) -> None:
    assert now_line(now) == line
    assert list(plan_lines(now))[-1].strip() == when

"""What stragglers cost, in sentences."""

from __future__ import annotations

import msgspec
import pytest

from whichrank.server.what_if import Bill
from whichrank.surface.bill import sentences_of

BILL = Bill("job", 44, 46.44, 23.5, 1.976, (0,), 1.001, -0.001, (1.0, 0.0), 0.013, "ranks", (0,))


def test_a_slow_rank() -> None:
    assert sentences_of(BILL) == [
        "Stragglers make a step 1.98 times as long: it takes 46.4 s and would take 23.5 s (S).",
        "Fixing rank 0, the slowest, would save 23 s of each step (Mw = 1.00).",
        "Fixing the last pipeline stage would save nothing (Ms = 0.00).",
        "Microbatches of one length would save 298 ms of each step.",
        "So one slow rank explains it.",
    ]


@pytest.mark.parametrize(
    ("explanation", "words"),
    [
        ("last_stage", "the last pipeline stage has more to do; no rank is at fault"),
        ("sequences", "some microbatches are longer than others; no rank is at fault"),
        ("spread", "neither a few ranks, nor"),
    ],
)
def test_where_no_rank_is_at_fault(explanation: str, words: str) -> None:
    said = sentences_of(msgspec.structs.replace(BILL, explanation=explanation, faulty_ranks=()))
    assert words in said[-1]


def test_several_ranks() -> None:
    said = sentences_of(msgspec.structs.replace(BILL, slowest_ranks=(9, 4), faulty_ranks=(9, 4)))
    assert said[1].startswith("Fixing ranks 4 and 9, the slowest, would save")
    assert said[-1] == "So 2 slow ranks explain it."


def test_of_a_job_that_is_not_slow_nobody_is_mentioned() -> None:
    bill = msgspec.structs.replace(BILL, slowdown=1.02, step_s=23.9, explanation="none", faulty_ranks=())
    assert sentences_of(bill) == ["A step takes 23.9 s; without stragglers it would take 23.5 s (S = 1.02)."]

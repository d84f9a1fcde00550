"""What is said of a validation."""

from __future__ import annotations

import pytest

from whichrank.act.judgement import SlowRank
from whichrank.server.validations_file import Asked, Validated
from whichrank.surface.validated import sentence_of

SLOW = (SlowRank(2, "compute", 3.0),)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            Validated(asked=Asked(), paused_s=2.04, measured_ranks=4, measured_links=4, seen_from=1.5, is_healthy=True),
            "validation: nothing is 1.5 times as slow as the rest, or more (4 ranks and 4 links were measured;"
            " training was paused for 2.0 s)",
        ),
        (
            Validated(
                asked=Asked(), paused_s=10, measured_ranks=4, measured_links=4, slow_ranks=SLOW, left_out_links=9
            ),
            "validation: rank 2 takes 3.0 times as long as the others for the same computation (4 ranks and 4 links"
            " were measured, for 9 links no time was left; training was paused for 10.0 s)",
        ),
        (
            Validated(asked=Asked(), paused_s=0, problem="rank 1 did not come so far"),
            "validation: given up, rank 1 did not come so far",
        ),
        (
            Validated(asked=Asked(), paused_s=3, problem="rank 1 has ended", measured_ranks=4, slow_ranks=SLOW),
            "validation: given up, rank 1 has ended; until then 4 ranks and 0 links were measured: rank 2 takes 3.0"
            " times as long as the others for the same computation; training was paused for 3.0 s",
        ),
    ],
)
def test_sentence(result: Validated, sentence: str) -> None:
    assert sentence_of(result) == sentence

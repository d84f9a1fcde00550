"""What is said of a validation."""

from __future__ import annotations

import pytest

from whichrank.act.judgement import SlowLink, SlowRank
from whichrank.server.validations_file import Asked, Validated
from whichrank.surface.validated import sentence_of

SLOW = (SlowRank(2, "compute", 3.0),)
LINK = (SlowLink(6, 5, 2.5, 8e6, 20e6),)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            Validated(
                asked=Asked(), paused_s=2.04, measured_ranks=4, measured_links=4, compared_links=4, seen_from=1.5
            ),
            "validation: no rank takes 1.5 times as long as the rest, or more, and no link is slow (4 ranks and 4 links"
            " were measured; training was paused for 2.0 s)",
        ),
        (
            Validated(asked=Asked(), paused_s=2, measured_ranks=4, measured_links=4, seen_from=1.5, unclear_links=LINK),
            "validation: from rank 6 to rank 5 8 MB/s go through, on the quickest link 20 MB/s: too few others are"
            " quick to say that it is slow (4 ranks and 4 links were measured; training was paused for 2.0 s)",
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

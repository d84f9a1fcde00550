"""Two watched jobs at once on one node: a fault of one is no matter of the other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("outside")))
from watched import UNDER_WAY, Watched, judge, preloaded

pytestmark = pytest.mark.integration

RANKS = 3
STEPS = 400
"""Of the job that is left alone: enough to be at work still while the other one hangs."""


def test_only_the_job_whose_rank_is_stopped_hears_of_it(tmp_path: Path, nursery: Path) -> None:
    # GIVEN two jobs of one script, each under a whichrank of its own
    with (
        Watched(tmp_path / "alone", preloaded(nursery, "ddp", steps=STEPS, ranks=RANKS), RANKS) as alone,
        Watched(tmp_path / "broken", preloaded(nursery, "ddp", ranks=RANKS), RANKS) as broken,
    ):
        alone.until(lambda: UNDER_WAY in alone.said("stdout"), "the job that is left alone under way")

        # WHEN a rank of one of them is stopped
        struck = broken.strike("stop", "side by side")
        broken.until(lambda: bool(broken.alerts()), "an alert")

        # THEN it is named there, and there the job hangs on, while the other one is at work and ends well
        assert alone.process.poll() is None, "it ended too early to tell anything"
        judge(struck, broken.words(), broken.log())
        assert alone.wait() == 0, alone.log()
        assert broken.process.poll() is None
        assert f"step {STEPS - 10} " in alone.said("stdout")

        # AND of the other one nothing is written, and nothing said but that all was well
        assert [path.read_bytes() for path in alone.folder.glob("whichrank-out/*/incidents.jsonl")] in ([], [b""])
        assert alone.said("stderr") == f"whichrank: watched {RANKS} ranks; no alert\n"
        judge(struck, broken.words(), broken.log())

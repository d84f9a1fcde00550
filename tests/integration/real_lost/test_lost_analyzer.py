"""The connection to the analyzer is lost for a minute, and what goes wrong in that minute is reported all the same."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_jobs import Line, RealJob, alerts

pytestmark = pytest.mark.integration

SERVING, JOINED = 2, 8
CUT_S = 60.0
LEFT_OUT_BY, STOPPED = 4, 7
LEFT_OUT_AFTER_S = 4.0
STOPPED_AFTER_OPERATIONS = 7300
"""Since the one that was left out: an agent that kept 65,536 records of eight ranks would not have the iterations
before it any more, and the analyzer keeps 8,192 operations of each rank at least."""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RealJob]:
    found = RealJob(tmp_path, SERVING + JOINED)
    yield found
    found.end()


def test_a_minute_without_the_analyzer_loses_no_incident(job: RealJob) -> None:
    # GIVEN a job on two nodes, one of which sends the other what it sees
    served = job.start(0, SERVING, "--serve", "127.0.0.1:0")
    job.until(lambda: "analyzes at" in (served / "said").read_text(), "an address")
    address = (served / "said").read_text().split("analyzes at tcp://")[1].split(",")[0]
    with Line(int(address.rpartition(":")[2])) as line:
        job.start(SERVING, JOINED, "--join", f"127.0.0.1:{line.port}")
        job.until_all_have_issued(2500)
        assert line.forwarded_bytes > 0

        # WHEN the line between them is cut, and a rank there leaves out an operation, and later another one is stopped
        line.cut()
        cut_s = time.monotonic()
        time.sleep(LEFT_OUT_AFTER_S)
        job.order(f"leave-out-{LEFT_OUT_BY}")
        pid, issued = job.issued()[STOPPED]
        job.until(lambda: job.issued()[STOPPED][1] >= issued + STOPPED_AFTER_OPERATIONS, "operations")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(max(2.0, cut_s + CUT_S - time.monotonic()))
        assert not alerts(served)
        line.mend()

        # THEN both are named, each for what it did, and nobody else
        job.until(lambda: len({word.id for word in alerts(served)}) == 2, "two alerts")
        time.sleep(2)
        named = {(word.kind, word.reason, tuple(c.rank for c in word.culprits)) for word in alerts(served)}
        assert named == {("failed", None, (LEFT_OUT_BY,)), ("hang", "stopped", (STOPPED,))}, job.said()

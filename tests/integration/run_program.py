"""`whichrank run`, with an analyzer that alerts for a rank that ended badly and notes a stopped one; same arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from whichrank.errors import WhichrankError
from whichrank.model.commands import Order, Pace
from whichrank.model.finding import Blame
from whichrank.model.incident import Cause, Culprit, Incident
from whichrank.model.telemetry import Batch, ProcessState
from whichrank.surface.cli.run import command
from whichrank.surface.run import observation


class SmallAnalyzer:
    """Feeds are remembered, one incident per rank."""

    slowness_failed: Exception | None = None

    def __init__(self, config: object, job: str, utc_offset_s: float) -> None:
        self._job = job
        self._found: dict[tuple[int, str], Incident] = {}
        self._reported: dict[tuple[int, str], Incident] = {}
        if os.environ.get("TEST_ANALYZER_FAILS") == "start":
            raise RuntimeError("no analyzer today\nsecond line")

    def feed_all(self, batches: Sequence[Batch], now_s: float) -> None:
        if os.environ.get("TEST_ANALYZER_FAILS") == "feed":
            raise RuntimeError("a fault in the analyzer")
        for row in (row for batch in batches for row in batch.rank_rows()):
            if int(row["exit_status"]) > 0:
                self._note(int(row["rank"]), "alert", f"ended with status {int(row['exit_status'])}")
            if row["state"] == ProcessState.STOPPED:
                self._note(int(row["rank"]), "notice", "is stopped")

    def tick(self, now_s: float) -> list[Incident]:
        changed = [incident for key, incident in self._found.items() if self._reported.get(key) != incident]
        self._reported.update(self._found)
        return changed

    @property
    def pace(self) -> Pace:
        return Pace(closely=bool(self._found))

    def orders(self, agent: str) -> list[Order]:
        return [self.pace]

    times = ()
    links = ()
    changes = ()

    def culprit(self, blame: Blame) -> Culprit:
        return Culprit(rank=blame.rank, confidence=blame.confidence, why="")

    def finish(self, now_s: float) -> list[Incident]:
        return self.tick(now_s)

    def _note(self, rank: int, severity: Any, why: str) -> None:
        if (rank, severity) not in self._found:
            self._found[rank, severity] = Incident(
                id=f"{severity}-{rank}",
                job=self._job,
                severity=severity,
                status="open",
                kind="failed",
                cause=Cause.PROCESS_EXIT,
                culprits=(Culprit(rank=rank, confidence=1.0, why=why),),
                detected=datetime.now(UTC),
                complete=True,
            )


if __name__ == "__main__":
    observation._analyzer = SmallAnalyzer
    try:
        sys.exit(command.main(args=sys.argv[1:], prog_name="whichrank run", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except WhichrankError as error:
        print(f"whichrank: {error}", file=sys.stderr)
        sys.exit(error.exit_code)

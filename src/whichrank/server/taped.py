"""Keeps what an analyzer is reported on a tape. One that cannot be written any more ends; the analyzer goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from whichrank.config import AnalyzerConfig
from whichrank.errors import EnvelopeFormatError
from whichrank.model.changes import LevelChange
from whichrank.model.commands import Order, Pace
from whichrank.model.finding import Blame
from whichrank.model.incident import Culprit, Incident, Spent
from whichrank.model.job_now import JobNow, Lately
from whichrank.model.links import LinkRate
from whichrank.model.telemetry import Batch
from whichrank.server.loop import AnalyzerLike
from whichrank.wire.tape import Head, TapeWriter


class Taped:
    """An analyzer with a tape.

    Args:
        analyzer: Is reported all the same.
        path: Of the tape.
        head: What the analyzer was made with.
        say: Reported, once, why the tape ends early.

    Raises:
        OSError: The tape cannot be written.
    """

    def __init__(self, analyzer: AnalyzerLike, path: Path, head: Head, say: Callable[[str], None]) -> None:
        self._analyzer = analyzer
        self._path = path
        self._say = say
        self._tape: TapeWriter | None = TapeWriter(path, head)

    def feed_all(self, batches: Sequence[Batch], now_s: float) -> None:
        """Batches have come at one time."""
        for batch in batches:
            self._keep("batch", now_s, batch)
        self._analyzer.feed_all(batches, now_s)

    def tick(self, now_s: float) -> list[Incident]:
        """Time goes on; incidents that changed."""
        self._keep("tick", now_s)
        return self._analyzer.tick(now_s)

    def orders(self, agent: str) -> list[Order]:
        """What this agent is asked."""
        return self._analyzer.orders(agent)

    def finish(self, now_s: float) -> list[Incident]:
        """Nothing more comes; incidents that changed."""
        self._keep("finish", now_s)
        self.close()
        return self._analyzer.finish(now_s)

    def job_now(self) -> JobNow:
        """What must be known of the job to pause it."""
        return self._analyzer.job_now()

    def lately(self) -> Lately | None:
        """The latest iterations."""
        return self._analyzer.lately()

    def culprit(self, blame: Blame) -> Culprit:
        """A rank that is blamed, with what is known of where it is."""
        return self._analyzer.culprit(blame)

    @property
    def ended_ranks(self) -> list[int]:
        """Whose processes have ended."""
        return self._analyzer.ended_ranks

    @property
    def slowness_failed(self) -> Exception | None:
        """The fault of ours that has ended the search for what is slow."""
        return self._analyzer.slowness_failed

    @property
    def pace(self) -> Pace:
        """How often all agents are to look now."""
        return self._analyzer.pace

    @property
    def times(self) -> tuple[Spent, ...]:
        """Where an iteration goes, by rank."""
        return self._analyzer.times

    @property
    def links(self) -> tuple[LinkRate, ...]:
        """What goes from rank to rank between nodes."""
        return self._analyzer.links

    @property
    def changes(self) -> tuple[LevelChange, ...]:
        """From when on iterations took longer, or less long, than before."""
        return self._analyzer.changes

    def close(self) -> None:
        """End the tape."""
        tape, self._tape = self._tape, None
        if tape is not None:
            try:
                tape.close()
            except OSError as error:
                self._say(f"the tape of this run ends early: {error.strerror} ({self._path})")

    def _keep(self, kind: Literal["batch", "tick", "finish"], now_s: float, batch: Batch | None = None) -> None:
        if self._tape is None:
            return
        try:
            self._tape.write(kind, now_s, batch)
        except (OSError, EnvelopeFormatError) as error:
            self._say(f"the tape of this run ends early: {error} ({self._path})")
            self.close()


def head_of(config: AnalyzerConfig, job: str, utc_offset_s: float) -> Head:
    """What an analyzer is made with, as a tape keeps it."""
    return Head(job, utc_offset_s, msgspec.to_builtins(config))

"""The front of the analyzer: batches in, incidents out. Sans-I/O; each method is given the time, monotonic seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from whichrank.analyzer.endings import Endings
from whichrank.analyzer.hangs import Hangs
from whichrank.analyzer.job_now import job_now, lately
from whichrank.analyzer.parts import Parts
from whichrank.analyzer.rest import is_at_ease, rests_until_s
from whichrank.analyzer.slowdowns import Slowdowns
from whichrank.config import AnalyzerConfig
from whichrank.hang.case import Case
from whichrank.hang.interruption import is_being_ended
from whichrank.hang.order import what_is_recorded
from whichrank.hang.recorded import but_for_consequences, of_a_moment
from whichrank.hang.wrong_data import wrong_data
from whichrank.locate.fronts import with_fronts
from whichrank.model.changes import LevelChange
from whichrank.model.commands import Leave, Order, Pace, ProbePaths, ReportAgain
from whichrank.model.evidence import TIME_BLOCKED
from whichrank.model.finding import Blame
from whichrank.model.incident import Culprit, Incident, Spent
from whichrank.model.job_now import JobNow, Lately
from whichrank.model.links import LinkRate
from whichrank.model.picture import Picture, Recorded
from whichrank.model.telemetry import Batch
from whichrank.slow.slowness import Slowness
from whichrank.store.admission import Admission, Standing
from whichrank.store.store import Fed, Store
from whichrank.transport.reach import probe_early
from whichrank.verdict.ledger import Ledger

QUIET_EVERY_S: Final = 5.0
"""Seconds between two snapshots of an agent while all is well (DESIGN section 3)."""
QUIET_SNAPSHOTS: Final = 12
"""At least so many in a window over which slowness is judged, and in a hang timeout."""


class Analyzer:
    """Diagnoses one job.

    Args:
        config: Thresholds.
        job: The job's id.
        utc_offset_s: UTC seconds minus the seconds that `feed` and `tick` are reported.
        is_live: Agents come over a network from the beginning of the run on, some perhaps of another job. A recording
            has been sorted before.
    """

    def __init__(self, config: AnalyzerConfig, job: str, utc_offset_s: float, *, is_live: bool = False) -> None:
        self._admission = Admission(job) if is_live else None
        self.store = Store()
        self.case = Case(self.store)
        self.ledger = Ledger(job, utc_offset_s, self.store)
        self.slowness = Slowness(config.slow_window_s)
        self._quiet_every_s = min(QUIET_EVERY_S, min(config.slow_window_s, config.hang_timeout_s) / QUIET_SNAPSHOTS)
        self._parts = Parts(config, self.store, self.case, self.ledger)
        self._hangs = Hangs(self._parts)
        self._endings = Endings(self._parts, self._hangs)
        self._slowdowns = Slowdowns(self._parts, self.slowness)
        self._rests_until_s = -math.inf

    # ---- in --------------------------------------------------------------------------------------------------------

    def feed(self, batch: Batch, now_s: float) -> None:
        """Take what an agent has sent, unless it watches another job."""
        self.feed_all([batch], now_s)

    def feed_all(self, batches: Sequence[Batch], now_s: float) -> None:
        """Take what agents have sent that has come at one time, but of those that watch another job."""
        for fed in self.store.feed_all([batch for batch in batches if self._admit(batch, now_s)], now_s):
            self._take(fed, now_s)

    def _take(self, fed: Fed, now_s: float) -> None:
        """Let those measure who measure as batches come."""
        for rank in fed.restarted:
            self.case.skews.forget(rank)
        if fed.restarted or fed.begins_anew:
            self.slowness.forget()
        self.case.peers.watch(self.store.rounds.take_apart(), now_s)
        self._slowdowns.unless_failed(lambda: self.slowness.feed(self.store, fed))
        self._slowdowns.unless_failed(lambda: self.slowness.see(fed.states))
        if fed.restarted or not (fed.only_completed and is_at_ease(self._parts, self.slowness)):
            self._rests_until_s = -math.inf

    def admits(self, agent: str) -> bool:
        """Whether what this agent has sent last was taken: it watches no other job."""
        return self._admission is None or self._admission.admits(agent)

    def _admit(self, batch: Batch, now_s: float) -> bool:
        """Whether to take a batch; what was taken of an agent that is refused now is forgotten."""
        if self._admission is None:
            return True
        standing = self._admission.judge(batch, now_s)
        if standing is Standing.REFUSED and self._admission.was_fed(batch.agent):
            self.store.forget_agent(batch.agent)
        return standing is Standing.ADMITTED

    # ---- out -------------------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> list[Incident]:
        """Look at the job, unless nothing can have changed. Returns incidents that are new or have changed."""
        if self._admission:
            self._admission.begin(now_s)
        if not self.store.ranks.size or now_s < self._rests_until_s:
            return []
        picture = self.store.picture(now_s)
        changed = self._look(picture, now_s)
        self._rests_until_s = rests_until_s(self._parts, self.slowness, picture, now_s)
        return changed

    def _look(self, picture: Picture, now_s: float) -> list[Incident]:
        probe_early(self.store.paths, picture, self.store.ranks.agent)
        changed = self._wrong_data(picture, now_s)
        being_ended = is_being_ended(self.store, picture)
        ends = self.store.departures.open_ends()
        got_over = self._endings.get_over(picture, ends, now_s)
        if got_over is not None:
            changed += got_over
            ends = self.store.departures.open_ends()
        ending = self._endings.examine(picture, ends, now_s)
        if ending is not None:
            return changed + ending + ([] if being_ended else self._hangs.besides(picture, ends, now_s))
        if being_ended:
            return changed
        changed += self._hangs.examine(picture, ends, now_s)
        self._slowdowns.forget_hang(changed)
        return changed + self._slowdowns.examine(picture, now_s)

    def finish(self, now_s: float) -> list[Incident]:
        """The job has ended and its rings were drained: the last word."""
        if not self.store.ranks.size:
            return []
        picture = self.store.picture(now_s)
        changed = self._wrong_data(picture, now_s, at_end=True)
        return changed + self._endings.finish(picture, now_s) + self.ledger.end(now_s)

    def at_rest(self, now_s: float, recorded: Recorded) -> list[Incident]:
        """The job as a recording that others made has it: no patience is left to have.

        Args:
            now_s: When it was made.
            recorded: What is known of it.
        """
        if not self.store.ranks.size:
            return []
        self.store.recorded = recorded
        departures = self.store.departures
        lacked_memory = [rank for rank, event in departures.exits.items() if "out of memory" in event.text]
        own = but_for_consequences(self.store.picture(now_s), departures.ends(), recorded, lacked_memory)
        picture = with_fronts(own)
        changed = self._hang_at_rest(picture, now_s, recorded) if recorded.shows_hangs else []
        return changed + self._slowdowns.at_rest(picture, now_s) + self.ledger.rest()

    def _hang_at_rest(self, picture: Picture, now_s: float, recorded: Recorded) -> list[Incident]:
        changed = self._wrong_data(picture, now_s, at_end=True)
        finding = what_is_recorded(self.case, picture, recorded)
        if finding:
            # How long it had lasted is not in it.
            evidence = tuple(fact for fact in finding.evidence if fact.what != TIME_BLOCKED)
            finding = replace(finding, evidence=evidence)
            said = finding if recorded.is_still else of_a_moment(finding)
            changed += self.ledger.report(said, "alert" if recorded.is_still else "notice", finding.onset_s)
        return changed

    def _wrong_data(self, picture: Picture, now_s: float, at_end: bool = False) -> list[Incident]:
        found = wrong_data(self.case, picture, now_s, at_end=at_end)
        return [incident for finding in found for incident in self.ledger.add_closed(finding, now_s)]

    def orders(self, agent: str) -> list[Order]:
        """What this agent is asked now; each order comes once, but for the pace and that it should leave."""
        if self._admission and (another_job := self._admission.refusal(agent)):
            return [Leave(another_job)]
        number = self.store.agent_number(agent)
        orders: list[Order] = [self.pace, *self._parts.asked.take(self.store, number)]
        if addresses := self.store.paths.wanted(number):
            orders.append(ProbePaths(tuple(addresses)))
        if self._admission is not None and self._admission.take_again(agent):
            orders.append(ReportAgain())
        return orders

    def job_now(self) -> JobNow:
        """What must be known of the job to pause it."""
        return job_now(self.store, self.slowness.long_groups)

    def lately(self) -> Lately | None:
        """The latest iterations of the ranks that live; None while they are not known."""
        return lately(self.store, self.slowness.iterations)

    def culprit(self, blame: Blame) -> Culprit:
        """A rank that is blamed, with what is known of where it is."""
        return self.ledger.culprit(blame)

    @property
    def ended_ranks(self) -> list[int]:
        """Whose processes have ended."""
        return np.flatnonzero(self.store.ranks.have_ended()).tolist()

    @property
    def pace(self) -> Pace:
        """How often all agents are to look now."""
        closely = self._parts.policy.closely or self.store.rounds.are_in_doubt
        return Pace(closely, self.slowness.links.in_doubt, self._quiet_every_s)

    @property
    def times(self) -> tuple[Spent, ...]:
        """Where the latest iterations went, by rank; empty while that is not known."""
        return self.slowness.times

    @property
    def links(self) -> tuple[LinkRate, ...]:
        """What goes from rank to rank between nodes, the slowest first; empty while that is not known."""
        return self.slowness.links.matrix

    @property
    def changes(self) -> tuple[LevelChange, ...]:
        """From when on iterations took longer, or less long, than before; the latest ones, in order."""
        return tuple(
            LevelChange(
                at=self.ledger.utc(one.at_s), iteration=one.iteration, before_s=one.before_s, after_s=one.after_s
            )
            for one in self.slowness.track.changes
        )

    @property
    def slowness_failed(self) -> Exception | None:
        """The fault of ours that has ended the search for what is slow."""
        return self._slowdowns.failed

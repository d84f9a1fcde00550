"""The front of the analyzer: batches in, incidents out. Sans-I/O; every method is told the time (monotonic seconds)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import numpy as np

from whichrank.config import AnalyzerConfig
from whichrank.detect.hang import OP_TIMEOUT_SHARE, STEADY_S, Persistence, Thresholds, Urgency, suspicious_s, urgency_of
from whichrank.detect.usual import UsualWaits
from whichrank.hang.diagnosis import Diagnosis
from whichrank.hang.endings import who_ended_it
from whichrank.hang.history import History
from whichrank.hang.holding import Holding
from whichrank.hang.interruption import have_gone_on, is_being_ended
from whichrank.hang.places import are_answered, sides_of, with_places
from whichrank.hang.recorded import but_for_consequences, of_a_moment
from whichrank.hang.rendezvous import stopped_in_rendezvous
from whichrank.hang.rounds import Rounds
from whichrank.hang.silence import silent_job
from whichrank.hang.waited_out import WaitedOut
from whichrank.locate.deaths import crashed, dying, ended_mutely, killed, singled_out, told_to_end, told_to_end_s
from whichrank.locate.fronts import with_fronts
from whichrank.model.commands import Leave, Order, Pace, ProbePaths, ReportAgain, SampleThreads, TakeStacks
from whichrank.model.ends import Ends
from whichrank.model.finding import Finding
from whichrank.model.incident import TIME_BLOCKED, Cause, Incident, Reason, Severity, Spent
from whichrank.model.kinds import is_collective
from whichrank.model.links import LinkRate
from whichrank.model.picture import Picture, Recorded
from whichrank.model.signature import signatures
from whichrank.model.stable_hash import stable_hash
from whichrank.model.telemetry import Batch, ProcessState
from whichrank.slow.slowness import Slowness
from whichrank.store.admission import Admission, Standing
from whichrank.store.state import JobState
from whichrank.transport.reach import knock_early
from whichrank.verdict.ledger import ANOTHER_S, Ledger

T = TypeVar("T")
LOOK_AT_S = 0.6
"""Waits younger than this make no edge."""
SETTLE_S = 0.9
"""A dying job is judged this long after the first death: the others' rings must have been read."""
READ_S = 0.4
"""What happened so long ago has been told, if rings are read closely."""
RECOVER_S = 1.0
MOMENT_S = 0.001
RANKS_ASKED = 256
"""For what all ranks share, such as the length of an iteration, some are enough."""
ENDING_S = 45.0
"""A launcher that ends a job has killed its last rank by then (torchrun: 30 s)."""
FAILURE_S = 60.0
"""An operation that failed this long ago in a rank that lives on was dealt with by the program."""
GONE_ON_S = 3.0
"""All that live have completed operations issued this long after a death or failure: they have got over it."""
STACKS_AT_ONCE = 8
STACKS_AGAIN_S = 5.0
"""Those of one rank, at the earliest."""
STACKS_SOON_S = 1.0
"""The same, where those from before a moment say nothing of what is asked."""
PLACES_S = 1.2
"""An alert of what contradicts itself waits so long, at most, for the lines of code of both sides."""
CUT_OFF_S = 3.0
"""Without a word from any agent for this long nothing is claimed: the analyzer is cut off."""


class Analyzer:
    """Diagnoses one job.

    Args:
        config: Thresholds.
        job: The job's id.
        utc_offset_s: UTC seconds minus the seconds that `feed` and `tick` are told.
        is_live: Agents come over a network from the beginning of the run on, some perhaps of another job. A recording
            has been sorted before.
    """

    def __init__(self, config: AnalyzerConfig, job: str, utc_offset_s: float, *, is_live: bool = False) -> None:
        self.config = config
        self._admission = Admission(job) if is_live else None
        self.state = JobState()
        self.history = History()
        self.rounds = Rounds()
        self.diagnosis = Diagnosis(self.state, self.history, self.rounds)
        self.ledger = Ledger(job, utc_offset_s, self.state, self.iteration_of)
        self.slowness = Slowness(config.slow_window_s)
        self.slowness_failed: Exception | None = None
        self._look: Persistence | None = None
        self._holding = Holding()
        self._usual = UsualWaits()
        self._waited_out = WaitedOut()
        self._prior: Finding | None = None
        self._death_since_s: float | None = None
        self._stacks_wanted: set[int] = set()
        self._profiles_wanted: set[int] = set()
        self._profile_s = 0.0
        self._stacks_asked_s: dict[int, float] = {}
        self._closely = False
        self._clear_since_s: float | None = None
        self._others_since_s: dict[str, float] = {}
        self._over_s = self._awake_s = 0.0
        self._suspended_since_s: float | None = None
        self._rate: dict[int, tuple[float, int, float]] = {}

    # ---- in --------------------------------------------------------------------------------------------------------

    def feed(self, batch: Batch, now_s: float) -> None:
        """Take what an agent told, unless it watches another job."""
        if not self._admit(batch, now_s):
            return
        records, comm = self.state.feed(batch, now_s)
        restarted = self.state.take_restarted()
        for rank in restarted:
            self.history.forget(rank)
        if restarted:
            self.slowness.forget()
            self.rounds.forget()
        # What an earlier process of the rank did may come late.
        is_of_now = records["row"]["t_issue_ns"] > self.state.ranks.rows["created_ns"][records["rank"]]
        records, comm = records[is_of_now], comm[is_of_now]
        for rank in self.state.take_lossy():
            self.history.sequence(rank).expect_loss()
        self.history.add_comms(self.state.info)
        steps = self.state.take_steps()
        self.history.steps.feed(steps["rank"], steps["row"])
        self._unless_failed(lambda: self.slowness.feed(self.state, comm, records, steps))
        flight = self.state.told_ops_of(batch.agent)[: None if batch.ranks else 0]  # what was told before is old by now
        if len(records):
            signs = signatures(records["row"])
            self.history.feed(records["rank"], comm, records["row"], signs)
            self.rounds.feed(self.state, comm, records, signs, now_s)
            self._usual.add(comm, records["row"]["wait_us"])
            self.diagnosis.peers.watch(self.rounds.take_apart(), now_s)
        if len(flight):
            self.history.feed(flight["rank"], flight["comm"], flight)
        self._unless_failed(lambda: self.slowness.see(batch.rank_rows(), self.state.ranks.size))
        self._measure_iterations(batch, now_s)

    def admits(self, agent: str) -> bool:
        """Whether what this agent told last was taken: it watches no other job."""
        return self._admission is None or self._admission.admits(agent)

    def _admit(self, batch: Batch, now_s: float) -> bool:
        """Whether to take a batch; what was taken of an agent that is refused now is forgotten."""
        if self._admission is None:
            return True
        standing = self._admission.judge(batch, now_s)
        if standing is Standing.REFUSED and self._admission.was_fed(batch.agent):
            self.state.forget_agent(batch.agent)
        return standing is Standing.ADMITTED

    def _measure_iterations(self, batch: Batch, now_s: float) -> None:
        for row in batch.rank_rows()[["rank", "ordinal"]]:
            rank, ordinal = int(row["rank"]), int(row["ordinal"])
            at_s, before, rate = self._rate.get(rank, (now_s, ordinal, 0.0))
            if now_s - at_s < 1.0 and rank in self._rate:
                continue
            if ordinal > before and now_s > at_s:
                now_rate = (ordinal - before) / (now_s - at_s)
                rate = now_rate if not rate else 0.7 * rate + 0.3 * now_rate
            self._rate[rank] = (now_s, ordinal, rate)

    def iteration_of(self, rank: int) -> int | None:
        """The iteration that a rank is in, from 0; None while that is not known."""
        return self.history.iterations(rank)

    def iteration_s(self) -> float:
        """Seconds that an iteration takes, the median over some ranks; 0 while it is not known."""
        if by_steps := self.history.steps.iteration_s(range(RANKS_ASKED)):
            return by_steps
        known = [
            self.history.sequence(r).period / rate
            for r, (_, _, rate) in islice(self._rate.items(), RANKS_ASKED)
            if rate and self.history.sequence(r).period
        ]
        return float(np.median(known)) if known else 0.0

    # ---- out -------------------------------------------------------------------------------------------------------

    @property
    def times(self) -> tuple[Spent, ...]:
        """Where the latest iterations went, by rank; empty while that is not known."""
        return self.slowness.times

    @property
    def links(self) -> tuple[LinkRate, ...]:
        """What goes from rank to rank between nodes, the slowest first; empty while that is not known."""
        return self.slowness.links.matrix

    def orders(self, agent: str) -> list[Order]:
        """What this agent is asked now; each order comes once, but for the pace and that it should leave."""
        if self._admission and (another_job := self._admission.refusal(agent)):
            return [Leave(another_job)]
        number = self.state.agent_number(agent)
        stacks_of, profiles_of = (
            tuple(sorted(r for r in wanted if self.state.ranks.agent[r] == number))
            for wanted in (self._stacks_wanted, self._profiles_wanted)
        )
        self._stacks_wanted.difference_update(stacks_of)
        self._profiles_wanted.difference_update(profiles_of)
        orders: list[Order] = [Pace(closely=self._closely, connections=self.slowness.links.in_doubt)]
        if stacks_of:
            orders.append(TakeStacks(stacks_of))
        if profiles_of:
            orders.append(SampleThreads(profiles_of, self._profile_s))
        if addresses := self.state.paths.wanted(number):
            orders.append(ProbePaths(tuple(addresses)))
        if self._admission is not None and self._admission.take_again(agent):
            orders.append(ReportAgain())
        return orders

    def tick(self, now_s: float) -> list[Incident]:
        """Look at the job. Returns incidents that are new or have changed."""
        if self._admission:
            self._admission.begin(now_s)
        if not self.state.ranks.size:
            return []
        picture = self.state.picture(now_s)
        knock_early(self.state.paths, picture, self.state.ranks.agent)
        changed = self._wrong_data(picture, now_s)
        being_ended = is_being_ended(self.state, picture)
        ends = self.state.open_ends()
        if self._has_got_over(picture, ends):
            changed += self._close_old(now_s)
            ends = self.state.open_ends()
        ending = self._ending(picture, ends, now_s)
        if ending is not None:
            return changed + ending + ([] if being_ended else self._besides(picture, ends, now_s))
        if being_ended:
            return changed
        changed += self._hang(picture, ends, now_s)
        if any((one.kind, one.severity, one.status) == ("hang", "alert", "recovered") for one in changed):
            self._unless_failed(self.slowness.links.begin_anew)  # what a hang has kept was told, and is no slow link
        return changed + (self._unless_failed(lambda: self._slow(picture, now_s)) or [])

    def finish(self, now_s: float) -> list[Incident]:
        """The job has ended and its rings were drained: the last word."""
        if not self.state.ranks.size:
            return []
        picture = self.state.picture(now_s)
        changed = self._wrong_data(picture, now_s, at_end=True)
        if self._death_since_s is None:
            self._forget_what_is_over(picture)
        finding = who_ended_it(self.diagnosis, picture, self._prior, self._is_told(self._prior))
        if finding:
            finding = with_places(self.state, finding)
            changed += self.ledger.report(finding, _severity(finding, self.state.open_ends()), now_s)
        return changed + self.ledger.end(now_s)

    def at_rest(self, now_s: float, recorded: Recorded) -> list[Incident]:
        """The job as a recording that others made has it: no patience is left to have.

        Args:
            now_s: When it was made.
            recorded: What is known of it.
        """
        if not self.state.ranks.size:
            return []
        self.state.recorded = recorded
        picture = with_fronts(but_for_consequences(self.state.picture(now_s), self.state.ends()))
        changed = self._hang_at_rest(picture, now_s, recorded) if recorded.shows_hangs else []
        slow = self._unless_failed(lambda: self._keep(self.slowness.at_rest(self.state, picture), now_s))
        return changed + (slow or []) + self.ledger.rest()

    def _hang_at_rest(self, picture: Picture, now_s: float, recorded: Recorded) -> list[Incident]:
        changed = self._wrong_data(picture, now_s, at_end=True)
        finding = self.diagnosis.hang(picture, 0.0)
        if finding:
            # How long it had lasted is not in it.
            evidence = tuple(fact for fact in finding.evidence if fact.what != TIME_BLOCKED)
            finding = replace(finding, evidence=evidence)
            told = finding if recorded.is_still else of_a_moment(finding)
            changed += self.ledger.report(told, "alert" if recorded.is_still else "notice", finding.onset_s)
        return changed

    # ---- questions -------------------------------------------------------------------------------------------------

    def _has_got_over(self, picture: Picture, ends: Ends) -> bool:
        """Does the job go on without those that died, or after a failure that the program has dealt with?"""
        dead = dying(ends)
        last_s = max(
            np.where(ends.gone, ends.ended_s, ends.exception_s)[dead].max(initial=0.0), ends.failure_s.max(initial=0.0)
        )
        if not last_s or not have_gone_on(self.state, picture, ends, dead, last_s, last_s + GONE_ON_S):
            return False
        self.state.get_over(np.flatnonzero(dead | (ends.failure_s > 0)).tolist(), last_s + GONE_ON_S)
        self._death_since_s = self._prior = None
        self._over_s = last_s
        return True

    def _close_old(self, now_s: float) -> list[Incident]:
        """The incidents of what the job has got over."""
        old = [i.id for i, finding in self.ledger.open_ones if finding.onset_s <= self._over_s + SETTLE_S]
        return [incident for number in old for incident in self._recover(now_s, number)]

    def _ending(self, picture: Picture, ends: Ends, now_s: float) -> list[Incident] | None:
        """None: nobody has died or failed."""
        failing = (ends.failure_s > 0) & (now_s - ends.failure_s < FAILURE_S)
        if not bool((dying(ends) | failing).any()):
            self._death_since_s = None
            return None
        if self._death_since_s is None:
            self._death_since_s = now_s - self._seen_leaving_s(now_s)
            self._forget_what_is_over(picture)
        self._closely = True
        if now_s - self._death_since_s < SETTLE_S:
            return []
        finding = who_ended_it(self.diagnosis, picture, self._prior, self._is_told(self._prior))
        if not finding:
            return None
        if finding.cause == Cause.UNKNOWN and now_s - self._death_since_s < 2 * SETTLE_S:
            return []
        own_death = finding.cause == Cause.PROCESS_EXIT and self._is_apart(picture, ends, finding)
        finding = with_places(self.state, finding)
        return self.ledger.report(finding, _severity(finding, ends), now_s, own_death=own_death)

    def _seen_leaving_s(self, now_s: float) -> float:
        """For so long a rank that others wait for was known to have left: rings have been read closely meanwhile."""
        if self._look is None or self._look.cause != Cause.PROCESS_EXIT:
            return 0.0
        return min(now_s - self._look.since_s, SETTLE_S - READ_S)

    def _is_apart(self, picture: Picture, ends: Ends, finding: Finding) -> bool:
        """Did these die of themselves, and not because of an incident that is open?

        Somebody may kill ranks one by one because their job hangs, and ranks give up; so nothing but a crash counts
        before those have come that were waited for.
        """
        ranks = sorted(finding.names)
        told = told_to_end(ends)
        # What is being torn down may crash.
        before = ends.ended_s[ranks].max() < told_to_end_s(ends)[told].min(initial=np.inf)
        if before and (finding.reason == Reason.OUT_OF_MEMORY or crashed(ends)[ranks].all()):
            return True
        with_it = killed(ends) & (np.abs(ends.ended_s - ends.ended_s[ranks].min()) <= ANOTHER_S)
        hangs = [known for _, known in self.ledger.open_ones if known.kind == "hang"]
        alone = bool(killed(ends)[ranks].all()) and int(with_it.sum()) == 1
        return (alone or bool(hangs)) and all(self._is_over(picture, known) for known in hangs)

    def _besides(self, picture: Picture, ends: Ends, now_s: float) -> list[Incident]:
        """While the end of one is not got over: another rank is stopped, or others have waited for it only since."""
        if self._suspended(picture) or _is_being_ended(picture, ends):
            return []
        finding = self.diagnosis.hang(picture, LOOK_AT_S, self.ledger.named)
        if finding is None:
            return []
        finding = self._begun(picture, finding, now_s)
        last_s = max(ends.ended_s.max(initial=0.0), ends.failure_s.max(initial=0.0))
        ranks = sorted(finding.names)
        # Whoever needs the dead one is late for others from then on: it must have gone on itself.
        well = (ends.failure_s + ends.exception_s + ends.closed_s == 0) & (self.state.ranks.went_on_s > last_s)
        since = bool(ranks) and not finding.hard and finding.onset_s > last_s + ANOTHER_S and well[ranks].all()
        if finding.reason != Reason.STOPPED and not since:
            return []
        self._look = Persistence.after(self._look, finding, now_s)
        urgency = urgency_of(self._look, finding, self._facts(picture, finding), self.config, 0.0, now_s)
        return self.ledger.report(finding, "alert", now_s) if urgency is Urgency.ALERT else []

    def _hang(self, picture: Picture, ends: Ends, now_s: float) -> list[Incident]:
        if self.state.agents_heard_s(now_s) > CUT_OFF_S:
            self._look = None
            return []
        if self._suspended(picture):
            return self._note_suspension(picture, now_s)
        if self._suspended_since_s is not None:
            self._suspended_since_s, self._awake_s = None, now_s
        if _is_being_ended(picture, ends):
            return []  # the launcher or the user ends the job: what ranks wait for now says nothing
        finding = self.diagnosis.hang(picture, LOOK_AT_S, self.ledger.named)
        if finding is None or not finding.names:
            finding = stopped_in_rendezvous(self.state, picture, self._want_stacks, STACKS_SOON_S) or finding
        if finding is None:
            finding = silent_job(
                self.state, picture, self.config.hang_timeout_s, self.config.busy_factor, self._want_stacks
            )
        if finding is None:
            return self._clear(now_s)
        self._clear_since_s = None
        finding = self._begun(picture, finding, now_s)
        changed = self._moved_on(picture, finding, now_s)
        self._look = Persistence.after(self._look, finding, now_s)
        self._closely = True
        sides = sides_of(self.state, finding)
        self._want_stacks(sides, now_s)
        waited_s = now_s - finding.onset_s
        if finding.ask:
            self._want_stacks(list(finding.ask), now_s)
        if waited_s >= suspicious_s(self.config, self._usual.p99_s(finding.comm)):
            self._want_stacks([b.rank for b in finding.culprits or finding.candidates], now_s)
            self._prior = finding
        elif self._prior and (self._prior.comm, self._prior.op) != (finding.comm, finding.op):
            self._prior = None  # that wait is over
        if finding.names and not finding.hard and now_s - self._look.since_s < STEADY_S:
            return changed  # who is late without hard evidence must stay so for a while
        urgency = urgency_of(self._look, finding, self._facts(picture, finding), self.config, self.iteration_s(), now_s)
        if urgency is Urgency.NONE:
            return changed
        if urgency is Urgency.NOTICE and self._waited_out.is_usual(finding, waited_s) and not self._is_told(finding):
            return changed
        if now_s - self._look.since_s < PLACES_S and not are_answered(self.state, sides, finding.onset_s):
            return changed
        finding = with_places(self.state, finding)
        return changed + self.ledger.report(finding, "alert" if urgency is Urgency.ALERT else "notice", now_s)

    def _begun(self, picture: Picture, finding: Finding, now_s: float) -> Finding:
        """With the onset from which these ranks are waited for: not by those who slept, nor where it was another's."""
        onset_s = max(finding.onset_s, self._awake_s)
        if finding.waited_for:
            ranks, op = sorted(finding.waited_for), tuple((finding.op or {}).values())
            since_s = np.maximum(self.state.long_ops.latest_s(ranks), onset_s)
            self._holding.look(ranks, picture.busy, stable_hash(finding.comm, *op), since_s, now_s)
            if not finding.hard:
                own_s = self._holding.own_s([b.rank for b in finding.culprits or finding.candidates])
                onset_s = max(onset_s, now_s - own_s) if own_s else onset_s
        return replace(finding, onset_s=onset_s)

    def _moved_on(self, picture: Picture, finding: Finding, now_s: float) -> list[Incident]:
        """Incidents whose ranks are waited for no more, and have come, while others are late."""
        over = []
        halted = picture.stopped | picture.gone
        for place, (incident, known) in enumerate(self.ledger.open_ones):
            last = place + 1 == len(self.ledger.open_ones)
            refined = last and incident.severity == "notice" and finding.onset_s <= known.onset_s + ANOTHER_S
            blamed = sorted(known.blamed)
            late = finding.waited_for.intersection(blamed) or halted[blamed].any()
            if refined or late or not known.waited_for or not self._have_come(picture, known, blamed):
                self._others_since_s.pop(incident.id, None)
            elif now_s - self._others_since_s.setdefault(incident.id, now_s) >= RECOVER_S:
                over.append(incident.id)
        return [incident for number in over for incident in self._recover(now_s, number)]

    def _is_told(self, prior: Finding | None) -> bool:
        """Does an open incident say this already?"""
        return prior is not None and any(known.names == prior.names for _, known in self.ledger.open_ones)

    def _forget_what_is_over(self, picture: Picture) -> None:
        """Who was waited for lately has nothing to do with a death after it has come."""
        if self._prior and self._is_over(picture, self._prior):
            self._prior = None

    def _is_over(self, picture: Picture, known: Finding) -> bool:
        """Have those come that were waited for?"""
        blamed = sorted(known.blamed)
        halted = bool(picture.stopped[blamed].any())
        return bool(known.waited_for) and not halted and self._have_come(picture, known, blamed)

    def _have_come(self, picture: Picture, known: Finding, blamed: list[int]) -> bool:
        """Have these ranks done what others waited for?"""
        if known.cause == Cause.DEVICE:
            return True
        if known.comm >= 0 and known.op and is_collective(known.op["kind"]):
            at, size = int(picture.comm_at[known.comm]), int(picture.comm_size[known.comm])
            theirs = np.isin(picture.member_rank[at : at + size], blamed)
            if theirs.sum() == len(blamed):
                return bool((picture.member_issued[at : at + size][theirs] >= known.op["counter"]).all())
        return bool((self.state.ranks.went_on_s[blamed] > known.onset_s).all())

    def _facts(self, picture: Picture, finding: Finding) -> Thresholds:
        ranks = [b.rank for b in finding.culprits or finding.candidates]
        waits = picture.waits
        # Not of waits that the end of the chain has held up for the lesser part: they may end while a new link works.
        waits = waits[(waits["timeout_s"] > 0) & (finding.onset_s <= waits["issue_s"] + waits["timeout_s"] / 2)]
        # Each operation's own timeout, as if it had begun with the onset: one that began later ends later.
        timeouts = waits["timeout_s"] + (waits["issue_s"] - finding.onset_s) / OP_TIMEOUT_SHARE
        return {
            "busy": bool(len(ranks)) and all(picture.busy[r] for r in ranks),
            "busy_s": self._holding.busy_s(ranks),
            "phase": any(self.state.ranks.rows["phase"][r] for r in ranks),
            "op_timeout_s": max(float(timeouts.min()), MOMENT_S) if len(timeouts) else 0.0,
        }

    def _note_suspension(self, picture: Picture, now_s: float) -> list[Incident]:
        """All ranks are stopped: a notice that names nobody, once it lasts."""
        self._look = None
        if self._suspended_since_s is None:
            self._suspended_since_s = now_s
        if now_s - self._suspended_since_s < self.config.notice_min_s or self.ledger.open_ones:
            return []
        stopped = tuple(np.flatnonzero(picture.present & ~picture.gone).tolist())
        finding = Finding(cause=Cause.SUSPENDED, victims=stopped, onset_s=self._suspended_since_s)
        return self.ledger.report(finding, "notice", now_s)

    def _suspended(self, picture: Picture) -> bool:
        """Everything alive is stopped: nobody's fault."""
        alive = picture.present & ~picture.gone
        return bool(alive.any()) and bool((self.state.ranks.stopped_looks[alive] >= 1).all())

    def _clear(self, now_s: float) -> list[Incident]:
        self._look, self._closely = None, False
        if self._clear_since_s is None:
            self._clear_since_s = now_s
        if now_s - self._clear_since_s < RECOVER_S:
            return []
        self._prior = None
        self._holding.nobody()
        alive = ~np.isin(
            self.state.ranks.rows["state"][self.state.ranks.present], (ProcessState.GONE, ProcessState.ZOMBIE)
        )
        return self._recover(now_s) if alive.any() else self.ledger.close(now_s, "final")

    def _recover(self, now_s: float, only: str | None = None) -> list[Incident]:
        """The job has gone on after what the open incidents say, or only the one with this id."""
        for incident, known in self.ledger.open_ones:
            if only in (None, incident.id) and known.kind == "hang":
                self._waited_out.learn(known, now_s - known.onset_s)
        return self.ledger.close(now_s, "recovered", only)

    def _wrong_data(self, picture: Picture, now_s: float, at_end: bool = False) -> list[Incident]:
        """Silent contradictions: rounds that completed although they could not, and lasting skew."""
        changed: list[Incident] = []
        for finding in self.rounds.findings(self.diagnosis, picture, now_s, at_end):
            changed += self.ledger.add_closed(finding, now_s)
        for skew in (*self.history.skews(self.state), *self.diagnosis.peers.skews(self.state, now_s)):
            finding = self.rounds.skew_finding(self.diagnosis, picture, skew)
            changed += self.ledger.add_closed(replace(finding, onset_s=finding.onset_s or now_s), now_s)
        return changed

    def _unless_failed(self, step: Callable[[], T]) -> T | None:
        """A step of slowness. A fault there ends that part only: hangs and failures are told as before."""
        if self.slowness_failed is not None:
            return None
        try:
            return step()
        except Exception as error:
            self.slowness_failed = error
            return None

    def _slow(self, picture: Picture, now_s: float) -> list[Incident]:
        """What takes longer than it should, or does no more."""
        ranks, self._profile_s = self.slowness.want_profiles(self.state, now_s)
        self._profiles_wanted.update(ranks)
        changed = self._keep(self.slowness.look(self.state, picture, now_s), now_s)
        return changed + self.ledger.drop(self.slowness.is_over, now_s)

    def _keep(self, found: list[tuple[str, Finding]], now_s: float) -> list[Incident]:
        """Incidents of what is slow, as much worth as is known of them."""
        changed = []
        for key, finding in found:
            is_meant = finding.cause == Cause.UNKNOWN and len(finding.candidates) == 1
            nobodys = finding.cause == Cause.IMBALANCE or is_meant or (finding.reason and not finding.culprits)
            severity: Severity = "notice" if nobodys else "alert"
            changed += self.ledger.keep(key, finding, severity, now_s, 2 * self.slowness.window_s)
        return changed

    def _want_stacks(self, ranks: list[int], now_s: float, again_s: float = STACKS_AGAIN_S) -> None:
        """Of these ranks, some at a time: those first of which there is none, or the oldest."""
        for rank in sorted(ranks, key=lambda r: self._stacks_asked_s.get(r, -1e9))[:STACKS_AT_ONCE]:
            if now_s - self._stacks_asked_s.get(rank, -1e9) > again_s and self.state.ranks.present[rank]:
                self._stacks_asked_s[rank] = now_s
                self._stacks_wanted.add(rank)


def _severity(finding: Finding, ends: Ends) -> Severity:
    """Of an operation that failed: as long as nobody raises or dies, the program may well deal with it.

    And that ranks waited when somebody ended them all by a signal is no fault yet.
    """
    if not finding.hard and 2 * ended_mutely(ends).sum() > len(ends.gone):
        return "notice"
    candidates = [b.rank for b in finding.candidates]
    if candidates and singled_out(ends)[candidates].all():
        return "notice"
    lost = (ends.gone & (ends.status != 0)) | (ends.exception_s > 0)
    return "alert" if finding.cause == Cause.INCONSISTENT or bool(lost.any()) else "notice"


def _is_being_ended(picture: Picture, ends: Ends) -> bool:
    """Has a rank been ended, not long ago, by a signal that launchers and terminals send?"""
    told = told_to_end(ends)
    return bool((picture.now_s - told_to_end_s(ends)[told] < ENDING_S).any())

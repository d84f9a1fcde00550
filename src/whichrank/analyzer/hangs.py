"""What is made of a hang at each snapshot: from a finding to a notice, an alert, and the word that it is over.

Who is waited for is asked of `hang`, how patient to be of `detect.hang`, and what is remembered in between is in
`verdict.policy`. This says in which order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whichrank.analyzer.asked import AGAIN_S, SOON_S
from whichrank.analyzer.parts import Parts
from whichrank.detect.hang import OP_TIMEOUT_SHARE, STEADY_S, Thresholds, Urgency, suspicious_s, urgency_of
from whichrank.hang.order import what_hangs
from whichrank.hang.places import are_answered, sides_of, with_places
from whichrank.hang.rendezvous import stopped_in_rendezvous
from whichrank.hang.silence import silent_job
from whichrank.locate.deaths import asked_to_end, asked_to_end_s
from whichrank.model.ends import Ends
from whichrank.model.finding import Finding
from whichrank.model.incident import Cause, Incident, Reason
from whichrank.model.kinds import is_collective
from whichrank.model.picture import Picture
from whichrank.model.stable_hash import stable_hash
from whichrank.store.rank_columns import are_over
from whichrank.verdict.ledger import ANOTHER_S
from whichrank.verdict.policy import Event, Situation

ASK_AFTER_S = 0.6
"""Waits younger than this make no edge."""
MOMENT_S = 0.001
"""Seconds: a timeout that is not known is 0, and one that is known is never that."""
ENDING_S = 45.0
"""A launcher that ends a job has killed its last rank by then (torchrun: 30 s)."""
PLACES_S = 1.2
"""An alert of what contradicts itself waits so long, at most, for the lines of code of both sides."""
CUT_OFF_S = 3.0
"""Without a word from any agent for this long nothing is claimed: the analyzer is cut off."""


class Hangs:
    """Waits of one job.

    Args:
        parts: What the analyzer is made of.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store
        self._policy = parts.policy
        self._ledger = parts.ledger

    def examine(self, picture: Picture, ends: Ends, now_s: float) -> list[Incident]:
        """Incidents that are new or have changed, of a job in which nobody has died."""
        situation, finding = self._situation(picture, ends, now_s)
        self._policy.enter(situation, now_s)
        if situation is Situation.SUSPENDED:
            return self._note_suspension(picture, now_s)
        if situation is Situation.QUIET:
            return self._clear(now_s)
        return self._weigh(picture, finding, now_s) if finding else []

    def besides(self, picture: Picture, ends: Ends, now_s: float) -> list[Incident]:
        """While the end of one is not got over: another rank is stopped, or others have waited for it only since."""
        if self._suspended(picture) or _is_being_ended(picture, ends):
            return []
        finding = what_hangs(self._parts.case, picture, ASK_AFTER_S, self._ledger.named)
        if finding is None:
            return []
        finding = self._begun(picture, finding, now_s)
        last_s = max(ends.ended_s.max(initial=0.0), ends.failure_s.max(initial=0.0))
        ranks = sorted(finding.names)
        # Whoever needs the dead one is late for others from then on: it must have gone on itself.
        well = (ends.failure_s + ends.exception_s + ends.closed_s == 0) & (self._store.ranks.went_on_s > last_s)
        since = bool(ranks) and not finding.hard and finding.onset_s > last_s + ANOTHER_S and well[ranks].all()
        if finding.reason != Reason.STOPPED and not since:
            return []
        suspicion = self._policy.suspect(finding, now_s)
        urgency = urgency_of(suspicion, finding, self._thresholds(picture, finding), self._parts.config, 0.0, now_s)
        return self._ledger.report(finding, "alert", now_s) if urgency is Urgency.ALERT else []

    def recover(self, now_s: float, only: str | None = None) -> list[Incident]:
        """The job has gone on after what the open incidents say, or only the one with this id."""
        for incident, known in self._ledger.open_ones:
            if only in (None, incident.id) and known.kind == "hang":
                self._parts.waited_out.learn(known, now_s - known.onset_s)
        return self._ledger.close(now_s, Event.OVER, only)

    def is_over(self, picture: Picture, known: Finding) -> bool:
        """Have those come that were waited for?"""
        blamed = sorted(known.blamed)
        halted = bool(picture.stopped[blamed].any())
        return bool(known.waited_for) and not halted and self._have_come(picture, known, blamed)

    def is_reported(self, finding: Finding | None) -> bool:
        """Does an open incident say this already?"""
        return finding is not None and any(known.names == finding.names for _, known in self._ledger.open_ones)

    def want_stacks(self, ranks: list[int], now_s: float, again_s: float = AGAIN_S) -> None:
        """Ask for stacks of these ranks."""
        self._parts.asked.want_stacks(self._store, ranks, now_s, again_s)

    # ---- what a snapshot shows ---------------------------------------------------------------------------------------

    def _situation(self, picture: Picture, ends: Ends, now_s: float) -> tuple[Situation, Finding | None]:
        if self._store.agents_heard_s(now_s) > CUT_OFF_S:
            return Situation.CUT_OFF, None
        if self._suspended(picture):
            return Situation.SUSPENDED, None
        if _is_being_ended(picture, ends):
            return Situation.BEING_ENDED, None  # what ranks wait for now says nothing
        finding = self._found(picture)
        return (Situation.SUSPECT, finding) if finding else (Situation.QUIET, None)

    def _found(self, picture: Picture) -> Finding | None:
        """The first answer of those who are asked."""
        config = self._parts.config
        finding = what_hangs(self._parts.case, picture, ASK_AFTER_S, self._ledger.named)
        if finding is None or not finding.names:
            finding = stopped_in_rendezvous(self._store, picture, self.want_stacks, SOON_S) or finding
        if finding is None:
            finding = silent_job(self._store, picture, config.hang_timeout_s, config.busy_factor, self.want_stacks)
        return finding

    def _suspended(self, picture: Picture) -> bool:
        """Everything alive is stopped: nobody's fault."""
        alive = picture.present & ~picture.gone
        return bool(alive.any()) and bool((self._store.ranks.stopped_polls[alive] >= 1).all())

    # ---- what to say of it -------------------------------------------------------------------------------------------

    def _weigh(self, picture: Picture, finding: Finding, now_s: float) -> list[Incident]:
        """What is found, as a notice or an alert if it is worth one by now."""
        parts, policy = self._parts, self._policy
        finding = self._begun(picture, finding, now_s)
        changed = self._moved_on(picture, finding, now_s)
        suspicion = policy.suspect(finding, now_s)
        sides = sides_of(self._store, finding)
        self.want_stacks(sides, now_s)
        waited_s = now_s - finding.onset_s
        if finding.ask:
            self.want_stacks(list(finding.ask), now_s)
        if waited_s >= suspicious_s(parts.config, parts.store.usual_waits.p99_s(finding.comm)):
            self.want_stacks([b.rank for b in finding.culprits or finding.candidates], now_s)
            policy.prior = finding
        elif policy.prior and (policy.prior.comm, policy.prior.op) != (finding.comm, finding.op):
            policy.prior = None  # that wait is over
        if finding.names and not finding.hard and now_s - suspicion.since_s < STEADY_S:
            return changed  # who is late without hard evidence must stay so for a while
        thresholds = self._thresholds(picture, finding)
        urgency = urgency_of(suspicion, finding, thresholds, parts.config, parts.store.iteration_s(), now_s)
        if urgency is Urgency.NONE:
            return changed
        is_usual = urgency is Urgency.NOTICE and parts.waited_out.is_usual(finding, waited_s)
        if is_usual and not self.is_reported(finding):
            return changed
        if now_s - suspicion.since_s < PLACES_S and not are_answered(self._store, sides, finding.onset_s):
            return changed
        finding = with_places(self._store, finding)
        return changed + self._ledger.report(finding, "alert" if urgency is Urgency.ALERT else "notice", now_s)

    def _begun(self, picture: Picture, finding: Finding, now_s: float) -> Finding:
        """With the onset from which these ranks are waited for: not by those who slept, nor where it was another's."""
        onset_s = max(finding.onset_s, self._policy.awake_s)
        if finding.waited_for:
            ranks, op = sorted(finding.waited_for), tuple((finding.op or {}).values())
            since_s = np.maximum(self._store.long_ops.latest_s(ranks), onset_s)
            in_phase = self._store.ranks.in_phase()
            shown_in = stable_hash(finding.comm, *op)
            self._parts.holding.note(ranks, picture.busy, in_phase, shown_in, since_s, now_s)
            if not finding.hard:
                own_s = self._parts.holding.own_s([b.rank for b in finding.culprits or finding.candidates])
                onset_s = max(onset_s, now_s - own_s) if own_s else onset_s
        return replace(finding, onset_s=onset_s)

    def _thresholds(self, picture: Picture, finding: Finding) -> Thresholds:
        ranks = [b.rank for b in finding.culprits or finding.candidates]
        waits = picture.waits
        # Not of waits that the end of the chain has held up for the lesser part: they may end while a new link works.
        waits = waits[(waits["timeout_s"] > 0) & (finding.onset_s <= waits["issue_s"] + waits["timeout_s"] / 2)]
        # Each operation's own timeout, as if it had begun with the onset: one that began later ends later.
        timeouts = waits["timeout_s"] + (waits["issue_s"] - finding.onset_s) / OP_TIMEOUT_SHARE
        return {
            "busy": bool(len(ranks)) and all(picture.busy[r] for r in ranks),
            "busy_s": self._parts.holding.busy_s(ranks),
            "phase": bool(self._store.ranks.in_phase()[ranks].any()),
            "phase_s": self._parts.holding.phase_s(ranks),
            "op_timeout_s": max(float(timeouts.min()), MOMENT_S) if len(timeouts) else 0.0,
        }

    def _note_suspension(self, picture: Picture, now_s: float) -> list[Incident]:
        """All ranks are stopped: a notice that names nobody, once it lasts."""
        since_s = self._policy.suspended_since_s(now_s, self._parts.config.notice_min_s)
        if since_s is None or self._ledger.open_ones:
            return []
        stopped = tuple(np.flatnonzero(picture.present & ~picture.gone).tolist())
        return self._ledger.report(Finding(cause=Cause.SUSPENDED, victims=stopped, onset_s=since_s), "notice", now_s)

    # ---- when it is over ---------------------------------------------------------------------------------------------

    def _clear(self, now_s: float) -> list[Incident]:
        """Nobody waits: a notice is withdrawn, and an alert is over, once that has lasted."""
        if not self._policy.has_recovered(now_s):
            return []
        self._parts.holding.nobody()
        ranks = self._store.ranks
        alive = ranks.present & ~are_over(ranks.rows)
        return self.recover(now_s) if alive.any() else self._ledger.close(now_s, Event.ENDED)

    def _moved_on(self, picture: Picture, finding: Finding, now_s: float) -> list[Incident]:
        """Incidents whose ranks are waited for no more, and have come, while others are late."""
        over = []
        halted = picture.stopped | picture.gone
        for place, (incident, known) in enumerate(self._ledger.open_ones):
            last = place + 1 == len(self._ledger.open_ones)
            refined = last and incident.severity == "notice" and finding.onset_s <= known.onset_s + ANOTHER_S
            blamed = sorted(known.blamed)
            late = finding.waited_for.intersection(blamed) or halted[blamed].any()
            may_be_over = bool(known.waited_for) and not (refined or late)
            have_come = may_be_over and self._have_come(picture, known, blamed)
            if self._policy.is_left(incident, now_s, have_come=have_come):
                over.append(incident.id)
        return [incident for number in over for incident in self.recover(now_s, number)]

    def _have_come(self, picture: Picture, known: Finding, blamed: list[int]) -> bool:
        """Have these ranks done what others waited for?"""
        if known.cause == Cause.DEVICE:
            return True
        if known.comm >= 0 and known.op and is_collective(known.op["kind"]):
            at, size = int(picture.comm_at[known.comm]), int(picture.comm_size[known.comm])
            theirs = np.isin(picture.member_rank[at : at + size], blamed)
            if theirs.sum() == len(blamed):
                return bool((picture.member_issued[at : at + size][theirs] >= known.op["counter"]).all())
        return bool((self._store.ranks.went_on_s[blamed] > known.onset_s).all())


def _is_being_ended(picture: Picture, ends: Ends) -> bool:
    """Has a rank been ended, not long ago, by a signal that launchers and terminals send?"""
    reported = asked_to_end(ends)
    return bool((picture.now_s - asked_to_end_s(ends)[reported] < ENDING_S).any())

"""What is made of ranks that have died or failed: a moment to hear the others out, then who it was, or nobody."""

from __future__ import annotations

import numpy as np

from whichrank.analyzer.hangs import Hangs
from whichrank.analyzer.parts import Parts
from whichrank.hang.endings import who_ended_it
from whichrank.hang.interruption import have_gone_on
from whichrank.hang.places import with_places
from whichrank.locate.deaths import asked_to_end, asked_to_end_s, crashed, dying, ended_mutely, killed, singled_out
from whichrank.model.ends import Ends
from whichrank.model.finding import Finding
from whichrank.model.incident import Cause, Incident, Reason, Severity
from whichrank.model.picture import Picture
from whichrank.verdict.ledger import ANOTHER_S

FAILURE_S = 60.0
"""An operation that failed this long ago in a rank that lives on was dealt with by the program."""
GONE_ON_S = 3.0
"""All that live have completed operations issued this long after a death or failure: they have got over it."""


class Endings:
    """Deaths and failures of one job.

    Args:
        parts: What the analyzer is made of.
        hangs: Of the same job.
    """

    def __init__(self, parts: Parts, hangs: Hangs) -> None:
        self._parts = parts
        self._hangs = hangs
        self._policy = parts.policy
        self._ledger = parts.ledger

    def get_over(self, picture: Picture, ends: Ends, now_s: float) -> list[Incident] | None:
        """The incidents of what the job has got over: it goes on without those that died, or after a failure.

        None: there is nothing that it has just got over.
        """
        dead = dying(ends)
        last_s = max(
            np.where(ends.gone, ends.ended_s, ends.exception_s)[dead].max(initial=0.0), ends.failure_s.max(initial=0.0)
        )
        store = self._parts.store
        if not last_s or not have_gone_on(store, picture, ends, dead, last_s, last_s + GONE_ON_S):
            return None
        store.departures.get_over(np.flatnonzero(dead | (ends.failure_s > 0)).tolist(), last_s + GONE_ON_S)
        self._policy.get_over(last_s)
        old = [i.id for i, finding in self._ledger.open_ones if self._policy.is_got_over(finding)]
        return [incident for number in old for incident in self._hangs.recover(now_s, number)]

    def examine(self, picture: Picture, ends: Ends, now_s: float) -> list[Incident] | None:
        """Incidents that are new or have changed; None: nobody has died or failed."""
        failing = (ends.failure_s > 0) & (now_s - ends.failure_s < FAILURE_S)
        if not bool((dying(ends) | failing).any()):
            self._policy.nobody_dies()
            return None
        if not self._policy.is_dying:
            self._policy.begin_to_die(now_s)
            self._forget_what_is_over(picture)
        self._policy.closely = True
        if not self._policy.has_settled(now_s):
            return []
        finding = self._who(picture)
        if not finding:
            return None
        if finding.cause == Cause.UNKNOWN and not self._policy.has_settled(now_s, times=2):
            return []
        own_death = finding.cause == Cause.PROCESS_EXIT and self._is_apart(picture, ends, finding)
        finding = with_places(self._parts.store, finding)
        return self._ledger.report(finding, _severity(finding, ends), now_s, own_death=own_death)

    def finish(self, picture: Picture, now_s: float) -> list[Incident]:
        """The job has ended: who ended it."""
        if not self._policy.is_dying:
            self._forget_what_is_over(picture)
        finding = self._who(picture)
        if not finding:
            return []
        finding = with_places(self._parts.store, finding)
        return self._ledger.report(finding, _severity(finding, self._parts.store.departures.open_ends()), now_s)

    def _who(self, picture: Picture) -> Finding | None:
        prior = self._policy.prior
        return who_ended_it(self._parts.case, picture, prior, self._hangs.is_reported(prior))

    def _forget_what_is_over(self, picture: Picture) -> None:
        """Who was waited for lately has nothing to do with a death after it has come."""
        if self._policy.prior and self._hangs.is_over(picture, self._policy.prior):
            self._policy.prior = None

    def _is_apart(self, picture: Picture, ends: Ends, finding: Finding) -> bool:
        """Did these die of themselves, and not because of an incident that is open?

        Somebody may kill ranks one by one because their job hangs, and ranks give up; so nothing but a crash counts
        before those have come that were waited for.
        """
        ranks = sorted(finding.names)
        reported = asked_to_end(ends)
        # What is being torn down may crash.
        before = ends.ended_s[ranks].max() < asked_to_end_s(ends)[reported].min(initial=np.inf)
        if before and (finding.reason == Reason.OUT_OF_MEMORY or crashed(ends)[ranks].all()):
            return True
        with_it = killed(ends) & (np.abs(ends.ended_s - ends.ended_s[ranks].min()) <= ANOTHER_S)
        hangs = [known for _, known in self._ledger.open_ones if known.kind == "hang"]
        alone = bool(killed(ends)[ranks].all()) and int(with_it.sum()) == 1
        return (alone or bool(hangs)) and all(self._hangs.is_over(picture, known) for known in hangs)


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

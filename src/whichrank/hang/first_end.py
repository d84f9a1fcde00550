"""Ranks of a recording that ended while nobody is known to wait: which of them was the first of itself?

A launcher lists who failed, and most of that may be consequences: libraries abort when a peer is gone. So a rank is
named only for what no other rank can have led to: an exception of its own, a crash, lack of memory, or an end long
before all others. Else those that ended first are candidates.
"""

from __future__ import annotations

import numpy as np

from whichrank.hang.case import Case, most_candidates
from whichrank.hang.raised import raised_by_most
from whichrank.hang.reasons import reason_of
from whichrank.hang.recorded import ended_long_before
from whichrank.locate.deaths import asked_to_end, crashed, fact_of_end, how_it_ended, raised_alike
from whichrank.model.clause import Says, clause
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Picture, Recorded

SAME_S = 1.0
"""Launchers write when in whole seconds."""


def ended_first(case: Case, picture: Picture, recorded: Recorded) -> Finding | None:
    """Who ended first, or of itself; None if nobody has failed.

    Args:
        case: The job.
        picture: The same job now.
        recorded: What is known of the recording.
    """
    departures = case.store.departures
    ends = departures.ends()
    failed = ends.gone & (ends.status != 0)
    if not failed.any() or len(picture.waits):
        return None
    raised = ends.exception.where()
    lacked = [rank for rank, event in departures.exits.items() if "out of memory" in event.text]
    sure = failed & (crashed(ends) | raised | ended_long_before(ends, recorded))
    sure |= failed & (ends.status < 0)  # living peers have found it dead
    sure[lacked] = True
    alike = raised_alike(ends, sure & raised)
    if 2 * len(alike) > int(failed.sum()) and len(alike) > 1:
        sure[alike] = False  # the program's, and no rank's
        if not sure.any():
            return raised_by_most(case, picture, ends, alike)
    first_s = float(ends.ended_s[failed].min())
    first = failed & (ends.ended_s <= first_s + SAME_S)
    of_itself = first & ~asked_to_end(ends)
    first = of_itself if of_itself.any() else first  # a launcher ends the others for it
    named = np.flatnonzero(sure & first).tolist()
    ranks = (named if len(named) == 1 else np.flatnonzero(first).tolist())[: most_candidates(picture)]
    blames, facts, reasons = [], [], []
    for rank in ranks:
        how = how_it_ended(ends, rank)
        facts.append(fact_of_end(how, rank))
        found = reason_of(case.store, picture, rank) if len(named) == 1 else None
        reasons.append(found.reason if found else None)
        why = found.clauses if found else (how, clause(Says.MAY_BE_CONSEQUENCE))
        blames.append(Blame(rank, 0.9 if len(named) == 1 else 1 / len(ranks), why))
    is_one = len(named) == 1
    return Finding(
        cause=Cause.PROCESS_EXIT if is_one else Cause.UNKNOWN,
        kind="failed",
        reason=reasons[0] if is_one else None,
        culprits=tuple(blames) if is_one else (),
        candidates=() if is_one else tuple(blames),
        victims=tuple(int(r) for r in np.flatnonzero(failed) if int(r) not in ranks),
        onset_s=first_s,
        hard=True,
        evidence=tuple(facts),
        complete=case.complete(picture),
        next=() if is_one else (clause(Says.SEE_EARLIER_LINES),),
    )

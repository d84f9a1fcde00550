"""Most ranks were ended at once: somebody ended the job, and no rank did."""

from __future__ import annotations

import numpy as np

from whichrank.hang.case import Case
from whichrank.locate.deaths import TOGETHER_S, fact_of_end, how_it_ended, killed, raised_of_its_own
from whichrank.model.clause import Says, clause
from whichrank.model.ends import Ends
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Bools, Picture

AT_ONCE_S = 0.1
"""So close that a rank cannot have been ended because another was."""


def all_ended_together(picture: Picture, ends: Ends, own: Bools) -> bool:
    """Most ranks were ended from outside within a second: somebody ended the job, no rank did.

    Not where a rank had raised an exception of its own before that: whoever started them ended the others for it.
    """
    silent = killed_at_once(ends, own)
    if silent.sum() < 2 or 2 * silent.sum() <= picture.present.sum():
        return False
    times = ends.ended_s[silent]
    before = own & raised_of_its_own(ends) & (ends.exception_s < times.min() - AT_ONCE_S)
    return bool(np.ptp(times) <= TOGETHER_S and not before.any())


def killed_at_once(ends: Ends, own: Bools) -> Bools:
    """Ranks that ended on their own account and silently, and those that were killed with them.

    A rank may see its peer's end, as a failure, in the moment before it is ended itself.
    """
    mute = ends.gone & ~ends.exception.where()
    with_it = killed(ends) & (np.abs(ends.ended_s - ends.ended_s[own & mute].min(initial=np.inf)) <= AT_ONCE_S)
    return np.asarray(mute & (own | with_it))


def ended_together(case: Case, picture: Picture, ends: Ends, own: Bools) -> Finding:
    """That these were, and how."""
    ranks = np.flatnonzero(own).tolist()
    return Finding(
        cause=Cause.UNKNOWN,
        kind="failed",
        onset_s=float(ends.ended_s[own].min()),
        hard=True,
        evidence=(
            Evidence(what="ended within a second of each other", value=len(ranks), unit="ranks"),
            fact_of_end(how_it_ended(ends, ranks[0]), ranks[0]),
        ),
        complete=case.complete(picture),
        next=(clause(Says.SEE_LAUNCHER),),
    )

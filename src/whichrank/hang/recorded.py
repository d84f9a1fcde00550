"""What a recording that others made does not say: who ended whom, and whether a job that went on hangs."""

from __future__ import annotations

from dataclasses import replace

from whichrank.hang.case import LISTED
from whichrank.locate.deaths import crashed, own_deaths
from whichrank.model.clause import Says, clause
from whichrank.model.ends import Ends
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Picture


def but_for_consequences(picture: Picture, ends: Ends) -> Picture:
    """A recording's picture in which ranks that others may have ended, or that gave up, count as not read.

    Of these nothing but their end is known: launchers end the rest of a job, by SIGKILL too, and libraries that have
    waited too long abort. What counts is a crash, an exception of the rank's own, and a death that living peers
    reported.
    """
    raised = ends.exception.where()
    of_itself = own_deaths(ends) & (crashed(ends) | raised | (ends.status < 0))
    unsaid = picture.gone & ~of_itself
    return replace(picture, gone=picture.gone & of_itself, fresh=picture.fresh & ~unsaid)


def of_a_moment(finding: Finding) -> Finding:
    """What is left of a finding of a job that went on when it was recorded: candidates, and what would decide it."""
    going_on = Evidence(what="the job went on when it was recorded", value=True)
    return replace(
        finding, cause=Cause.UNKNOWN, fault_class=None, reason=None, culprits=(), hard=False,
        candidates=finding.candidates or finding.culprits[:LISTED], evidence=(*finding.evidence, going_on),
        next=(clause(Says.RECORD_AGAIN),),
    )  # fmt: skip

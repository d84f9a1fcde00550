"""What a recording that others made does not say: who ended whom, and whether a job that went on hangs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import numpy as np

from whichrank.hang.case import MOST_CANDIDATES
from whichrank.locate.deaths import crashed, own_deaths
from whichrank.model.clause import Says, clause
from whichrank.model.ends import Ends
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Bools, Picture, Recorded

BEFORE_S: Final = 30.0
"""A launcher that ends a job because of one rank has ended the last one by then."""


def but_for_consequences(
    picture: Picture, ends: Ends, recorded: Recorded, lacked_memory: Collection[int] = ()
) -> Picture:
    """A recording's picture in which ranks that others may have ended, or that gave up, count as not read.

    Of these nothing but their end is known: launchers end the rest of a job, by SIGKILL too, and libraries that have
    waited too long abort. What counts is a crash, an exception of the rank's own, a death that living peers reported,
    one for lack of memory, and one long before anybody else ended or gave up: nobody had a reason to end it then.

    Args:
        picture: The job.
        ends: How its ranks ended.
        recorded: What is known of the recording.
        lacked_memory: Ranks that the kernel killed for lack of memory.
    """
    raised = ends.exception.where()
    of_itself = own_deaths(ends) & (crashed(ends) | raised | (ends.status < 0))
    of_itself |= ended_long_before(ends, recorded)
    of_itself[[rank for rank in lacked_memory if rank < len(of_itself)]] = True
    unsaid = picture.gone & ~of_itself
    return replace(picture, gone=picture.gone & of_itself, fresh=picture.fresh & ~unsaid)


def of_a_moment(finding: Finding) -> Finding:
    """What is left of a finding of a job that went on when it was recorded: candidates, and what would decide it."""
    going_on = Evidence(what="the job went on when it was recorded", value=True)
    return replace(
        finding, cause=Cause.UNKNOWN, fault_class=None, reason=None, culprits=(), hard=False,
        candidates=(*finding.culprits, *finding.candidates)[:MOST_CANDIDATES], evidence=(*finding.evidence, going_on),
        next=(clause(Says.RECORD_AGAIN),),
    )  # fmt: skip


def ended_long_before(ends: Ends, recorded: Recorded) -> Bools:
    """Ranks that ended with a failure, long before any other rank ended or gave up an operation."""
    failed = np.asarray(ends.gone & (ends.status != 0) & (ends.ended_s > 0), np.bool_)
    if not failed.any():
        return failed
    first_s = float(ends.ended_s[failed].min())
    first = failed & (ends.ended_s <= first_s + 1.0)
    others_s = float(ends.ended_s[ends.gone & ~first].min(initial=np.inf))
    next_s = min(others_s, recorded.gave_up_s or np.inf)
    return np.asarray(first & (first_s + BEFORE_S <= next_s < np.inf))

"""Exceptions that several ranks raised alike, and connections that were given up: the program, and no rank."""

from __future__ import annotations

import re

import numpy as np

from whichrank.hang.case import LISTED, Case
from whichrank.locate.deaths import (
    asked_to_end,
    ended_from_outside,
    gave_up_a_connection,
    in_order,
    raised_alike,
    raised_by_itself,
)
from whichrank.model.clause import Says, clause
from whichrank.model.ends import Ends
from whichrank.model.evidence import IN_OPERATION, RAISED_ALIKE, Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, Reason
from whichrank.model.kinds import is_message
from whichrank.model.picture import Bools, Picture

MOST_TEXTS = 4
"""Of exceptions that are alike but for their text."""
_NUMBER = re.compile(r"(0x[0-9a-fA-F]+|\d+)")


def raised_by_all(case: Case, picture: Picture, ends: Ends) -> Finding | None:
    """All ranks report the loss of a peer at one place, and none is lost: it is what the program asked for there."""
    alike = raised_alike(ends, raised_by_itself(ends))
    late = np.flatnonzero(picture.present & ~np.isin(np.arange(len(ends.gone)), alike)).tolist()
    nobody = np.zeros(len(ends.gone), np.bool_)
    if any(_has_met_nobody(case, ends, rank) for rank in late) or not is_of_all(picture, ends, nobody, alike):
        return None
    return raised_by_most(case, picture, ends, alike)


def _has_met_nobody(case: Case, ends: Ends, rank: int) -> bool:
    """Had this rank raised nothing and made no communicator? Then those that did may have waited for it."""
    return not ends.exception[rank] and not case.store.ranks.rows["init_ns"][rank]


def gave_up_connections(case: Case, picture: Picture, ends: Ends) -> Finding | None:
    """Some ranks report the loss of a peer, in no operation, and none is lost: a store that was not reached."""
    gave_up = np.flatnonzero(gave_up_a_connection(ends)).tolist()
    if not gave_up or ended_from_outside(ends):
        return None
    first = min(gave_up, key=lambda r: float(ends.exception_s[r]))
    before = np.flatnonzero(in_order(ends) & ends.gone & (ends.ended_s <= ends.exception_s[first])).tolist()
    late = [r for r in np.flatnonzero(picture.present).tolist() if _has_met_nobody(case, ends, r)]
    said = dict.fromkeys(late, clause(Says.NO_COMMUNICATOR_YET))
    said |= dict.fromkeys(gave_up, clause(Says.GAVE_UP_CONNECTION))
    said |= dict.fromkeys(before, clause(Says.ENDED_BEFORE_GIVING_UP))
    return Finding(
        cause=Cause.UNKNOWN,
        kind="failed",
        reason=Reason.EXCEPTION,
        candidates=tuple(Blame(r, 1 / len(said), (why,)) for r, why in list(said.items())[:LISTED]),
        onset_s=float(ends.exception_s[first]),
        hard=True,
        evidence=(Evidence(what="exception", value=ends.exception[first], where=f"rank {first}"),),
        complete=case.complete(picture),
    )


def is_of_all(picture: Picture, ends: Ends, own: Bools, alike: list[int]) -> bool:
    """Is an exception that several ranks raised alike the program's, so that no rank differs?

    It is if most ranks raised it, or if the others were ended before they could come to that place; not if another rank
    died of something else before.
    """
    if len(alike) < 2:
        return False
    if another_died_before(ends, own, alike):
        return False
    is_alike = np.isin(np.arange(len(ends.gone)), alike)
    if 2 * len(alike) > int(picture.present.sum()):
        return True
    cut_short = asked_to_end(ends) & (ends.failure_s == 0) & ~_went_further(picture, alike)
    return bool(cut_short[picture.present & ~is_alike].all())


def another_died_before(ends: Ends, own: Bools, alike: list[int]) -> bool:
    """Has another rank died on its own account before the first of these raised?"""
    others = own & ~np.isin(np.arange(len(own)), alike)
    at_s = np.where(ends.exception_s > 0, ends.exception_s, ends.ended_s)
    return bool((at_s[others] <= ends.exception_s[alike].min()).any())


def _went_further(picture: Picture, ranks: list[int]) -> Bools:
    """Ranks that are in an operation, or have failed in one, that none of these has issued."""
    comm = np.repeat(np.arange(len(picture.comm_size)), picture.comm_size)
    theirs = np.isin(picture.member_rank, ranks)
    least = np.full(len(picture.comm_size), np.iinfo(np.int64).max)
    np.minimum.at(least, comm[theirs], picture.member_issued[theirs])
    ops = picture.ops
    further = is_message(ops["kind"]) | (least[ops["comm"]] < ops["counter"].astype(np.int64))
    found = np.zeros(len(picture.present), np.bool_)
    found[ops["rank"][further]] = True
    return found


def raised_by_most(
    case: Case, picture: Picture, ends: Ends, ranks: list[int], *, in_operation: bool = False
) -> Finding:
    """The same exception in most ranks: it is the program's, or its data's, and no rank's.

    An operation may raise in all members because of one of them, so it is not said whose doing that is.
    """
    return Finding(
        cause=Cause.UNKNOWN,
        kind="failed",
        reason=Reason.EXCEPTION,
        victims=tuple(np.setdiff1d(np.flatnonzero(picture.present), ranks).tolist()),
        onset_s=float(ends.exception_s[ranks].min()),
        hard=True,
        evidence=(
            Evidence(
                what=RAISED_ALIKE,
                value=len(ranks),
                unit="ranks",
                where=f"of {int(picture.present.sum())}{IN_OPERATION * in_operation}",
            ),
            *_texts_of(ends, ranks),
        ),
        complete=case.complete(picture),
    )


def _texts_of(ends: Ends, ranks: list[int]) -> list[Evidence]:
    """What they raised, with "…" for numbers in which they differ; a text of each sort if they differ in more."""
    texts = {rank: _NUMBER.split(ends.exception[rank]) for rank in ranks}
    sorts: dict[tuple[str, ...], list[int]] = {}
    for rank, pieces in texts.items():
        sorts.setdefault(tuple(pieces[::2]), []).append(rank)  # numbers stand at odd places
    facts = []
    for those in list(sorts.values())[:MOST_TEXTS]:
        places = zip(*(texts[rank] for rank in those), strict=True)
        common = "".join(piece[0] if len(set(piece)) == 1 else "…" for piece in places)
        where = (
            f"the same on {len(those)} ranks"
            if common == ends.exception[those[0]]
            else f"{len(those)} ranks, each with its own numbers"
        )
        facts.append(Evidence(what="exception", value=common, where=where))
    return facts

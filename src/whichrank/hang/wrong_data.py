"""Is data wrong although nothing hangs? On TCP a sum against a maximum completes, with wrong numbers.

Two ways to see it: members of a completed round had issued different operations, or a rank has issued one too many or
too few for three iterations.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from whichrank.hang.case import LISTED, Case
from whichrank.hang.mismatch import issued_unlike
from whichrank.locate.signatures import Skew, deviants, sides_of
from whichrank.model.clause import Says, clause
from whichrank.model.evidence import SKEWED, Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.picture import Picture
from whichrank.model.sequence import Edit


def wrong_data(case: Case, picture: Picture, now_s: float, *, at_end: bool) -> list[Finding]:
    """Contradictions of the past, each found once: of completed rounds the first of each communicator, and skews.

    Args:
        case: The job.
        picture: It, now.
        now_s: The time.
        at_end: Nothing more will come.
    """
    rounds = case.store.rounds.take_different(now_s, at_end=at_end)
    found = [finding for comm, counter in rounds if (finding := different_round(case, picture, comm, counter))]
    skews = (*case.skews.lasting(), *case.peers.skews(now_s))
    return found + [lasting_skew(case, picture, skew) for skew in skews]


def different_round(case: Case, picture: Picture, comm: int, counter: int) -> Finding | None:
    """Members have completed a round with different operations; None if not enough of it is known any more."""
    rows = case.store.rounds.ops_of(picture, comm, counter)
    sides = sides_of(rows).tolist()
    if len(set(sides)) < 2:
        return None  # newer rounds have taken its place
    if 2 * len(rows) <= int(picture.comm_size[comm]):
        return None  # too little is known of a round that all have completed
    ranks = rows["rank"].tolist()
    ordinal = dict(zip(ranks, rows["ordinal"].tolist(), strict=True))
    sequences = case.store.sequences
    deviation = deviants(ranks, sides, lambda r: sequences.up_to(r, ordinal[r]), sequences.shape_of, None)
    said = {r: case.words_of(row) for r, row in zip(ranks, rows, strict=True)}
    others = Counter(w for r, w in said.items() if r not in deviation.deviants).most_common(1)
    usual = others[0][0] if others else "another"
    blame = tuple(Blame(r, 0.95, (issued_unlike(said[r], usual, deviation),)) for r in deviation.deviants)
    first = list(said.items())[:LISTED]
    return Finding(
        cause=Cause.INCONSISTENT if blame else Cause.UNKNOWN,
        kind="failed",
        fault_class="H2",
        culprits=blame,
        candidates=() if blame else tuple(Blame(r, 1 / len(said), (clause(Says.ISSUED, op=w),)) for r, w in first),
        comm=comm,
        iteration=sequences.steps.iteration_of(ranks[0], ordinal[ranks[0]]),
        op=case.op_of(rows[0]),
        victims=tuple(r for r in ranks if r not in deviation.deviants),
        onset_s=case.store.rounds.completed_s(comm, counter) or picture.now_s,
        hard=True,
        evidence=tuple(Evidence(what="operation issued", value=w, where=f"rank {r}, #{counter}") for r, w in first),
        complete=case.complete(picture),
    )


def lasting_skew(case: Case, picture: Picture, skew: Skew) -> Finding:
    """A rank left out, repeated or added an operation and went on: its group's data is wrong since."""
    sequences = case.store.sequences
    comm = sequences.comm_of_key(skew.comm_key)
    did = _done(skew.edit, sequences.sequence(skew.rank).tokens.tolist())
    count = len(skew.edit.missing or skew.edit.extra)
    group = case.comm_name(comm)
    at, size = int(picture.comm_at[comm]), int(picture.comm_size[comm])
    members = [int(m) for m in picture.member_rank[at : at + size] if m >= 0 and m != skew.rank]
    why = clause(Says.SKEWED, did=did, operations=count, group=group, witness=skew.witness)
    iteration = sequences.steps.iteration_of(skew.rank, skew.edit.ordinal)
    advice = clause(Says.NO_CHECKPOINT, group=group)
    if iteration is not None:
        advice = clause(Says.NO_CHECKPOINT_FROM, iteration=iteration, group=group)
    then = "then" if iteration is None else f"iteration {iteration}"
    return Finding(
        cause=Cause.INCONSISTENT,
        kind="failed",
        fault_class="H2",
        culprits=(Blame(skew.rank, 0.93, (why,)),),
        comm=comm,
        iteration=iteration,
        victims=tuple(members),
        onset_s=_begun_s(case, skew.rank, iteration) or picture.now_s,
        hard=True,
        evidence=(
            Evidence(what="usual operations per iteration, on all communicators", value=skew.edit.period),
            Evidence(what=SKEWED + did, value=count, where=f"rank {skew.rank}, {group}"),
            Evidence(what=f"iterations completed since {then}", value=skew.iterations_since),
        ),
        next=(advice,),
        complete=case.complete(picture),
    )


def _begun_s(case: Case, rank: int, iteration: int | None) -> float:
    """When a rank began an iteration, 0 if that is not known."""
    begun_ns = 0 if iteration is None else case.store.sequences.steps.begun_ns(rank, iteration)
    return float(case.store.ranks.host_s(np.array([rank]), np.array([begun_ns]))[0])


def _done(edit: Edit, tokens: list[int]) -> str:
    """What a rank with these tokens did to the operations of an edit."""
    if edit.missing:
        return "left out or repeated" if edit.extra else "left out"
    usual = all(tokens.count(t) > edit.extra.count(t) for t in edit.extra)
    return "repeated" if usual else "added"

"""Question 3: do the operations of one round contradict each other, and who deviates?

What members issued in a round is known from what is in flight, from what failed, and from what was completed. Witnesses
say who is wrong (`whichrank.locate.signatures`); of an all-to-all whose sizes do not fit, the pairs do.
"""

from __future__ import annotations

import numpy as np

from whichrank.hang.case import LISTED, Case
from whichrank.locate.signatures import ASKED_OF_A_SIDE, Contradiction, Deviation, contradictions, deviants
from whichrank.locate.splits import Misfit
from whichrank.locate.strays import LEAST_ALIKE
from whichrank.model.clause import Clause, Says, Witness, clause
from whichrank.model.evidence import Evidence
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause
from whichrank.model.kinds import is_collective
from whichrank.model.picture import Picture
from whichrank.model.signature import signatures


def mismatch(case: Case, picture: Picture, min_age_s: float = 0.0) -> Finding | None:
    """A round whose members issued what cannot meet, the first of several.

    Args:
        case: Answers for this job.
        picture: The job.
        min_age_s: Seconds that somebody must have been blocked on it, if none of its operations failed.
    """
    found = [c for c in contradictions(picture, case.store.rounds) if _matters(picture, c, min_age_s)]
    if not found:
        return None
    first = min(found, key=lambda c: float(c.ops["issue_s"].max()))
    deviation = _deviation(case, picture, first)
    if not deviation.deviants:
        deviation = _skewed(case, first)
    side = dict(zip(first.ranks, first.sides, strict=True))
    wrong = {side[r] for r in deviation.deviants}
    said = {int(row["rank"]): case.words_of(row) for row in first.ops}
    typical = next((said[r] for r in first.ranks if side[r] not in wrong), "")
    agreeing = [r for r in first.ranks if side[r] not in wrong]
    peer = agreeing[0] if len(agreeing) == 1 else -1
    blame = tuple(
        Blame(r, 0.95, _odd_one(r, first.misfits) or (issued_unlike(said[r], typical, deviation, peer),))
        for r in deviation.deviants
    )
    candidates = tuple(
        Blame(r, 1 / len(said), _misfit(r, first.misfits) or (clause(Says.ISSUED, op=op),)) for r, op in said.items()
    )
    return Finding(
        cause=Cause.INCONSISTENT if blame else Cause.UNKNOWN,
        fault_class="H2",
        culprits=blame,
        candidates=() if blame else candidates[:LISTED],
        comm=first.comm,
        op=case.op_of(first.ops[0]),
        victims=tuple(int(r) for r in np.unique(picture.waits["rank"]) if int(r) not in deviation.deviants),
        onset_s=float(first.ops["issue_s"].max()),
        hard=True,
        evidence=_evidence(first, said, wrong, side),
        complete=case.complete(picture),
        next=() if blame else (_to_compare(first.misfits),),
    )


def issued_unlike(op: str, usual: str, deviation: Deviation, peer: int = -1) -> Clause:
    """Who contradicts: what it and its peers have issued, and which witnesses say so; `peer`: if there is but one."""
    return clause(Says.ISSUED_UNLIKE, op=op, usual=usual, peer=peer, witnesses=deviation.witnesses)


def _evidence(c: Contradiction, said: dict[int, str], wrong: set[int], side: dict[int, int]) -> tuple[Evidence, ...]:
    """What was issued, the deviants first; of an all-to-all what does not fit."""
    if c.misfits:
        return tuple(
            Evidence(
                what=f"elements that rank {pair.src} sent to rank {pair.dst}", value=pair.sent,
                where=f"rank {pair.dst} expected {pair.expected}, #{c.counter}",
            )
            for pair in c.misfits
        )  # fmt: skip
    ordered = sorted(said, key=lambda r: (side[r] not in wrong, r))
    return tuple(
        Evidence(what="operation issued", value=said[r], where=f"rank {r}, #{c.counter}") for r in ordered[:LISTED]
    )


def _odd_one(rank: int, pairs: tuple[Misfit, ...]) -> tuple[Clause, ...]:
    """That no sizes of a rank fit its peers', with one pair; empty if nothing is known of that."""
    example = _misfit(rank, pairs)
    return (clause(Says.SIZES_DIFFER), *example) if example else ()


def _to_compare(pairs: tuple[Misfit, ...]) -> Clause:
    if not pairs:
        return clause(Says.COMPARE_CODE)
    return clause(Says.COMPARE_SPLITS, src=pairs[0].src, dst=pairs[0].dst)


def _misfit(rank: int, pairs: tuple[Misfit, ...]) -> tuple[Clause, ...]:
    """What one rank sent or expected that does not fit; empty if nothing is known of that."""
    for pair in pairs:
        if pair.src == rank:
            return (clause(Says.SENT_UNEXPECTED, sent=pair.sent, dst=pair.dst, expected=pair.expected),)
        if pair.dst == rank:
            return (clause(Says.EXPECTED_UNSENT, expected=pair.expected, src=pair.src, sent=pair.sent),)
    return ()


def _deviation(case: Case, picture: Picture, c: Contradiction) -> Deviation:
    """Who deviates, by all that issued something in this round."""
    sequences = case.store.sequences
    ordinal = dict(zip(c.ranks, c.ops["ordinal"].tolist(), strict=True))
    side = dict(zip(c.ranks, c.sides, strict=True))
    ranks = sorted(side)
    found = deviants(
        ranks, [side[r] for r in ranks], lambda r: sequences.up_to(r, ordinal[r]), sequences.shape_of,
        _sister_side(case, picture, c),
    )  # fmt: skip
    if found.deviants and c.misfits:
        return Deviation(found.deviants, (Witness.SIZES_BETWEEN_PEERS,))
    return found


def _skewed(case: Case, c: Contradiction) -> Deviation:
    """Members of a contradiction that had left out or repeated an operation long before it."""
    key = case.store.sequences.key_of(c.comm)
    if case.skews.has_gap(key):
        return Deviation((), ())
    reported = case.skews.skewed(c.comm) & set(c.ranks)
    if reported:
        return Deviation(tuple(sorted(reported)) if len(reported) < len(c.ranks) else (), (Witness.EARLIER_OPERATIONS,))
    found = [case.peers.skew_of(r, LEAST_ALIKE) for r in c.ranks[:ASKED_OF_A_SIDE]]
    strays = sorted(s.rank for s in found if s and s.comm_key == key)
    return Deviation(tuple(strays), (Witness.SAME_POSITION,)) if len(strays) == 1 else Deviation((), ())


def _matters(picture: Picture, c: Contradiction, min_age_s: float) -> bool:
    """Somebody has been blocked on this round, has ended in it, or one of its operations has failed."""
    if c.ops["failed"].any():
        return True
    w = picture.waits
    on_it = (w["comm"] == c.comm) & (w["counter"] == c.counter) & (picture.now_s - w["since_s"] >= min_age_s)
    return bool(on_it.any()) or bool(picture.gone[list(c.ranks)].any())


def _sister_side(case: Case, picture: Picture, c: Contradiction) -> int | None:
    """The side on which communicators of the same description and size are in the same round."""
    infos = case.store.comms.info
    info = infos[c.comm]
    if not info.desc or info.desc in ("undefined", "default_pg") or c.misfits:
        return None
    sisters = [i for i, s in enumerate(infos) if i != c.comm and s.desc == info.desc and s.size == info.size]
    rows = picture.ops
    at = np.isin(rows["comm"], sisters) & (rows["counter"] == c.counter) & is_collective(rows["kind"])
    seen = set(signatures(rows[at]).tolist()) if at.any() else set()
    sides = {side for sign, side in zip(signatures(c.ops).tolist(), c.sides, strict=True) if sign in seen}
    return sides.pop() if len(sides) == 1 else None

"""Findings of what is slow: ranks, links, imbalance, all ranks; who is slowed down, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from whichrank.detect.losses import began_at
from whichrank.detect.nobody import LongStage
from whichrank.detect.slow import GREW, Suspect
from whichrank.locate.comparable import LongGroup
from whichrank.locate.phases import SlowPart
from whichrank.locate.slow_links import rates_of
from whichrank.model.clause import Clause, Says, clause
from whichrank.model.evidence import (
    ALSO_SLOW,
    COMPARED_OVER,
    HOW_OTHERS_LOST,
    ITERATION,
    QUICK_LINK,
    QUICK_LINKS,
    SLOW_ITERATIONS,
    Evidence,
)
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, FaultClass, Link, Reason, Spent
from whichrank.model.iterations import Excess, Floats, Ints, Window
from whichrank.model.links import SlowLink, Transfers
from whichrank.slow.cost import Cost, rounded
from whichrank.slow.directions import phase_of_links
from whichrank.slow.reasons import Why
from whichrank.slow.track import Change
from whichrank.store.store import Store

LISTED = 16
"""Ranks or links in one verdict."""
_COMPUTE: Final[FaultClass] = "S1"
_MIXED: Final[FaultClass] = "S3"
_NO_CPU: Final = frozenset({Reason.CPU_LIMIT, Reason.CPU_CONTENTION, Reason.STOPPED})
MOST_GROUPS = 4
"""Communicators that take longer, in one verdict."""
AS_MUCH = 0.97
"""Of the most work that a rank has, from which another has as much."""
MOST = 0.6
"""Share of a rank's links that must be slow for the rank to be the source or the destination."""


@dataclass(frozen=True)
class KeyedFinding:
    """What is reported, under a key that stays the same while it lasts."""

    key: str
    finding: Finding

    @property
    def ranks(self) -> set[int]:
        """Ranks that are blamed, or may be."""
        return {blame.rank for blame in (*self.finding.culprits, *self.finding.candidates)}


def key_of(rank: int) -> str:
    """Of what is reported of a slow rank."""
    return f"rank {rank}"


def of_rank(
    store: Store,
    window: Window,
    suspect: Suspect,
    reason: Why,
    cost: Cost,
    spent: Floats,
    kind: tuple[float, FaultClass] | None,
    part: SlowPart | None,
    *,
    slow: Sequence[int],
    meant: bool,
) -> KeyedFinding:
    """A rank that takes too long, and by how much it delays the job.

    Args:
        store: The job.
        window: The iterations that this rests on.
        suspect: The rank.
        reason: What its node says of it.
        cost: What that costs.
        spent: Own time, transfer and waiting of each rank per iteration since it is slow, seconds, (R, 3).
        kind: P and the class, see `class_of`.
        part: Of its iterations, in which it is slow.
        slow: All ranks that are slow, itself among them: none of them is slowed down by another.
        meant: It may be that the program gives it more to do: nobody is named.
    """
    rank, index = int(window.ranks[suspect.index]), suspect.index
    peers = len(window.peers_of(index))
    where, also = f"rank {rank}", sorted(set(slow) - {rank})
    times = _times_since(window, suspect, spent, cost.now_s)
    own_s = times[0].own_s
    usual_s = float(np.median([t.own_s for t in times[1:]])) if suspect.against == "peers" else suspect.usual_s
    compared_with = {
        "past": "before",
        "ring": "of the others round its ring",
        "peers": "of its peer" if peers == 1 else "of its peers",
    }[suspect.against]
    why: tuple[Clause, ...]
    if suspect.comes_and_goes:
        why = (clause(Says.COMES_AND_GOES, share=suspect.share, cost_s=rounded(cost.alone_s - cost.best_s)),)
    else:
        why = (_own_time(suspect.against, own_s, usual_s, peers), cost.clause(also))
    evidence = [
        Evidence(what="own time per iteration", value=own_s, unit="s", where=where),
        Evidence(what=f"own time {compared_with}", value=rounded(usual_s), unit="s"),
        *cost.evidence(rank),
        Evidence(what=SLOW_ITERATIONS, value=round(100 * suspect.share), unit="%", where=where),
        Evidence(what=COMPARED_OVER, value=len(window.iteration) - suspect.onset, unit="iterations", where=where),
    ]
    if also:
        evidence.append(Evidence(what=ALSO_SLOW, value=_ranks(also)))
    if part and part.phase:
        where_extra = "after its last backward pass" if part.phase == "optimizer" else f"in {part.phase} passes"
        evidence.append(
            Evidence(what=f"extra time {where_extra}", value=round(100 * part.share), unit="%", where=where)
        )
    cause, fault_class = Cause.COMPUTE_SLOW, _COMPUTE
    if kind:
        evidence.append(
            Evidence(
                what=HOW_OTHERS_LOST,
                value=(waiting := round(100 * kind[0])),
                unit=f"% of it by waiting{f', {100 - waiting} % by slower transfers' * (waiting < 100)}",
            )
        )
        # It is slow all the same, so communication is slow besides; unless what moves its data gets no CPU either.
        if kind[1] != _COMPUTE and reason.reason not in _NO_CPU:
            cause, fault_class = Cause.MIXED_SLOW, _MIXED
    why = (*reason.clauses, *why)
    confidence = 0.9 if peers > 1 else 0.75
    if meant:
        why = (*why, clause(Says.IS_ROOT))
        confidence = 0.5
    blame = (Blame(rank, confidence, why),)
    begun = _begun(window, suspect)
    finding = Finding(
        cause=Cause.UNKNOWN if meant else cause,
        kind="slow",
        fault_class=None if meant else fault_class,
        culprits=() if meant else blame,
        candidates=blame if meant else (),
        next=(clause(Says.STACKS_OF_BUSY_RANK, rank=rank),) if meant else (),
        victims=tuple(int(r) for r in window.ranks if r not in slow),
        onset_s=_time_s(store, window, begun),
        reason=reason.reason,
        evidence=(*evidence, *reason.evidence),
        times=times,
        phase="data" if reason.reason == Reason.DATA_WAIT else part.phase if part else None,
        microbatch=part.microbatch if part else None,
        iteration=_number(window, begun),
    )
    return KeyedFinding(key_of(rank), finding)


def _own_time(against: str, own_s: float, usual_s: float, peers: int) -> Clause:
    """Its own time, and how many times the usual that is; `peers`: ranks in its position."""
    if usual_s <= 0:
        return clause(Says.OWN_TIME, own_s=own_s)
    times = _ratio(own_s, usual_s)
    if against == "peers":
        return clause(Says.OWN_TIME_OF_PEERS, own_s=own_s, times=times, peers=peers)
    return clause(Says.OWN_TIME_OF_PAST if against == "past" else Says.OWN_TIME_OF_RING, own_s=own_s, times=times)


def of_tied(reported: list[KeyedFinding]) -> KeyedFinding:
    """Ranks of which each may be the slow one, and the others wait for it."""
    blames = [blame for one in reported for blame in (*one.finding.culprits, *one.finding.candidates)]
    listed = _listed(sorted(blame.rank for blame in blames))
    doubt = clause(Says.SLOW_TOGETHER, ranks=tuple(sorted(blame.rank for blame in blames)))
    first = reported[0].finding
    finding = replace(
        first,
        cause=Cause.UNKNOWN,
        fault_class=None,
        phase=None,
        microbatch=None,
        culprits=(),
        candidates=tuple(replace(blame, confidence=0.5, why=(*blame.why, doubt)) for blame in blames),
        next=tuple(clause(Says.STACKS_OF_RANK, rank=blame.rank) for blame in blames),
        victims=tuple(rank for rank in first.victims if rank not in {blame.rank for blame in blames}),
        evidence=tuple(item for one in reported for item in one.finding.evidence),
    )
    return KeyedFinding(f"ranks {listed}", finding)


def _times_since(window: Window, suspect: Suspect, spent: Floats, iteration_s: float) -> tuple[Spent, ...]:
    """Where an iteration of the suspect goes since it is slow, and of ranks in its position.

    Own times are those that it was found by, so that a verdict has one number for each. What is left of an iteration
    without own time and transfer is waiting: the three add up to it. Of many peers those in the middle are reported,
    whose median is that of all.

    Args:
        window: The iterations that this rests on.
        suspect: The rank.
        spent: Own time, transfer and waiting of each rank per iteration, seconds, (R, 3).
        iteration_s: What an iteration takes.
    """
    peers = window.peers_of(suspect.index)
    usual = np.mean if suspect.comes_and_goes else np.median
    own_s = usual(window.own_s[:, suspect.onset :], axis=1)
    peers = peers[np.argsort(own_s[peers], kind="stable")]
    left_out = max(0, len(peers) - LISTED + 2) // 2
    rows = [suspect.index, *sorted(peers[left_out : len(peers) - left_out].tolist())]
    reported = spent[rows].copy()
    reported[:, 0] = own_s[rows]
    reported[:, 1] = np.clip(reported[:, 1], 0.0, np.maximum(iteration_s - reported[:, 0], 0.0))
    reported[:, 2] = np.maximum(iteration_s - reported[:, 0] - reported[:, 1], 0.0)
    return times_of(window.ranks[rows], reported)


def times_of(ranks: Ints, spent: Floats) -> tuple[Spent, ...]:
    """Where an iteration goes, for each of these ranks.

    Args:
        ranks: Their numbers, (R,).
        spent: Own time, transfer and waiting of each per iteration, seconds, (R, 3).
    """
    return tuple(
        Spent(rank=rank, own_s=rounded(own), transfer_s=rounded(transfer), waiting_s=rounded(waiting))
        for rank, (own, transfer, waiting) in zip(ranks.tolist(), np.maximum(spent, 0.0).tolist(), strict=True)
    )


def of_links(
    store: Store,
    window: Window,
    transfers: Transfers,
    slow: list[SlowLink],
    node: Ints,
    cost: tuple[float, float] | None = None,
) -> KeyedFinding:
    """Links that are slow. All from one rank: it is a source; all to one: a destination (C4D, section III.A).

    Args:
        store: The job.
        window: The iterations of this time.
        transfers: All transfers in it.
        slow: Of them those that are slow, the worst first.
        node: By rank, its node.
        cost: Seconds of an iteration, and what it would take with all of them as quick as usual; None: not known.
    """
    source, target = (_shared(transfers, slow, side, node) for side in ("src", "dst"))
    worst = slow[0]
    culprits: tuple[Blame, ...] = ()
    if source is not None:
        culprits = (Blame(source, 0.85, (clause(Says.SENDS_AT, rate=worst.rate, usual=worst.usual),)),)
    elif target is not None:
        culprits = (Blame(target, 0.85, (clause(Says.RECEIVES_AT, rate=worst.rate, usual=worst.usual),)),)
    evidence = []
    for link in slow[:LISTED]:
        where = f"rank {link.src} to rank {link.dst}"
        what = "rate at which data arrive" if link.is_paced else "rate while data are under way"
        evidence.append(Evidence(what=what, value=round(link.rate), unit="B/s", where=where))
        evidence.append(Evidence(what="usual rate", value=round(link.usual), unit="B/s", where=where))
        if link.unsent_bytes:
            evidence.append(
                Evidence(what="most data waiting to be sent", value=link.unsent_bytes, unit="B", where=where)
            )
    for side, does in (("src", "sends"), ("dst", "receives")):
        ends = sorted({getattr(link, side) for link in slow})
        if len(ends) > 1 and len(set(node[ends].tolist())) == 1:
            evidence.append(Evidence(what=f"one node {does} on all of them", value=f"ranks {_listed(ends)}"))
    share = sum(link.lost_s for link in slow) / len(slow) / transfers.lasted_s
    evidence.append(
        Evidence(what=f"share of all time that is lost on {'each' if len(slow) > 1 else 'it'}", value=round(share, 2))
    )
    if cost:
        evidence.append(Evidence(what=ITERATION, value=rounded(cost[0]), unit="s"))
        what = QUICK_LINK if len(slow) == 1 else QUICK_LINKS
        evidence.append(Evidence(what=what, value=rounded(cost[1]), unit="s"))
    ranks = {link.src for link in slow} | {link.dst for link in slow}
    begun = _longer_since(window)
    finding = Finding(
        cause=Cause.COMMUNICATION_SLOW,
        kind="slow",
        fault_class="S2",
        culprits=culprits,
        links=tuple(Link(src=link.src, dst=link.dst, end=link.end) for link in slow[:LISTED]),
        victims=tuple(sorted(set(window.ranks.tolist()) - ranks)),
        onset_s=_time_s(store, window, begun),
        evidence=tuple(evidence),
        phase=phase_of_links(store, slow),
        iteration=_number(window, begun),
    )
    return KeyedFinding("links", finding)


def _listed(ranks: list[int]) -> str:
    more = [] if len(ranks) <= LISTED else [f"{len(ranks) - LISTED} more"]
    said = [*map(str, ranks[:LISTED]), *more]
    return f"{', '.join(said[:-1])} and {said[-1]}"


def _shared(transfers: Transfers, slow: list[SlowLink], side: str, node: Ints) -> int | None:
    """The one rank on this side of all slow links, if most of its measured links are slow and there are several."""
    ranks = {getattr(link, side) for link in slow}
    if len(ranks) != 1 or len(slow) < 2 or any(link.end is None for link in slow):
        return None
    rank = int(ranks.pop())
    measured = ~np.isnan(rates_of(transfers).best_known) & (getattr(transfers, side) == rank)
    measured &= node[transfers.src] != node[transfers.dst]
    return rank if len(slow) >= MOST * measured.sum() else None


def of_stage(store: Store, window: Window, stage: LongStage, iteration_s: float, even_s: float) -> KeyedFinding:
    """A pipeline stage has more to do than the others: nobody is at fault."""
    ranks = window.ranks[stage.members].tolist()
    finding = Finding(
        cause=Cause.IMBALANCE,
        kind="slow",
        victims=tuple(sorted(set(window.ranks.tolist()) - set(ranks))),
        onset_s=_time_s(store, window, 0),
        evidence=(
            Evidence(what="own time", value=round(stage.factor, 2), unit="times that of other pipeline stages",
                     where=f"ranks {', '.join(map(str, ranks[:8]))}{', ...' * (len(ranks) > 8)}"),
            Evidence(what=ITERATION, value=rounded(iteration_s), unit="s"),
            Evidence(what="iteration time if all stages took as long", value=rounded(even_s), unit="s"),
        ),
    )  # fmt: skip
    return KeyedFinding("imbalance", finding)


def of_imbalance(
    store: Store, window: Window, excess: Excess, iteration_s: float, even_s: float, why: Why
) -> KeyedFinding:
    """The work is uneven, or done unevenly, and why if their nodes say so: nobody is at fault."""
    heaviest = int(np.argmax(np.median(excess.by_work_s, axis=1)))
    more = float(excess.work[heaviest])
    as_heavy = window.ranks[excess.work >= AS_MUCH * more].tolist()
    evidence = [
        Evidence(what=ITERATION, value=rounded(iteration_s), unit="s"),
        Evidence(what="iteration time if all ranks took equally long", value=rounded(even_s), unit="s"),
    ]
    by_work = more > 1.03
    if by_work:
        evidence.append(
            Evidence(what=f"data of {_ranks(as_heavy)}", value=round(more, 2),
                     unit="times that of the others")
        )  # fmt: skip
    begun = _longer_since(window)
    finding = Finding(
        cause=Cause.IMBALANCE,
        kind="slow",
        reason=Reason.MORE_TOKENS if by_work else why.reason,
        victims=tuple(window.ranks.tolist()),
        onset_s=_time_s(store, window, begun),
        evidence=(*evidence, *(() if by_work else why.evidence)),
        iteration=_number(window, begun),
    )
    return KeyedFinding("imbalance", finding)


def of_all(store: Store, window: Window, factor: float, before_s: float, why: Why) -> KeyedFinding:
    """All ranks are slower than they were, and why if their nodes say so."""
    begun = _longer_since(window)
    finding = Finding(
        cause=Cause.COMPUTE_SLOW,
        kind="slow",
        fault_class="S1",
        reason=why.reason,
        victims=tuple(window.ranks.tolist()),
        onset_s=_time_s(store, window, begun),
        evidence=(
            *why.evidence,
            Evidence(what="own time of all ranks", value=round(factor, 2), unit="times as long as before"),
            Evidence(what=ITERATION, value=rounded(window.iteration_s), unit="s"),
            Evidence(what="iteration time before", value=rounded(before_s), unit="s"),
        ),
        iteration=_number(window, begun),
    )
    return KeyedFinding("all", finding)


def of_unexplained(store: Store, window: Window, longer: Change, groups: Sequence[LongGroup], why: Why) -> KeyedFinding:
    """Iterations take longer than they did, and no rank, no link and no work explains it.

    Args:
        store: The job.
        window: The iterations of this time.
        longer: Since when.
        groups: Communicators that take longer than comparable ones, the longest first.
        why: What their nodes say of it; then there is nothing to be measured.
    """
    finding = Finding(
        cause=Cause.UNKNOWN,
        kind="slow",
        reason=why.reason,
        victims=tuple(window.ranks.tolist()),
        onset_s=longer.at_s,
        evidence=(
            Evidence(what=ITERATION, value=rounded(window.iteration_s), unit="s"),
            Evidence(what="iteration time before", value=rounded(longer.before_s), unit="s"),
            *why.evidence,
            *(_long_group(store, group) for group in groups[:MOST_GROUPS]),
        ),
        iteration=longer.iteration,
        next=() if why.reason else (clause(Says.MEASURE_AT_REST),),
    )
    return KeyedFinding("iterations", finding)


def _long_group(store: Store, group: LongGroup) -> Evidence:
    others = "a comparable communicator" if group.comparable == 1 else f"{group.comparable} comparable communicators"
    return Evidence(
        what=f"time in operations of {store.comms.name(group.comm)}",
        value=round(group.times, 2),
        unit=f"times that of {others}",
        where=_ranks([rank for rank in store.comms.members_of(group.comm) if rank >= 0]),
    )


def _begun(window: Window, suspect: Suspect) -> int:
    """The column from which a rank is slow, also where that was long before; the first if it always was."""
    if suspect.comes_and_goes:
        return suspect.onset
    column = began_at(window.own_s[suspect.index] - suspect.usual_s - suspect.excess_s / 2)
    return column if column < len(window.iteration) else suspect.onset


def _number(window: Window, column: int) -> int | None:
    """The iteration in which something began; not known for what was so in the first one that is known."""
    return int(window.iteration[column]) if column else None


def _longer_since(window: Window) -> int:
    """The column from which iterations take longer than before, the first if they take as long all the time."""
    total_s = np.median(window.total_s, axis=0)
    short_s, long_s = float(np.quantile(total_s, 0.25)), float(np.median(total_s[-max(1, len(total_s) // 4) :]))
    if long_s < GREW * short_s:
        return 0
    return began_at(total_s[:-1] - (short_s + long_s) / 2)


def _time_s(store: Store, window: Window, column: int) -> float:
    """When an iteration began, by the clock of the first rank."""
    rank = int(window.ranks[0])
    return float(window.end_ns[0, column] / 1e9 - window.total_s[0, column] + store.ranks.offset_s[rank])


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_listed(ranks)}"


def _ratio(own_s: float, usual_s: float) -> str:
    """Of two times as they are shown, so that a reader who divides them gets the same."""
    own_ms, usual_ms = (float(f"{rounded(seconds) * 1e3:.3g}") for seconds in (own_s, usual_s))
    return f"{own_ms / usual_ms:.2f}" if usual_ms else "many"

"""The questions, in their order (DESIGN 5.2): deaths, stopped ranks, signatures, the wait-for graph, transport.

Each question is one method that returns a `Finding` or None; the first that can answer does. Words for people are made
here too, beside the evidence that they rest on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from whichrank.hang.device import overtaken
from whichrank.hang.history import History
from whichrank.hang.mismatch import mismatch
from whichrank.hang.peers import WITNESS, Peers
from whichrank.hang.reasons import held_up_by, reason_of
from whichrank.hang.remote import (
    held_from_outside,
    quiet_beside_stopped,
    sinks_left,
    thread_waited_for,
    waits_outside,
)
from whichrank.hang.rendezvous import missing_from_meetings
from whichrank.hang.told_by_counts import blame_ahead, may_be_ahead, members_unknown, waits_for_unknown
from whichrank.locate import waitgraph
from whichrank.locate.deaths import in_order
from whichrank.locate.departures import expected
from whichrank.locate.signatures import CompletedRounds, departed
from whichrank.locate.strays import LEAST_ALIKE
from whichrank.model.codes import UNNUMBERED
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import TIME_BLOCKED, Cause, Evidence, Link, waiting_for
from whichrank.model.kinds import SYNCHRONISING, Kind, is_collective, is_message
from whichrank.model.picture import Bools, Picture
from whichrank.model.sequence import Tokens
from whichrank.model.signature import describe, op_name
from whichrank.store.paths import dead_words
from whichrank.store.state import JobState
from whichrank.transport.reach import out_of_reach

IDLE_CPU = 0.1
"""Share of a core below which a process does nothing."""
LISTED = 16
"""Candidates, at most: more help nobody."""
MOST_NAMED = 1024


class Diagnosis:
    """Answers for one job. Holds no state of its own but what it was given."""

    def __init__(self, state: JobState, history: History, rounds: CompletedRounds | None = None) -> None:
        self.state = state
        self.history = history
        self.rounds = rounds
        self.peers = Peers(history)

    # ---- the order of questions ------------------------------------------------------------------------------------

    def hang(self, picture: Picture, min_age_s: float, named: Sequence[frozenset[int]] = ()) -> Finding | None:
        """What keeps the blocked ranks, if anything can be said.

        Args:
            picture: The job.
            min_age_s: Seconds that a wait must have lasted.
            named: The ranks of each open incident, the one told last first.
        """
        if not len(waitgraph.lasting(picture, min_age_s)):
            return self._outside_only(picture, min_age_s)
        graph = waitgraph.build(picture, min_age_s)
        if not len(graph.edges.wait) and not len(graph.stuck):
            return self._outside_only(picture, min_age_s)
        halted = [int(r) for r in graph.sinks if picture.stopped[r] or picture.gone[r]]
        if halted:
            if len(graph.waiting) < len(halted) and in_order(self.state.ends())[halted].all():
                return self._left_alone(picture, graph)
            return self._sinks(picture, graph, _news(halted, named), hard=True)
        contradicts = mismatch(self, picture, min_age_s)
        if contradicts:
            return contradicts
        if len(graph.overtaken):
            return overtaken(self, picture, graph)
        outside, sinks = self._outside(picture, graph, min_age_s)
        if outside:
            return outside
        if len(sinks):
            return self._sinks(picture, graph, sinks, hard=False)
        away = out_of_reach(self.state.paths, picture, graph.waiting, self.state.ranks.agent)
        if away:
            wait = _oldest_wait(picture, graph)
            victims = tuple(int(r) for r in graph.waiting if int(r) not in away.names)
            onset_s = min(float(wait["since_s"]), away.onset_s or np.inf)
            return replace(away, comm=int(wait["comm"]), op=self.op_of(wait), victims=victims, onset_s=onset_s)
        if len(graph.unseen):
            return self._unseen(picture, graph)
        if waits_for_unknown(picture, graph):
            return members_unknown(self, picture, graph)
        if len(graph.cycle):
            return self._deadlock(picture, graph)
        if len(graph.stuck):
            return self._stuck(picture, graph)
        return None

    # ---- waits outside of operations -------------------------------------------------------------------------------

    def _outside(
        self, picture: Picture, graph: waitgraph.WaitGraph, min_age_s: float
    ) -> tuple[Finding | None, list[int]]:
        """Who is to blame if a rank at the end of the graph waits outside of operations; and the ends that do not."""
        sinks = {int(r): thread_waited_for(graph, int(r)) for r in graph.sinks}
        waits = waits_outside(self, picture, sinks, min_age_s)
        left, waiting = sinks_left(graph, waits), [int(r) for r in graph.waiting]
        is_explained = bool(sinks) and not left
        onset_s = float(_oldest_wait(picture, graph)["since_s"]) if is_explained else None
        found = held_from_outside(self, picture, waits, waiting, onset_s)
        return found if found and (found.hard or is_explained) else None, left

    def _outside_only(self, picture: Picture, min_age_s: float) -> Finding | None:
        """The same while nobody waits in an operation."""
        waits = waits_outside(self, picture, {}, min_age_s)
        return held_from_outside(self, picture, waits, [], None) if waits else quiet_beside_stopped(self, picture)

    # ---- sinks -----------------------------------------------------------------------------------------------------

    def _sinks(self, picture: Picture, graph: waitgraph.WaitGraph, sinks: list[int], hard: bool) -> Finding:
        apart = [] if hard else self.apart(picture, graph)
        absent = None if hard else missing_from_meetings(picture, sinks)
        apart = sorted({*apart, *(absent or ())} - set(sinks))
        ahead = [] if hard else may_be_ahead(picture, graph)
        since_s = {r: float(picture.waits["since_s"][graph.edges.wait[graph.sink_edge[r]]]) for r in sinks}
        if hard:
            named = sinks
        elif apart or ahead or absent is not None:
            named = []
        else:
            tids = {r: thread_waited_for(graph, r) for r in sinks}
            waiting, unseen = len(graph.waiting), len(graph.unseen) + waits_for_unknown(picture, graph)
            named = held_up_by(self.state, sinks, min(since_s.values()), waiting, unseen, tids)
        longest = min(named or sinks, key=lambda r: since_s[r])
        facts = waitgraph.waiting_for(picture, graph, longest)
        wait = facts["wait"]
        waited = picture.now_s - float(wait["since_s"])
        evidence = [Evidence(what=TIME_BLOCKED, value=round(waited, 2), unit="s", where=f"rank {int(wait['rank'])}")]
        share = 1 / (len(sinks) + len(apart) + len(ahead))
        blames, reasons = [], []
        for rank in named[:MOST_NAMED] or sinks[:LISTED]:
            own = waitgraph.waiting_for(picture, graph, rank)
            told = reason_of(self.state, picture, rank, thread_waited_for(graph, rank))
            reasons.append(told.reason)
            certainty = told.confidence if named else share
            blames.append(Blame(rank, certainty, f"it {self._did(own)}, and {told.words}"))
            evidence += [
                waiting_for(rank, len(own["waiters"])),
                *told.evidence,
            ]
        evidence += self.unread(graph)
        for rank in apart:
            words = f"it is in no operation while others wait, and {reason_of(self.state, picture, rank).words}"
            blames.append(Blame(rank, share, words))
        first = 0 if len(sinks) > len(ahead) else len(blames)  # where most have not come, who is ahead is alone
        blames[first:first] = [blame_ahead(self, picture, graph, rank, share) for rank in ahead]
        any_gone = any(picture.gone[r] for r in named)
        inside = bool(facts["entered"])  # stopped after entering: what DESIGN calls `device`
        cause = Cause.PROCESS_EXIT if any_gone else Cause.DEVICE if inside else Cause.NOT_ENTERED
        return Finding(
            cause=cause if named else Cause.UNKNOWN,
            kind="failed" if any_gone else "hang",
            fault_class=None if not named else "H3" if inside and not any_gone else "H1",
            reason=next((r for r in reasons if r), None) if named else None,
            culprits=tuple(blames) if named else (),
            candidates=() if named else tuple(blames[:LISTED]),
            comm=int(wait["comm"]),
            op=self.op_of(wait),
            victims=tuple(sorted({*graph.waiting.tolist(), *sinks} - {b.rank for b in blames})),
            waited_for=frozenset(graph.sinks.tolist()),
            onset_s=float(wait["since_s"]),
            hard=hard,
            evidence=tuple(evidence),
            complete=self.complete(picture),
            next=() if named else ("see which of the named ranks waits for another: whichrank stacks --suspects",),
        )

    def blame_of_sink(self, picture: Picture, graph: waitgraph.WaitGraph, rank: int) -> Blame:
        """What is said of a rank that others wait for and that waits for nobody."""
        told = reason_of(self.state, picture, rank, thread_waited_for(graph, rank))
        did = self._did(waitgraph.waiting_for(picture, graph, rank))
        return Blame(rank, told.confidence, f"it {did}, and {told.words}")

    def apart(self, picture: Picture, graph: waitgraph.WaitGraph) -> list[int]:
        """Ranks in no operation that nobody waits for in one, stopped or idle: a sink may wait for them elsewhere."""
        # In a recording whoever is in no operation, whatever it does.
        apart = self._idle(picture, graph) if picture.recorded is None else picture.present.copy()
        in_graph = (graph.waiting, graph.sinks, graph.unseen, picture.ops["rank"], picture.waits["rank"])
        apart[np.concatenate(in_graph)] = False
        return [int(r) for r in np.flatnonzero(apart)[:LISTED]]

    def _idle(self, picture: Picture, graph: waitgraph.WaitGraph) -> Bools:
        """Ranks that are stopped, or do nothing."""
        rows, since_s = self.state.ranks.rows, float(picture.waits["since_s"][graph.waits].min())
        idle = (self.state.ranks.went_on_s < since_s) & (self.state.ranks.cpu_share < IDLE_CPU) & ~picture.busy
        idle &= (rows["init_ns"] > 0) & (rows["closed_ns"] == 0) & (rows["exception_ns"] == 0)
        return np.asarray(picture.present & picture.fresh & ~picture.gone & (picture.stopped | idle))

    def _did(self, facts: dict[str, Any]) -> str:
        """What a sink has to do with the operation that others wait on."""
        wait = facts["wait"]
        where = f"{self.op_name(wait)} on {self.comm_name(int(wait['comm']))}"
        if is_message(wait["kind"]):
            did = "taken part in" if facts["entered"] else "not answered"
            comm = self.comm_name(int(wait["comm"]))
            return f"has {did} the {self.op_name(wait)} in which rank {int(wait['rank'])} waits on {comm}"
        return f"{'entered' if facts['entered'] else 'has not entered'} {where}"

    @staticmethod
    def unread(graph: waitgraph.WaitGraph) -> list[Evidence]:
        """Others wait for these too, but nothing was read of them since: they may be culprits or victims."""
        ranks = [int(r) for r in graph.unseen]
        if not ranks:
            return []
        where = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:LISTED]))}"
        return [Evidence(what="waited for too, and not read after that", value=len(ranks), unit="ranks", where=where)]

    def _unseen(self, picture: Picture, graph: waitgraph.WaitGraph) -> Finding:
        ranks = [int(r) for r in graph.unseen]
        wait = waitgraph.waiting_for(picture, graph, ranks[0])["wait"]
        return Finding(
            cause=Cause.UNKNOWN,
            candidates=tuple(
                Blame(r, 0.3, "others wait for it, and nothing was read of it after they began to") for r in ranks[:16]
            ),
            comm=int(wait["comm"]),
            op=self.op_of(wait),
            victims=tuple(int(v) for v in graph.waiting),
            onset_s=float(wait["since_s"]),
            evidence=(Evidence(what="waited for, and not read after that", value=len(ranks), unit="ranks"),),
            complete=False,
        )

    def _left_alone(self, picture: Picture, graph: waitgraph.WaitGraph) -> Finding:
        """Most have ended in order, and others wait for them: these may have issued more, or those too little."""
        waiting = [int(r) for r in graph.waiting]
        wait = _oldest_wait(picture, graph)
        where = f"{self.op_name(wait)} on {self.comm_name(int(wait['comm']))}"
        waits = f"it waits in {where} for ranks that have ended in order"
        ended = f"it has ended in order, and {len(waiting)} wait for it in {where}"
        said = [(r, waits) for r in waiting] + [(int(r), ended) for r in graph.sinks]
        return Finding(
            cause=Cause.UNKNOWN,
            candidates=tuple(Blame(r, 1 / len(said), why) for r, why in said[:LISTED]),
            comm=int(wait["comm"]),
            op=self.op_of(wait),
            victims=tuple(waiting),
            onset_s=float(wait["since_s"]),
            hard=True,
            evidence=(Evidence(what="waiting", value=len(waiting), unit="ranks"),),
            complete=self.complete(picture),
            next=("compare how many operations each rank issues: whichrank stacks --suspects",),
        )

    # ---- cycles and transport --------------------------------------------------------------------------------------

    def _deadlock(self, picture: Picture, graph: waitgraph.WaitGraph) -> Finding:
        ranks = [int(r) for r in graph.cycle]
        rows = picture.waits[np.isin(picture.waits["rank"], ranks)]
        skewed = sorted({r for comm in np.unique(rows["comm"]) for r in self.history.skewed(int(comm))} & set(ranks))
        wrong, witness = (skewed, "what its peers had issued before") if skewed else self._out_of_order(picture, rows)
        is_extra = False
        if not wrong and (alone := self._alone(picture, rows)):
            wrong, witness, is_extra = [alone[0]], "what all others did after the same operations", alone[1]
        said = {int(w["rank"]): f"{self.op_name(w)} on {self.comm_name(int(w['comm']))}" for w in rows}
        evidence = tuple(
            Evidence(what="blocked on", value=words, where=f"rank {rank}") for rank, words in list(said.items())[:16]
        )
        others = {r: [o for o in said if o != r] for r in wrong}
        before = {
            r: f"{said[o[0]]}, in which rank {o[0]} waits" if len(o) == 1 else "what its peers wait in"
            for r, o in others.items()
        }
        blames = tuple(
            Blame(
                r,
                0.9,
                f"it has entered {said[r]}, but not yet {before[r]}; this order differs from {witness.format(rank=r)}",
            )
            for r in wrong
        )
        certain = graph.cycle_explicit and len(wrong) < len(ranks) and bool(wrong)
        # Against the order of the communicator's own operations: one too many or too few, not two in opposite order.
        extra = certain and (
            is_extra or all(self._departs_on_its_group(picture, rows[rows["rank"] == r]) for r in wrong)
        )
        cause = Cause.INCONSISTENT if extra else Cause.DEADLOCK
        return Finding(
            cause=cause if graph.cycle_explicit else Cause.UNKNOWN,
            fault_class="H2" if graph.cycle_explicit else None,
            culprits=blames if certain else (),
            candidates=()
            if graph.cycle_explicit
            else tuple(Blame(r, 1 / len(ranks), f"blocked on {said[r]}") for r in ranks[:16]),
            comm=int(rows["comm"][0]),
            op=self.op_of(rows[0]),
            victims=tuple(int(r) for r in graph.waiting if int(r) not in wrong),
            onset_s=float(rows["since_s"].max()),
            hard=graph.cycle_explicit,
            evidence=evidence,
            complete=self.complete(picture),
        )

    @staticmethod
    def _ordinal_of(picture: Picture, wait: Any) -> int | None:
        """The number of the operation that a rank waits on among all of its own, None if that is not in flight."""
        ops = picture.ops
        at = np.flatnonzero(
            (ops["rank"] == wait["rank"]) & (ops["comm"] == wait["comm"]) & (ops["counter"] == wait["counter"])
            & (ops["kind"] == wait["kind"]) & (ops["peer"] == wait["peer"])
        )  # fmt: skip
        return int(ops["ordinal"][at[0]]) if len(at) else None

    def _up_to(self, picture: Picture, wait: Any) -> Tokens | None:
        """The tokens of a rank up to and with the operation that it waits on, None if that is not in flight."""
        ordinal = self._ordinal_of(picture, wait)
        return None if ordinal is None else self.history.up_to(int(wait["rank"]), ordinal)

    def _alone(self, picture: Picture, waits: Any) -> tuple[int, bool] | None:
        """The one rank on a cycle that waits in a collective where all others went on with something else.

        Returns:
            It, and whether it left out or added operations.
        """
        found = {}
        for wait in waits[is_collective(waits["kind"])]:
            ordinal = self._ordinal_of(picture, wait)
            is_extra = None if ordinal is None else self.peers.leaves_alone(int(wait["rank"]), ordinal)
            if is_extra is not None:
                found[int(wait["rank"])] = is_extra
        return next(iter(found.items())) if len(found) == 1 else None

    def _departs_on_its_group(self, picture: Picture, waits: Any) -> bool:
        """Would a rank's operation be a departure even if its communicator were the only one?"""
        for wait in waits:
            x = self._up_to(picture, wait)
            if x is None or not len(x):
                continue
            of_group = np.array([self.history.same_group(int(t), int(x[-1])) for t in x])
            allowed, length = expected(x[of_group][:-1])
            if length and int(x[-1]) not in allowed:
                return True
        return False

    def _out_of_order(self, picture: Picture, waits: Any) -> tuple[list[int], str]:
        """Who on a cycle entered its operation too early, and the witness: its own past, else its peers' progress.

        `{rank}` in the witness stands for the rank.
        """
        tokens = {}
        for wait in waits:
            x = self._up_to(picture, wait)
            if x is not None:
                tokens[int(wait["rank"])] = x
        ranks = set(waits["rank"].tolist())
        own = sorted(departed(tokens, self.history.shape_of)) if len(tokens) == len(ranks) else []
        peers = sorted({int(w["rank"]) for w in waits if self._ahead_of_peers(picture, w, waits)})
        strays = sorted(r for r in ranks if self.peers.skew_of(r, LEAST_ALIKE))
        both = sorted(set(own) & set(strays)) if own and strays else own or strays
        if (both and peers and both != peers) or ((own or strays) and not both):
            return [], ""
        if not _alike(waits[np.isin(waits["rank"], both)]):
            return [], ""
        if both:
            return both, "that of earlier iterations of rank {rank}" if own else f"that of {WITNESS}"
        return peers, "that of the other members"

    def _ahead_of_peers(self, picture: Picture, wait: Any, cycle: Any) -> bool:
        """Most other members that have entered this round had first done what this rank has left undone elsewhere."""
        if is_message(wait["kind"]):
            return False
        rank, info = int(wait["rank"]), self.state.info
        at, size = int(picture.comm_at[wait["comm"]]), int(picture.comm_size[wait["comm"]])
        entered = picture.member_issued[at : at + size] >= wait["counter"]
        others = [int(r) for r in picture.member_rank[at : at + size][entered] if r not in (rank, -1)]
        for owed in cycle:
            comm = int(owed["comm"])
            if comm == wait["comm"] or is_message(owed["kind"]):
                continue
            sisters = [i for i, c in enumerate(info) if c.desc == info[comm].desc and c.size == info[comm].size]
            done = [
                bool(picture.member_issued[m] >= owed["counter"])
                for i in sisters
                for m in range(int(picture.comm_at[i]), int(picture.comm_at[i] + picture.comm_size[i]))
                if int(picture.member_rank[m]) in others
            ]
            mine = [
                int(picture.member_issued[m])
                for m in range(int(picture.comm_at[comm]), int(picture.comm_at[comm] + picture.comm_size[comm]))
                if int(picture.member_rank[m]) == rank
            ]
            if mine and mine[0] < owed["counter"] and len(done) > 1 and 2 * sum(done) > len(done):
                return True
        return False

    def _stuck(self, picture: Picture, graph: waitgraph.WaitGraph) -> Finding:
        """All have entered, all run, nothing moves."""
        waits = picture.waits[graph.stuck]
        oldest = waits[int(np.argmin(waits["since_s"]))]
        pairs = {
            (int(w["rank"]), picture.group_rank_to_rank(int(w["comm"]), int(w["peer"])))
            for w in waits
            if is_message(w["kind"]) and w["peer"] >= 0
        }
        comm = int(oldest["comm"])
        members = picture.member_rank[picture.comm_at[comm] : picture.comm_at[comm] + picture.comm_size[comm]]
        if len(members) == 2 and not pairs:
            pairs = {(int(members[0]), int(members[1]))}
        # A receive from any source may wait for somebody who never sent: nothing is known of the network then.
        any_source = bool((waits["kind"] == Kind.RECV_ANY).any())
        entered = (
            (Evidence(what="members that have entered", value=len(members)),) if is_collective(oldest["kind"]) else ()
        )
        dead = self.state.paths.dead_pairs(picture, graph.waiting)
        apart, done = ([], "") if dead else self._complete_elsewhere(picture, waits, oldest)
        is_numbered = bool((waits["counter"] < UNNUMBERED).all())  # else the ends may be of two messages
        # Where nobody looked at sockets, a device that stands still looks the same as a path that carries nothing.
        open_question = not dead and (any_source or bool(apart) or not is_numbered or picture.recorded is not None)
        pairs = {(src, dst) for src, dst, _ in dead} or (set() if any_source else {p for p in pairs if min(p) >= 0})
        return Finding(
            cause=Cause.UNKNOWN if open_question else Cause.TRANSPORT,
            fault_class=None if open_question else "H3",
            candidates=tuple(Blame(r, 1 / len(apart), f"the others have completed {done}") for r in apart[:LISTED]),
            comm=comm,
            op=self.op_of(oldest),
            victims=tuple(int(r) for r in graph.waiting if int(r) not in apart),
            onset_s=float(oldest["since_s"]),
            hard=bool(dead),
            seasoned=bool(dead),
            links=tuple(Link(src=src, dst=dst) for src, dst in sorted(pairs)[:LISTED]),
            evidence=(
                *entered,
                *dead_words(dead),
                *self.state.paths.ask_about(dead, self.state.ranks.agent, picture.now_s),
                Evidence(what=TIME_BLOCKED, value=round(picture.now_s - float(oldest["since_s"]), 2), unit="s"),
                *self._messages(np.unique(waits["rank"][waits["comm"] == comm])),
            ),
            complete=self.complete(picture),
            next=("see whether bytes are under way to the named ranks: ss -tin",) if apart else (),
        )

    def _complete_elsewhere(self, picture: Picture, waits: Any, wait: Any) -> tuple[list[int], str]:
        """Who still waits in a synchronising round that others have completed, and that round in words.

        Either it does not see that the round is complete, or what the others sent is lost on the way to it: its own
        process or the path, so it is a candidate and no more (DESIGN 5.2, complete here and not there).
        """
        if int(wait["kind"]) not in SYNCHRONISING:
            return [], ""
        at, size = int(picture.comm_at[wait["comm"]]), int(picture.comm_size[wait["comm"]])
        members, done = picture.member_rank[at : at + size], picture.member_done[at : at + size] >= wait["counter"]
        inside = waits["rank"][(waits["comm"] == wait["comm"]) & (waits["counter"] == wait["counter"])]
        apart = [int(r) for r in members[~done] if r in inside]
        return (apart, self.op_name(wait)) if done.any() else ([], "")

    def _messages(self, ranks: Any) -> tuple[Evidence, ...]:
        """What frames count: in the last window, and of the operation (CCL-D's fewest: evidence, no verdict)."""
        rates = self.state.ranks.rates[ranks]
        rates = rates[rates["samples"] > 0]
        if not len(rates):
            return ()
        window_ms = round(float((rates["end_ns"] - rates["start_ns"]).max()) / 1e6)
        moved = int((rates["send_messages"] + rates["recv_messages"]).sum())
        facts = [Evidence(what=f"messages in the last {window_ms} ms", value=moved, where=f"{len(rates)} ranks")]
        for way, name in (("sent", "op_sent"), ("received", "op_received")):
            counts = rates[name]
            least = rates[counts == counts.min()]
            if len(least) == 1 and len(rates) > 1:
                where = f"rank {int(least['rank'][0])}; the others {int(np.median(counts))} in the median"
                what = f"fewest messages {way} in the operation"
                facts.append(Evidence(what=what, value=int(counts.min()), where=where))
        return tuple(facts)

    # ---- words -----------------------------------------------------------------------------------------------------

    def comm_name(self, comm: int) -> str:
        """The communicator in words: its description, else its name."""
        return self.state.comm_name(comm)

    def op_name(self, row: Any) -> str:
        """`all_reduce #1204`."""
        return op_name(int(row["kind"]), int(row["counter"]))

    def op_of(self, row: Any) -> dict[str, int]:
        """The fields of an operation that a finding carries."""
        return {name: int(row[name]) for name in ("kind", "counter", "dtype", "count", "reduce_op", "peer")}

    def words_of(self, row: Any) -> str:
        """`all_reduce of 1024 float32 (sum)`."""
        return describe(int(row["kind"]), int(row["dtype"]), int(row["count"]), int(row["reduce_op"]), int(row["peer"]))

    def complete(self, picture: Picture) -> bool:
        """Was every rank of the world read, and lately, unless it has ended?"""
        return bool((picture.present & (picture.fresh | picture.gone)).all())


def _news(halted: list[int], named: Sequence[frozenset[int]]) -> list[int]:
    """Of several halted ranks: those that no open incident names, else those of the incident told last."""
    told = [names.intersection(halted) for names in named]
    news = frozenset(halted).difference(*told) or next(names for names in told if names)
    return sorted(news)


def _oldest_wait(picture: Picture, graph: waitgraph.WaitGraph) -> Any:
    """Of the waits of a graph."""
    waits = picture.waits[graph.waits]
    return waits[int(np.argmin(waits["since_s"]))]


def _alike(waits: Any) -> bool:
    """Do these wait on the same, by kind and communicator? Ranks that departed in several ways share no mistake."""
    return len(np.unique(np.stack((waits["kind"], waits["comm"])), axis=1).T) <= 1

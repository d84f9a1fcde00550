"""What the kernels of the nodes say of the ways between ranks: a node that is lost, a connection that is dead.

Kept per agent as told last, since a node that is lost tells nothing any more, and its end of each connection is needed
to know to whom the others' ends lead. Joined only when somebody asks: in a hang.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from whichrank.locate.links import Ends, ends_of
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import Cause, Evidence
from whichrank.model.picture import Ints, Picture
from whichrank.model.telemetry import TCP_ROW, Batch

STALE_S = 5.0
"""A look at a kernel that is older says nothing of now."""
SILENT_S = 3.0
LISTED = 16


class Paths:
    """The connections of a job."""

    def __init__(self) -> None:
        self._rows: dict[int, np.ndarray[Any, Any]] = {}
        self._told_s: dict[int, float] = {}
        self._spoke_s: dict[int, float] = {}
        self._node_number: dict[str, int] = {}
        self._node_of: dict[int, int] = {}
        self._beside: set[int] = set()
        self._joined: tuple[Ends, Ints, np.ndarray[Any, Any]] | None = None

    def take(self, batch: Batch, agent: int, now_s: float) -> None:
        """What an agent tells of its node and, where it has looked, of connections."""
        node = self._node_number.setdefault(batch.node or batch.host, len(self._node_number))
        self._node_of[agent], self._spoke_s[agent] = node, now_s
        if batch.beside_analyzer:
            self._beside.add(node)
        rows = batch.connection_rows()
        if len(rows):
            self._rows[agent] = rows[rows["rank"] >= 0]
            age_ns = batch.sent_ns - int(rows["read_ns"].max())
            self._told_s[agent] = now_s - max(age_ns, 0) / 1e9
            self._joined = None

    def joined(self) -> tuple[Ends, Ints, np.ndarray[Any, Any]]:
        """All ends as told last, the agent of each, and the same as rows of TCP_ROW."""
        if self._joined is None:
            agents = list(self._rows)
            rows = np.frombuffer(b"".join([self._rows[a].tobytes() for a in agents]), TCP_ROW)
            agent = np.repeat(np.array(agents, np.int64), [len(self._rows[a]) for a in agents])
            told_s = np.repeat(np.array([self._told_s[a] for a in agents]), [len(self._rows[a]) for a in agents])
            known, rank = np.unique(rows["rank"], return_inverse=True)
            latest_s = np.full(len(known), -np.inf)
            np.maximum.at(latest_s, rank.reshape(-1), told_s)
            # An agent that was started anew tells the same connections once more: what the other told is over.
            is_latest = told_s == latest_s[rank.reshape(-1)]
            rows, agent = rows[is_latest], agent[is_latest]
            left = set(np.unique(agent).tolist())
            self._rows = {a: self._rows[a] for a in agents if a in left}
            node = np.array([self._node_of[a] for a in agent.tolist()], np.int64)
            self._joined = ends_of(rows, node), agent, rows
        return self._joined

    def nodes(self, agent_of: Ints) -> Ints:
        """The number of each rank's node, -1 unknown.

        Args:
            agent_of: By rank, the agent that told it last.
        """
        known = [*(self._node_of.get(a, -1) for a in range(int(agent_of.max(initial=-1)) + 1)), -1]
        return np.array(known, np.int64)[agent_of]

    def ends(self, now_s: float) -> tuple[Ends, Ints]:
        """All ends that were looked at lately, joined with those that were not, and the agent of each."""
        ends, agent, _ = self.joined()
        agents = list(self._rows)
        lately = ~np.isin(agent, [a for a in agents if now_s - self._told_s[a] > STALE_S])
        return replace(ends, dead=ends.dead & lately, answered=ends.answered & lately), agent

    def lost_node(self, picture: Picture, unseen: Ints, agent_of: Ints, found: Finding) -> Finding | None:
        """A silent node to which the connections of others are dead.

        Args:
            picture: The job.
            unseen: Ranks that others wait for and whose state since then is not known.
            agent_of: By rank, the agent that told it last.
            found: What is said otherwise; its operation and victims stay.
        """
        node_of = np.where(picture.present, self.nodes(agent_of), -1)
        silent_s = {
            node: picture.now_s - max(self._spoke_s[a] for a, n in self._node_of.items() if n == node)
            for node in np.unique(node_of[node_of >= 0]).tolist()
        }
        silent = [node for node, seconds in silent_s.items() if seconds >= SILENT_S]
        ranks = np.flatnonzero(np.isin(node_of, silent))
        # Several at once, or half of a job, is what it looks like when the analyzer's part of the network is cut off.
        if len(silent) != 1 or 2 * len(ranks) > int(picture.present.sum()) or not np.isin(unseen, ranks).any():
            return None
        ends, told_by = self.ends(picture.now_s)
        witness = self.nodes(told_by)
        there = np.isin(ends.peer, ranks) & (witness != silent[0])
        dead = there & ends.dead
        if not dead.any() or (there & ends.answered).any():
            return None
        # Those whose connections are dead, and the analyzer's own, to which the node is silent.
        nodes = {*np.unique(witness[dead]).tolist(), *self._beside} - {silent[0]}
        sure = len(nodes) > 1 and 2 * len(ranks) < int(picture.present.sum())
        return _lost(found, ranks.tolist(), int(dead.sum()), len(nodes), silent_s[silent[0]], picture.now_s, sure)

    def dead_pairs(self, picture: Picture, ranks: Ints) -> list[tuple[int, int, int]]:
        """Sender, receiver and retransmissions in a row of connections that are dead, between these if they run."""
        ends, _ = self.ends(picture.now_s)
        alive = picture.present & picture.fresh & ~picture.stopped & ~picture.gone
        alive &= np.isin(np.arange(len(alive)), ranks)
        known = np.flatnonzero(ends.dead & (ends.peer >= 0) & (ends.peer < len(alive)) & (ends.rank < len(alive)))
        known = known[alive[ends.rank[known]] & alive[ends.peer[known]]]
        return [(int(ends.rank[i]), int(ends.peer[i]), int(ends.tries[i])) for i in known[:LISTED]]


def _lost(
    found: Finding, ranks: list[int], connections: int, nodes: int, silent_s: float, now_s: float, sure: bool
) -> Finding:
    """By the word of one other node alone it may be that one that is cut off: nobody is named then."""
    why = f"its node is silent for {silent_s:.0f} s, and {connections} connections to it get no answer"
    blames = tuple(Blame(r, 0.9 if sure else 0.4, why) for r in ranks)
    return Finding(
        cause=Cause.NODE_LOST if sure else Cause.UNKNOWN,
        culprits=blames if sure else (),
        candidates=() if sure else blames[:LISTED],
        comm=found.comm,
        op=found.op,
        victims=tuple(v for v in found.victims if v not in ranks),
        onset_s=min(now_s - silent_s, found.onset_s) if found.onset_s else now_s - silent_s,
        hard=sure,
        evidence=(
            Evidence(what="its agent was heard last", value=round(silent_s, 1), unit="s ago"),
            Evidence(what="connections that retransmit without an answer", value=connections),
            Evidence(what="other nodes to which it is out of reach", value=nodes),
        ),
        complete=False,
        next=() if sure else ("see from a third machine which of the two nodes is out of reach: ping",),
    )

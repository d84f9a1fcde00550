"""What the kernels of the nodes say of the ways between ranks: a node that is lost, a connection that is dead.

Kept per agent as told last, since a node that is lost tells nothing any more, and its end of each connection is needed
to know to whom the others' ends lead. Joined only when somebody asks: in a hang.
"""

from __future__ import annotations

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
        self._beside: set[int] = set()

    def take(self, batch: Batch, agent: int, now_s: float) -> None:
        """Connections as an agent tells them now, if it does."""
        if batch.beside_analyzer:
            self._beside.add(agent)
        rows = batch.connection_rows()
        if len(rows):
            self._rows[agent] = rows[rows["rank"] >= 0]
            age_ns = batch.sent_ns - int(rows["read_ns"].max())
            self._told_s[agent] = now_s - max(age_ns, 0) / 1e9

    def ends(self, now_s: float) -> tuple[Ends, Ints]:
        """All ends that were looked at lately, joined with those that were not, and the agent of each."""
        agents = list(self._rows)
        if not agents:
            return ends_of(np.zeros(0, TCP_ROW), np.zeros(0, np.int64)), np.zeros(0, np.int64)
        rows = np.frombuffer(b"".join([self._rows[a].tobytes() for a in agents]), TCP_ROW)
        agent = np.repeat(agents, [len(self._rows[a]) for a in agents])
        ends = ends_of(rows, agent)
        stale = np.isin(agent, [a for a in agents if now_s - self._told_s[a] > STALE_S])
        ends.dead[stale] = ends.answered[stale] = False
        return ends, agent

    def lost_node(
        self, picture: Picture, unseen: Ints, agent_of: Ints, heard_s: list[float], found: Finding
    ) -> Finding | None:
        """A silent node to which the connections of others are dead.

        Args:
            picture: The job.
            unseen: Ranks that others wait for and whose state since then is not known.
            agent_of: By rank, the agent that told it last.
            heard_s: By agent, when it was heard last.
            found: What is said otherwise; its operation and victims stay.
        """
        ends, told_by = self.ends(picture.now_s)
        for agent in np.unique(agent_of[unseen]).tolist():
            ranks = np.flatnonzero(picture.present & (agent_of == agent))
            silent_s = picture.now_s - heard_s[agent] if agent >= 0 else 0.0
            there = np.isin(ends.peer, ranks) & (told_by != agent)
            # More than half of a job that is silent is what it looks like when the analyzer itself is cut off.
            if silent_s < SILENT_S or 2 * len(ranks) > int(picture.present.sum()) or (there & ends.answered).any():
                continue
            dead = there & ends.dead
            # Those whose connections are dead, and the analyzer's own, to which the node is silent.
            nodes = {*np.unique(told_by[dead]).tolist(), *self._beside}
            if dead.any():
                return _lost(found, ranks.tolist(), int(dead.sum()), len(nodes), silent_s, picture.now_s)
        return None

    def dead_pairs(self, picture: Picture, ranks: Ints) -> list[tuple[int, int, int]]:
        """Sender, receiver and retransmissions in a row of connections that are dead, between these if they run."""
        ends, _ = self.ends(picture.now_s)
        alive = picture.present & picture.fresh & ~picture.stopped & ~picture.gone
        alive &= np.isin(np.arange(len(alive)), ranks)
        known = np.flatnonzero(ends.dead & (ends.peer >= 0) & (ends.peer < len(alive)) & (ends.rank < len(alive)))
        known = known[alive[ends.rank[known]] & alive[ends.peer[known]]]
        return [(int(ends.rank[i]), int(ends.peer[i]), int(ends.tries[i])) for i in known[:LISTED]]


def _lost(found: Finding, ranks: list[int], connections: int, nodes: int, silent_s: float, now_s: float) -> Finding:
    """By the word of one other node alone it may be that one that is cut off: nobody is named then."""
    sure = nodes > 1
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

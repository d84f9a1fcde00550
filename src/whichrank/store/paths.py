"""What the kernels of the nodes say of the paths between ranks: connections that are dead, nodes that answer.

Kept per agent as reported last, since a node that is lost says nothing any more, and its end of each connection is
needed to know to whom the others' ends lead. Joined only when somebody asks: in a hang.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from whichrank.locate.links import ConnectionEnds, address_text, ends_of, is_loopback, loses_data
from whichrank.model.evidence import Evidence
from whichrank.model.incident import Link
from whichrank.model.picture import Ints, Picture
from whichrank.model.telemetry import TCP_ROW, WORD_EVERY_S, WORD_TO_NEIGHBOUR_EVERY_S, Batch
from whichrank.store.probes import Probes

STALE_S = 5.0
"""A look at a kernel that is older says nothing of now."""
LOST_S = 10.0
"""For so long after paths have lost data they are taken to lose more."""
LISTED = 16
"""Paths that are probed or listed."""

MOST_OF_A_RANK = 64
"""Connections that are kept of a rank, beside those that are in doubt: the ones over which most has gone."""

LATER_S = WORD_TO_NEIGHBOUR_EVERY_S - WORD_EVERY_S
"""An agent that sleeps beside the analyzer may be silent for so much longer than others."""

Pair = tuple[int, int, int]
"""Sender, receiver, and retransmissions in a row without an answer."""


class Paths:
    """The connections of a job."""

    def __init__(self) -> None:
        self._rows: dict[int, np.ndarray[Any, Any]] = {}
        self._reported_s: dict[int, float] = {}
        self._lost_s: dict[int, float] = {}
        self._spoke_s: dict[int, float] = {}
        self._node_number: dict[str, int] = {}
        self._node_of: dict[int, int] = {}
        self.name_of: dict[int, str] = {}
        self.beside: set[int] = set()
        self.probes = Probes()
        self._joined: tuple[ConnectionEnds, Ints, np.ndarray[Any, Any]] | None = None

    def note_heard(self, agent: int, now_s: float) -> None:
        """An agent that has spoken before has said that all is well."""
        if agent in self._spoke_s:
            self._spoke_s[agent] = now_s + self._later_s(self._node_of[agent])

    def take(self, batch: Batch, agent: int, now_s: float) -> None:
        """What an agent says of its node and, where it has looked, of connections."""
        node = self._node_of.get(agent)
        if node is None:
            node = self._learn_node(batch, agent)
        self._spoke_s[agent] = now_s + self._later_s(node)
        for event in batch.events:
            if event.probe:
                self.probes.take(node, event.probe, now_s)
        if batch.connections:
            rows = batch.connection_rows()
            age_ns = batch.sent_ns - int(rows["read_ns"].max())
            self._reported_s[agent] = now_s - max(age_ns, 0) / 1e9
            rows = those_that_matter(rows[rows["rank"] >= 0])
            if agent in self._rows and loses_data(rows, self._rows[agent]):
                self._lost_s[agent] = self._reported_s[agent]
            self._rows[agent] = rows
            self._joined = None

    def _learn_node(self, batch: Batch, agent: int) -> int:
        """The node of an agent that was not heard before."""
        node = self._node_number.setdefault(batch.node or batch.host, len(self._node_number))
        if batch.beside_analyzer:
            self.beside.add(node)
        self._node_of[agent], self.name_of[node] = node, batch.host
        return node

    def forget(self, agent: int) -> None:
        """Forget the connections and the node of an agent that turned out to watch another job."""
        for known in (self._rows, self._reported_s, self._lost_s, self._spoke_s, self._node_of):
            known.pop(agent, None)
        self._joined = None

    def joined(self) -> tuple[ConnectionEnds, Ints, np.ndarray[Any, Any]]:
        """All ends as reported last, the agent of each, and the same as rows of TCP_ROW."""
        if self._joined is None:
            agents = list(self._rows)
            rows = np.frombuffer(b"".join([self._rows[a].tobytes() for a in agents]), TCP_ROW)
            agent = np.repeat(np.array(agents, np.int64), [len(self._rows[a]) for a in agents])
            reported_s = np.repeat(
                np.array([self._reported_s[a] for a in agents]), [len(self._rows[a]) for a in agents]
            )
            known, rank = np.unique(rows["rank"], return_inverse=True)
            latest_s = np.full(len(known), -np.inf)
            np.maximum.at(latest_s, rank.reshape(-1), reported_s)
            # An agent that was started anew says the same connections once more: what the other reported is over.
            is_latest = reported_s == latest_s[rank.reshape(-1)]
            rows, agent = rows[is_latest], agent[is_latest]
            left = set(np.unique(agent).tolist())
            self._rows = {a: self._rows[a] for a in agents if a in left}
            node = np.array([self._node_of[a] for a in agent.tolist()], np.int64)
            losing = [a for a in left if self._reported_s[a] - self._lost_s.get(a, -np.inf) < LOST_S]
            self._joined = ends_of(rows, node, np.isin(agent, losing)), agent, rows
        return self._joined

    def carried(self) -> dict[int, dict[int, int]]:
        """Bytes that the kernels of receivers have acknowledged since connections were made, by sender and receiver."""
        ends, _, rows = self.joined()
        known = (ends.peer >= 0) & (ends.peer != ends.rank)
        carried: dict[int, dict[int, int]] = {}
        sizes = rows["info"]["bytes_acked"][known].tolist()
        for src, dst, size in zip(ends.rank[known].tolist(), ends.peer[known].tolist(), sizes, strict=True):
            to = carried.setdefault(src, {})
            to[dst] = to.get(dst, 0) + size
        return carried

    def wanted(self, agent: int) -> list[str]:
        """Addresses at which this agent is to probe now."""
        return self.probes.take_wanted(self._node_of[agent]) if agent in self._node_of else []

    def nodes(self, agent_of: Ints) -> Ints:
        """The number of each rank's node, -1 unknown.

        Args:
            agent_of: By rank, the agent that reported it last.
        """
        known = [*(self._node_of.get(a, -1) for a in range(int(agent_of.max(initial=-1)) + 1)), -1]
        return np.array(known, np.int64)[agent_of]

    def ends(self, now_s: float) -> tuple[ConnectionEnds, Ints]:
        """All ends that were looked at lately, joined with those that were not, and the agent of each."""
        ends, agent, _ = self.joined()
        agents = list(self._rows)
        lately = ~np.isin(agent, [a for a in agents if now_s - self._reported_s[a] > STALE_S])
        return replace(ends, dead=ends.dead & lately, answered=ends.answered & lately), agent

    def silence_s(self, node_of: Ints, now_s: float) -> dict[int, float]:
        """Seconds since each node was heard, of those that have ranks."""
        heard_s: dict[int, float] = {}
        for agent, node in self._node_of.items():
            heard_s[node] = max(heard_s.get(node, -np.inf), self._spoke_s[agent])
        return {node: max(now_s - heard_s[node], 0.0) for node in np.unique(node_of[node_of >= 0]).tolist()}

    @property
    def heard_longest_ago_s(self) -> float:
        """When that agent was heard that has been silent for longest."""
        return min(self._spoke_s.values(), default=np.inf)

    def probe(self, witnesses: Iterable[int], targets: Iterable[int], now_s: float) -> None:
        """Let nodes probe others, where an address is known."""
        addresses = {node: address for node in targets if (address := self._address(node))}
        self.probes.ask(witnesses, addresses, now_s)

    def probed(self, witnesses: Sequence[int], targets: Sequence[int], now_s: float) -> list[Evidence]:
        """What came of probing, in words."""
        return [
            Evidence(
                what=f"of {probe.sent} connections that the agent tried, answered",
                value=probe.answered,
                where=f"{self.name_of[witness]} to {self.name_of[target]}",
            )
            for target in targets[:LISTED]
            for witness in witnesses[:LISTED]
            if (probe := self.probes.of(witness, target, now_s))
        ][:LISTED]

    def ask_about(self, pairs: list[Pair], agent_of: Ints, now_s: float) -> list[Evidence]:
        """Let the nodes of dead connections probe each other; what came of it so far."""
        node_of = self.nodes(agent_of)
        paths = {(int(node_of[src]), int(node_of[dst])) for src, dst, _ in pairs if node_of[src] != node_of[dst]}
        facts: list[Evidence] = []
        for src, dst in sorted(paths | {(dst, src) for src, dst in paths})[:LISTED]:
            self.probe([src], [dst], now_s)
            facts += self.probed([src], [dst], now_s)
        return facts

    def connected(self, paths: Collection[tuple[int, int]], node_of: Ints) -> list[Pair]:
        """Pairs of ranks with a connection between these nodes, either path.

        Args:
            paths: Pairs of nodes.
            node_of: By rank.
        """
        if not paths:
            return []
        ends, _, _ = self.joined()
        known = np.flatnonzero((ends.peer >= 0) & (ends.peer < len(node_of)) & (ends.rank < len(node_of)))
        pairs = np.sort(np.stack((ends.rank[known], ends.peer[known]), axis=1), axis=1)
        places = int(node_of.max(initial=0)) + 1
        nodes = np.sort(node_of[pairs], axis=1)
        is_asked = (nodes[:, 0] >= 0) & np.isin(nodes @ [places, 1], [min(path) * places + max(path) for path in paths])
        return [(src, dst, 0) for src, dst in sorted({(src, dst) for src, dst in pairs[is_asked].tolist()})]

    def _later_s(self, node: int) -> float:
        """By how much later than others an agent of this node says its next word."""
        return LATER_S if node in self.beside else 0.0

    def _address(self, node: int) -> str | None:
        """An address of a node that others can have: the one of most of its connections."""
        _, agent, rows = self.joined()
        local = rows["local_addr"][np.isin(agent, [a for a, at in self._node_of.items() if at == node])]
        values, counts = np.unique(local[~is_loopback(local)], return_counts=True)
        return address_text(bytes(values[counts.argmax()])) if len(values) else None

    def dead_pairs(self, picture: Picture, ranks: Ints) -> list[Pair]:
        """Sender, receiver and retransmissions in a row of connections on which these send in vain.

        The receiver may have been silent since; it must not be known to have stopped or ended.
        """
        ends, _ = self.ends(picture.now_s)
        there = picture.present & ~picture.stopped & ~picture.gone
        sends = there & picture.fresh & np.isin(np.arange(len(there)), ranks)
        known = np.flatnonzero(ends.dead & (ends.peer >= 0) & (ends.peer < len(there)) & (ends.rank < len(there)))
        known = known[sends[ends.rank[known]] & there[ends.peer[known]]]
        return [(int(ends.rank[i]), int(ends.peer[i]), int(ends.tries[i])) for i in known[:LISTED]]


def those_that_matter(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of each rank the connections over which most has gone, and all on which something is not acknowledged or lost.

    Args:
        rows: Rows of TCP_ROW.
    """
    if len(rows) <= MOST_OF_A_RANK:
        return rows
    info = rows["info"]
    in_doubt = (info["backoff"] > 0) | (info["retransmits"] > 0) | (info["lost"] > 0) | (rows["unsent_bytes"] > 0)
    carried = info["bytes_acked"] + info["bytes_received"]
    order = np.lexsort((-carried.astype(np.int64), rows["rank"]))
    rank = rows["rank"][order]
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - np.searchsorted(rank, rank)
    kept: np.ndarray[Any, Any] = rows[in_doubt | (place < MOST_OF_A_RANK)]
    return kept


def links_of(pairs: list[Pair]) -> tuple[Link, ...]:
    """The paths, as an incident has them."""
    return tuple(Link(src=src, dst=dst) for src, dst in sorted({pair[:2] for pair in pairs})[:LISTED])


def dead_words(pairs: list[Pair]) -> tuple[Evidence, ...]:
    """What their kernels say of connections that are dead."""
    what = "retransmissions in a row without an answer"
    return tuple(
        Evidence(what=what, value=tries, where=f"rank {src} to rank {dst}") for src, dst, tries in pairs if tries
    )

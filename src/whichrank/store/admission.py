"""Is this batch of the job that is analyzed here? Two jobs may meet on one port; their faults must not mix.

No id travels with a job: each node starts by itself. So an agent is believed until what it says contradicts what the
agents of this job say. These facts are the same on all nodes of one job:

- its name, where the user gave it on all nodes; torchrun's id; the port at which its ranks meet; the number of ranks;
- a rank lives in one process at a time;
- no rank has met the ranks of this machine before the run that started them.

The run's own agent is always right; of two others the one that came first is. A job that restarts contradicts itself
for a moment, since agents are not heard at the same time. So an agent is *held* at first (answered, but not taken) and
*refused* only if both sides repeat what they said. Old processes of a restart are gone before the first new one starts;
so where nobody repeats the old value, the new one takes its place.

Example: torchrun ranks 2 and 3 of port 29501 join a job of port 29500. Their agent is held from its first batch on, and
refused three seconds later, by when the agents of this job have said 29500 again. Nothing of it was ever taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whichrank.model.telemetry import AnotherJob, Batch
from whichrank.store.rank_columns import are_over

CONFIRM_S: Final = 3.0
"""Both sides must go on contradicting each other for so long: agents say their state once a second at least."""
REPEATED_S: Final = 1.0
"""What is reported so long after the contradiction began was not under way before it."""
TAKEN_OVER_S: Final = 2.0
"""What nobody has repeated for so long was of processes that have ended."""
LATELY_S: Final = 5.0
"""An agent that was not heard for so long contradicts nobody."""
OWN_RANKS_S: Final = 20.0
"""So soon after its start a run has its own ranks, if it has any; until then older ranks of others wait."""
EARLIER_S: Final = 1.0
"""A group of ranks is older than the run by more than what clocks and messages may be late."""
MOST_RANKS: Final = 1 << 20
"""A higher number is no rank."""

Fact = Literal["name", "run_id", "master_port", "world_size", "group_size"]


class Standing(Enum):
    """What is done with a batch."""

    ADMITTED = "taken"
    HELD = "answered, but not taken"
    REFUSED = "answered with a refusal"


class _Ranks(NamedTuple):
    """What is looked at of the ranks of a batch, by column; rows of RANK_ROW are wide, and nobody copies them here."""

    rank: NDArray[np.int32]
    pid: NDArray[np.int32]
    created_ns: NDArray[np.uint64]
    alive: NDArray[np.bool_]
    init_ns: NDArray[np.uint64]
    """When it came into its first group; 0 not yet."""
    world: NDArray[np.int32]

    @property
    def met(self) -> NDArray[np.bool_]:
        """Which of them live and are in a group."""
        return np.asarray(self.alive & (self.init_ns > 0))

    def only(self, which: NDArray[np.bool_]) -> _Ranks:
        """Some of them."""
        return self if which.all() else _Ranks._make(column[which] for column in self)


def _ranks_of(batch: Batch) -> _Ranks:
    rows = batch.rank_rows()
    ranks = _Ranks(
        rank=np.ascontiguousarray(rows["rank"]),
        pid=np.ascontiguousarray(rows["pid"]),
        created_ns=np.ascontiguousarray(rows["created_ns"]),
        alive=~are_over(rows) & (rows["ended_ns"] == 0),
        init_ns=np.ascontiguousarray(rows["init_ns"]),
        world=np.ascontiguousarray(rows["world_size"]),
    )
    return ranks.only((ranks.rank >= 0) & (ranks.rank < MOST_RANKS))


@dataclass
class _Agent:
    """What was decided on an agent."""

    standing: Standing = Standing.ADMITTED
    is_fed: bool = False
    since_s: dict[str, float] = field(default_factory=dict)
    """When each contradiction that still stands was first seen."""
    refusal: AnotherJob | None = None


@dataclass
class _Value:
    """A fact of this job, who reported it last, and when."""

    value: str
    agent: str
    reported_s: float


class _Claims:
    """Which process is which rank, by rank, as admitted agents reported it last."""

    def __init__(self) -> None:
        self.agents: dict[str, int] = {}
        self.nodes: dict[str, int] = {}
        self.agent = np.full(0, -1, np.int64)
        self.node = np.full(0, -1, np.int64)
        self.pid = np.zeros(0, np.int64)
        self.created_ns = np.zeros(0, np.uint64)
        self.reported_s = np.full(0, -np.inf)
        self.alive = np.zeros(0, np.bool_)
        self.met = np.zeros(0, np.bool_)

    def grow(self, size: int) -> None:
        """Make room for this many ranks."""
        more = size - len(self.agent)
        if more > 0:
            for name, fill in (
                ("agent", -1), ("node", -1), ("pid", 0), ("created_ns", 0), ("reported_s", -np.inf), ("alive", False),
                ("met", False),
            ):  # fmt: skip
                old = getattr(self, name)
                setattr(self, name, np.concatenate((old, np.full(more, fill, old.dtype))))

    def others(self, batch: Batch, ranks: _Ranks, now_s: float) -> NDArray[np.bool_]:
        """Which of these another agent says live in another process."""
        rank = ranks.rank
        another = self.alive[rank] & (self.agent[rank] != self.agents.get(batch.agent, -2))
        if not another.any():
            return np.asarray(another)
        another &= now_s - self.reported_s[rank] < LATELY_S
        process = (self.pid[rank] == ranks.pid) & (self.created_ns[rank] == ranks.created_ns)
        return np.asarray(another & ~(process & (self.node[rank] == self._node(batch))))

    def take(self, batch: Batch, ranks: _Ranks, now_s: float, *, is_own: bool) -> None:
        """What an admitted agent says; a rank in a group of another agent's stays with it, unless this one is ours."""
        if not is_own:
            others = self.others(batch, ranks, now_s)
            if others.any():
                ranks = ranks.only(~(others & self.met[ranks.rank]) | ranks.met)
        rank = ranks.rank
        self.agent[rank] = self.agents.setdefault(batch.agent, len(self.agents))
        self.node[rank], self.pid[rank], self.created_ns[rank] = self._node(batch), ranks.pid, ranks.created_ns
        self.reported_s[rank], self.alive[rank], self.met[rank] = now_s, ranks.alive, ranks.met

    def forget(self, agent: str) -> None:
        """An agent is refused: its ranks are free."""
        self.alive[self.agent == self.agents.get(agent, -2)] = False

    def _node(self, batch: Batch) -> int:
        return self.nodes.setdefault(batch.node or batch.host, len(self.nodes))


class Admission:
    """Decides on every batch, before anything of it is taken.

    The first call comes when the run begins, before its own ranks start.

    Args:
        job: The job of the run that analyzes; the agent beside it says the same name.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._begun_s = math.nan
        self._agents: dict[str, _Agent] = {}
        self._values: dict[Fact, _Value] = {}
        self._claims = _Claims()
        self._own_alive_s = -np.inf
        self._again: set[str] = set()

    def begin(self, now_s: float) -> None:
        """Time has begun for this run, if it has not yet."""
        if math.isnan(self._begun_s):
            self._begun_s = now_s

    def judge(self, batch: Batch, now_s: float) -> Standing:
        """What to do with a batch. Batches without ranks are as their agent is."""
        self.begin(now_s)
        agent = self._agents.setdefault(batch.agent, _Agent())
        if agent.standing is Standing.REFUSED or not batch.ranks:
            return agent.standing
        ranks = _ranks_of(batch)
        if not len(ranks.rank):
            return agent.standing
        before = agent.standing
        self._claims.grow(int(ranks.rank.max()) + 1)
        is_own = batch.beside_analyzer and batch.job == self._job
        agent.standing = Standing.ADMITTED if is_own else self._standing(agent, batch, ranks, now_s)
        if agent.standing is Standing.ADMITTED:
            if before is Standing.HELD:
                self._again.add(batch.agent)
            agent.is_fed = True
            self._take(batch, ranks, now_s, is_own=is_own)
        elif agent.standing is Standing.REFUSED:
            self._claims.forget(batch.agent)
        return agent.standing

    def admits(self, agent: str) -> bool:
        """Whether the latest batch of this agent was taken."""
        return agent in self._agents and self._agents[agent].standing is Standing.ADMITTED

    def was_fed(self, agent: str) -> bool:
        """Whether batches of this agent were taken before it was refused."""
        return self._agents[agent].is_fed

    def refusal(self, agent: str) -> AnotherJob | None:
        """Why an agent is refused; None if it is not."""
        return self._agents[agent].refusal if agent in self._agents else None

    def take_again(self, agent: str) -> bool:
        """Whether an agent that was held is taken now, and has to say its communicators again."""
        is_again = agent in self._again
        self._again.discard(agent)
        return is_again

    def _take(self, batch: Batch, ranks: _Ranks, now_s: float, *, is_own: bool) -> None:
        if ranks.alive.any():
            for fact, value in _facts(batch, ranks):
                self._values[fact] = _Value(value, batch.agent, now_s)
            if is_own:
                self._own_alive_s = now_s
        self._claims.take(batch, ranks, now_s, is_own=is_own)

    def _standing(self, agent: _Agent, batch: Batch, ranks: _Ranks, now_s: float) -> Standing:
        """Held while there is a contradiction that was not repeated by both sides, refused once it was."""
        standing = Standing.ADMITTED
        found: set[str] = set()
        met = ranks.only(ranks.met)
        for other, repeated_s in self._contradictions(batch, ranks, met, now_s):
            key = f"{other.fact} {other.ours}"
            found.add(key)
            since_s = agent.since_s.setdefault(key, now_s)
            if repeated_s >= since_s + REPEATED_S and now_s - since_s >= CONFIRM_S:
                agent.refusal = other
                return Standing.REFUSED
            if repeated_s > since_s or now_s - since_s < TAKEN_OVER_S:
                standing = Standing.HELD
        agent.since_s = {key: since_s for key, since_s in agent.since_s.items() if key in found}
        return Standing.HELD if self._waits(batch, ranks, met, now_s) else standing

    def _contradictions(
        self, batch: Batch, ranks: _Ranks, met: _Ranks, now_s: float
    ) -> Iterator[tuple[AnotherJob, float]]:
        """What this agent says against others, and when the others said so last."""
        if not ranks.alive.any():
            return
        for fact, value in _facts(batch, ranks):
            ours = self._values.get(fact)
            if ours and ours.value != value and ours.agent != batch.agent and now_s - ours.reported_s < LATELY_S:
                said: Any = "world_size" if fact == "group_size" else fact
                yield AnotherJob(self._job, said, value, ours.value), ours.reported_s
        both = self._claims.others(batch, met, now_s) & self._claims.met[met.rank]
        if both.any():
            rank = met.rank[both]
            yield AnotherJob(self._job, "rank", str(int(rank[0])), ""), float(self._claims.reported_s[rank].max())
        if self._is_older(batch, met, now_s) and now_s - self._own_alive_s < LATELY_S:
            yield AnotherJob(self._job, "older", "", ""), self._own_alive_s

    def _waits(self, batch: Batch, ranks: _Ranks, met: _Ranks, now_s: float) -> bool:
        """Whether it is too early to say.

        Its ranks met before this run began, whose own ranks are still to come; or they have not met at all, and another
        agent has ranks of these numbers.
        """
        if not len(met.rank):
            return bool((self._claims.others(batch, ranks, now_s) & ranks.alive).any())
        if self._own_alive_s > -np.inf or batch.launch.name or now_s - self._begun_s >= OWN_RANKS_S:
            return False
        return self._is_older(batch, met, now_s)

    def _is_older(self, batch: Batch, met: _Ranks, now_s: float) -> bool:
        """Whether ranks were in their first group before this run began; by their age, on their own clock."""
        if not len(met.rank):
            return False
        age_s = (batch.sent_ns - int(met.init_ns.min())) / 1e9
        return now_s - age_s < self._begun_s - EARLIER_S


def _facts(batch: Batch, ranks: _Ranks) -> Iterator[tuple[Fact, str]]:
    """What an agent knows that is the same on all nodes of its job."""
    launch = batch.launch
    if launch.name:
        yield "name", launch.name
    if launch.run_id:
        yield "run_id", launch.run_id
    if launch.master_port:
        yield "master_port", str(launch.master_port)
    if launch.world_size:
        yield "world_size", str(launch.world_size)
    sizes = ranks.world[ranks.met & (ranks.world > 0)]
    if len(sizes) and (sizes == sizes[0]).all():
        yield "group_size", str(int(sizes[0]))

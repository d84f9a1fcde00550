"""What a loop is made of, here from the test: where batches come, an analyzer that notes when it looks, an agent."""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.model.changes import LevelChange
from whichrank.model.commands import Command, Order, Pace, Reply
from whichrank.model.finding import Blame
from whichrank.model.incident import Culprit, Incident, Spent
from whichrank.model.job_now import Lately
from whichrank.model.links import LinkRate
from whichrank.model.telemetry import VERSION, Batch

TICK_S = 0.25
BATCH = Batch(
    version=VERSION, job="j", agent="h:1", host="h", sequence=1, sent_ns=0, sent_realtime_ns=0, delay_bound_ns=0,
    node_ranks=1,
)  # fmt: skip


class End:
    """Where batches come; here from the test."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Batch, bool]] = []
        self.replies: list[Reply] = []
        self.commands: list[Command] = []
        self.refusals: list[str] = []
        self.refused = self.dropped = 0
        self.is_over = False

    def receive(self, _wait_s: float) -> list[tuple[Batch, bool]]:
        reported, self.waiting = self.waiting, []
        return reported

    def reply(self, _agent: str, reply: Reply) -> None:
        self.replies.append(reply)
        self.commands += reply.commands

    def agents(self) -> list[str]:
        return [] if self.is_over else ["h:1"]  # at the end none of other nodes is waited for


class Snapshots:
    """An analyzer that notes when it looks."""

    times: tuple[Spent, ...] = ()
    links: tuple[LinkRate, ...] = ()
    changes: tuple[LevelChange, ...] = ()

    def __init__(self) -> None:
        self.at: list[float] = []
        self.slowness_failed: Exception | None = None

    def feed_all(self, batches: Sequence[Batch], now_s: float) -> None:
        pass

    def tick(self, now_s: float) -> list[Incident]:
        self.at.append(now_s)
        return []

    pace = Pace(every_s=5.0)

    def culprit(self, blame: Blame) -> Culprit:
        return Culprit(rank=blame.rank, confidence=blame.confidence, why="")

    def lately(self) -> Lately | None:
        return None

    def orders(self, _agent: str) -> list[Order]:
        return []

    def finish(self, _now_s: float) -> list[Incident]:
        return []


class Agent:
    """An agent that is well."""

    hopeless = False
    pid = 1

    def step(self) -> None:
        pass

    def news(self) -> str:
        return ""

    def end(self) -> bool:
        return True

"""Which ranks and hosts were seen, by the agents that report them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from whichrank.model.codes import SensorState
from whichrank.model.sensors import C10D, SENSORS, SOCKET
from whichrank.model.telemetry import Batch
from whichrank.server.record import JobSummary


@dataclass
class _SeenByAgent:
    """What one agent has reported of its ranks."""

    host: str
    world_size: int = 0
    sensors: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Of each rank the state of each sensor, in the order of the registry."""
    lost: dict[int, int] = field(default_factory=dict)


class Roster:
    """Which ranks and hosts were seen, for the closing line and for job.json."""

    def __init__(self) -> None:
        self.world_size = 0
        self._of_agent: dict[str, _SeenByAgent] = {}

    def note(self, batch: Batch) -> None:
        """Take what a batch says of its ranks."""
        rows = batch.rank_rows()
        if not rows.size:
            return
        known = self._of_agent.setdefault(batch.agent, _SeenByAgent(batch.host))
        known.world_size = max(known.world_size, int(rows["world_size"].max()))
        self.world_size = max(known.world_size for known in self._of_agent.values())
        states = map(tuple, rows["sensor"].tolist())
        for rank, sensors, lost in zip(rows["rank"].tolist(), states, rows["lost_records"].tolist(), strict=True):
            known.sensors[rank] = sensors
            known.lost[rank] = lost

    def forget(self, agent: str) -> None:
        """It was of another job."""
        self._of_agent.pop(agent, None)
        self.world_size = max((known.world_size for known in self._of_agent.values()), default=0)

    @property
    def ranks(self) -> list[int]:
        """Ranks in order."""
        return sorted(self._sensors())

    def _sensors(self) -> dict[int, tuple[int, ...]]:
        """By rank, as reported last."""
        return {rank: states for known in self._of_agent.values() for rank, states in known.sensors.items()}

    def fill(self, summary: JobSummary) -> None:
        """Put it into `job.json`."""
        summary.hosts = list(dict.fromkeys(known.host for known in self._of_agent.values()))
        summary.ranks = self.ranks
        summary.world_size = self.world_size or None
        summary.lost_records = sum(sum(known.lost.values()) for known in self._of_agent.values())
        states = np.array(list(self._sensors().values()), dtype=int).reshape(-1, len(SENSORS))
        for sensor in SENSORS:
            counts = {state.name.lower(): int((states[:, sensor.place] == state).sum()) for state in SensorState}
            if counts["absent"] < len(states) or sensor in (C10D, SOCKET):
                summary.sensors[sensor.name] = {state: count for state, count in counts.items() if count}

"""Replays a recording as if several machines had reported it, each with a clock, a network and an agent of its own.

One recording of one node becomes the telemetry of several agents by ranks. What the wire promises is kept: batches of
an agent come in order, records and events are never lost on the way (states are: the next batch says them again).
What the world may do is drawn: delays and their reported bound, clocks that differ, states that are lost, batches sent
again without their states, rings that were overwritten, agents that die, deliveries that come twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
from recordings import Recording

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.model.incident import Incident
from whichrank.model.rows import INFLIGHT_ROW, RECORD, WAIT
from whichrank.model.telemetry import (
    COMM_ROW,
    INFLIGHT_REPORTED,
    PAIR_ROW,
    RANK_ROW,
    RECORD_REPORTED,
    WAIT_REPORTED,
    Batch,
)

CONFIG = AnalyzerConfig(hang_timeout_s=4.0, notice_min_s=2.0)
POLL_EVERY_S = 0.5
_DURATIONS = ("cpu_ns", "children_cpu_ns")


@dataclass(frozen=True)
class Effect:
    """What happens to one agent and its batches."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Added to the delay, drawn for each batch."""
    honest: bool = True
    """It says a bound of its delay; else it says that it knows none."""
    clock_s: float = 0.0
    """Its monotonic clock and its wall clock minus those of the recording."""
    dies_s: float = float("inf")
    """Seconds after the first batch."""
    loses_states: float = 0.0
    """Share of batches whose states are lost; what is reported once comes with the next one."""
    resends: float = 0.0
    """Share of batches that come a second later and without states."""
    overwritten: tuple[float, float] = (0.0, 0.0)
    """Seconds, from and to, in which all records of its rings are lost."""
    twice: float = 0.0
    """Share of batches that are delivered twice."""


@dataclass(frozen=True)
class World:
    """Which agent says which rank, and what happens to each."""

    agent_of: tuple[int, ...]
    effects: tuple[Effect, ...]
    seed: int = 0


@dataclass
class Outcome:
    """All that was said, in order."""

    words: list[tuple[float, Incident]] = field(default_factory=list)
    """Analyzer's time and the incident as it was then."""

    @property
    def alerts(self) -> list[Incident]:
        return [i for _, i in self.words if i.severity == "alert"]

    @property
    def verdict(self) -> Incident | None:
        """The last word of an alert that does not merely end it."""
        return self.alerts[-1] if self.alerts else None

    def named(self) -> set[int]:
        return {c.rank for _, i in self.words for c in i.culprits}


def one_agent(recording: Recording) -> World:
    """As it was recorded."""
    return World((0,) * recording.ranks, (Effect(),))


def play(recording: Recording, world: World, config: AnalyzerConfig = CONFIG, tail_s: float = 12.0) -> Outcome:
    """Feed an analyzer, tick it four times a second, and take down what it says.

    Args:
        recording: The job.
        world: What happens to its telemetry.
        config: Of the analyzer.
        tail_s: A hang goes on for so long after the recording.
    """
    analyzer = Analyzer(config, "replayed", 1_700_000_000.0)
    outcome = Outcome()
    arrivals = sorted(deliveries(recording, world, tail_s), key=lambda a: a[0])
    if not arrivals:
        return outcome
    now_s, end_s = arrivals[0][0], arrivals[-1][0] + (0.0 if _goes_on(recording) else 4.0)
    at = 0
    while now_s <= end_s:
        while at < len(arrivals) and arrivals[at][0] <= now_s:
            analyzer.feed(arrivals[at][1], arrivals[at][0])
            analyzer.orders(arrivals[at][1].agent)
            at += 1
        outcome.words += [(now_s, incident) for incident in analyzer.tick(now_s)]
        now_s += config.tick_s
    if not _goes_on(recording):
        outcome.words += [(now_s, incident) for incident in analyzer.finish(now_s)]
    return outcome


def _goes_on(recording: Recording) -> bool:
    """The job still ran when the recording stopped."""
    return bool((recording.reported[-1].batch.rank_rows()["ended_ns"] == 0).any())


def _hangs(recording: Recording) -> bool:
    """No rank issued anything between the last two snapshots of a job that still ran."""
    if not (recording.culprits and _goes_on(recording)):
        return False
    before, last = (reported.batch.rank_rows()["ordinal"] for reported in recording.reported[-2:])
    return bool(np.array_equal(before, last))


def deliveries(recording: Recording, world: World, tail_s: float) -> Iterator[tuple[float, Batch]]:
    """What comes to the analyzer, agent by agent: seconds and batch."""
    start_s = recording.reported[0].arrival_ns / 1e9
    story = [(reported.arrival_ns / 1e9, reported.batch) for reported in recording.reported]
    if _hangs(recording):
        story += list(_hang_goes_on(*story[-1], tail_s))
    for agent, effect in enumerate(world.effects):
        ranks = np.array([r for r in range(recording.ranks) if world.agent_of[r] == agent])
        if not len(ranks):
            continue
        yield from _reported_by(story, start_s, agent, ranks, effect, random.Random(world.seed * 64 + agent))


def _hang_goes_on(arrival_s: float, last: Batch, tail_s: float) -> Iterator[tuple[float, Batch]]:
    """The last snapshot again and again: nothing moves, and each snapshot reads the rings anew."""
    for k in range(1, int(tail_s / POLL_EVERY_S) + 1):
        step_ns = int(k * POLL_EVERY_S * 1e9)
        rows = last.rank_rows().copy()
        rows["read_ns"][rows["ended_ns"] == 0] += np.uint64(step_ns)
        yield (
            arrival_s + k * POLL_EVERY_S,
            msgspec.structs.replace(
                last,
                ranks=rows.tobytes(),
                records=b"",
                events=[],
                comm_info=[],
                sent_ns=last.sent_ns + step_ns,
                sent_realtime_ns=last.sent_realtime_ns + step_ns,
            ),
        )


def _reported_by(
    story: list[tuple[float, Batch]], start_s: float, agent: int, ranks: np.ndarray, effect: Effect, rng: random.Random
) -> Iterator[tuple[float, Batch]]:
    sequence, arrives_s, lost = 0, 0.0, 0
    kept: list[Batch] = []
    for at_s, whole in story:
        if at_s - start_s > effect.dies_s:
            return
        batch = _of_ranks(whole, ranks)
        if effect.overwritten[0] <= at_s - start_s < effect.overwritten[1]:
            lost += len(batch.record_rows())
            batch = msgspec.structs.replace(batch, records=b"")
        if lost:
            rows = batch.rank_rows().copy()
            rows["lost_records"] += np.uint64(lost // max(1, len(rows)) + 1)
            batch = msgspec.structs.replace(batch, ranks=rows.tobytes())
        kept.append(batch)
        if rng.random() < effect.loses_states and (at_s, whole) is not story[-1]:
            continue
        once = rng.random() < effect.resends
        delay_s = effect.delay_s + rng.uniform(0, effect.jitter_s) + (1.0 if once else 0.0)
        bound_s = effect.delay_s + effect.jitter_s + (1.0 if effect.resends else 0.0)
        sequence += 1
        arrives_s = max(arrives_s, at_s + delay_s)
        sent = msgspec.structs.replace(
            batch,
            records=b"".join(b.records for b in kept),
            events=[e for b in kept for e in b.events],
            comm_info=[c for b in kept for c in b.comm_info],
            agent=f"host-{agent}:1",
            host=f"host-{agent}",
            sequence=sequence,
            delay_bound_ns=int((bound_s + 0.05) * 1e9) if effect.honest else -1,
        )
        kept = []
        if once:
            sent = msgspec.structs.replace(sent, ranks=b"", comms=b"", pairs=b"", inflight=b"", waits=b"")
        sent = _on_clock(sent, int(effect.clock_s * 1e9))
        yield arrives_s, sent
        if rng.random() < effect.twice:
            yield arrives_s, sent


def _of_ranks(batch: Batch, ranks: np.ndarray) -> Batch:
    """What the agent of these ranks says of it."""

    def part(rows: np.ndarray) -> bytes:
        return rows[np.isin(rows["rank"], ranks)].tobytes()

    return msgspec.structs.replace(
        batch,
        node_ranks=len(ranks),
        ranks=part(batch.rank_rows()),
        comms=part(batch.comm_rows()),
        pairs=part(batch.pair_rows()),
        inflight=part(batch.inflight_rows()),
        waits=part(batch.wait_rows()),
        records=part(batch.record_rows()),
        events=[e for e in batch.events if e.rank in ranks],
    )


def _on_clock(batch: Batch, offset_ns: int) -> Batch:
    """The same on a clock that differs; 0 stays "never"."""
    if not offset_ns:
        return batch
    columns = {}
    for name, outer, inner in (
        ("ranks", RANK_ROW, None), ("comms", COMM_ROW, None), ("pairs", PAIR_ROW, None),
        ("inflight", INFLIGHT_REPORTED, INFLIGHT_ROW), ("waits", WAIT_REPORTED, WAIT), ("records", RECORD_REPORTED,
        RECORD),
    ):  # fmt: skip
        rows = np.frombuffer(getattr(batch, name), outer).copy()
        there = rows["row"] if inner is not None else rows
        for column in (inner or outer).names or ():
            if column.endswith("_ns") and column not in _DURATIONS:
                moved = there[column].astype(np.int64) + offset_ns
                there[column] = np.where(there[column] > 0, moved, 0)
        columns[name] = rows.tobytes()
    return msgspec.structs.replace(
        batch,
        sent_ns=batch.sent_ns + offset_ns,
        sent_realtime_ns=batch.sent_realtime_ns + offset_ns,
        events=[msgspec.structs.replace(e, at_ns=e.at_ns + offset_ns) for e in batch.events],
        **columns,
    )

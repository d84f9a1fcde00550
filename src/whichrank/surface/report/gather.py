"""What a report and an export show of a job, taken from an analyzer while it is fed: numbers and names, no sentences.

Operations are kept as columns. Of a large job not all fit: then those of the latest time are kept, those of ranks that
an incident names a little longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.analyzer import Analyzer
from whichrank.model.changes import LevelChange
from whichrank.model.incident import Incident
from whichrank.model.links import LinkRate
from whichrank.model.signature import kind_name
from whichrank.model.telemetry import Batch, Stack
from whichrank.server.mitigations_file import Mitigated
from whichrank.stage.config_file import Configured
from whichrank.stage.groups import groups_of
from whichrank.surface.report.job_layout import NO_LAYOUT, LayoutWords, layout_words
from whichrank.surface.report.scene import Scene, capture, named_in, with_stacks
from whichrank.surface.report.spans import SpanBuffer, Spans, fitting, open_spans

MOST_SPANS: Final = 480_000
MOST_SCENES: Final = 16
"""Incidents of which more is kept than their words."""
MOST_OPERATIONS: Final = 40
MOST_STACKS_HELD: Final = 4096
STACKS_BEFORE_S: Final = 5.0
"""Stacks are taken on suspicion, which may come a little before the onset that is settled later."""


@dataclass(frozen=True)
class Operations:
    """Operations of one sort: kind, size and communicators that are described alike.

    Attributes:
        comm: What the communicators are for.
        kind: Of the operations.
        count: How many.
        total_s: Of all of them, over all ranks.
        median_s: Of one.
        longest_s: Of one.
        longest_rank: Whose that was.
        waited_s: Of all, as far as threads were blocked.
    """

    comm: str
    kind: str
    count: int
    total_s: float
    median_s: float
    longest_s: float
    longest_rank: int
    waited_s: float


@dataclass(frozen=True)
class EarlierAttempt:
    """What is shown of an attempt of the job before the last one.

    Attributes:
        number: Of the attempt, as of `recording.Attempt`.
        title: `attempt 1 of 2`.
        incidents: That were found in it.
        left_open: Why its recording does not show which rank waits for which; empty if it does.
        remarks: What else is to be said of it, in sentences that begin small and have no full stop.
    """

    number: int
    title: str
    incidents: tuple[Incident, ...]
    left_open: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gathered:
    """What a page or an export is made of.

    Attributes:
        job: Its name.
        world_size: Ranks; 0 if that is not known.
        hosts: By rank, where that is known.
        incidents: The last word on each.
        scenes: What surrounded each incident; None where that is not known.
        job_scene: The latest of a job that has no incident.
        spans: Rows of SPAN, on the analyzer's clock.
        comms: Names of communicators, by number.
        operations: The sorts of operations that took longest.
        links: Rates from rank to rank between nodes.
        changes: From when on iterations took longer, or less long, than before.
        utc_offset_s: From the analyzer's clock to UTC; None if that is not known.
        end_s: Until when the job was observed, on the analyzer's clock. None if nothing says it, as in dumps: then it
            is not known how long anything that had not ended lasted.
        seen: Operations that the job was seen to complete.
        complete_since_s: Operations that ended before this are missing in part; -inf if none is.
        more_hosts: Hosts of the job of which no rank is known.
        missing: A sentence that says why there is nothing but what was reported while the job ran; empty if there is.
        is_whole: What was read does not end within an entry.
        left_open: Why the recording does not show which rank waits for which; empty if it does.
        layout: How ranks are arranged.
        mitigations: What was done about something slow, in order.
        attempt: Which attempt of the job all of this is about, `attempt 2 of 2 (last)`; empty if there was one only.
        earlier: The attempts before it, the latest first.
        remarks: What else is to be said of it, in sentences that begin small and have no full stop.
    """

    job: str
    world_size: int
    hosts: dict[int, str]
    incidents: tuple[Incident, ...]
    scenes: tuple[Scene | None, ...]
    job_scene: Scene | None
    spans: Spans
    comms: tuple[str, ...]
    operations: tuple[Operations, ...]
    links: tuple[LinkRate, ...]
    utc_offset_s: float | None
    end_s: float | None
    seen: int
    complete_since_s: float = -np.inf
    more_hosts: tuple[str, ...] = ()
    changes: tuple[LevelChange, ...] = ()
    missing: str = ""
    is_whole: bool = True
    left_open: str = ""
    layout: LayoutWords = NO_LAYOUT
    mitigations: tuple[Mitigated, ...] = ()
    attempt: str = ""
    earlier: tuple[EarlierAttempt, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def has_times(self) -> bool:
        """False where the recording says in which order things happened, and not when: it has no clock at all."""
        return self.utc_offset_s is not None or self.end_s is not None


class Gatherer:
    """Keeps what an analyzer is reported and what it reports.

    Args:
        analyzer: Is fed by whoever has this; call `see` after each batch and `report` after each tick.
        most_spans: Operations that are kept.
        configured: What a configuration of the job says; None where there is none.
    """

    def __init__(self, analyzer: Analyzer, most_spans: int = MOST_SPANS, configured: Configured | None = None) -> None:
        self._analyzer = analyzer
        self._configured = configured
        self._most = most_spans
        self._buffer = SpanBuffer(most_spans)
        self._latest: dict[str, Incident] = {}
        self._scenes: dict[str, Scene] = {}
        self._stacks: list[tuple[float, int, list[Stack]]] = []

    def see(self, batch: Batch) -> None:
        """A batch that the analyzer was fed just now."""
        store = self._analyzer.store
        self._buffer.add(batch, store, self._named())
        for event in batch.events:
            if event.kind == "stacks" and 0 <= event.rank < store.ranks.size:
                at_s = event.at_ns / 1e9 + float(store.ranks.offset_s[event.rank])
                self._stacks = [*self._stacks, (at_s, event.rank, event.stacks)][-MOST_STACKS_HELD:]

    def report(self, incidents: Iterable[Incident], now_s: float) -> None:
        """Incidents that the analyzer reported just now.

        Args:
            incidents: New ones, or the latest word on earlier ones.
            now_s: The analyzer's time.
        """
        for incident in incidents:
            self._latest[incident.id] = incident
            before = self._scenes.get(incident.id)
            is_alert = incident.severity == "alert"
            if before is None and len(self._scenes) >= MOST_SCENES and not (is_alert and self._forget_a_notice()):
                continue
            self._scenes[incident.id] = capture(self._analyzer, self._buffer, incident, now_s, before)

    def gathered(
        self, job: str, now_s: float, utc_offset_s: float | None, *, knows_end: bool, is_whole: bool = True
    ) -> Gathered:
        """What is known at the end.

        Args:
            job: Its name.
            now_s: The analyzer's time.
            utc_offset_s: From that to UTC, None if it is not known.
            knows_end: The job was observed until `now_s`, and not until some moment that nothing says.
            is_whole: What was read does not end within an entry.
        """
        store = self._analyzer.store
        picture = store.picture(now_s)
        spans = np.concatenate((self._buffer.all(), open_spans(picture.ops, now_s)))
        spans, dropped_s = fitting(spans, self._named(), self._most)
        incidents = tuple(self._latest.values())
        return Gathered(
            job=job,
            world_size=store.ranks.size,
            hosts={rank: host for rank, host in store.host.items() if host},
            incidents=incidents,
            scenes=tuple(self._scene(incident) for incident in incidents),
            job_scene=None if incidents else capture(self._analyzer, self._buffer, None, now_s),
            spans=spans,
            comms=tuple(store.comms.name(comm) for comm in range(len(store.comms.info))),
            operations=self._operations(spans),
            links=self._analyzer.links,
            changes=self._analyzer.changes,
            utc_offset_s=utc_offset_s,
            end_s=now_s if knows_end else None,
            seen=self._buffer.seen + int(spans["open"].sum()),
            complete_since_s=max(self._buffer.since_s, dropped_s),
            is_whole=is_whole,
            layout=layout_words(groups_of(store.comms, store.kinds, store.ranks.size), self._configured),
        )

    def _named(self) -> np.ndarray:
        return np.array(sorted({r for incident in self._latest.values() for r in named_in(incident)}), np.int64)

    def _forget_a_notice(self) -> bool:
        """Make room for an alert; False if there are only alerts."""
        notices = [number for number in self._scenes if self._latest[number].severity == "notice"]
        if notices:
            del self._scenes[notices[0]]
        return bool(notices)

    def _scene(self, incident: Incident) -> Scene | None:
        """With the stacks that were taken while the incident lasted."""
        scene = self._scenes.get(incident.id)
        if scene is None:
            return None
        zero_s = self._analyzer.ledger.utc(0.0).timestamp()
        since_s = incident.onset.timestamp() - zero_s - STACKS_BEFORE_S if incident.onset else -np.inf
        until_s = incident.ended.timestamp() - zero_s if incident.ended else np.inf
        return with_stacks(scene, self._stacks, since_s, until_s)

    def _operations(self, spans: Spans) -> tuple[Operations, ...]:
        """The sorts that took longest in all."""
        spans = spans[~spans["open"]]
        if not len(spans):
            return ()
        names = [self._analyzer.store.comms.name(comm) for comm in range(len(self._analyzer.store.comms.info))]
        kinds = {name: number for number, name in enumerate(dict.fromkeys(names))}
        sort = np.array([kinds[name] for name in names], np.int64)[spans["comm"]] << 8 | spans["kind"]
        lasted_s = spans["end_s"] - spans["start_s"]
        found = []
        for value in np.unique(sort).tolist():
            mine = np.flatnonzero(sort == value)
            longest = mine[int(np.argmax(lasted_s[mine]))]
            found.append(
                Operations(
                    comm=list(kinds)[value >> 8], kind=kind_name(value & 0xFF), count=len(mine),
                    total_s=float(lasted_s[mine].sum()), median_s=float(np.median(lasted_s[mine])),
                    longest_s=float(lasted_s[longest]), longest_rank=int(spans["rank"][longest]),
                    waited_s=float(spans["waited_s"][mine].sum()),
                )
            )  # fmt: skip
        return tuple(sorted(found, key=lambda one: -one.total_s)[:MOST_OPERATIONS])

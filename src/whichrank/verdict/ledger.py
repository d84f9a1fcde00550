"""One incident per root cause: findings open it, refine it, and end it.

The life of a hang: a *notice* when ranks have waited long without hard evidence, an *alert* on hard evidence or at
the timeout, `recovered` when the job moves on, `final` when it ends. What an alert has named stands: when the job
then dies, the deaths are its consequences and not new incidents. A notice may still change its mind about one and the
same wait; another rank's fault that comes on top of it is an incident of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import msgspec

from whichrank.model.codes import UNNUMBERED
from whichrank.model.evidence import is_place
from whichrank.model.finding import Blame, Finding
from whichrank.model.incident import (
    Cause,
    Communicator,
    Culprit,
    Incident,
    Link,
    Op,
    Reason,
    SensorReport,
    Severity,
    Stage,
    Victims,
)
from whichrank.model.next_steps import needs_processes
from whichrank.model.plain_text import is_host_name, is_job_name
from whichrank.model.roles import infer_role
from whichrank.model.sensors import NAME_OF_STATE, SENSORS
from whichrank.model.signature import dtype_name, kind_name, op_bytes, op_name
from whichrank.store.store import Store
from whichrank.verdict.policy import Event, State, after
from whichrank.verdict.words.clauses import sentence, words

LISTED_VICTIMS = 1024
"""Ranks in the list of an incident; their number is exact."""
MOST_LINKS = 64
"""In one incident."""
MOST_NOTICED = 1024
"""Notices that are remembered, so that the same one is not sent again."""
ANOTHER_S = 1.0
"""A wait that began this much later than that of an open notice is another one."""
MOST_OF_A_CANDIDATE = 0.5
"""The confidence in a candidate, at the most: where it is more likely than not, it is named."""


class Ledger:
    """The incidents of one job."""

    def __init__(self, job: str, utc_offset_s: float, store: Store) -> None:
        self._job = job
        self._utc_offset_s = utc_offset_s
        self._store = store
        self._count = 0
        self.incidents: dict[str, Incident] = {}
        self.open_ones: list[tuple[Incident, Finding]] = []
        """Open incidents; the last one is refined by what is found next, the others were set aside by it."""
        self._settled: set[frozenset[int]] = set()
        self._kept: dict[str, Incident] = {}
        self._over: dict[str, tuple[Incident, float]] = {}  # of those, what has ended, and when
        self._taken_over: dict[str, str] = {}  # the key of several candidates, and of the one that was named
        self._noticed: dict[tuple[object, ...], None] = {}  # what kept notices said, the oldest first

    @property
    def has_open(self) -> bool:
        """Whether an incident is open."""
        return bool(self.open_ones or self._kept)

    def utc(self, time_s: float) -> datetime:
        """A time on the analyzer's clock as UTC."""
        return datetime.fromtimestamp(time_s + self._utc_offset_s, UTC)

    def report(self, finding: Finding, severity: Severity, now_s: float, *, own_death: bool = False) -> list[Incident]:
        """Open an incident for this finding, or refine the one that is open. Returns what changed.

        Args:
            finding: What is found.
            severity: What it is worth.
            now_s: The time.
            own_death: It is a death that no other fault can have led to.
        """
        current, known = self.open_ones[-1] if self.open_ones else (None, None)
        if finding.names and finding.names in self._settled and finding.reason != Reason.STOPPED and not own_death:
            return []  # reported already: what was wrong in its data has now stopped the job
        if finding.fault_class == "H2" and not finding.names and self._is_settled(finding):
            return []  # the same, and this evidence alone does not say who of its peers it was
        if not own_death and any(i.severity == "alert" and _ended_the_hang(k, finding) for i, k in self.open_ones):
            return []
        changed = []
        if current and known and _on_top(known, finding, current.severity, own_death):
            if not finding.hard and known.waited_for and not known.blamed & finding.waited_for:
                changed = self.close(now_s, Event.OVER, current.id)
            current = self._taken_up(finding)
        elif current and known and current.severity == "alert" and known.names and finding.names != known.names:
            return []  # what an alert has named stands; what follows are its consequences
        elif current and known and _as_little(known, finding) and severity in ("notice", current.severity):
            return []  # the picture moves on under a failure, and what it says of nobody changes with each snapshot
        if current:
            self.open_ones.pop()
        incident = self._make(finding, Event.URGENT if severity == "alert" else Event.DUE, now_s, current)
        if current and _same(current, incident):
            self.open_ones.append((current, finding))
            return changed
        self.open_ones.append((incident, finding))
        self.incidents[incident.id] = incident
        return [*changed, incident]

    def _is_settled(self, finding: Finding) -> bool:
        """Is one of the candidates reported already, for what it did before?"""
        candidates = {b.rank for b in finding.candidates}
        return any(names <= candidates for names in self._settled)

    def _taken_up(self, finding: Finding) -> Incident | None:
        """One of the incidents aside that blames the same ranks for the same wait; it becomes the last one."""
        for place, (incident, known) in enumerate(self.open_ones):
            same_wait = finding.hard or abs(finding.onset_s - known.onset_s) <= ANOTHER_S
            if known.blamed == finding.blamed and same_wait:
                self.open_ones.append(self.open_ones.pop(place))
                return incident
        return None

    @property
    def open_finding(self) -> Finding | None:
        """What the incident says that is refined next."""
        return self.open_ones[-1][1] if self.open_ones else None

    @property
    def named(self) -> list[frozenset[int]]:
        """The ranks of each open incident, the one reported last first."""
        return [finding.names for _, finding in self.open_ones[::-1] if finding.names]

    def close(self, now_s: float, event: Event, only: str | None = None) -> list[Incident]:
        """End the open incidents by `OVER` or `ENDED`, or only the one with this id."""
        ending = [i for i, _ in self.open_ones if only in (None, i.id)]
        self.open_ones = [pair for pair in self.open_ones if only not in (None, pair[0].id)]
        return self._ended(ending, event, now_s)

    def rest(self) -> list[Incident]:
        """No later word will come, and when it ended is not known."""
        changed = [_over(i, Event.ENDED, None) for i in self.incidents.values() if i.status == "open"]
        self.incidents.update({i.id: i for i in changed})
        return changed

    def end(self, now_s: float) -> list[Incident]:
        """The job has ended: so have all its incidents."""
        changed = self.close(now_s, Event.ENDED)
        return changed + self._ended([i for i in self.incidents.values() if i.status == "open"], Event.ENDED, now_s)

    def _ended(self, incidents: list[Incident], event: Event, now_s: float) -> list[Incident]:
        changed = [_over(i, event, max(self.utc(now_s), i.detected)) for i in incidents]
        self.incidents.update({i.id: i for i in changed})
        return changed

    def add_closed(self, finding: Finding, now_s: float) -> list[Incident]:
        """An incident of its own that no later state can end (wrong data), unless one says it already."""
        if finding.names in self._settled or (self.open_finding and self.open_finding.names == finding.names):
            return []
        if finding.names:
            self._settled.add(finding.names)
        incident = self._make(finding, Event.URGENT, now_s, None, is_present=False)
        self.incidents[incident.id] = incident
        return [incident]

    def keep(self, key: str, finding: Finding, severity: Severity, now_s: float, again_s: float) -> list[Incident]:
        """Open an incident that stands beside all others, or say what is known besides: a reason, a rank, a link.

        Args:
            key: The same for the same.
            finding: What is found.
            severity: What it is worth.
            now_s: The time.
            again_s: What comes again within this time is the same incident.
        """
        if self._taken_over.get(key) in self._kept:
            return []  # one of its candidates has been named since: the same incident
        before, ended_s = self._over.get(key, (None, 0.0))
        comes_again = before is not None and now_s - ended_s <= again_s
        known = self._kept.get(key) or (None if comes_again else self._explained_now(key, finding, again_s))
        if known and not _says_more(finding, severity, known):
            return []
        said = (key, finding.cause, finding.reason, finding.names or frozenset(b.rank for b in finding.candidates))
        if severity == "notice" and not known:
            if said in self._noticed:
                return []  # it has come and gone before
            self._noticed[said] = None
            while len(self._noticed) > MOST_NOTICED:
                del self._noticed[next(iter(self._noticed))]
        if known and finding.links:
            links = dict.fromkeys((*self._scoped(finding.links), *known.links))
            finding = replace(finding, links=tuple(links)[:MOST_LINKS])
        self._over.pop(key, None)
        if comes_again:
            known = before
        event = Event.URGENT if severity == "alert" else Event.EXPLAINED if known else Event.DUE
        incident = self._kept[key] = self._make(finding, event, now_s, known)
        self.incidents[incident.id] = incident
        return [incident]

    def _explained_now(self, key: str, finding: Finding, near_s: float) -> Incident | None:
        """An open incident that this explains: it becomes the incident of this.

        It is one of whose candidates one is named now, as slow itself, or one for which there was no reason at all and
        that began at about the same time.
        """
        is_slow_rank = bool(finding.names) and finding.cause in (Cause.COMPUTE_SLOW, Cause.MIXED_SLOW)
        for of_before, incident in self._kept.items():
            if incident.cause != Cause.UNKNOWN or incident.kind != "slow":
                continue
            candidates = {candidate.rank for candidate in incident.candidates}
            is_one_of_them = is_slow_rank and finding.names <= candidates
            onset, began = self.utc(finding.onset_s), incident.onset
            is_near = began is not None and abs((onset - began).total_seconds()) <= near_s
            if is_one_of_them or (not candidates and is_near and (is_slow_rank or finding.links)):
                self._taken_over[of_before] = key
                while len(self._taken_over) > MOST_NOTICED:
                    del self._taken_over[next(iter(self._taken_over))]
                return self._kept.pop(of_before)
        return None

    def drop(self, is_over: Callable[[str], bool], now_s: float, ended_s: float | None = None) -> list[Incident]:
        """End those of the incidents that are kept by a key that are over.

        Args:
            is_over: By key.
            now_s: The time.
            ended_s: When it was over, where that is known; it is seen late.
        """
        over = [key for key in self._kept if is_over(key)]
        changed = self._ended([self._kept.pop(key) for key in over], Event.OVER, now_s if ended_s is None else ended_s)
        self._over.update({key: (incident, now_s) for key, incident in zip(over, changed, strict=True)})
        return changed

    def _make(
        self, finding: Finding, event: Event, now_s: float, current: Incident | None, *, is_present: bool = True
    ) -> Incident:
        """The incident of a finding.

        Args:
            finding: What is found.
            event: What happens to it, see `policy.LIFE`.
            now_s: The time.
            current: What was said of it before.
            is_present: It happens now: its ranks are still in the iteration in which it began.
        """
        if current is None:
            self._count += 1
        now, onset = self.utc(now_s), self.utc(finding.onset_s)
        named = finding.culprits or finding.candidates
        stage = self._stage(finding, is_present=is_present and finding.kind != "slow")
        if current and current.onset and current.onset <= onset:
            onset, stage = current.onset, _begun_in(stage, current)
        return Incident(
            id=current.id if current else f"{self._job}-{self._count}",
            job=self._job,
            severity="alert" if after(current, event) is State.ALERT else "notice",
            status="open",
            kind=finding.kind,
            cause=finding.cause,
            reason=finding.reason,
            fault_class=finding.fault_class,
            culprits=tuple(self.culprit(b) for b in finding.culprits),
            candidates=tuple(self.culprit(b, MOST_OF_A_CANDIDATE) for b in finding.candidates),
            links=self._scoped(finding.links),
            communicator=self._communicator(finding.comm),
            op=self._op(finding),
            stage=stage,
            onset=onset,
            detected=current.detected if current else now,
            located=now
            if finding.culprits and not (current and current.located)
            else (current.located if current else None),
            victims=Victims(count=len(finding.victims), ranks=finding.victims[:LISTED_VICTIMS]),
            evidence=finding.evidence,
            times=finding.times,
            next=tuple(map(sentence, finding.next)) or self._next(finding, [b.rank for b in named]),
            sensors=self._sensors(),
            complete=finding.complete,
        )

    def culprit(self, blame: Blame, most: float = 1.0) -> Culprit:
        """A rank that is blamed, with what is known of where it is; no more sure of it than `most`."""
        rank = blame.rank
        seen = rank < self._store.ranks.size and self._store.ranks.present[rank]
        return Culprit(
            rank=rank,
            confidence=round(min(blame.confidence, most), 3),
            why=words(blame.why, over=False),
            clauses=blame.why,
            host=self._store.host.get(rank) or None,
            pid=(int(self._store.ranks.rows["pid"][rank]) or None) if seen else None,
        )

    def _scoped(self, links: tuple[Link, ...]) -> tuple[Link, ...]:
        """With the word whether they leave a node."""
        if not links:
            return ()
        node_of = dict(enumerate(self._store.paths.nodes(self._store.ranks.agent).tolist()))

        def scoped(link: Link) -> Link:
            src, dst = node_of.get(link.src, -1), node_of.get(link.dst, -1)
            if min(src, dst) < 0 or not self._says_hosts(link):
                return link
            return msgspec.structs.replace(link, scope="intra_node" if src == dst else "inter_node")

        return tuple(map(scoped, links))

    def _says_hosts(self, link: Link) -> bool:
        """Is it known where both ends are? A recording may not say that."""
        return self._store.recorded is None or all(self._store.host.get(rank) for rank in (link.src, link.dst))

    def _communicator(self, comm: int) -> Communicator | None:
        if comm < 0:
            return None
        info = self._store.comms.info[comm]
        role, sure = infer_role(info.desc, info.members, self._store.ranks.size, self._store.kinds.of(comm))
        places = self._store.comms.members_of(comm)
        members = [member for member in places if member >= 0]
        if self._store.recorded is not None and len(members) < len(places):
            members = []  # how many there are is not known either
        name = info.desc if info.desc not in ("", "undefined") else info.name
        return Communicator(
            id=f"{info.comm_id:016x}",
            name=name,
            role=role,
            members=tuple(members),
            role_confidence=sure if role else None,
        )

    def _op(self, finding: Finding) -> Op | None:
        if not finding.op:
            return None
        op = finding.op
        comm_id = self._store.comms.info[finding.comm].comm_id if finding.comm >= 0 else 0
        return Op(
            trace_id=f"{comm_id:016x}-{op['counter']}" if op["counter"] < UNNUMBERED else None,
            kind=kind_name(op["kind"]),
            bytes=op_bytes(op["dtype"], op["count"]),
            dtype=dtype_name(op["dtype"]),
        )

    def _stage(self, finding: Finding, *, is_present: bool) -> Stage | None:
        """Where in the training it happened; of what is not of the present only what the finding itself knows."""
        ranks = [b.rank for b in finding.culprits] + list(finding.victims)
        iteration = finding.iteration
        if iteration is None and is_present:
            iteration = next((i for r in ranks if (i := self._store.iteration_of(r)) is not None), None)
        role = self._communicator(finding.comm)
        phase = finding.phase or ("data" if finding.reason == Reason.DATA_WAIT else None)
        if phase is None and finding.reason == Reason.CHECKPOINT:
            phase = "checkpoint"
        microbatch = finding.microbatch
        if phase is None and finding.kind != "slow" and is_present and len(finding.culprits) == 1:
            rank = finding.culprits[0].rank
            phase, microbatch = self._store.passes.part_of(rank, self._store.ordinal(rank)) or (None, None)
        is_inside = finding.cause not in (Cause.NOT_ENTERED, Cause.PROCESS_EXIT)
        if phase is None and role and role.role in ("dp", "edp") and is_inside:
            phase = "dp_sync"
        op = None
        if finding.op and role:
            op = f"{op_name(finding.op['kind'], finding.op['counter'])} on {self._store.comms.name(finding.comm)}"
        if iteration is None and not phase and not op:
            return None
        return Stage(iteration=iteration, phase=phase, microbatch=microbatch, op=op)

    def _sensors(self) -> tuple[SensorReport, ...]:
        rows = self._store.ranks.rows[self._store.ranks.present]
        reports = []
        for sensor in SENSORS:
            for state, word in NAME_OF_STATE.items():
                if count := int((rows["sensor"][:, sensor.place] == state).sum()):
                    reports.append(SensorReport(name=sensor.name, state=word, ranks=count))
        return tuple(reports)

    def _next(self, finding: Finding, ranks: list[int]) -> tuple[str, ...]:
        commands = []
        for rank in ranks[:2]:
            if not self._store.ranks.present[rank] or not self._store.was_observed(rank):
                continue
            pid, on = int(self._store.ranks.rows["pid"][rank]), self._on(rank)
            if finding.reason == Reason.STOPPED and finding.kind != "slow":  # else it goes on by itself
                commands.append(f"{on}: kill -CONT {pid}")
            elif finding.cause != Cause.PROCESS_EXIT:
                job = self._store.job.get(rank, self._job)
                named = f" {job}" if is_job_name(job) else ""
                commands.append(f"{on}: whichrank stacks --rank {rank}{named}")
        return tuple(commands)

    def _on(self, rank: int) -> str:
        """Where a command is to be run; what cannot be the name of a host is not put into a shell's line."""
        host = self._store.host.get(rank, "")
        return f"on {host}" if is_host_name(host) else f"on the node of rank {rank}"


def _over(incident: Incident, event: Event, ended: datetime | None) -> Incident:
    """The incident once it is over: what was to be done to its processes is not to be done any more."""
    status: Literal["recovered", "final"] = "recovered" if after(incident, event) is State.RECOVERED else "final"
    steps = tuple(step for step in incident.next if not needs_processes(step))
    return msgspec.structs.replace(incident, status=status, ended=ended, next=steps)


def _begun_in(stage: Stage | None, before: Incident) -> Stage | None:
    """The stage that is found now, with the iteration in which the incident began; what is slow is so for many."""
    iteration = before.stage.iteration if before.stage else None
    if iteration is None and before.kind != "slow":
        return stage
    return msgspec.structs.replace(stage, iteration=iteration) if stage else before.stage


def _on_top(known: Finding, finding: Finding, severity: Severity, own_death: bool) -> bool:
    """Is this another rank's doing, and neither a consequence nor another thought about the same wait?"""
    if not finding.names or known.blamed & finding.names:
        return False
    later = finding.onset_s > known.onset_s + ANOTHER_S
    if not known.blamed:
        if finding.kind == known.kind and finding.names <= {b.rank for b in known.candidates}:
            return False  # one of those it might have been
        if known.kind == "failed":
            return later and finding.kind == "hang" and not finding.hard
        return severity == "alert" and later and (finding.cause != Cause.PROCESS_EXIT or own_death)
    if severity == "alert":
        since = later and not finding.hard and known.cause == Cause.PROCESS_EXIT  # they went on without the dead one
        return finding.reason == Reason.STOPPED or own_death or since
    return later or (finding.hard and not known.hard)


def _ended_the_hang(known: Finding, finding: Finding) -> bool:
    """Is this only what a hang came to, of which all is said, or nothing: somebody or some library ended it?"""
    later = finding.onset_s > known.onset_s + ANOTHER_S
    ended = known.kind == "hang" and finding.kind == "failed" and later
    return ended and (bool(known.names) or finding.reason == Reason.SIGNAL)


def _as_little(known: Finding, finding: Finding) -> bool:
    """Do both say of the same failures that nobody can be named, the later one with no more candidates?"""
    both = known.kind == finding.kind == "failed" and not known.names and not finding.names
    return (
        both
        and set(finding.victims) <= set(known.victims)
        and known.cause == finding.cause
        and (bool(known.candidates) or not finding.candidates)
    )


def _same(a: Incident, b: Incident) -> bool:
    """Nothing in it that a reader would miss has changed."""

    def core(i: Incident) -> tuple[object, ...]:
        return (
            i.severity, i.status, i.kind, i.cause, i.reason, i.victims, i.complete,
            [(c.rank, c.why) for c in (*i.culprits, *i.candidates)], sum(map(is_place, i.evidence)),
        )  # fmt: skip

    return core(a) == core(b)


def _says_more(finding: Finding, severity: Severity, known: Incident) -> bool:
    """Does it give a reason where there is none, a rank or a link that is not reported, or is it worth more?"""
    ranks = {blame.rank for blame in finding.culprits} - {culprit.rank for culprit in known.culprits}
    pairs = {(link.src, link.dst) for link in known.links}
    links = len(pairs) < MOST_LINKS and any((link.src, link.dst) not in pairs for link in finding.links)
    reason = finding.reason and not known.reason
    is_more = severity == "alert" and known.severity == "notice" and (reason or not known.reason)
    return bool(ranks or links or is_more or reason)

"""The loop around a live analyzer: take batches, feed, tick, answer with commands, write and say what was found.

It runs in the process of `whichrank run`, between two waits for the job. It owns the agent of this node; with `--serve`
the agents of other machines come to the same end.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from whichrank.model.changes import LevelChange
from whichrank.model.commands import Leave, Order, Pace, Reply
from whichrank.model.finding import Blame
from whichrank.model.incident import Culprit, Incident, Spent
from whichrank.model.job_now import JobNow, Lately
from whichrank.model.links import LinkRate
from whichrank.model.telemetry import AnotherJob, Batch
from whichrank.server.another_job import said_where_it_listens
from whichrank.server.commands import Commands
from whichrank.server.mitigations import Decided, Mitigations
from whichrank.server.mitigations_file import Mitigated, Mode
from whichrank.server.overheads_file import Overheads, read_overheads, write_overheads
from whichrank.server.record import Record, utc_now
from whichrank.server.roster import Roster
from whichrank.server.supervisor import AgentSupervisor
from whichrank.server.times_file import Times
from whichrank.server.validations import TELL_EVERY_S, Validations
from whichrank.server.validations_file import Validated
from whichrank.wire.zmq_transport import ZmqAnalyzerEnd

MOST_OF_A_NOTE: Final = 300
MOST_OTHER_JOBS: Final = 8
"""Of which it is said that they came to the wrong address."""
CREDIT: Final = 4
DRAIN_S: Final = 5.0
REMOTE_DRAIN_S: Final = 15.0
QUIET_TICK_S: Final = 1.0
"""Between two ticks while nothing is heard."""
TIMES_EVERY_S: Final = 15.0
"""Seconds between two times at which it is written where the time of ranks goes: to find it out costs."""
WELL_TICK_S: Final = 5.0
"""The same, while all agents say that all is well."""
OVERDUE_S: Final = 1.2
"""An agent that was heard longer ago may be lost (`transport.reach`)."""
LEFT_S: Final = 60.0
"""Overdue for longer, an agent has left the job (`transport.reach`)."""
NEIGHBOUR_OVERDUE_S: Final = 2.8
"""The same, of the agent of this machine."""
TICKS_OF_A_CORE: Final = 0.2
"""What ticks may cost while nothing is suspected: of a job of 65,536 ranks one takes a quarter of a second."""
BURST_S: Final = 0.05
"""In which an agent of a busy job sends several batches, one after the other: taken together they cost less."""
LONGEST_WAIT_S: Final = 1.0
"""Between two looks whether the agent of this machine still runs."""
_HEARD_LATELY_S: Final = 5.0
THE_END: Final = "the job has ended"
A_FAULT: Final = "a fault of whichrank"
A_STRANGER: Final = (
    "a connection without the key of this job was refused (if it was a machine of the job: give it the file `join` of"
    " this run with --join @FILE, or the same WHICHRANK_KEY)"
)

AnyOrder = TypeVar("AnyOrder", bound=Order)


class AnalyzerLike(Protocol):
    """What a run needs of an analyzer; times are seconds of time.monotonic()."""

    def feed_all(self, batches: Sequence[Batch], now_s: float) -> None:
        """Batches have come at one time."""

    def tick(self, now_s: float) -> list[Incident]:
        """Time goes on; incidents that changed."""

    def orders(self, agent: str) -> list[Order]:
        """What this agent is asked now."""

    def finish(self, now_s: float) -> list[Incident]:
        """Nothing more comes; incidents that changed."""

    @property
    def slowness_failed(self) -> Exception | None:
        """The fault of ours that has ended the search for what is slow."""

    @property
    def pace(self) -> Pace:
        """How often all agents are to look now."""

    @property
    def times(self) -> tuple[Spent, ...]:
        """Where an iteration goes, by rank; empty while that is not known."""

    def job_now(self) -> JobNow:
        """What must be known of the job to pause it."""

    def lately(self) -> Lately | None:
        """The latest iterations."""

    def culprit(self, blame: Blame) -> Culprit:
        """A rank that is blamed, with what is known of where it is."""

    @property
    def ended_ranks(self) -> list[int]:
        """Whose processes have ended."""

    @property
    def links(self) -> tuple[LinkRate, ...]:
        """What goes from rank to rank between nodes, the slowest first; empty while that is not known."""

    @property
    def changes(self) -> tuple[LevelChange, ...]:
        """From when on iterations took longer, or less long, than before; the latest ones, in order."""


class Says(Protocol):
    """Who says to the user what is found, and what fails."""

    def say(self, sentence: str) -> None:
        """A sentence of ours."""

    def incident(self, incident: Incident) -> None:
        """One that is new or has changed."""

    def validated(self, result: Validated) -> None:
        """What a validation says."""

    def mitigated(self, line: Mitigated) -> None:
        """What is done about something slow."""


class AnalyzerLoop:
    """One analyzer with the agents that report to it.

    Args:
        end: Where agents come.
        analyzer: Decides.
        agent: The agent of this node.
        tick_s: Seconds between two ticks, at least; there is none without news, but for one now and then.
        console: Says incidents.
        record: Writes them; None if there is no place.
        may_pause: Training may be paused for some seconds to prove what is slow.
        mitigate: Whether programs that let their shares of the work be changed are told other ones.
    """

    def __init__(
        self,
        end: ZmqAnalyzerEnd,
        analyzer: AnalyzerLike,
        agent: AgentSupervisor,
        tick_s: float,
        console: Says,
        record: Record | None,
        *,
        may_pause: bool = False,
        mitigate: Mode = "advise",
    ) -> None:
        self.seen = Roster()
        self.alerts: dict[str, None] = {}
        self._end = end
        self._analyzer = analyzer
        self._agent = agent
        self._tick_s = tick_s
        self._console = console
        self._record = record
        self._ticked_s = -QUIET_TICK_S
        self._tick_cost_s = 0.0
        self._wrote_times_s = -math.inf
        self._is_slowness_over = False
        self._has_news = False
        self._heard_s: dict[str, float] = {}
        self._due_s: dict[str, float] = {}
        self._commands = Commands()
        self._said_no_agent = False
        self._sent_away: set[str] = set()
        self._said_another_job: set[str] = set()
        self._said_refusals = 0
        self._said_strangers = False
        self._pace: Pace | None = None
        self._validations = Validations(may_pause=may_pause, name=analyzer.culprit)
        self._overheads = read_overheads()
        self._mitigations = Mitigations(mitigate, self._overheads.handed_bytes_per_s or 0.0)
        self._acknowledged: dict[str, int] = {}

    def pollables(self) -> Sequence[Any]:
        """What a zmq.Poller waits on for `step`."""
        return self._end.pollables()

    def wait_s(self) -> float:
        """Seconds until `step` has something to do even if no batch comes."""
        now_s = time.monotonic()
        due_s, tick_s = self._next_word_s() - now_s, self._next_tick_s() - now_s
        if self._validations.is_under_way:
            tick_s = min(tick_s, TELL_EVERY_S / 2)
        most_s = min(due_s, LONGEST_WAIT_S) if due_s > 0 else self._tick_s  # the agent may need us meanwhile
        return max(0.0, min(tick_s, most_s))

    def step(self) -> None:
        """Do what is due."""
        self._agent.step()
        if news := self._agent.news():
            self._console.say(news)
        if self._agent.hopeless and not self._said_no_agent:
            self._said_no_agent = True
            self._console.say("the agent does not start, so the job runs unobserved (see agent.log, whichrank doctor)")
        self._take()
        self._validate()
        self._mitigate()
        if self._tick():
            self._push_pace()
            self._expect_no_more_of_those_who_left()
            self._write_times(TIMES_EVERY_S)

    def drain(self) -> None:
        """The job has ended: hear every agent out, then come to the final verdict."""
        self._end_validations()
        start_s = time.monotonic()
        while (waited_s := time.monotonic() - start_s) < REMOTE_DRAIN_S:
            has_local = waited_s < DRAIN_S and not self._agent.end()
            if not has_local and not self._remote_agents():
                break
            self._take(wait_s=0.02)
            self._tick()
        self._take()
        self._report(self._analyzer.finish(time.monotonic()))
        self._write_times(0.0)
        self._say_how_many_were_refused()

    def _write_times(self, every_s: float) -> None:
        """Say where the time of ranks goes, for those who watch, if that was not said for so long."""
        now_s = time.monotonic()
        if not self._record or now_s - self._wrote_times_s < every_s:
            return
        times = Times(self._analyzer.times, self._analyzer.links, self._analyzer.changes)
        if times.are_known:
            self._wrote_times_s = now_s
            self._record.write_times(times)

    def _next_tick_s(self) -> float:
        if self._has_news:
            is_suspected = self._pace is not None and self._pace.closely
            least_s = 0.0 if is_suspected else self._tick_cost_s / TICKS_OF_A_CORE
            changed_every_s = self._mitigations.agents_look_every_s / 2
            every_s = min(self._tick_s, changed_every_s) if changed_every_s else self._tick_s
            return self._ticked_s + max(every_s, least_s)
        are_well = self._next_word_s() > time.monotonic()
        return self._ticked_s + max(self._tick_s, WELL_TICK_S if are_well else QUIET_TICK_S)

    def _next_word_s(self) -> float:
        """When an agent will be overdue; 0: before one was heard."""
        return min(self._due_s.values(), default=0.0)

    def _expect_no_more_of_those_who_left(self) -> None:
        """Of agents that have said farewell, and of those that were killed and have others in their places."""
        present, now_s = set(self._end.agents()), time.monotonic()
        self._due_s = {
            agent: due_s for agent, due_s in self._due_s.items() if agent in present and now_s - due_s < LEFT_S
        }

    def _push_pace(self) -> None:
        """Say at once to all agents how often to look, if that has changed: those that are well speak seldom."""
        pace, self._pace = self._pace, self._paced(self._analyzer.pace)
        if pace in (None, self._pace):
            return
        for agent in self._end.agents():
            self._push(agent, self._pace)

    def _paced(self, order: AnyOrder) -> AnyOrder:
        """While something is changed agents look often: it is to be taken back as soon as it is of no use."""
        every_s = self._mitigations.agents_look_every_s
        return msgspec.structs.replace(order, every_s=every_s) if isinstance(order, Pace) and every_s else order

    def _push(self, agent: str, order: Order) -> None:
        """Tell an agent at once, without a batch of its own that this would answer."""
        if agent not in self._sent_away and agent in self._acknowledged:
            commands = self._commands.give(agent, [order], ())
            self._end.reply(agent, Reply(CREDIT, self._acknowledged[agent], commands=commands))

    def _validate(self) -> None:
        """Go on with the validation that is under way, or begin the one that is asked for.

        Raises:
            Exception: A fault of ours; the validation is over.
        """
        self._say_validated()  # of one that was dropped since
        try:
            self._go_on_validating(time.monotonic())
        except Exception:
            self._validations.drop(A_FAULT)
            raise
        finally:
            self._say_validated()

    def _go_on_validating(self, now_s: float) -> None:
        """Begin a validation that is asked for, tell agents what gates are to do, and give up what nobody wants."""
        asked = self._record.asked() if self._record else None
        if not self._validations.is_under_way:
            if asked is None and not self._validations.are_wanted(now_s):
                return
            self._validations.begin(asked, self._analyzer.job_now, now_s)
        elif self._validations.asked_id and (asked is None or asked.id != self._validations.asked_id):
            self._validations.give_up("who asked for it has left", now_s)
        self._validations.lose(self._analyzer.ended_ranks, now_s)
        for agent, order in self._validations.orders(now_s).items():
            self._push(agent, order)
        if self._validations.has_paused():
            self._console.say("training is paused for some seconds, to measure ranks and links")

    def _say_validated(self) -> None:
        """Say and write what came of a validation that is over."""
        if over := self._validations.take_result():
            result, incident = over
            self._console.validated(result)
            if self._record:
                self._record.write_validated(result)
            if incident is not None:
                self._write(self._mitigations.note([incident]))

    def _mitigate(self) -> None:
        """Tell other shares of the work, or say that it would help; and what it has gained."""
        now_s, at = time.monotonic(), utc_now()
        self._mitigations.ask(self._record.mitigation_asked() if self._record else None, now_s)
        decided = self._mitigations.advance(self._analyzer, now_s, at)
        for agent, order in decided.orders:
            self._push(agent, order)
        for news in (self._mitigations.take_news(at), decided):
            self._say_mitigated(news)
            if any(line.what == "measured" and line.changes == "places" for line in news.lines):
                self._keep_overheads()
        if self._record:
            self._record.write_mitigation(self._mitigations.now)

    def _keep_overheads(self) -> None:
        """An action was made and measured: what it has cost is for the next job, too."""
        overheads = Overheads(handed_bytes_per_s=self._mitigations.handed_bytes_per_s or None)
        if overheads.handed_bytes_per_s and overheads != self._overheads:
            self._overheads = overheads
            write_overheads(overheads)

    def _say_mitigated(self, decided: Decided) -> None:
        for line in decided.lines:
            self._console.mitigated(line)
            if self._record:
                self._record.write_mitigated(line)
        self._write(decided.incidents)

    def _end_validations(self) -> None:
        """Answer whoever asks for one: the job has ended."""
        self._validations.drop(THE_END)
        self._say_validated()
        asked = self._record.asked() if self._record else None
        if asked is not None and self._record:
            self._record.write_validated(Validated(asked=asked, paused_s=0.0, problem=THE_END))

    def _tick(self) -> bool:
        """Let the analyzer examine the job, if that is due."""
        now_s = time.monotonic()
        if now_s < self._next_tick_s():
            return False
        self._ticked_s, self._has_news = now_s, False
        before_s = time.thread_time()
        self._report(self._analyzer.tick(now_s))
        self._tick_cost_s = time.thread_time() - before_s
        failed = self._analyzer.slowness_failed
        if failed is not None and not self._is_slowness_over:
            self._is_slowness_over = True
            raise RuntimeError("slowness is not watched any more") from failed
        return True

    def _take(self, wait_s: float = 0.0) -> None:
        """Every batch is answered, also one that the analyzer fails on: its agent would wait for ever.

        Of several batches of an agent that is known the answer to the last one answers all.
        """
        arrivals = self._end.receive(wait_s)
        if any(batch.records and not batch.ranks for batch, _ in arrivals):  # more of a busy agent is on its way
            time.sleep(BURST_S)
            arrivals += self._end.receive(0.0)
        now_s, faults = time.monotonic(), list[Exception]()
        for batch, is_new in arrivals:
            if batch.is_well and is_new:
                continue
            self._heard_s[batch.agent] = now_s
            self._due_s[batch.agent] = now_s + (NEIGHBOUR_OVERDUE_S if batch.beside_analyzer else OVERDUE_S)
            if batch.is_well:
                continue
            self._has_news = True
            with _kept_for(faults):
                if batch.agent not in self._sent_away:
                    self.seen.note(batch)
                    self._say_notes(batch)
        if arrivals:
            with _kept_for(faults):
                self._analyzer.feed_all([batch for batch, is_new in arrivals if not (batch.is_well and is_new)], now_s)
            with _kept_for(faults):
                self._feed_gates([batch for batch, _ in arrivals if batch.gates], now_s)
            with _kept_for(faults):
                self._mitigations.feed(batch for batch, _ in arrivals if batch.shares or batch.places)
        last = {batch.agent: batch.sequence for batch, _ in arrivals if not batch.is_well}
        for batch, is_new in arrivals:
            if not (batch.is_well or is_new) and batch.sequence < last[batch.agent]:
                self._commands.give(batch.agent, (), batch.obeyed)
                continue
            if batch.is_well and is_new:  # it has reported to another server
                self._end.reply(batch.agent, Reply(CREDIT, 0, resend=True))
                continue
            if batch.is_well and not self._commands.are_pending(batch.agent):
                continue
            orders: Sequence[Order] = ()
            with _kept_for(faults):
                orders = [self._paced(order) for order in self._analyzer.orders(batch.agent)]
                for order in orders:
                    if isinstance(order, Leave):
                        self._send_away(batch, order.because)
            commands = self._commands.give(batch.agent, orders, batch.obeyed)
            again = is_new and batch.sequence != 1
            if not batch.is_well:
                self._acknowledged[batch.agent] = batch.sequence
            acknowledged = self._acknowledged.get(batch.agent, 0)
            self._end.reply(batch.agent, Reply(CREDIT, acknowledged, resend=again, commands=commands))
        self._say_refused()
        if faults:
            raise faults[0]

    def _feed_gates(self, batches: Sequence[Batch], now_s: float) -> None:
        try:
            self._validations.feed(batches, now_s)
        except Exception:
            self._validations.drop(A_FAULT)
            raise

    def _say_refused(self) -> None:
        for why in self._end.refusals[self._said_refusals :]:
            self._console.say(f"a message was dropped: {why}")
        self._said_refusals = len(self._end.refusals)
        if self._end.refused and not self._said_strangers:
            self._said_strangers = True
            self._console.say(A_STRANGER)

    def _say_how_many_were_refused(self) -> None:
        if self._end.refused > 1:
            self._console.say(f"{self._end.refused:,} connections without the key of this job were refused in all")
        if self._end.dropped > 1:
            self._console.say(f"{self._end.dropped:,} messages were dropped in all")

    def _send_away(self, batch: Batch, other: AnotherJob) -> None:
        """Of all the agents of another job one sentence is said, and nothing is counted."""
        self._sent_away.add(batch.agent)
        self.seen.forget(batch.agent)
        sentence = said_where_it_listens(batch.host, other)
        difference = sentence.removeprefix(batch.host)
        if difference not in self._said_another_job and len(self._said_another_job) < MOST_OTHER_JOBS:
            self._said_another_job.add(difference)
            self._console.say(sentence)

    def _say_notes(self, batch: Batch) -> None:
        """What an agent could not do, in its own sentence: a ring that was cut, one that cannot be read."""
        for event in batch.events:
            if event.kind == "note" and event.text:
                self._console.say(f"on {batch.host}: {event.text[:MOST_OF_A_NOTE]}")

    def _report(self, incidents: list[Incident]) -> None:
        incidents = self._validations.note(incidents)
        self._write(self._mitigations.note(incidents))

    def _write(self, incidents: Iterable[Incident]) -> None:
        for incident in incidents:
            if incident.severity == "alert":
                self.alerts[incident.id] = None
            if self._record is None or self._record.write(incident):
                self._console.incident(incident)

    def _remote_agents(self) -> list[str]:
        own = f":{self._agent.pid}"
        now_s = time.monotonic()
        present = (agent for agent in self._end.agents() if not agent.endswith(own))
        return [agent for agent in present if now_s - self._heard_s.get(agent, 0.0) < _HEARD_LATELY_S]


@contextlib.contextmanager
def _kept_for(faults: list[Exception]) -> Iterator[None]:
    """A fault of ours is put to the others, and what follows is done all the same."""
    try:
        yield
    except Exception as error:
        faults.append(error)

"""The loop of an agent: wait, poll, report.

While all is well it sleeps: the native watch (`agent.watch`) looks instead, four times a second, and wakes it. Every
five seconds it polls all the same, and each second between it says that all is well.

Else it polls twice a second, or down to once where a snapshot costs more than its share of a core, and up to four times
where a wait is no longer young; eight times while something may be wrong: the analyzer asks for it, a wait has lasted a
second, or a process is not running normally. Waits that last and processes that stay dead become ordinary after half a
minute, so that a long job with an early exit does not cost eight polls for ever. The end of a process wakes it at once.

One thread does it all except py-spy, probes and the frame sampler; nothing blocks, and whatever fails for one rank is
reported and left behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq

from whichrank.agent.changes import Changes, tell_places, tell_shares
from whichrank.agent.frames import FrameSampler
from whichrank.agent.gates import EVERY_S as LOOK_AT_GATES_EVERY_S
from whichrank.agent.gates import Gates
from whichrank.agent.launch import LaunchReader
from whichrank.agent.node import Node
from whichrank.agent.obedience import Obedience
from whichrank.agent.outbox import Outbox
from whichrank.agent.probe import Prober
from whichrank.agent.profiles import Profiler
from whichrank.agent.snapshot import is_irregular
from whichrank.agent.stacks import StackReader
from whichrank.agent.threads import Subject
from whichrank.agent.watch import NativeWatch
from whichrank.model.commands import (
    HoldGate,
    Leave,
    Order,
    Pace,
    PlaceOut,
    ProbePaths,
    ReportAgain,
    SampleThreads,
    ShareOut,
    TakeStacks,
)
from whichrank.model.telemetry import (
    VERSION,
    WORD_EVERY_S,
    WORD_TO_NEIGHBOUR_EVERY_S,
    AnotherJob,
    Batch,
    Event,
)
from whichrank.ring.folder import JobFolder, Owner
from whichrank.wire.transport import AgentEnd

POLL_EVERY_S: Final = 0.5
POLL_CLOSELY_EVERY_S: Final = 0.125
POLL_AT_LEAST_EVERY_S: Final = 1.0
POLLS_OF_A_CORE: Final = 0.003
"""What quiet snapshots may cost; the frame sampler and the wire take the rest of half a percent (DESIGN 7)."""
POLLS_AT_MOST: Final = 0.005
SOONER_S: Final = 0.25
"""What they may cost while waits are not young any more, and how soon they come then."""
SUSPICIOUS_WAIT_NS: Final = 1_000_000_000
"""Of a wait, and of an operation in flight."""
WELL_AFTER_S: Final = 5.0
"""Without anything that may be wrong; then the native watch looks instead of snapshots."""
UNHEARD_NS: Final = 2_000_000_000
"""Of a batch that is not answered: the analyzer may be lost."""
AT_REST: Final = (Pace, ProbePaths, HoldGate)
"""Orders that say nothing of the ranks of this node: an agent that sleeps obeys them, and sleeps on."""
ORDINARY_AFTER_NS: Final = 30_000_000_000
FLUSH_S: Final = 3.0
OWNER_EVERY_S: Final = 3.0
"""Whether the run that has started us is still there."""
GRACE_S: Final = 3.0
"""A launcher that restarts its ranks needs a moment between two generations."""
GATE_SWITCH: Final = "WHICHRANK_GATE"
"""Set to 0, the ranks of this node are never made to wait."""
PATIENCE_S: Final = 60.0
"""For the first ring, unless told to wait."""
CATCH_UP_S: Final = 15.0
"""An analyzer that has come back hears first what was put by meanwhile: for so long, then it has to know what is."""
AWAITED_POLLS_OF_A_CORE: Final = 0.2
"""The same while somebody waits for news: to take back in time what was changed."""
KEPT_BYTES: Final = 16 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


class Agent:
    """Watches the rings of a folder and reports to the analyzer at the other end.

    Args:
        folder: The job's rings.
        end: The way to the analyzer.
        stay: Go on when no rank is there, until `stop` or until the folder's owner has gone.
        beside_analyzer: The analyzer is on this machine.
        poll_every_s: Seconds between two snapshots while all is well.
        shared_name: The job's name, where the user gave the same one on all nodes.

    Attributes:
        another_job: The analyzer is of another job: why it has refused us; None while it has not.
    """

    def __init__(
        self,
        folder: JobFolder,
        end: AgentEnd,
        *,
        stay: bool,
        beside_analyzer: bool = False,
        poll_every_s: float = POLL_EVERY_S,
        shared_name: str = "",
    ) -> None:
        self.host = socket.gethostname()
        self.name = f"{self.host}:{os.getpid()}"
        self.polls = 0
        self.another_job: AnotherJob | None = None
        self._launch = LaunchReader(shared_name)
        self._folder = folder
        self._owner = folder.owner()
        self._end = end
        self._stay = stay
        self._beside_analyzer = beside_analyzer
        self._node_key = _node_key()
        self._poll_every_s = poll_every_s
        self._outbox = Outbox()
        self._node = Node(folder, self._outbox)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stacks = StackReader()
        self._profiler = Profiler()
        self._prober = Prober(self._wake_up)
        self._frames = FrameSampler()
        self._gates = Gates()
        self._shares, self._places = Changes("shares"), Changes("places")
        self._orders = Obedience(
            {
                Pace: self._set_pace,
                TakeStacks: self._take_stacks,
                SampleThreads: self._sample_threads,
                ProbePaths: self._probe_paths,
                ReportAgain: self._report_again,
                HoldGate: self._hold_gate,
                ShareOut: lambda order: tell_shares(order, self._node.watches()),
                PlaceOut: lambda order: tell_places(order, self._node.watches()),
                Leave: self._leave,
            },
            self._note_disobeyed,
        )
        self._watch = NativeWatch(self._wake, SUSPICIOUS_WAIT_NS // 1_000_000)
        self._poller = zmq.Poller()
        self._pollable = end.pollable()
        self._poller.register(self._pollable, zmq.POLLIN)
        self._poller.register(self._wake, zmq.POLLIN)
        self._polled_pidfds: set[int] = set()
        self._stopping = False
        self._pace = Pace()
        self._catching_up_since_s = math.inf
        self._longest_wait_ns = 0
        self._poll_cost_s = 0.0
        self._doubted_s = time.monotonic()
        self._next_poll_s, self._next_word_s, self._next_gates_s = 0.0, math.inf, math.inf
        self._started_s = self._alive_s = time.monotonic()
        self._next_owner_poll_s = 0.0

    def stop(self) -> None:
        """End after one last snapshot; may be called from a signal handler or another thread."""
        self._stopping = True
        self._wake_up()

    def _wake_up(self) -> None:
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Look and say until there is nothing more to say."""
        gc.freeze()  # nothing made so far is garbage: leave it out of collections
        _keep_freed_memory()
        while not self._is_over():
            ready, has_replies = self._wait(min(self._next_poll_s, self._next_word_s, self._next_gates_s))
            if ready & self._polled_pidfds:
                self._watch.disarm()
                self._node.note_exits()
            if ready and not (ready == {self._wake} and self._send_records()):
                self._next_poll_s = 0.0  # a process has ended, or the watch has seen something
            if has_replies:
                self._hear()
            self._catch_up()
            now_s = time.monotonic()
            if now_s >= self._next_gates_s:
                self._look_at_gates(now_s)
            if self._is_close():
                self._next_poll_s = min(self._next_poll_s, now_s + POLL_CLOSELY_EVERY_S)
            if now_s >= self._next_poll_s:
                before_s = time.thread_time()
                self.poll_and_report()
                if (
                    not self._pace.connections
                ):  # how often quiet snapshots come is no matter of what is asked for besides
                    self._note_cost(time.thread_time() - before_s)
                self._next_poll_s = now_s + (POLL_CLOSELY_EVERY_S if self._is_close() else self._pause_s())
                may_sleep = self._is_well(now_s) and self._watch.arm(self._node.watches())
                self._frames.sample_seldom(seldom=may_sleep)
                if may_sleep:
                    self._next_poll_s, self._next_word_s = now_s + self._pace.every_s, now_s + self._word_every_s()
            elif now_s >= self._next_word_s:
                self._say_well(now_s)
        self._finish()

    def _is_well(self, now_s: float) -> bool:
        """Whether nothing has been wrong, asked or unanswered for a while, so that others may look for us."""
        is_heard = not self._outbox.is_behind() and self._outbox.has_waited_ns(time.monotonic_ns()) < UNHEARD_NS
        is_sure = is_heard and not (self._is_close() or self._pace.connections)
        if not (is_sure and self._longest_wait_ns < SUSPICIOUS_WAIT_NS and self._node.is_well(SUSPICIOUS_WAIT_NS)):
            self._doubted_s = now_s
        return self._pace.every_s > self._poll_every_s and now_s - self._doubted_s >= WELL_AFTER_S

    def _look_at_gates(self, now_s: float) -> None:
        """Renew the gates that are held, and say how far ranks are."""
        rows = self._gates.tick(now_s)
        self._next_gates_s = now_s + LOOK_AT_GATES_EVERY_S if self._gates.are_held else math.inf
        if rows:  # no number: who does not hear this one hears the next
            self._end.send(msgspec.structs.replace(self._no_states(time.monotonic_ns()), is_well=True, gates=rows))

    def _say_well(self, now_s: float) -> None:
        """Say that all is well, without a look at it; what is still to be reported goes first."""
        self._next_word_s = now_s + self._word_every_s()
        states = self._no_states(time.monotonic_ns())
        if self._outbox.is_sent():
            self._end.send(msgspec.structs.replace(states, is_well=True))
        elif self._outbox.may_send():
            self._send(states)

    def _send_records(self) -> bool:
        """Send what fills the rings, and let the watch look on; False if it has seen something else."""
        if self._stopping or not (self._watch.is_armed and self._node.take_records(self._watch.most_records)):
            return False
        while not self._outbox.is_sent():
            if not (self._outbox.may_send() and self._send(self._no_states(time.monotonic_ns()), portion=True)):
                return False
        return self._watch.arm(self._node.watches())

    def _word_every_s(self) -> float:
        return WORD_TO_NEIGHBOUR_EVERY_S if self._beside_analyzer else WORD_EVERY_S

    def poll_and_report(self) -> bool:
        """One look at the node, and one batch if credit is left; whether it reported what ranks do now."""
        self.polls += 1
        self._watch.disarm()
        self._next_word_s = math.inf
        close = self._is_close()
        self._node.refresh(deep=close)
        self._frames.poll(self._node, closely=close)
        self._watch_pidfds()
        for event in (*self._stacks.events(), *self._profiler.events(), *self._prober.events()):
            self._outbox.add_event(event)
        now_ns = time.monotonic_ns()
        for batch in self._outbox.to_resend(now_ns):
            if not self._end.send(batch):
                break
        reported, self._longest_wait_ns = self._node.reported(
            closely=close, connections_closely=close or self._pace.connections, every_s=self._pace.every_s
        )
        is_catching_up = self._is_catching_up()
        states = self._no_states(now_ns)
        if not is_catching_up:
            rates = self._frames.rates(self._node.watches()).tobytes()
            shares, places = (one.rows(self._node.watches()).tobytes() for one in (self._shares, self._places))
            states = msgspec.structs.replace(states, rates=rates, shares=shares, places=places, **reported._asdict())
        while self._outbox.has_a_portion() and self._send(self._no_states(now_ns), portion=True):
            pass
        if not (self._outbox.may_send() and self._send(states)):
            self._outbox.put_by()
            return False
        if not is_catching_up:
            self._node.note_reported()
        return not is_catching_up

    def _catch_up(self) -> None:
        """Send records that were put by, and those that came meanwhile, as fast as they are answered."""
        while self._outbox.may_catch_up() and self._send(self._no_states(time.monotonic_ns()), portion=True):
            pass

    def _is_catching_up(self) -> bool:
        """Whether states are to wait: an analyzer takes records that are far behind them for lost ones."""
        if not self._outbox.is_behind():
            self._catching_up_since_s = math.inf
        return self._outbox.is_behind() and time.monotonic() - self._catching_up_since_s < CATCH_UP_S

    def _no_states(self, now_ns: int) -> Batch:
        return Batch(
            version=VERSION,
            job=self._folder.job,
            agent=self.name,
            host=self.host,
            sequence=0,
            sent_ns=now_ns,
            sent_realtime_ns=time.time_ns(),
            delay_bound_ns=self._outbox.delay_bound_ns(now_ns),
            node_ranks=len(self._node.watches()),
            node=self._node_key,
            beside_analyzer=self._beside_analyzer,
            launch=self._launch.of(self._node),
            obeyed=self._orders.take_obeyed(),
        )

    def _send(self, states: Batch, *, portion: bool = False) -> bool:
        batch = self._outbox.fill(states, portion=portion)
        if not self._end.send(batch):
            return False
        if self._outbox.is_behind():
            self._catching_up_since_s = min(self._catching_up_since_s, time.monotonic())
        self._outbox.sent(batch, batch.sent_ns)
        return True

    def close(self) -> None:
        """Let go of everything."""
        self._prober.close()
        self._end.close()
        self._watch.close()
        self._frames.close()
        self._gates.open()
        self._node.close()
        os.close(self._wake)

    def _note_cost(self, cost_s: float) -> None:
        self._poll_cost_s += (cost_s - self._poll_cost_s) / 8

    def _pause_s(self) -> float:
        """Until the next quiet snapshot: sooner where a wait becomes a suspicious one before it."""
        every_s, of_a_core = self._poll_every_s, POLLS_OF_A_CORE
        if 0.0 < self._pace.every_s < every_s:
            every_s, of_a_core = self._pace.every_s, AWAITED_POLLS_OF_A_CORE
        pause_s = max(every_s, min(POLL_AT_LEAST_EVERY_S, self._poll_cost_s / of_a_core))
        left_s = (SUSPICIOUS_WAIT_NS - self._longest_wait_ns) / 1e9
        soonest_s = max(SOONER_S, self._poll_cost_s / POLLS_AT_MOST)
        return min(pause_s, max(left_s, soonest_s)) if left_s > 0 else pause_s

    def _wait(self, until_s: float) -> tuple[set[int], bool]:
        """What of our own is ready by then, a process that has ended or the wake-up, and whether replies have come."""
        left_ms = max(0, math.ceil((until_s - time.monotonic()) * 1000))
        ready: list[tuple[Any, int]] = self._poller.poll(left_ms)
        found = {place for place, _ in ready}
        if self._wake in found:
            os.eventfd_read(self._wake)
        return found - {self._pollable}, self._pollable in found

    def _hear(self) -> None:
        for reply in self._end.receive():
            self._outbox.heard(reply, time.monotonic_ns())
            if reply.resend:
                self._node.report_again()
                self._shares.report_again()
            self._orders.obey(reply.commands)
            if reply.resend or any(not isinstance(command.order, AT_REST) for command in reply.commands):
                self._doubted_s, self._next_poll_s = time.monotonic(), 0.0

    def _set_pace(self, order: Pace) -> None:
        self._pace = order

    def _take_stacks(self, order: TakeStacks) -> None:
        self._stacks.ask(self._living(order.ranks), {w.pid: w.rank for w in self._node if not w.ended_ns})

    def _sample_threads(self, order: SampleThreads) -> None:
        self._profiler.ask(self._living(order.ranks), order.seconds)

    def _probe_paths(self, order: ProbePaths) -> None:
        self._prober.ask(order.addresses)

    def _report_again(self, _: ReportAgain) -> None:
        self._outbox.report_again()
        for changes in (self._shares, self._places):
            changes.report_again()
        self._node.report_again()

    def _hold_gate(self, order: HoldGate) -> None:
        if os.environ.get(GATE_SWITCH) == "0":
            return
        self._gates.obey(order, self._node.watches(), time.monotonic())
        self._next_gates_s = 0.0

    def _note_disobeyed(self, order: Order, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        text = f"the agent could not obey {type(order).__name__}: {why}"
        self._outbox.add_event(Event("note", -1, 0, time.monotonic_ns(), text))

    def _leave(self, order: Leave) -> None:
        self.another_job = order.because

    def _living(self, ranks: Sequence[int]) -> list[Subject]:
        """Of these ranks, those of this node that live."""
        wanted = set(ranks)
        return [w.subject() for w in self._node if w.rank in wanted and not w.ended_ns] if wanted else []

    def _is_close(self) -> bool:
        if self._pace.closely or SUSPICIOUS_WAIT_NS < self._longest_wait_ns < ORDINARY_AFTER_NS:
            return True
        now_ns = time.monotonic_ns()
        return any(is_irregular(w) and now_ns - (w.ended_ns or now_ns) < ORDINARY_AFTER_NS for w in self._node)

    def _watch_pidfds(self) -> None:
        now = self._node.pidfds()
        for fd in self._polled_pidfds - now:
            self._poller.unregister(fd)
        for fd in now - self._polled_pidfds:
            self._poller.register(fd, zmq.POLLIN)
        self._polled_pidfds = now

    def _is_over(self) -> bool:
        now_s = time.monotonic()
        if self._node.alive():
            self._alive_s = now_s
        if self._stopping or self.another_job:
            return True
        if self._stay:
            return now_s - self._alive_s > GRACE_S and self._owner_is_gone(now_s)
        if self._node.rings:
            return now_s - self._alive_s > GRACE_S
        return now_s - self._started_s > PATIENCE_S

    def _owner_is_gone(self, now_s: float) -> bool:
        if now_s < self._next_owner_poll_s:
            return False
        self._next_owner_poll_s = now_s + OWNER_EVERY_S
        owner: Owner | None = self._owner
        return owner is not None and not owner.alive()

    def _finish(self) -> None:
        """Drain the rings, wait until the analyzer has everything, say farewell; one of another job wants nothing."""
        self._stacks.close(1.0)
        if self.another_job:
            self._end.farewell(self.name)
            return
        deadline_s = time.monotonic() + FLUSH_S
        self._catching_up_since_s = deadline_s - FLUSH_S / 2 - CATCH_UP_S
        reported = self.poll_and_report()
        while time.monotonic() < deadline_s and not (self.another_job or (reported and self._outbox.is_empty())):
            self._wait(time.monotonic() + 0.05)
            self._hear()
            self._catch_up()
            if not reported or not self._outbox.is_sent():
                reported = self.poll_and_report() or reported
        self._end.farewell(self.name)


def _node_key() -> str:
    """The boot of this machine and the network namespace: host names may be equal."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/net').readlink()}"
    return ""


def _keep_freed_memory() -> None:
    """Every snapshot needs the same buffers: given back in between, they cost page faults, a third of an agent's time.

    What imports have left is given back. Source: mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, and malloc_trim(3);
    other C libraries have none.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            library.mallopt(parameter, KEPT_BYTES)
        library.malloc_trim(0)

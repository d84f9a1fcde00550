"""The order of things in `whichrank run`.

Each of our own steps may fail: no shared memory, no address, no compiler, an agent that does not start, a fault in the
analyzer. Then one sentence says so, that part is left out, and the job goes on; the exit status is the job's.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import zmq

from whichrank.config import AnalyzerConfig, Config
from whichrank.errors import SensorError, WhichrankError
from whichrank.ring.end_signals import write_end_signal
from whichrank.ring.folder import SOCKET_NAME, JobFolder, remove_dead
from whichrank.server import environment
from whichrank.server.address import checked_address
from whichrank.server.agent_process import AgentSupervisor
from whichrank.server.loop import AnalyzerLike, AnalyzerLoop
from whichrank.server.place import absolute
from whichrank.server.private_file import open_private
from whichrank.server.record import JobSummary, Record, readable, utc_now
from whichrank.server.taped import Taped, head_of
from whichrank.surface.run.console import Console
from whichrank.surface.run.job import Job
from whichrank.surface.run.reach import Reach
from whichrank.verdict.words.text import of_jobs
from whichrank.wire.tape import FILE_NAME
from whichrank.wire.zmq_transport import AddressInUseError, ZmqAnalyzerEnd, full_address, is_from_here_only

MOST_FAULTS: Final = 3
"""Of ours, before a run gives up watching."""
LONGEST_SOCKET_PATH: Final = 100
_JOIN_FLUSH_S: Final = 5.0
_JOIN_POLL_S: Final = 0.5

AnalyzerFactory = Callable[[AnalyzerConfig, str, float], AnalyzerLike]


class Session:
    """One run of a job under whichrank.

    Args:
        config: All settings.
        command: The job's program and arguments.
        analyzer: Makes the analyzer from its settings, the job's name and the offset from time.monotonic() to UTC.
    """

    def __init__(self, config: Config, command: Sequence[str], analyzer: AnalyzerFactory | None = None) -> None:
        self._config = config
        self._command = list(command)
        self._make_analyzer = analyzer or _analyzer
        self._job_name = environment.new_job_name()
        self._console = Console(quiet=config.run.quiet)
        self._summary = JobSummary(job=self._job_name, command=readable(self._command), started=utc_now())
        self._closing: list[Callable[[], None]] = []
        self._folder: JobFolder | None = None
        self._record: Record | None = None
        self._end: ZmqAnalyzerEnd | None = None
        self._loop: AnalyzerLoop | None = None
        self._join: AgentSupervisor | None = None
        self._reach: Reach | None = None
        self._faults = 0
        self._end_signal = ""

    def run(self) -> int:
        """Run the job to its end.

        Returns:
            Its exit code, negative for the signal that ended it.

        Raises:
            UsageError: The address of `--serve` or `--join` is none, or that of `--serve` is in use.
            CommandError: The command cannot be started.
        """
        for option, address in (("--serve", self._config.run.serve), ("--join", self._config.run.join)):
            if address:
                checked_address(option, address)
        environ = dict(os.environ)
        environ.pop(environment.RANK_PID, None)
        try:
            if environment.is_off(environ):
                self._console.say("WHICHRANK_DISABLE=1 is set, so the job runs unobserved")
            else:
                self._guarded(self._prepare)
                if self._folder:
                    environ.update(environment.additions(self._folder, environ))
            job = Job(self._command, environ, self._note_end_signal)
            code = self._accompany(job)
            self._summary.ended, self._summary.exit_status = utc_now(), code if code >= 0 else 128 - code
            self._guarded(self._conclude)
            return code
        finally:
            self._close()

    def _note_end_signal(self, number: int) -> None:
        """The job is asked to end: the agent of this node says it to whoever analyzes."""
        self._end_signal = signal.Signals(number).name
        if self._folder:
            write_end_signal(self._folder.path, number)

    def _prepare(self) -> None:
        """Everything that must be there before the first rank starts."""
        remove_dead()
        output = environment.output_folder(self._config.run.output_dir, self._job_name)
        self._folder = JobFolder.create(self._job_name, owner_pid=os.getpid(), output=str(absolute(output)))
        self._closing.append(self._remove_folder)
        if self._config.run.serve:
            self._end = self._listen(self._folder)  # first of all: where it cannot, nothing is started or written
        if not self._config.run.join:
            self._open_record(output)
        self._build_sensors()
        log = self._record.folder / "agent.log" if self._record else None
        if self._config.run.join:
            address = full_address(self._config.run.join)
            self._join, self._reach = AgentSupervisor(self._folder, address, log), Reach(address)
            self._closing.append(self._join.close)
            self._join.step()
        else:
            self._observe(self._folder, log)

    def _open_record(self, output: Path) -> None:
        try:
            self._record = Record(output)
        except OSError as error:
            self._console.say(
                f"incidents are only said, not written: {output} ({error.strerror}); to mend it: --output DIR"
            )
            return
        if self._config.run.output_dir is None:
            self._closing.append(self._remove_empty_record)
        if older := self._record.begin(self._summary):
            place = self._record.folder
            self._console.say(
                f"{place} already holds {of_jobs(older)}; that is kept,"
                f" and  whichrank why {shlex.quote(str(place))}  tells of this job"
            )

    def _remove_empty_record(self) -> None:
        """Nobody named this folder, no rank was seen, and nothing is in it."""
        if self._record and not self._summary.ranks and not self._record.incidents:
            self._record.remove_if_empty()

    def _build_sensors(self) -> None:
        """Once for the installed torch, before the ranks would all want to."""
        try:
            from whichrank.sensors.c10d import prepare

            prepare(self._console.say)
        except Exception as error:
            self._console.say(f"the c10d sensor cannot be prepared: {_first_line(error)}")

    def _observe(self, folder: JobFolder, log: Path | None) -> None:
        end = self._end or self._listen(folder)
        agent = AgentSupervisor(folder, end.addresses[0], log)
        self._closing.append(agent.close)
        offset_s = time.time() - time.monotonic()
        analyzer = self._make_analyzer(self._config.analyzer, self._job_name, offset_s)
        if self._config.run.record and self._record:
            analyzer = self._taped(analyzer, self._record.folder, offset_s)
        tick_s = self._config.analyzer.tick_s
        self._loop = AnalyzerLoop(end, analyzer, agent, tick_s, self._console, self._record)
        self._loop.step()
        if self._config.run.serve:
            address = end.addresses[-1]
            others = "start the others with --join"
            if is_from_here_only(address):
                others = "no other machine reaches that: give --serve the address of a network interface, or 0.0.0.0"
            self._console.say(f"this machine analyzes at {address}; {others}")

    def _listen(self, folder: JobFolder) -> ZmqAnalyzerEnd:
        """Where agents come.

        Raises:
            AddressInUseError: Something else listens at the address of `--serve`.
            SensorError: It cannot listen for another reason.
        """
        try:
            end = ZmqAnalyzerEnd(self._addresses(folder))
        except AddressInUseError as error:
            what = f"{error.what}, so the job is not started"
            raise AddressInUseError(what, where=error.where, mend=error.mend) from error
        except WhichrankError as error:
            what = f"{error.what}, so the job runs without diagnosis"
            raise SensorError(what, where=error.where, mend=error.mend) from error
        self._closing.append(end.close)
        return end

    def _taped(self, analyzer: AnalyzerLike, folder: Path, utc_offset_s: float) -> AnalyzerLike:
        head = head_of(self._config.analyzer, self._job_name, utc_offset_s)
        try:
            taped = Taped(analyzer, folder / FILE_NAME, head, self._console.say)
        except OSError as error:
            self._console.say(f"this run is not recorded: {error.strerror} ({folder / FILE_NAME})")
            return analyzer
        self._closing.append(taped.close)
        return taped

    def _addresses(self, folder: JobFolder) -> list[str]:
        """For the agent of this node a socket in the job's own folder, or in another one if that path is too long."""
        path = folder.path / SOCKET_NAME
        if len(str(path)) > LONGEST_SOCKET_PATH:
            short = tempfile.TemporaryDirectory(prefix="whichrank-")
            self._closing.append(short.cleanup)
            path = Path(short.name) / SOCKET_NAME
        return [f"ipc://{path}", *([self._config.run.serve] if self._config.run.serve else [])]

    def _accompany(self, job: Job) -> int:
        """Wait for the job's end; watch it meanwhile."""
        pidfd = job.pidfd()
        if pidfd < 0:
            return job.wait()
        poller = zmq.Poller()
        poller.register(pidfd, zmq.POLLIN)
        if self._loop:
            poller.register(self._loop.pollable(), zmq.POLLIN)
        try:
            while (code := job.poll()) is None:
                poller.poll(self._wait_ms())
                if self._loop and not self._guarded(self._loop.step) and self._faults >= MOST_FAULTS:
                    poller.unregister(self._loop.pollable())
                    self._loop = None
                if self._join:
                    self._join.step()
                    self._say_of_join(self._join)
            return code
        finally:
            os.close(pidfd)

    def _say_of_join(self, join: AgentSupervisor) -> None:
        if news := join.news():
            self._console.say(news)
        if self._reach and self._reach.failed():
            self._console.say(f"no analyzer answers at {self._reach.address}; still trying")
            self._reach = None

    def _wait_ms(self) -> int | None:
        if self._loop:
            return int(self._loop.wait_s() * 1000) + 1
        return int(_JOIN_POLL_S * 1000) if self._join else None

    def _conclude(self) -> None:
        """The job has ended: the final verdict, the files, the closing line."""
        if self._join:
            deadline_s = time.monotonic() + _JOIN_FLUSH_S
            while not self._join.end() and time.monotonic() < deadline_s:
                time.sleep(0.02)
        drained = self._loop is not None and self._guarded(self._loop.drain)
        if self._loop:
            self._loop.seen.fill(self._summary)
        if self._record:
            self._summary.incidents = self._record.incidents
            self._record.close(self._summary)
            if self._record.fault:
                self._console.say(f"not all was written to {self._record.folder}: {self._record.fault}")
        if self._loop and drained:
            self._console.say(self._closing_line(self._loop))

    def _closing_line(self, loop: AnalyzerLoop) -> str:
        ranks, world = len(loop.seen.ranks), loop.seen.world_size
        if not ranks:
            return (
                "no rank was seen: the command started no torch.distributed rank, or none that whichrank could watch"
                " (if it did: whichrank doctor)"
            )
        watched = f"watched {ranks} rank{'s' if ranks > 1 else ''}" + (f" of {world}" if world > ranks else "")
        watched += f"; {self._end_signal} asked the job to end" if self._end_signal else ""
        alerts = len(loop.alerts)
        if not alerts:
            return f"{watched}; no alert"
        where = f"; read again: whichrank why {shlex.quote(str(self._record.folder))}" if self._record else ""
        return f"{watched}; {alerts} alert{'s' if alerts > 1 else ''}{where}"

    def _remove_folder(self) -> None:
        if self._folder:
            self._folder.remove()

    def _close(self) -> None:
        for close in reversed(self._closing):
            with contextlib.suppress(Exception):
                close()

    def _guarded(self, step: Callable[[], Any]) -> bool:
        """Do one of our own steps; if it fails, say so in one sentence. True if it was done."""
        try:
            step()
        except AddressInUseError:  # who asks for --serve wants to know before the job has run for a day
            raise
        except WhichrankError as error:
            self._console.say(f"{error.what}" + (f" ({error.where})" if error.where else "") + _mend(error))
        except Exception as error:
            self._faults += 1
            where = self._write_fault()
            if self._faults == 1:
                self._console.say(f"a fault of whichrank, the job goes on: {_first_line(error)}{where}")
            if self._faults == MOST_FAULTS:
                self._console.say("too many faults of whichrank, the job goes on unobserved")
        else:
            return True
        return False

    def _write_fault(self) -> str:
        if self._record is None:
            return ""
        path = self._record.folder / "whichrank.log"
        try:
            with open_private(path) as file:
                file.write(traceback.format_exc().encode(errors="replace"))
        except OSError:
            return ""
        return f" (see {path})"


def _analyzer(config: AnalyzerConfig, job: str, utc_offset_s: float) -> AnalyzerLike:
    from whichrank.analyzer import Analyzer

    return Analyzer(config, job, utc_offset_s=utc_offset_s, is_live=True)


def _mend(error: WhichrankError) -> str:
    return f"; to mend it: {error.mend}" if error.mend else ""


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

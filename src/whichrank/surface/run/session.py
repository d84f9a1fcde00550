"""The order of things in `whichrank run`.

Each of our own steps may fail: no shared memory, no address, no compiler, an agent that does not start, a fault in the
analyzer. Then one sentence says so, that part is left out, and the job goes on; the exit status is the job's.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from whichrank.config import Config
from whichrank.errors import WhichrankError
from whichrank.ring.end_signals import write_end_signal
from whichrank.ring.folder import JobFolder, remove_dead
from whichrank.server import environment
from whichrank.server.address import joined_endpoint, served_endpoint
from whichrank.server.place import absolute
from whichrank.server.private_file import open_private
from whichrank.server.record import JobSummary, Record, readable, utc_now
from whichrank.surface.run.console import Console
from whichrank.surface.run.job import Job
from whichrank.surface.run.sender import kept_from_new_threads
from whichrank.verdict.words.text import of_jobs
from whichrank.wire.address import AddressInUseError

if TYPE_CHECKING:
    from whichrank.server.loop import AnalyzerLoop
    from whichrank.surface.run.observation import Observation

MOST_FAULTS: Final = 3
"""Of ours, before a run gives up watching."""
NOBODY_SEEN: Final = (
    "no rank was seen: the command started no torch.distributed rank, or none that whichrank could watch"
    " (if it did: whichrank doctor)"
)
AT_ONCE_MS: Final = 100
"""A job that ends within this, and has made no ring, is not worth what watching it takes to import."""


class Session:
    """One run of a job under whichrank.

    Args:
        config: All settings.
        command: The job's program and arguments.
    """

    def __init__(self, config: Config, command: Sequence[str]) -> None:
        self._config = config
        self._command = list(command)
        self._job_name = environment.new_job_name()
        self._console = Console(quiet=config.run.quiet)
        self._summary = JobSummary(job=self._job_name, command=readable(self._command), started=utc_now())
        if config.run.checkpoints:
            self._summary.checkpoints = str(absolute(Path(config.run.checkpoints)))
        self._closing: list[Callable[[], None]] = []
        self._folder: JobFolder | None = None
        self._record: Record | None = None
        self._is_prepared = False
        self._observation: Observation | None = None
        self._faults = 0
        self._end_signal = ""

    def run(self) -> int:
        """Run the job to its end.

        Returns:
            Its exit code, negative for the signal that ended it.

        Raises:
            UsageError: The address of `--serve` or `--join` is none or has no key, or that of `--serve` is in use.
            CommandError: The command cannot be started.
        """
        environ = dict(os.environ)
        environ.pop(environment.RANK_PID, None)
        is_off = environment.is_off(environ)
        if not is_off:
            self._check_endpoint(environ)
        try:
            if is_off:
                self._console.say("WHICHRANK_DISABLE=1 is set, so the job runs unobserved")
            else:
                self._guarded(self._prepare)
                if self._folder:
                    environ.update(environment.additions(self._folder, environ, self._config.run.checkpoints))
            job = Job(self._command, environ, self._note_end_signal)
            code = self._accompany(job)
            self._summary.ended, self._summary.exit_status = utc_now(), code if code >= 0 else 128 - code
            self._guarded(self._conclude)
            return code
        finally:
            self._close()

    def _check_endpoint(self, environ: Mapping[str, str]) -> None:
        run = self._config.run
        if run.serve:
            served_endpoint(run.serve, environ, insecure=run.insecure)
        if run.join:
            joined_endpoint("--join", run.join, environ, insecure=run.insecure)

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
            self._observation = self._new_observation(self._folder)
            self._observation.listen()  # first of all: where it cannot, nothing is started or written
        if not self._config.run.join:
            self._open_record(output)
        if self._observation:
            self._observation.say_where(self._record)
        self._build_sensors()
        self._is_prepared = True

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

    def _new_observation(self, folder: JobFolder) -> Observation:
        with kept_from_new_threads():  # NumPy starts some
            from whichrank.surface.run.observation import Observation
        return Observation(self._config, folder, self._console)

    def _observe(self) -> None:
        assert self._folder
        self._observation = self._observation or self._new_observation(self._folder)
        self._observation.start(self._record)

    def _accompany(self, job: Job) -> int:
        """Wait for the job's end; watch it meanwhile."""
        pidfd = job.pidfd()
        try:
            if self._is_prepared and not self._has_ended_unseen(job, pidfd):
                self._guarded(self._observe)
            if pidfd < 0 or self._observation is None:
                return job.wait()
            while (code := job.poll()) is None:
                self._observation.wait(pidfd)
                if not self._guarded(self._observation.step) and self._faults >= MOST_FAULTS:
                    self._observation.give_up()
            return code
        finally:
            if pidfd >= 0:
                os.close(pidfd)

    def _has_ended_unseen(self, job: Job, pidfd: int) -> bool:
        """Whether it was over before anything could have been seen of it."""
        if pidfd < 0 or self._config.run.serve or self._config.run.record:
            return False  # agents of other machines may come, and a recording is asked for
        end = select.poll()
        end.register(pidfd, select.POLLIN)
        end.poll(AT_ONCE_MS)
        return job.poll() is not None and not (self._folder and self._folder.rings())

    def _conclude(self) -> None:
        """The job has ended: the final verdict, the files, the closing line."""
        drained = self._observation is not None and self._guarded(self._observation.drain)
        loop = self._observation.loop if self._observation else None
        if loop:
            loop.seen.fill(self._summary)
        if self._record:
            self._summary.incidents = self._record.incidents
            self._record.close(self._summary)
            if self._record.fault:
                self._console.say(f"not all was written to {self._record.folder}: {self._record.fault}")
        if loop and drained:
            self._console.say(self._closing_line(loop))
        elif self._is_prepared and not (self._observation or self._config.run.join or self._faults):
            self._console.say(NOBODY_SEEN)

    def _closing_line(self, loop: AnalyzerLoop) -> str:
        ranks, world = len(loop.seen.ranks), loop.seen.world_size
        if not ranks:
            return NOBODY_SEEN
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
        if self._observation:  # first of all: an agent's log lies in the folder of the run
            self._closing.append(self._observation.close)
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


def _mend(error: WhichrankError) -> str:
    return f"; to mend it: {error.mend}" if error.mend else ""


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

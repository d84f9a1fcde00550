"""The job as a plain child: same terminal, same process group, same descriptors; and how signals reach it.

A terminal sends Ctrl-C and Ctrl-Z to the whole foreground group, so the child has them already and we only
have to outlive it. What a process sends to us is passed on; `sender` tells the two apart, and until it listens the
foreground group of the terminal has to do. Handlers are functions, not SIG_IGN, since exec keeps ignored
signals ignored and resets the others. Either way `on_end_signal` hears of those that ask a job to end.

What our own parent had us ignore stays ignored in the child, as it would be without us. The child may take it up all
the same (a script's `&` ignores SIGINT, and many programs install a handler), so once it has been started we pass that
on, too. Not a hangup: `nohup` is asked for so that it reaches nobody.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Final

from whichrank.agent.processes import read_process
from whichrank.errors import WhichrankError
from whichrank.model.telemetry import ProcessState
from whichrank.ring.end_signals import END_SIGNALS
from whichrank.surface.run.sender import FROM_TERMINAL, let_in, wait_for_signals

FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


class CommandError(WhichrankError):
    """The command of the job cannot be started."""


class CommandNotFoundError(CommandError):
    """There is no such command; the exit code is that of a shell."""

    exit_code = _NOT_FOUND


class CommandNotExecutableError(CommandError):
    """The command may not be executed; the exit code is that of a shell."""

    exit_code = _NOT_EXECUTABLE


class Job:
    """A command that was started.

    Args:
        command: Program and arguments.
        environ: Its whole environment.
        on_end_signal: Called with the number of each signal that asks the job to end, before it is passed on. It may
            run in a signal handler or in a thread, and must not raise.

    Raises:
        CommandError: It cannot be started.
    """

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], on_end_signal: Callable[[int], None] = lambda _: None
    ) -> None:
        self._on_end_signal = on_end_signal
        self._pending: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        ignored = self._install_handlers()
        try:
            # Descriptors stay open: a build's job server or a shell's <(...) lies in them. Ours are closed on exec.
            self._process = subprocess.Popen(list(command), env=dict(environ), close_fds=False)
        except FileNotFoundError as error:
            raise CommandNotFoundError(f"command not found: {command[0]}") from error
        except OSError as error:
            raise CommandNotExecutableError(f"'{command[0]}' cannot be started: {error.strerror}") from error
        self.pid = self._process.pid
        for ignored_one, handler in ignored.items():
            signal.signal(ignored_one, handler)
        for number in self._pending:
            self._forward(number)
        self._signalled = self.pidfd()
        if self._signalled >= 0:
            wait_for_signals(self._on_sent)

    def poll(self) -> int | None:
        """The exit code once it has ended, negative for a signal; None before."""
        assert self._process is not None
        return self._process.poll()

    def wait(self) -> int:
        """Wait for its end; the exit code as in `poll`."""
        assert self._process is not None
        return self._process.wait()

    def pidfd(self) -> int:
        """A descriptor that becomes readable when it ends; -1 where the kernel has none."""
        try:
            return os.pidfd_open(self.pid)
        except (OSError, AttributeError):
            return -1

    def _install_handlers(self) -> dict[signal.Signals, signal._HANDLER]:
        """Handle what the child is not to ignore; the handlers for the rest, which wait until it has been started."""
        handlers: dict[signal.Signals, signal._HANDLER] = {
            **dict.fromkeys(FROM_TERMINAL, self._on_terminal),
            **dict.fromkeys(FORWARDED, self._on_reported),
            signal.SIGCONT: self._on_continue,
        }
        ignored = {number for number in handlers if signal.getsignal(number) is signal.SIG_IGN}
        for number in handlers.keys() - ignored:
            signal.signal(number, handlers[number])
        return {number: handlers[number] for number in ignored - {signal.SIGHUP}}

    def _on_reported(self, number: int, _: FrameType | None) -> None:
        if number in END_SIGNALS:
            self._on_end_signal(number)
        self._forward(number)

    def _on_terminal(self, number: int, _: FrameType | None) -> None:
        self._on_end_signal(number)
        if not is_foreground():
            self._forward(number)

    def _on_sent(self, number: int, by_terminal: bool) -> None:
        """In a thread: a pidfd cannot hit another process that has got the pid meanwhile."""
        self._on_end_signal(number)
        if not by_terminal:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._signalled, number)

    def _on_continue(self, number: int, _: FrameType | None) -> None:
        """`fg` continues the whole group; a SIGCONT to us alone has to wake the child too, also one that just began."""
        if self._process is None or read_process(self._process.pid).state == ProcessState.STOPPED:
            self._forward(number)

    def _forward(self, number: int) -> None:
        if self._process is None:
            self._pending.append(number)
        elif self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)


def is_foreground() -> bool:
    """Whether a terminal sends its signals to our process group, and so to the child."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def exit_like(code: int) -> int:
    """End as a process with this exit code of `Job.poll` did: by the same signal, if it was one.

    A shell tells "ended by SIGINT" from "exit 130" and stops a script only for the first.

    Returns:
        The exit code to end with, for everything that was no deadly signal.
    """
    if code >= 0:
        return code
    number = -code
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:  # closed by whoever started us
                stream.flush()
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        let_in()
        signal.raise_signal(number)  # to this thread, which alone lets it in
    return 128 + number

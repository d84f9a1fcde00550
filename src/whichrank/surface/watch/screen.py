"""The terminal: an alternate screen that is drawn anew twice a second, and the key that ends it.

Keys come from stdin when it is a terminal. The mode of the terminal is given back on every way out, also by SIGTERM and
while we are stopped with Ctrl-Z.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from whichrank.surface.watch.frame import Frame
from whichrank.surface.watch.node import NodeReader
from whichrank.surface.watch.view import screen

EVERY_S: Final = 0.5
QUIT: Final = (b"q", b"Q", b"\x03", b"\x04")


def watch_live(node: NodeReader, console: Console) -> Frame:
    """Show frames until the user has seen enough; the last one."""
    while True:
        try:
            with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
                while True:
                    frame = node.read()
                    live.update(screen(frame, console.width, console.height), refresh=True)
                    if keys.quits_within(EVERY_S):
                        return frame
        except _Suspended:
            _stop_ourselves()
        except KeyboardInterrupt:
            return frame


class _Suspended(Exception):  # noqa: N818  # no error: a way out of the drawing loop
    """Ctrl-Z."""


class Keys:
    """Keys that are pressed; none where stdin is no terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def quits_within(self, seconds: float) -> bool:
        """Wait so long for a key that ends the view; True as soon as one comes."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            if self._fd < 0:
                time.sleep(left_s)
                continue
            if not select.select([self._fd], [], [], left_s)[0]:
                continue
            pressed = os.read(self._fd, 64)
            if not pressed:  # the terminal is gone
                return True
            if any(key in pressed for key in QUIT):
                return True
        return False


@contextlib.contextmanager
def keyboard() -> Iterator[Keys]:
    """Read keys one by one, without echo, until the block ends; signals become ways out of it."""
    fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
    before = termios.tcgetattr(fd) if fd >= 0 else None
    handlers = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)}
    try:
        if fd >= 0:
            tty.setcbreak(fd)
        yield Keys(fd)
    finally:
        if before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, _handler(handler))


def _leave(number: int, _: FrameType | None) -> None:
    if number == signal.SIGTSTP:
        raise _Suspended
    raise SystemExit(128 + number)


def _handler(handler: Any) -> Any:
    return signal.SIG_DFL if handler is None else handler


def _stop_ourselves() -> None:
    """As the terminal wanted it; goes on when we are continued."""
    os.kill(os.getpid(), signal.SIGTSTP)

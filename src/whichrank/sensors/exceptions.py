"""Writes down the exception with which a process ends, however its program ends it.

The interpreter says `sys.excepthook` of an exception that nobody catches. But launchers and programs catch: a process
of `multiprocessing`, and so of `torch.multiprocessing.spawn`, prints the exception and exits with code 1, and many a
script logs it and calls `sys.exit(1)` or `os._exit(1)`. So three more places are asked:

- `multiprocessing` runs its finalizers while the exception still propagates: one of them looks at it;
- `sys.exit` is called inside the `except` block, where the exception is the one that is being handled. It may yet be
  caught, so what it says is kept until the process really ends;
- `os._exit` ends the process at once. With 0, as `multiprocessing` ends what it has forked, that is the end in order
  of which the interpreter's own hooks never hear.

A call out of the program's own handler of SIGINT, SIGTERM or SIGHUP is written down as that signal. Both functions stay
what they are for their callers: a fault in here never shows.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import util
from types import FrameType, TracebackType
from typing import Final, TypeVar

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]
Note = Callable[[bytes], None]
T = TypeVar("T")

_MOST_BYTES: Final = 191
_MOST_PLACE: Final = 80
_LIBRARY: Final = re.compile(r"site-packages|dist-packages|/lib/python3|/whichrank/sensors/|^<")
"""Files that are not the user's."""
_HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FIRST: Final = 1_000_000
"""Before all finalizers of the program: some wait for its children."""

_kept = b""  # what `sys.exit` was called with, until the process ends
_kept_in: tuple[FrameType, int] | None = None  # the outermost frame then, and where it stood


def watch(note: Note, close: Callable[[], object]) -> None:
    """Write down from now on with which exception this process ends, also in children that `multiprocessing` forks.

    Args:
        note: Takes an exception as `exception_note` makes it. What it is reported first stands.
        close: Called where the process ends in order without `atexit`.
    """

    def leaving(status: object) -> None:
        if status == 0:
            close()
        elif said := _note_of_exit(status):
            note(said)

    sys.excepthook = exception_hook(note, sys.excepthook)
    sys.exit = _reporting(sys.exit, _keep)
    os._exit = _reporting(os._exit, leaving)
    os._exit.__module__ = "os"  # where pickle looks for it, which sends functions to other processes
    atexit.register(lambda: note(_kept) if _kept and not _was_caught() else None)

    def propagating() -> None:
        value = _behind(sys.exc_info()[1])
        if value is not None:
            note(exception_note(type(value), value, value.__traceback__))

    def register(_: object = None) -> None:
        util.Finalize(None, _failing_open, args=(propagating,), exitpriority=_FIRST)

    register()
    util.register_after_fork(watch, register)


def exception_hook(note: Note, before: Hook) -> Hook:
    """A hook that writes an uncaught exception down, then lets the program's own hook do what it does.

    The interpreter keeps the exception as the last one before it calls the hook. A program that calls the hook itself,
    to print something, goes on, and its exception is not written down.
    """

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        try:
            if getattr(sys, "last_value", None) is value:
                note(exception_note(kind, value, trace))
        except Exception as error:
            print(f"whichrank: the exception was not noted: {error}", file=sys.stderr)
        before(kind, value, trace)

    return hook


def exception_note(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> bytes:
    """Type, first line of the message and place of an exception, at most 191 bytes.

    The place is the innermost line of the user's own code, or the innermost line of all. A long message is cut at a
    word, with an ellipsis; of a long path the end is kept.
    """
    place = _place(trace)
    lines = str(value).strip().splitlines() or [""]
    said = f"{kind.__name__}: {lines[0]}"
    return cut_at_word(said, _MOST_BYTES - len(place)) + place


def cut_at_word(text: str, most_bytes: int) -> bytes:
    """The text in UTF-8, cut between two words and with an ellipsis if it is longer than this."""
    whole = text.encode(errors="replace")
    if len(whole) <= most_bytes:
        return whole
    ellipsis = "…".encode()
    cut = whole[: most_bytes - len(ellipsis)].decode(errors="ignore")
    words = cut.rstrip() if whole[len(cut.encode()) :][:1] == b" " else cut.rpartition(" ")[0].rstrip()
    return (words if 2 * len(words) >= len(cut) else cut).encode() + ellipsis


def _place(trace: TracebackType | None) -> bytes:
    # Not by `traceback`, which reads the sources: an exit must not wait for a file system.
    frames = []
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    frame = next((one for one in reversed(frames) if not _LIBRARY.search(one[0])), frames[-1] if frames else None)
    if frame is None:
        return b""
    place = f"{frame[0]}:{frame[1]}".encode(errors="replace")
    if len(place) > _MOST_PLACE:
        tail = place[3 - _MOST_PLACE :]
        place = b"..." + tail[max(tail.find(b"/"), 0) :]
    return b" at " + place


def _behind(value: BaseException | None) -> BaseException | None:
    """The exception because of which a process ends: of an exit the one that was being handled, if it is a failure."""
    if not isinstance(value, SystemExit):
        return value
    if value.code in (None, 0):
        return None
    return _behind(value.__context__)


def _note_of_exit(status: object) -> bytes:
    """What the caller of an exit function ends because of; empty where it does not say."""
    if status in (None, 0):
        return b""
    value = _behind(sys.exc_info()[1])
    if value is not None:
        return exception_note(type(value), value, value.__traceback__)
    name = _handled_signal(sys._getframe())
    return f"SignalException: the program ended in its handler of {name}".encode() if name else b""


def _keep(status: object) -> None:
    global _kept, _kept_in
    if threading.current_thread() is threading.main_thread():  # in another one it ends the thread only
        _kept, outermost = _note_of_exit(status), sys._getframe()
        while outermost.f_back is not None:
            outermost = outermost.f_back
        _kept_in = outermost, outermost.f_lasti


def _was_caught() -> bool:
    """Has the program caught its `sys.exit` and gone on? Then its outermost frame stands elsewhere."""
    return _kept_in is not None and _kept_in[0].f_lasti != _kept_in[1]


def _handled_signal(frame: FrameType | None) -> str:
    """The signal whose handler, a function of the program, is being run in this frame or one that called it."""
    codes = {}
    for number in _HANDLED:
        handler = signal.getsignal(number)
        handler = getattr(handler, "func", handler)  # of a partial
        if code := getattr(getattr(handler, "__func__", handler), "__code__", None):
            codes[code] = number.name
    while frame is not None and codes:
        if frame.f_code in codes and _is_delivery(frame):
            return codes[frame.f_code]
        frame = frame.f_back
    return ""


def _is_delivery(frame: FrameType) -> bool:
    """Was the handler called with a signal and a frame? A program may call the same function itself, to clean up."""
    said = [frame.f_locals[name] for name in frame.f_code.co_varnames if name in frame.f_locals]
    said += [one for value in said if isinstance(value, tuple) for one in value]  # `*args`
    has_frame = any(isinstance(one, FrameType) for one in said)
    return has_frame and any(isinstance(one, int) and one in _HANDLED for one in said)


def _reporting(real: Callable[..., T], report: Callable[[object], None]) -> Callable[..., T]:
    """The same function, which says its argument first."""

    @functools.wraps(real)
    def reporting(*arguments: object, **named: object) -> T:
        status = arguments[0] if arguments else named.get("status")
        _failing_open(lambda: report(status))
        return real(*arguments, **named)

    return reporting


def _failing_open(step: Callable[[], object]) -> None:
    try:
        step()
    except Exception as error:
        print(f"whichrank: the exception was not noted: {error}", file=sys.stderr)

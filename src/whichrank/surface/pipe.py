"""A reader that goes away, as in `whichrank why | head -1`: it has what it wanted; what was found stays as it is."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Print results inside: if nobody reads them any more, the rest is dropped and the command goes on.

    So its exit code still says what was found.
    """
    try:
        yield
        if sys.stdout is not None:  # closed by whoever started us
            sys.stdout.flush()
    except BrokenPipeError:
        write_no_more()


def write_no_more() -> None:
    """Let the interpreter flush into the void at its end, and not into the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

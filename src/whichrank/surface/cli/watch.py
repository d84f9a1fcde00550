"""`whichrank watch`."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from whichrank.surface.terminal import show, show_json, talk

if TYPE_CHECKING:
    from whichrank.surface.watch.frame import Frame
    from whichrank.surface.watch.node import NodeReader

LEAST_WIDTH = 40
"""In fewer columns nothing can be read; `COLUMNS` may say anything."""
RATE_NEEDS_S = 0.4
"""Rates, and waits that are inferred, need a second snapshot."""


@click.command(name="watch")
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--once", is_flag=True, help="Print one frame in full and end; also where stdout is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one frame as JSON and end.")
def command(job: str | None, once: bool, as_json: bool) -> int:
    """Show the jobs on this node live: ranks, communicators, current operations, incidents.

    JOB is the name of a job (default: all that run). Only this node's rings are read; the job is not touched. q or
    Ctrl-C ends it.

    Exit codes of one frame: 0 no open alert, 3 a hang or failure, 4 a slowdown, 5 no alert but a ring or a record could
    not be read. The live view ends with 0.
    """
    from whichrank.surface.pipe import reader_may_leave
    from whichrank.surface.watch.frame import encode_frame, exit_code
    from whichrank.surface.watch.node import NodeReader

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    live = not once and not as_json and is_terminal and os.environ.get("TERM") not in (None, "dumb")
    with NodeReader(job) as node:
        if live:
            return _live(node)
        node.read()
        time.sleep(RATE_NEEDS_S)
        frame = node.read()
    with reader_may_leave():
        if as_json:
            show_json(encode_frame(frame))
        else:
            _print(frame)
    return exit_code(frame)


def _print(frame: Frame) -> None:
    """One frame in full."""
    from rich.console import Console

    from whichrank.ring.folder import base_folder
    from whichrank.surface.watch.view import page

    console = Console(soft_wrap=False)
    console.width = max(LEAST_WIDTH, console.width)
    with console.capture() as drawn:  # rich would end the process where the reader of a pipe has gone
        console.print(page(frame, console.width))
    click.echo(drawn.get(), nl=False, color=(console.is_terminal and not console.no_color) or None)
    if not frame.jobs:
        talk(f"rings are looked for in {base_folder()}")


def _live(node: NodeReader) -> int:
    from rich.console import Console

    from whichrank.surface.watch.screen import watch_live
    from whichrank.verdict.words.text import headline

    frame = watch_live(node, Console())
    for job in frame.jobs:
        for incident in job.incidents:
            if incident.status != "recovered":
                show(f"{headline(incident)}  [{incident.id}]")
    return 0

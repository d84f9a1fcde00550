"""The one way in which a command prints: nothing that others wrote reaches a terminal as it came.

stdout is data, stderr is talk. What is JSON stays the same JSON. A command calls nothing else to print.
"""

from __future__ import annotations

from typing import Any

import click

from whichrank.errors import WhichrankError
from whichrank.model.plain_text import error_lines, json_for_a_terminal, lines, one_line


def show(text: str = "", *, colour: str | None = None, bold: bool = False, err: bool = False, nl: bool = True) -> None:
    """Print lines of text, all in one style; without `nl` the last one goes on."""
    plain = lines(text)
    styled = click.style(plain, fg=colour, bold=bold or None) if colour or bold else plain
    click.echo(styled, err=err, nl=nl)


def talk(sentence: str) -> None:
    """Say one sentence on stderr."""
    click.echo(f"whichrank: {one_line(sentence)}", err=True)


def show_json(data: bytes) -> None:
    """Print JSON."""
    click.echo(json_for_a_terminal(data))


def show_error(error: WhichrankError) -> None:
    """What happened, where, and what mends it, a line each, on stderr."""
    click.echo(error_lines(error), err=True)


def progress_bar() -> Any:
    """A progress bar on stderr, on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(console=console, disable=not console.is_terminal)

"""The command line: one file per command, its docstring is its help.

A command's module is imported when it is needed, and imports what it works with inside its function, so that `--help`
and completion stay fast. A command raises `WhichrankError`; only `main` prints errors and makes exit codes.
stdout is data, stderr is talk. May be imported from here: `main` and `cli`.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import os
from collections.abc import Sequence

import click

from whichrank import __version__
from whichrank.errors import WhichrankError
from whichrank.surface.pipe import write_no_more
from whichrank.surface.terminal import show, show_error, talk

COMMANDS = {
    "agent": "whichrank.surface.cli.agent",
    "analyze": "whichrank.surface.cli.analyze",
    "bench": "whichrank.surface.cli.bench",
    "completion": "whichrank.surface.cli.completion",
    "demo": "whichrank.surface.cli.demo",
    "doctor": "whichrank.surface.cli.doctor",
    "env": "whichrank.surface.cli.env",
    "export": "whichrank.surface.cli.export",
    "lab": "whichrank.surface.cli.lab",
    "mitigate": "whichrank.surface.cli.mitigate",
    "ras": "whichrank.surface.cli.ras",
    "replay": "whichrank.surface.cli.replay",
    "report": "whichrank.surface.cli.report",
    "run": "whichrank.surface.cli.run",
    "sim": "whichrank.surface.cli.sim",
    "stacks": "whichrank.surface.cli.stacks",
    "validate": "whichrank.surface.cli.validate",
    "watch": "whichrank.surface.cli.watch",
    "why": "whichrank.surface.cli.why",
}
"""Command -> the module that holds it as `command`."""

EXIT_INTERRUPTED = 130
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, or None."""
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, with a hint for a misspelt name."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="whichrank", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Names the rank that hangs a distributed PyTorch job, live, with no change to the training code.

    Exit codes: 0 healthy, 1 error, 2 usage, 3 hang found, 4 slowdown found, 5 data incomplete.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    _take_closed_streams()
    try:
        result = cli.main(args=args, prog_name="whichrank", standalone_mode=False)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        show(said.getvalue(), err=True, nl=False)
        return error.exit_code
    except WhichrankError as error:
        show_error(error)
        return error.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # of a command whose exit code says nothing about what it prints; see `pipe`
        write_no_more()
        return 1
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        write_no_more()
        talk(f"the output cannot be written: {error.strerror}")
        return 1
    return result if isinstance(result, int) else 0


def _take_closed_streams() -> None:
    """Where we were started without stdin, stdout or stderr, no file of ours may take its number and be written to."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number; closed on exec, so a job starts as we did

"""`whichrank completion`."""

from __future__ import annotations

import click


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL (bash, zsh or fish).

    \b
    bash:  eval "$(whichrank completion bash)"
    zsh:   eval "$(whichrank completion zsh)"
    fish:  whichrank completion fish | source
    """
    from click.shell_completion import get_completion_class

    from whichrank.surface.cli import cli

    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(cli, {}, "whichrank", "_WHICHRANK_COMPLETE").source())

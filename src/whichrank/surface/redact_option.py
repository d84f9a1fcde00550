"""The option that leaves names of hosts and folders out, for all commands that write something to mail."""

from __future__ import annotations

from typing import Any

import click

from whichrank.errors import UsageError


def redact_option(command: Any) -> Any:
    """Add `--redact`."""
    return click.option(
        "--redact", default=None, metavar="hosts,paths", help="Leave out names of hosts, folders of files, or both."
    )(command)


def redacted_by(text: str | None) -> list[Any]:
    """What is to be left out.

    Args:
        text: The value of `--redact`, None if it was not given.

    Returns:
        Values of `Redacted`.

    Raises:
        UsageError: It names something else.
    """
    from whichrank.surface.redact import REDACTABLE

    if text is None:
        return []
    if not text.strip():
        raise UsageError("--redact does not say what is to be left out", mend=f"--redact {','.join(REDACTABLE)}")
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in REDACTABLE]:
        raise UsageError(f"'{unknown[0]}' cannot be left out", mend=f"--redact {','.join(REDACTABLE)}")
    return [name for name in REDACTABLE if name in wanted]

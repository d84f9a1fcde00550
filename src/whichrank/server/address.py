"""An address as a user gives it, checked before anything is started with it."""

from __future__ import annotations

from whichrank.errors import UsageError
from whichrank.wire.address import full_address


def refuse_option(option: str, value: str | None) -> None:
    """Refuse what was meant to be the next option, as in `--serve -- COMMAND`, and nothing, as in `--output "$UNSET"`.

    Raises:
        UsageError: The value begins with a dash, or is empty.
    """
    if value == "":
        takes, example = ("the path of a folder", "DIR") if option == "--output" else ("HOST:PORT", "HOST:PORT")
        raise UsageError(f"{option} is '': it takes {takes}", mend=f"{option} {example}, or leave {option} out")
    if value is not None and value.startswith("-"):
        raise UsageError(
            f"{option} has no value: '{value}' follows it",
            mend=f"{option} {'./' + value if option == '--output' else 'HOST:PORT'}, or leave {option} out",
        )


def checked_address(option: str, text: str) -> str:
    """The address as `full_address` gives it; no host name has a blank in it.

    Raises:
        UsageError: It is none.
    """
    refuse_option(option, text)
    if not text.startswith("ipc://") and (any(c.isspace() for c in text) or not text.isprintable()):
        raise UsageError(f"{text!r} is no address", where=option, mend=f"{option} HOST:PORT")
    return full_address(text)

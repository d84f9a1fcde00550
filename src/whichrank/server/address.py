"""Where an analyzer listens and how to get in, as a user gives it; checked before anything is started with it.

    HOST:PORT        the key of the job is in WHICHRANK_KEY
    HOST:PORT/KEY    with the key; everybody on the machine can see an argument, so this is for the environment
    @FILE            a file that holds one of these, as `whichrank run --serve` writes it

The key is what `wire.keys` says. `ipc://PATH` needs none: its file has a mode.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from whichrank.errors import UsageError
from whichrank.model.plain_text import without_key
from whichrank.server.regular_file import open_regular
from whichrank.wire.address import full_address
from whichrank.wire.keys import VARIABLE, is_key, new_key

KEY: Final = VARIABLE
INSECURE: Final = "WHICHRANK_INSECURE"
JOIN_FILE: Final = "join"
"""In the folder of a run that serves: what `--join @FILE` takes."""
_ALL_INTERFACES: Final = ("0.0.0.0", "[::]")  # noqa: S104  # read, not bound
_MOST_OF_A_FILE: Final = 4096
_HOW_TO_GET_A_KEY: Final = (
    "@FILE with the file `join` that the analyzing run has written, or the same WHICHRANK_KEY on all machines"
    " (export WHICHRANK_KEY=$(openssl rand -hex 32))"
)


class Endpoint(NamedTuple):
    """Where an analyzer listens, and the key that it asks for."""

    address: str
    """As `full_address` gives it."""
    key: str
    """Empty where none is needed."""

    def as_text(self) -> str:
        """For `--join` on another machine."""
        return f"{self.address}/{self.key}" if self.key else self.address


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
        raise UsageError(f"{without_key(text)!r} is no address", where=option, mend=f"{option} HOST:PORT")
    return full_address(text)


def checked_endpoint(option: str, text: str) -> Endpoint:
    """What `--join` or `--connect` names, read; the key is empty if the text has none.

    Raises:
        UsageError: It is no address, no key, or a file that cannot be read.
    """
    refuse_option(option, text)
    is_file = text.startswith("@")
    if is_file:
        text = _content(option, text[1:])
    if text.startswith("ipc://"):
        return Endpoint(full_address(text), "")
    place, slash, key = text.removeprefix("tcp://").partition("/")
    if slash and not is_key(key):
        raise UsageError(
            "what follows the slash is no key: a key has 64 hexadecimal digits",
            where=option,
            mend=f"{option} HOST:PORT/KEY or {option} @FILE, as the run that analyzes has written it",
        )
    if slash and not place:
        raise UsageError(f"{option} has a key and no address", where=option, mend=f"{option} HOST:PORT/KEY")
    return Endpoint(full_address(place) if is_file else checked_address(option, place), key)


def joined_endpoint(option: str, text: str, environ: Mapping[str, str], *, insecure: bool) -> Endpoint:
    """Where to report, with the key of the job from the text or from the environment.

    Raises:
        UsageError: As `checked_endpoint`; or there is no key.
    """
    endpoint = checked_endpoint(option, text)
    if endpoint.key or not endpoint.address.startswith("tcp:"):
        return endpoint
    if insecure:
        return Endpoint(endpoint.address, "")
    if key := key_in(environ):
        return Endpoint(endpoint.address, key)
    mend = f"{option} {_HOW_TO_GET_A_KEY}"
    raise UsageError(f"{option} needs the key of the job", where=f"{option} {without_key(text)}", mend=mend)


def served_endpoint(text: str, environ: Mapping[str, str], *, insecure: bool) -> Endpoint:
    """Where to listen, with the key of the job: that of the environment, else a new one.

    Raises:
        UsageError: It is no address, or the key in the environment is none.
    """
    address = checked_address("--serve", text)
    if insecure or not address.startswith("tcp:"):
        return Endpoint(address, "")
    return Endpoint(address, key_in(environ) or new_key())


def key_in(environ: Mapping[str, str]) -> str:
    """The key of the job, if the environment has one.

    Raises:
        UsageError: It is none.
    """
    key = environ.get(KEY, "").strip()  # a secret made of a file may end with a line
    if key and not is_key(key):
        what = f"{KEY} is no key: it has {len(key)} characters, and a key has 64 hexadecimal digits"
        raise UsageError(what, where="the environment", mend=f"export {KEY}=$(openssl rand -hex 32), or unset {KEY}")
    return key


def address_for_others(bound: str) -> str:
    """The address under which other machines reach what listens at `bound`: all interfaces are this host's name."""
    place, _, port = bound.removeprefix("tcp://").rpartition(":")
    return f"{socket.gethostname() if place in _ALL_INTERFACES else place}:{port}"


def _content(option: str, name: str) -> str:
    path = Path(name)
    mend = f"{option} @FILE with the file `{JOIN_FILE}` that the run that analyzes has written"
    if not name:
        raise UsageError("no file is named behind @", where=option, mend=mend)
    try:
        with open_regular(path) as file:
            text = file.read(_MOST_OF_A_FILE).decode().strip()
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
        raise UsageError(f"{path} cannot be read: {why}", where=option, mend=mend) from error
    if not text or not text.isprintable():
        raise UsageError(f"{path} holds no HOST:PORT/KEY", where=option, mend=mend)
    return text

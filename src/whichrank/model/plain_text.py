"""Texts of others, made fit to be shown: on a terminal, in a page, in a command that is suggested.

Host names, names of jobs and groups, exceptions, paths and stacks come from programs, nodes and files that we do not
control. A terminal obeys control characters, a reader is misled by a change of the direction of writing, and a shell
runs what is pasted. So whoever shows such a text passes it through here.
"""

from __future__ import annotations

import re
from typing import Final

from whichrank.errors import WhichrankError

_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:%-]{0,254}")
_KEY: Final = re.compile(r"(?:(?<=/)|^)[0-9a-fA-F]{64}(?![0-9a-fA-F])")
_JOB: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def one_line(text: str) -> str:
    """A sentence: what is not printable is a blank, and blanks are one.

    Example: a red "a" (ESC [31ma) on two lines becomes `[31ma`, which a terminal prints as it stands.
    """
    printable = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())


def as_name(text: str) -> str:
    """A name or a cell of a table: what is not printable is a question mark, so that its length stays."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def lines(text: str) -> str:
    """Several lines: breaks and indents stay, what else is not printable is a question mark."""
    return "\n".join(as_name(line.replace("\t", "    ")) for line in text.split("\n"))


def error_lines(error: WhichrankError) -> str:
    """What happened, where, and what mends it, a line each."""
    said = [f"whichrank: {one_line(error.what)}"]
    said += [f"  {label} {one_line(text)}" for label, text in (("where:", error.where), ("mend: ", error.mend)) if text]
    return "\n".join(said)


def json_for_a_terminal(data: bytes) -> bytes:
    """The same JSON, with what is not printable in its strings escaped; the encoder leaves some as they are."""
    text = data.decode()
    if text.isascii() and "\x7f" not in text:
        return data
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text).encode()


def without_key(text: str) -> str:
    """The same without the key of a job that stands behind an address, `HOST:PORT/KEY`, or alone."""
    return _KEY.sub("<key>", text)


def is_host_name(text: str) -> bool:
    """Whether it can be a host in a command that somebody may paste."""
    return bool(_HOST.fullmatch(text))


def is_job_name(text: str) -> bool:
    """Whether it can be a job in a command that somebody may paste."""
    return bool(_JOB.fullmatch(text))


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

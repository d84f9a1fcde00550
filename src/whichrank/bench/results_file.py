"""The file of a campaign or a score: a line of JSON for each run, so that it can be stopped and continued."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from whichrank.errors import FormatError, UsageError

T = TypeVar("T")


def read_results(path: Path, decode: Callable[[bytes], T]) -> list[T]:
    """All that it holds; nothing if it is not there.

    Args:
        path: The file.
        decode: Makes a result of a line; what it raises means that the line is none.

    Raises:
        UsageError: It cannot be read, or is no file.
        FormatError: It holds something else.
    """
    try:
        if not path.exists():
            return []
        if not path.is_file():
            raise UsageError("the results cannot be kept there: it is no file", where=str(path), mend="--results FILE")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise _no_place(path, error) from error
    results = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                results.append(decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
                raise FormatError(
                    "this is no result of a campaign, so the campaign cannot go on from this file",
                    where=f"{path}, line {number}",
                    mend="remove the line, or begin a new file: --results FILE",
                ) from error
    return results


def make_ready(path: Path) -> None:
    """See that results can be appended, before the first run and not after it.

    Raises:
        UsageError: They cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise _no_place(path, error) from error


def append_result(path: Path, result: Any) -> None:
    """Add a line."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(result) + b"\n")


def _no_place(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"the results cannot be kept there: {error.strerror}", where=str(path), mend="name another file: --results FILE"
    )

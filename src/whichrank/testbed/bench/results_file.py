"""The file of a campaign or a score: a line of JSON for each run, so that it can be stopped and continued."""

from __future__ import annotations

import shutil
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
        lines = _whole_lines(path.read_bytes())
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
    """See that results can be appended, before the first run and not after it; a line that is half there goes.

    Raises:
        UsageError: They cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(0)
            text = file.read()
            lines = _whole_lines(text)
            if len(lines) < len(text.splitlines()):
                file.truncate(len(text) - len(text.splitlines()[-1]))
            elif lines and not text.endswith(b"\n"):
                file.write(b"\n")
    except OSError as error:
        raise _no_place(path, error) from error


def ready_picture(path: Path) -> None:
    """See that a picture can be drawn there, before the first run.

    Raises:
        UsageError: It cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        what = f"the picture cannot be drawn there: {error.strerror}"
        raise UsageError(what, where=str(path), mend="name another file: --picture FILE") from error


def ready_folder(path: Path) -> None:
    """See that runs can be kept there, before the first one.

    Raises:
        UsageError: They cannot.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _no_folder(path, error) from error


def ready_empty_folder(path: Path) -> None:
    """See that a run can be kept there, and takes the place of nothing.

    Raises:
        UsageError: It cannot, or would.
    """
    ready_folder(path)
    try:
        is_empty = not any(path.iterdir())
    except OSError as error:
        raise _no_folder(path, error) from error
    if not is_empty:
        what = "a run is kept in a folder of its own, and this one is not empty"
        raise UsageError(what, where=str(path), mend="name another folder: --keep FOLDER")


def keep_run(folder: Path, path: Path) -> None:
    """Copy what a run wrote; a folder that is there keeps its mode.

    Raises:
        UsageError: It cannot be kept there.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for child in folder.iterdir():
            if child.is_dir():
                shutil.copytree(child, path / child.name, dirs_exist_ok=True)
            else:
                shutil.copy2(child, path)
    except OSError as error:  # shutil.Error too
        raise _no_folder(path, error) from error


def append_result(path: Path, result: Any) -> None:
    """Add a line."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(result) + b"\n")


def _whole_lines(text: bytes) -> list[bytes]:
    """Without a last one, after others, that was being written when its writer was killed."""
    lines = text.splitlines()
    if len(lines) > 1 and not text.endswith(b"\n"):
        try:
            msgspec.json.decode(lines[-1])
        except msgspec.DecodeError:
            lines.pop()
    return lines


def _no_place(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"the results cannot be kept there: {error.strerror}", where=str(path), mend="name another file: --results FILE"
    )


def _no_folder(path: Path, error: OSError) -> UsageError:
    said = error.strerror or str(error.args[0] if error.args else error)[:200]
    return UsageError(f"runs cannot be kept there: {said}", where=str(path), mend="name another folder: --keep FOLDER")

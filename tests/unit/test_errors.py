"""Errors: the tree that the docstring draws is the tree that is, and each message says how to go on."""

from __future__ import annotations

import re

import pytest

from whichrank import errors
from whichrank.errors import IncompleteDataError, UsageError, WhichrankError


def drawn_tree() -> list[tuple[int, str, int | None]]:
    """Depth, name and exit code of each line of the drawing."""
    found = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"    ([│├└─ ]*)(\w+Error)\b(?: +exit (\d))?", line):
            found.append((len(match[1]) // 4, match[2], int(match[3]) if match[3] else None))
    return found


def real_tree(kind: type[WhichrankError] = WhichrankError, depth: int = 0) -> list[tuple[int, str]]:
    return [
        (depth, kind.__name__),
        *(
            line
            for child in kind.__subclasses__()
            if child.__module__ == errors.__name__
            for line in real_tree(child, depth + 1)
        ),
    ]


def test_drawing_is_true() -> None:
    drawn = drawn_tree()
    assert sorted((depth, name) for depth, name, _ in drawn) == sorted(real_tree())
    for _, name, code in drawn:
        assert code is None or getattr(errors, name).exit_code == code


def test_message_has_what_where_and_mend() -> None:
    error = UsageError("the folder is empty", where="/data/run", mend="whichrank why DIR")
    assert str(error) == "the folder is empty\n  where: /data/run\n  mend:  whichrank why DIR"


def test_parts_that_are_not_known_are_left_out() -> None:
    assert str(WhichrankError("it broke")) == "it broke"


@pytest.mark.parametrize(("kind", "code"), [(WhichrankError, 1), (UsageError, 2), (IncompleteDataError, 5)])
def test_exit_codes(kind: type[WhichrankError], code: int) -> None:
    assert kind("x").exit_code == code

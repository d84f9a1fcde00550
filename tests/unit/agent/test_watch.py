"""The rows that the native watch is given."""

from __future__ import annotations

import re
from pathlib import Path

from whichrank.agent.watch import MARKS, WATCHED

HEADER = (Path(__file__).parents[3] / "native" / "include" / "whichrank" / "watch.h").read_text()


def test_rows_are_laid_out_as_in_the_header() -> None:
    (fields,) = re.findall(r"typedef struct \{(.*?)\} wr_watched;", HEADER, re.DOTALL)
    names = re.findall(r"(?:int32_t|uint64_t) ([a-z_, ]+);", fields)
    assert ", ".join(names).split(", ") == list(WATCHED.names or ())
    assert WATCHED.itemsize == 24


def test_marks_are_those_of_the_header() -> None:
    (listed,) = re.findall(r"sum of (.*?) of its header", HEADER)
    assert re.findall(r"\w+_ns", listed) == list(MARKS)

"""When a line of a log was written, as far as the line says it: there is no year and no time zone in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Final

UNTIMED: Final = -1.0
"""In the place of a time that is not known."""
YEAR_S: Final = 366 * 86400.0
_LEAP_YEAR: Final = 2024
_TORCH: Final = re.compile(r"[A-Z](?<![^\s\[:].)(\d{3,4} \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?")
"""What stands before the letter is looked at behind it: a text is searched faster for a letter than for a begin."""
_ISO: Final = re.compile(r"\d{4}[-/](\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_TORCHRUN: Final = re.compile(r"\d{4}-(\d\d-\d\d_\d\d:\d\d:\d\d)()")


_SYSLOG: Final = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d)")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def torch_time_s(line: str) -> float:
    """`[E601 03:00:00.25 file.cpp:632]`: seconds since the year began, `UNTIMED` without such a time."""
    return _seconds(_TORCH.search(line))


def torchrun_time_s(text: str) -> float:
    """The same of `2025-06-01_03:00:09`, as torchrun writes it."""
    return _seconds(_TORCHRUN.search(text))


def iso_time_s(text: str) -> float:
    """The same of `2025-06-01T03:00:09.25Z`, as collectors of logs write it."""
    return _seconds(_ISO.match(text)) if text else UNTIMED


def syslog_time_s(text: str) -> float:
    """The same of `Jun  1 03:00:09`, as syslog and the kernel's log have it."""
    found = _SYSLOG.match(text)
    if not found or found[1] not in _MONTHS:
        return UNTIMED
    return _second_of_year(f"{_MONTHS.index(found[1]) + 1}{found[2].strip():0>2} {found[3]}")


def _seconds(found: re.Match[str] | None) -> float:
    if not found:
        return UNTIMED
    at_s, part = _second_of_year(found[1]), found[2]
    return at_s + float("0." + part) if part and at_s >= 0 else at_s


@lru_cache(maxsize=4096)
def _second_of_year(text: str) -> float:
    """Of `601 03:00:00` or `06-01T03:00:00`, `UNTIMED` where there is no such day: lines of one second are many."""
    month, day = text[:-11].rstrip("-/"), text[-11:-9]
    try:
        at = datetime(_LEAP_YEAR, int(month), int(day), int(text[-8:-6]), int(text[-5:-3]), int(text[-2:]))
    except ValueError:
        return UNTIMED
    return (at - datetime(_LEAP_YEAR, 1, 1)).total_seconds()


def across_new_year(times_s: Iterable[float]) -> bool:
    """Do these times of one job lie on both sides of a new year?"""
    known = [at_s for at_s in times_s if at_s >= 0]
    return bool(known) and max(known) - min(known) > YEAR_S / 2

"""Pieces of a text that one writer wrote, from bytes as people have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import IO, Final, NamedTuple, TypeVar

from whichrank.intake.lines.encodings import blocks
from whichrank.intake.lines.hints import lines_of_interest
from whichrank.intake.lines.plain import plain_lines
from whichrank.intake.lines.prefixes import Who, beside, taken_off
from whichrank.intake.lines.torn import HEAD, MOST_PIECE, cut_at_writers, may_begin_in
from whichrank.intake.lines.wrapped import unwrapped

T = TypeVar("T")
MOST_KNOWN: Final = 1 << 13
"""Begins of lines that are remembered, and as many ends: a few MB."""

_DURATION, _AFTER_DURATION = " ran for ", " milliseconds before timing out."
_MOST_DURATION: Final = len(_DURATION) + 12 + len(_AFTER_DURATION)


class Piece(NamedTuple):
    """What one writer wrote of a line.

    Attributes:
        text: Without prefixes.
        who: What the prefixes say of the writer.
        is_cut: Its end may be missing: another writer or the end of the file cut it.
        body: What stands behind torch's head of the line, where that is one.
        key: Of that what comes again and again: without how long an operation ran.
    """

    text: str
    who: Who
    is_cut: bool
    body: str = ""
    key: str = ""


def pieces(
    stream: IO[bytes], hints: Mapping[bytes, int], take: Callable[[bytes], bool] = lambda _: False
) -> Iterator[Piece]:
    """The pieces of the lines in which a hint stands.

    Args:
        stream: UTF-8, see `encodings.as_utf8`.
        hints: See `lines_of_interest`.
        take: Called with each line first: whether it was taken as it is, since it is of a kind that comes in millions.
    """
    known = _Known()
    for raw, is_whole in lines_of_interest(unwrapped(blocks(stream)), hints):
        if take(raw):
            continue
        for line in plain_lines(raw.decode("utf-8", "replace")):
            if (piece := known.piece(line, is_whole=is_whole)) is not None:
                yield piece
            else:
                yield from _pieces_of(line, is_whole=is_whole)


def _pieces_of(line: str, *, is_whole: bool) -> Iterator[Piece]:
    for text, is_cut, begin in cut_at_writers(line):
        who, rest = taken_off(text)
        at = begin - (len(text) - len(rest))
        if 0 < at < len(rest):  # the rest of another line stands before it
            inner, rest = taken_off(rest[at:])
            who = beside(inner, who)
        head = HEAD.match(rest)
        body = rest[head.end() :] if head else ""
        yield Piece(rest, who, is_cut or not is_whole, body, without_duration(body)[0])


class _Known:
    """Begins and ends of lines that were taken apart before: of millions of lines most differ in their time only."""

    def __init__(self) -> None:
        self._who: dict[str, Who | None] = {}
        self._is_one: dict[str, bool] = {}

    def piece(self, line: str, *, is_whole: bool) -> Piece | None:
        """The piece that a plain line with one head is; None if it may be more than that."""
        found = HEAD.search(line)
        if found is None or len(line) > MOST_PIECE:
            return None
        begin, end = found.span()
        body, prefix = line[end:], line[:begin]
        key, _ = without_duration(body)
        is_one = self._is_one.get(key)
        if is_one is None:
            is_one = not may_begin_in(key)
            _remember(self._is_one, key, is_one)
        if not is_one:
            return None
        if prefix in self._who:
            who = self._who[prefix]
        else:
            pieces_of = list(_pieces_of(line, is_whole=True))
            who = pieces_of[0].who if len(pieces_of) == 1 and pieces_of[0].text == line[begin:] else None
            _remember(self._who, prefix, who)
        return Piece(line[begin:], who, not is_whole, body, key) if who is not None else None


def without_duration(body: str) -> tuple[str, int]:
    """A line of the watchdog without how many milliseconds an operation ran, and that, -1 where it does not say it.

    It differs from line to line, where the rest is the same for all that a rank writes of an operation.
    """
    if not body.endswith(_AFTER_DURATION):
        return body, -1
    at = body.rfind(_DURATION, -_MOST_DURATION)
    number = body[at + len(_DURATION) : -len(_AFTER_DURATION)]
    return (body[:at], int(number)) if at >= 0 and number.isdecimal() and number.isascii() else (body, -1)


def _remember(known: dict[str, T], key: str, value: T) -> None:
    if len(known) >= MOST_KNOWN:
        known.clear()
    known[key] = value

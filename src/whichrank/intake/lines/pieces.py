"""Pieces of a text that one writer wrote, from bytes as people have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import IO, NamedTuple

from whichrank.intake.lines.encodings import blocks
from whichrank.intake.lines.hints import lines_of_interest
from whichrank.intake.lines.plain import plain_lines
from whichrank.intake.lines.prefixes import Who, beside, taken_off
from whichrank.intake.lines.torn import cut_at_writers, first_writer
from whichrank.intake.lines.wrapped import unwrapped


class Piece(NamedTuple):
    """What one writer wrote of a line.

    Attributes:
        text: Without prefixes.
        who: What the prefixes say of the writer.
        is_cut: Its end may be missing: another writer or the end of the file cut it.
    """

    text: str
    who: Who
    is_cut: bool


def pieces(
    stream: IO[bytes], hints: Mapping[bytes, int], take: Callable[[bytes], bool] = lambda _: False
) -> Iterator[Piece]:
    """The pieces of the lines in which a hint stands.

    Args:
        stream: UTF-8, see `encodings.as_utf8`.
        hints: See `lines_of_interest`.
        take: Called with each line first: whether it was taken as it is, since it is of a kind that comes in millions.
    """
    for raw, is_whole in lines_of_interest(unwrapped(blocks(stream)), hints):
        if take(raw):
            continue
        for line in plain_lines(raw.decode("utf-8", "replace")):
            for text, is_cut in cut_at_writers(line):
                who, rest = taken_off(text)
                at = first_writer(rest)
                if at > 0:  # the rest of another line stands before it
                    inner, rest = taken_off(rest[at:])
                    who = beside(inner, who)
                yield Piece(rest, who, is_cut or not is_whole)

"""Elements of a page. Every text is escaped here and nowhere else, so nothing that a job calls itself is markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

LONG = 40
"""Characters from which a text in a table is a sentence."""
_KEPT = "\n\t"


class Html(str):
    """Markup that needs no escaping any more."""

    __slots__ = ()


Child = object
"""A piece of markup, a text, a number, or None, which is left out."""


def el(tag: str, *children: Child, **attributes: object) -> Html:
    """An element, with its children one after the other.

    Args:
        tag: Its name.
        children: Texts are escaped.
        attributes: `class_` is `class`, other underscores are hyphens; those that are None or False are left out.
    """
    given = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_text(value)}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{tag}{given}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """Pieces of markup and texts, one after the other."""
    return Html("".join(one if isinstance(one, Html) else _text(one) for one in children if one is not None))


def table(
    head: Sequence[Child], rows: Iterable[Sequence[Child]], numbers: Iterable[int] = (), caption: str = ""
) -> Html:
    """A table that scrolls sideways where it does not fit.

    Args:
        head: Names of the columns.
        rows: Their cells.
        numbers: Columns that hold numbers.
        caption: What is said above it.
    """
    right = set(numbers)

    def line(cells: Sequence[Child], tag: str) -> Html:
        return el("tr", *(el(tag, cell, class_="n" if at in right else _class(cell)) for at, cell in enumerate(cells)))

    return el(
        "div",
        el(
            "table",
            el("caption", caption) if caption else None,
            el("thead", line(head, "th")),
            el("tbody", *(line(row, "td") for row in rows)),
        ),
        class_="scroll",
    )


def _class(cell: Child) -> str | None:
    """A cell with a sentence is not squeezed."""
    return "text" if isinstance(cell, str) and not isinstance(cell, Html) and len(cell) > LONG else None


def section(title: str, *children: Child, level: int = 2) -> Html:
    """A part of a page under a heading."""
    return el("section", el(f"h{level}", title), *children)


def _text(value: object) -> str:
    """Escaped, and without control characters and those that turn the direction of a line."""
    text = "".join(c if c.isprintable() or c in _KEPT else " " for c in str(value))
    return html.escape(text)

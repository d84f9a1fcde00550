"""The numbers by which is decided, as a page: `python tests/unit/constants_table.py` writes it anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "whichrank"
PAGE = ROOT / "docs" / "reference" / "constants.md"
ROOMS = ("detect", "locate", "store", "hang", "slow", "stage", "transport", "verdict", "analyzer")

HEAD = """# Constants

All numbers by which is decided, one table for each room of the code. None of them is a setting: those are in
[Settings](config.md). This page is made from the code (`python tests/unit/constants_table.py`); a test fails where a
number has no reason, or the page is not up to date.
"""


class Constant(NamedTuple):
    """A number with a name, on the level of a module."""

    file: str
    name: str
    value: str
    reason: str


def constants(room: str) -> Iterator[Constant]:
    """All of a room, by file."""
    for path in sorted((SOURCE / room).rglob("*.py")):
        body = ast.parse(path.read_text()).body
        for at, node in enumerate(body):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if not isinstance(target, ast.Name) or not target.id.strip("_").isupper() or not is_number(value):
                continue
            after = body[at + 1] if at + 1 < len(body) else None
            text = after.value if isinstance(after, ast.Expr) else None
            reason = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
            file = path.relative_to(SOURCE / room).as_posix()
            yield Constant(file, target.id, ast.unparse(value), " ".join(reason.split()))


def is_number(node: ast.AST | None) -> bool:
    """A number, or one that is made of numbers only."""
    numbers = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)
    parts = list(ast.walk(node)) if node is not None else []
    values = [part.value for part in parts if isinstance(part, ast.Constant)]
    return (
        bool(parts)
        and all(isinstance(part, numbers) for part in parts)
        and all(type(v) in (int, float) for v in values)
    )


def page() -> str:
    """The page as it has to be."""
    parts = [HEAD]
    for room in ROOMS:
        rows = [f"| `{c.file}` | `{c.name}` | {c.value} | {c.reason.replace('|', '/')} |" for c in constants(room)]
        parts.append(
            "\n".join([f"## {room}", "", "| file | name | value | unit and reason |", "|---|---|---|---|", *rows, ""])
        )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())

"""The rules of the house that no reviewer should have to look for: arrows of imports, purity, sizes, docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "whichrank"

# Room -> the rooms that it may import from. `errors` and the root (for `__version__`) are open to all.
ARROWS: dict[str, set[str]] = {
    "columns": {"native"},
    "model": {"columns"},
    "ring": {"model"},
    "wire": {"model"},
    "intake": {"model", "columns"},
    "detect": {"model", "columns", "config"},
    "locate": {"model", "config"},
    "store": {"model", "columns", "detect", "locate"},
    "transport": {"model", "locate", "store"},
    "slow": {"model", "detect", "locate", "store", "transport"},
    "stage": {"model", "detect", "locate", "store"},
    "hang": {"model", "detect", "locate", "store", "transport"},
    "verdict": {"model", "detect", "store"},
    "act": {"model"},
    "analyzer": {"model", "detect", "locate", "store", "transport", "slow", "hang", "verdict", "config"},
    "sensors": {"model", "ring", "config", "native"},
    "torch": {"model", "native"},
    "agent": {"model", "ring", "sensors", "wire", "config", "native"},
    "server": {"model", "ring", "wire", "sensors", "intake", "analyzer", "agent", "act", "config"}
    | {"native", "stage"},
    "testbed": {
        "model",
        "ring",
        "wire",
        "sensors",
        "intake",
        "detect",
        "locate",
        "store",
        "hang",
        "slow",
        "transport",
        "stage",
    }
    | {"analyzer", "agent", "act", "torch", "config", "native"},
    "surface": {"model", "ring", "wire", "sensors", "intake", "locate", "store", "hang", "stage", "verdict", "analyzer"}
    | {"agent", "server", "act", "testbed", "config", "native"},
}
# The same inside of the testbed: jobs to break, then nodes for them, then scores.
INSIDE_TESTBED = {"demo": {"demo"}, "lab": {"demo", "lab"}, "sim": {"sim"}, "bench": {"demo", "lab", "sim", "bench"}}
# Nothing but the command line and its screen of a trial knows the testbed.
OPENS_TESTBED = ("testbed", "surface/cli", "surface/trial")

# What decides can be tested with plain data: no I/O, no thread, no clock of its own.
SANS_IO = ("model", "detect", "locate", "store", "transport", "slow", "stage", "hang", "verdict", "act", "analyzer")
IMPURE_MODULES = {
    *("asyncio", "concurrent", "ctypes", "fcntl", "glob", "http", "io", "logging", "mmap", "multiprocessing", "os"),
    *("pathlib", "psutil", "queue", "random", "requests", "select", "selectors", "shutil", "signal", "socket", "ssl"),
    *("subprocess", "tempfile", "threading", "time", "urllib", "zmq"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "breakpoint"}

MOST_LINES = 500
MOST_LINES_OF_A_NATIVE_TEST = 600
MOST_LINES_OF_A_COMMAND = 149


@cache
def modules(package: str = "") -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


@cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    return list(imports(parsed(path)))


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of every import, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the import in full"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def wrong_arrows(package: str, imported: list[tuple[int, str]]) -> list[str]:
    allowed = ARROWS[package] | {package, "errors", "__version__", "__path__"}
    names = [(line, name.split(".")) for line, name in imported]
    return [
        f"line {line}: {package} may not import {'.'.join(parts)}"
        for line, parts in names
        if parts[0] == "whichrank" and len(parts) > 1 and parts[1] not in allowed
    ]


def impurities(tree: ast.AST) -> list[str]:
    found = [f"line {line}: imports {name}" for line, name in imports(tree) if name.split(".")[0] in IMPURE_MODULES]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            clock = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in IMPURE_CALLS or clock in {"now", "utcnow", "today"}:
                found.append(f"line {node.lineno}: calls {name or clock}")
    return found


def packages() -> list[str]:
    return sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.rglob("*.py")))


@pytest.mark.parametrize("package", packages())
def test_dependencies_point_inwards(package: str) -> None:
    assert package in ARROWS, f"say in ARROWS what {package} may import"
    wrong = {str(path): found for path in modules(package) if (found := wrong_arrows(package, imports_of(path)))}
    assert not wrong


@pytest.mark.parametrize("part", INSIDE_TESTBED)
def test_the_testbed_has_an_order_of_its_own(part: str) -> None:
    wrong = [
        (str(path), name)
        for path in modules(f"testbed/{part}")
        for _, name in imports_of(path)
        if name.startswith("whichrank.testbed.") and name.split(".")[2] not in INSIDE_TESTBED[part]
    ]
    assert not wrong


def test_only_the_command_line_opens_the_testbed() -> None:
    inside = {path for part in OPENS_TESTBED for path in modules(part)}
    outside = [path for path in modules() if path not in inside]
    found = [str(path) for path in outside if any(name.startswith("whichrank.testbed") for _, name in imports_of(path))]
    assert found == []


def test_arrows_have_no_cycle() -> None:
    order: list[str] = []
    remaining = {package: allowed & ARROWS.keys() for package, allowed in ARROWS.items()}
    while remaining:
        free = [package for package, allowed in remaining.items() if allowed <= set(order)]
        assert free, f"a cycle among {sorted(remaining)}"
        order += free
        for package in free:
            del remaining[package]


def modules_imported(path: Path) -> set[str]:
    """Modules of ours that a file imports, at its head or inside a function."""
    known = known_modules()
    found = set()
    for _, name in imports_of(path):
        while name and name not in known:
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {"", "whichrank", name_of(path)}


@cache
def known_modules() -> set[str]:
    return {name_of(path) for path in modules()}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Modules none of which can be imported before another one of them; empty if there are none."""
    left = dict(graph)
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def test_no_module_needs_itself() -> None:
    assert cycle_in({name_of(path): modules_imported(path) for path in modules()}) == []


def test_a_cycle_is_seen() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]


def test_wrong_arrow_is_named() -> None:
    # GIVEN a detector that looks at the surface, inside a function
    inside = list(imports(ast.parse("def f():\n    from whichrank.verdict.words.text import paragraph\n")))
    # THEN the line and both ends are named
    assert wrong_arrows("detect", inside) == ["line 2: detect may not import whichrank.verdict.words.text.paragraph"]


@pytest.mark.parametrize("package", SANS_IO)
def test_what_decides_does_no_io(package: str) -> None:
    assert {str(path): found for path in modules(package) if (found := impurities(parsed(path)))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import socket",
        "import threading",
        "from time import sleep",
        "open('x')",
        "datetime.now()",
        "from os import path",
    ],
)
def test_impurity_is_seen(code: str) -> None:
    assert impurities(ast.parse(code))


def test_file_is_one_idea() -> None:
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in modules()}
    commands = SOURCE / "surface" / "cli"
    most = {path: MOST_LINES_OF_A_COMMAND if path.parent == commands else MOST_LINES for path in lines}
    assert {str(path): lines[path] for path in lines if lines[path] > most[path]} == {}


def test_native_file_is_one_idea() -> None:
    native = SOURCE.parents[1] / "native"
    sources = [path for path in native.rglob("*") if path.suffix in {".c", ".h", ".cpp"}]
    long = {
        path.name: lines
        for path in sources
        if (lines := path.read_text(encoding="utf-8").count("\n"))
        > (MOST_LINES_OF_A_NATIVE_TEST if "tests" in path.parts else MOST_LINES)
    }
    assert not long


def test_module_says_what_it_is_for() -> None:
    assert [str(path) for path in modules() if not ast.get_docstring(parsed(path))] == []


def test_what_a_folder_says_of_its_files_is_there() -> None:
    folders = {path.name for path in SOURCE.rglob("*") if path.is_dir()}
    stale = {}
    for init in SOURCE.rglob("__init__.py"):
        tree = parsed(init)
        here = {path.stem for path in init.parent.iterdir()} | folders
        here |= {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        if gone := set(re.findall(r"`([a-z_]\w*)`", ast.get_docstring(tree) or "")) - here:
            stale[str(init.relative_to(SOURCE))] = gone
    assert not stale


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in modules()}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))

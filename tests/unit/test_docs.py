"""The docs say of all that there is: options, settings, fields of the incident, sizes in the ring, dependencies."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import get_args

import click
import msgspec
import pytest
from ring_writer import core

from whichrank.config import AnalyzerConfig, RunConfig
from whichrank.errors import WhichrankError
from whichrank.model import incident
from whichrank.model.commands import Order
from whichrank.surface.cli import cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "dev")
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"]


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """What stands under a heading, up to the next of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section '{title}'"
    return found.group(2)


def options() -> list[tuple[str, str]]:
    """(command, option) of the whole command line; options of a group's commands belong to the group."""
    context = click.Context(cli)
    found = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        inner = list(command.commands.values()) if isinstance(command, click.Group) else []
        for each in [command, *inner]:
            for parameter in each.params:
                reported = parameter.opts[0] if isinstance(parameter, click.Option) else str(parameter.name).upper()
                found.append((name, reported))
    return sorted(set(found))


@pytest.mark.parametrize(("command", "option"), options(), ids=str)
def test_every_option_is_in_the_reference(command: str, option: str) -> None:
    wanted = "COMMAND" if option == "JOB_COMMAND" else option
    assert f"`{wanted}" in section(page("reference/cli.md"), command)


@pytest.mark.parametrize("command", sorted({name for name, _ in options()}))
def test_reference_names_no_option_that_is_gone(command: str) -> None:
    reported = set(re.findall(r"^\| `(--[a-z-]+)", section(page("reference/cli.md"), command), re.MULTILINE))
    assert reported <= {option for name, option in options() if name == command}


def test_every_command_and_exit_code_is_in_the_reference() -> None:
    text = page("reference/cli.md")
    assert all(f"\n## {name}\n" in text for name in cli.list_commands(click.Context(cli)))
    reported = section(text, "Exit codes")
    codes = {error.exit_code for error in every_error(WhichrankError)}
    assert all(re.search(rf"\b{code}\b", reported) for code in codes)


def every_error(base: type[WhichrankError]) -> list[type[WhichrankError]]:
    import whichrank.surface.run.job  # noqa: F401  # it has errors of its own

    return [base, *(found for child in base.__subclasses__() for found in every_error(child))]


@pytest.mark.parametrize(("table", "struct"), [("[run]", RunConfig), ("[analyzer]", AnalyzerConfig)])
def test_every_setting_is_in_the_reference_with_its_default(table: str, struct: type[msgspec.Struct]) -> None:
    reported = section(page("reference/config.md"), table)
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", reported, re.MULTILINE))
    assert list(rows) == list(struct.__struct_fields__)
    for field in msgspec.structs.fields(struct):
        default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        assert rows[field.name].startswith("unset" if field.default is None else default)


def structs_of_the_incident() -> list[type[msgspec.Struct]]:
    return [
        value
        for value in vars(incident).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and not value.__name__.startswith("_")
        if value is not msgspec.Struct
    ]


@pytest.mark.parametrize("struct", structs_of_the_incident(), ids=lambda struct: struct.__name__)
def test_every_field_of_the_incident_is_in_the_reference(struct: type[msgspec.Struct]) -> None:
    text = page("reference/incident.md")
    missing = [field.encode_name for field in msgspec.structs.fields(struct) if f"`{field.encode_name}`" not in text]
    assert missing == []


@pytest.mark.parametrize("words", [incident.Cause, incident.Reason])
def test_every_cause_and_reason_is_in_the_reference(words: type[incident.Cause | incident.Reason]) -> None:
    text = page("reference/incident.md")
    assert [word.value for word in words if f"`{word.value}`" not in text] == []


def test_sizes_and_places_in_the_ring_are_those_of_the_compiler() -> None:
    # GIVEN what the compiler says, and the table of parts
    reported: dict[str, int] = json.loads(core().wr_layout_json())
    text = page("reference/ring.md")
    parts = re.findall(r"^\| [^|]+ \| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    places = {
        "wr_header": ("header", 1),
        "wr_frame": ("frame", 1),
        "wr_inflight": ("inflight", reported["WR_INFLIGHT"]),
        "wr_wait": ("wait", reported["WR_WAITS"]),
        "wr_pair": ("pair", reported["WR_PAIRS"]),
        "wr_connection": ("connection", reported["WR_CONNECTIONS"]),
        "wr_comm": ("comm", reported["WR_COMMS"]),
        "wr_record": ("record", reported["WR_RECORDS"]),
        "wr_splits": ("splits", reported["WR_SPLIT_ROWS"]),
        "wr_gate": ("gate", 1),
        "wr_shares": ("shares", 1),
        "wr_places": ("places", 1),
    }
    # THEN every struct of the ring stands there with its size, its number of rows and its place
    found = {struct: (int(rows), int(size), int(at)) for struct, rows, size, at in parts if struct.startswith("wr_")}
    expected = {s: (n, reported[f"sizeof.{s}"], reported[f"wr_ring.{field}"]) for s, (field, n) in places.items()}
    assert found == {**expected, "wr_ring": (1, reported["sizeof.wr_ring"], 0)}
    # AND the parts follow each other without a gap
    ends = [int(at) + int(rows) * int(size) for _, rows, size, at in parts[:-1]]
    starts = [int(at) for _, _, _, at in parts[1:-1]]
    assert all(0 <= start - end <= 4 for end, start in zip(ends, starts, strict=False))
    assert ends[-1] == reported["sizeof.wr_ring"]
    for name in ("wr_sensor_status", "wr_block", "wr_channel"):
        assert re.search(rf"`{name}`(?: has)? {reported[f'sizeof.{name}']}\b", text)
    assert f"Format {reported['WR_VERSION']}," in text


def test_what_an_agent_can_be_asked_for_is_on_the_page_of_security() -> None:
    (listed,) = re.findall(
        r"ask an agent for (\w+) things, and for no other: (.*?)\.", page("explain/security.md"), re.S
    )
    orders = {order.__name__ for order in get_args(Order)}
    assert set(re.findall(r"`(\w+)`", listed[1])) == orders
    assert (
        listed[0] == ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")[len(orders)]
    )


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = page("explain/dependencies.md")
    run_time, to_develop = section(text, "At run time"), text.partition("## To develop")[2]
    assert [d for d in names(project["dependencies"]) if f"| {d} |" not in run_time] == []
    assert [d for d in names(project["optional-dependencies"]["dev"]) if d not in to_develop] == []
    assert set(re.findall(r"^\| ([a-z-]+) \|", run_time, re.MULTILINE)) - {"package"} == set(
        names(project["dependencies"])
    )


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[<>=!\[;]", requirement)[0].strip() for requirement in requirements]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if "://" in target:
            continue
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_can_be_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [str(path) for path in PAGES if str(path.relative_to(ROOT)) not in readme] == []

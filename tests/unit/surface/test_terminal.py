"""What others wrote is printed as text, whatever it holds."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from incident_cases import not_entered
from msgspec import structs

from whichrank.errors import UsageError
from whichrank.intake.plain_text import for_people
from whichrank.model.evidence import Evidence
from whichrank.model.plain_text import as_name, is_host_name, is_job_name, json_for_a_terminal, lines, one_line
from whichrank.surface import terminal
from whichrank.surface.cli import main
from whichrank.surface.run.console import Console

EVIL = "a\x1b[31m\x9b2J\u202eb\u200b\n\tc\x7f\u2066\ud800"


def is_plain(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("clean", [one_line, as_name, lines, for_people])
def test_nothing_is_left_that_a_terminal_obeys(clean: object) -> None:
    assert is_plain(clean(EVIL))  # type: ignore[operator]
    assert clean("plain, ünïcödé 漢字") == "plain, ünïcödé 漢字"  # type: ignore[operator]


def test_breaks_stay_where_lines_are_wanted_only() -> None:
    assert lines("a\n  b\x07") == "a\n  b?"
    assert one_line("a\n  b\x07") == "a b"


def test_json_is_the_same_json() -> None:
    data = json.dumps({"host": EVIL[:-1] + "\U000e0001"}, ensure_ascii=False).encode()
    shown = json_for_a_terminal(data)
    assert is_plain(shown.decode())
    assert json.loads(shown) == json.loads(data)
    assert json_for_a_terminal(b'{"a":\n 1}') == b'{"a":\n 1}'


@pytest.mark.parametrize("name", ["gpu07", "node-1.corp.example", "fe80::1%eth0", "10.0.0.1"])
def test_a_host(name: str) -> None:
    assert is_host_name(name)


@pytest.mark.parametrize(
    "name", ["", "-oProxyCommand=id", "a b", "a;id", "$(id)", "`id`", "a\nb", "a\x1b[0m", "a" * 300]
)
def test_no_host_and_no_job(name: str) -> None:
    assert not is_host_name(name)
    assert not is_job_name(name)


def test_an_error_is_three_lines_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show_error(UsageError(f"what {EVIL}", where=f"where {EVIL}", mend=f"mend {EVIL}"))
    said = capsys.readouterr().err
    assert is_plain(said)
    assert [line.split()[0] for line in said.splitlines()] == ["whichrank:", "where:", "mend:"]


@pytest.mark.parametrize("command", [["why"], ["analyze"], ["replay"], ["report"], ["export"], ["watch"], ["stacks"]])
def test_a_file_name_is_reported_as_text(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a file whose name holds an escape sequence, as `*` gives it to a command
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHICHRANK_SHM", str(tmp_path / "shm"))
    name = "x\x1b]0;owned\x07\u202e.json"
    Path(name).write_bytes(b"no record\x1b[31m\n")
    # WHEN a command is asked for it, and for an option of that name
    for words in ([*command, name], [*command, f"--{name}"]):
        assert main(words) != 0
    # THEN what is said is text
    said = capsys.readouterr()
    assert is_plain(said.out + said.err)
    assert "owned" in said.err


def test_an_exception_and_a_host_are_said_as_text() -> None:
    # GIVEN an incident with texts of the job and of another node
    incident = not_entered()
    culprit = structs.replace(incident.culprits[0], host=EVIL, why=f"it raised ValueError: {EVIL}")
    evidence = Evidence(what=f"exception {EVIL}", value=EVIL, where=EVIL)
    incident = structs.replace(incident, culprits=(culprit,), evidence=(evidence,), id=f"id{EVIL}")
    # WHEN the run says it, and a note of an agent
    stream = io.StringIO()
    console = Console(quiet=False, stream=stream)
    console.incident(incident)
    console.say(f"on {EVIL}: {EVIL}")
    # THEN
    assert is_plain(stream.getvalue())


def test_only_one_module_prints_what_others_wrote() -> None:
    """Commands that print results of jobs call `terminal`; the others print what we have written ourselves."""
    cli = Path(terminal.__file__).parent / "cli"
    of_jobs = ("why", "analyze", "replay", "report", "export", "stacks", "doctor", "ras", "__init__")
    assert [name for name in of_jobs if "click.echo" in (cli / f"{name}.py").read_text()] == []

"""Runs and tables of the paper's evaluation: what counts as what, and that a results file is continued."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from whichrank.errors import UsageError
from whichrank.surface.cli.bench_paper import paper
from whichrank.testbed.bench.paper import runs as runs_module
from whichrank.testbed.bench.paper.hear import METHODS, OURS
from whichrank.testbed.bench.paper.intervals import Counts
from whichrank.testbed.bench.paper.runs import Outcome, Result, Truth, Verdict, run_all
from whichrank.testbed.bench.paper.table import counts_of, summary, tables


def run(cell: str, verdict: Verdict, *, is_due: bool = True, seed: int = 1, phase: bool | None = None) -> Result:
    truth = Truth("slow", "forward", 3, -1, 0, -1, 2.0, 0.0, 15)
    outcomes = {name: Outcome(verdict, phase=phase) for name in METHODS}
    return Result(cell, seed, "dp4", "1f1b", 1, truth, 0.5, is_due, outcomes, 0.1)


def row(text: str, title: str, table: str) -> list[str]:
    lines = text[text.index(table) :].splitlines()
    return next(line for line in lines if line.startswith(f"| {title} ")).split(" | ")


def test_what_is_right_missed_and_wrong_is_counted_apart() -> None:
    results = [run("slow 2x", "right")] * 5 + [run("slow 2x", "wrong")] + [run("slow 2x", "silent")] * 2
    results += [run("slow 2x", "unknown"), run("slow 2x", "wrong", is_due=False)]
    results += [run("slow 2x", "right", is_due=False)] * 3
    assert counts_of(results, OURS) == Counts(right=5, wrong=1, silent=3, false=1, other=3)


def test_a_right_name_where_nothing_was_due_is_apart() -> None:
    results = [run("slow 2x", "right"), run("slow 5 %", "right", is_due=False)]
    cells = row(tables(results), "whichrank", "Slow ranks: n = 2 runs, 1 of which are due")
    # THEN it is in neither recall nor precision
    assert cells[1].startswith("1.00")
    assert cells[3:9] == ["1.00", "1", "0", "0", "1", "0"]


def test_names_in_sound_jobs_have_a_table_of_their_own() -> None:
    results = [run("healthy", "silent", is_due=False)] * 9 + [run("healthy", "wrong", is_due=False)]
    assert row(tables(results), "whichrank", "Runs with a name")[1].startswith("1/10 (")


def test_parts_are_right_wrong_or_not_said() -> None:
    results = [run("slow 2x", "right", phase=phase) for phase in (True, True, False, None)]
    cells = row(tables(results), "slow | whichrank", "Phase and microbatch")
    assert cells[2:6] == ["4", "2/4 (0.15-0.85)", "1", "1"]
    # AND there is no microbatch where all are slow
    assert cells[6] == "-"


def test_summary_is_json() -> None:
    found = msgspec.json.decode(msgspec.json.encode(summary([run("slow 2x", "right")])))
    assert found["slow 2x"]["megatrace"]["recall"]["value"] == 1.0
    assert list(found) == ["slow 2x"]


@pytest.fixture
def test_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "FIRST_SEED", 40)


@pytest.mark.usefixtures("test_seeds")
def test_results_file_is_continued(tmp_path: Path) -> None:
    path, shown = tmp_path / "results.jsonl", list[str]()
    # GIVEN one run, and a second call for two
    first = run_all(["hang"], 1, path, lambda one: shown.append(one.cell))
    both = run_all(["hang", "slow 10x"], 1, path, lambda one: shown.append(one.cell))
    # THEN the first is not done again
    assert both[0] == first[0]
    assert shown == ["hang", "hang", "slow 10x"]
    lines = path.read_bytes().splitlines()
    assert [msgspec.json.decode(line)["cell"] for line in lines] == ["hang", "slow 10x"]
    assert both[0].outcomes[OURS].verdict == "right"


@pytest.mark.usefixtures("test_seeds")
def test_command_prints_tables_and_json(tmp_path: Path) -> None:
    path = str(tmp_path / "results.jsonl")
    args = ["--runs", "1", "--only", "slow 10x", "--only", "healthy", "--results", path]
    text = CliRunner().invoke(paper, args, standalone_mode=False).output
    assert "Slow ranks: n = 1 runs" in text
    assert "not the code of their authors" in text
    found = msgspec.json.decode(CliRunner().invoke(paper, [*args, "--json"], standalone_mode=False).output)
    assert list(found["cells"]) == ["slow 10x", "healthy"]
    assert [one["seed"] for one in found["runs"]] == [40, 40]


def test_unknown_cell_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no cell 'slow 7x'"):
        CliRunner().invoke(paper, ["--only", "slow 7x"], standalone_mode=False, catch_exceptions=False)

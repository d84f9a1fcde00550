"""The tables, and the command that prints them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from whichrank.surface.cli.bench_fail_slow import fail_slow
from whichrank.testbed.bench.fail_slow import simulated, table
from whichrank.testbed.bench.fail_slow.methods import NAMES
from whichrank.testbed.bench.fail_slow.series import FILE_NAME, Series
from whichrank.testbed.bench.results_file import append_result


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of short series, and a small bank."""
    pytest.importorskip("ruptures")
    cost = table.bank_cost
    monkeypatch.setattr(table, "bank_cost", lambda _: cost(100, feeds=2))
    monkeypatch.setattr(simulated, "KINDS", {name: simulated.KINDS[name] for name in ("noise", "step")})


def recorded(folder: Path) -> None:
    """A run of a quiet machine, one beside others, and one whose fault made no difference."""
    made = simulated.simulate(1)
    for number, (others, changes) in enumerate([(0.1, []), (1.2, []), (0.1, [200])]):
        one = Series(f"run-{number}", "healthy", made[0].values, changes, run=f"run-{number}", others_cores=[others])
        append_result(folder / FILE_NAME, one)


def test_there_is_a_row_for_each_method_and_n_is_said() -> None:
    results = table.score_all(simulated.simulate(2), lambda *_: None)
    text = table.score_table("Simulated", results)
    assert "n = 4 series, 2 with changes and 2 without" in text
    assert all(f"| {table.TITLES[name]} |" in text for name in NAMES)
    assert "| whichrank | 100.0% (4/4) | 0.0% (0/2) | 0.0% (0/2) |" in text


def test_sources_are_never_in_one_table(tmp_path: Path) -> None:
    recorded(tmp_path)
    result = CliRunner().invoke(fail_slow, ["--series", "1", "--recorded", str(tmp_path)], standalone_mode=False)
    assert "Simulated: n = 2 series" in result.output
    assert "Recorded, quiet machine: n = 1 series of 1 runs" in result.output
    assert "Recorded beside other programs: n = 1 series of 1 runs" in result.output
    assert "1 are left out" in result.output
    assert "bytes for each series" in result.output


def test_what_is_not_given_is_left_out_with_a_sentence() -> None:
    result = CliRunner().invoke(fail_slow, ["--series", "1"], standalone_mode=False)
    assert "Recorded in the lab: left out; record runs with --record FOLDER" in result.output
    assert "Annotated series: left out; name a folder of them with --annotated FOLDER." in result.output


def test_json_has_every_method_of_every_source() -> None:
    result = CliRunner().invoke(fail_slow, ["--series", "1", "--json"], standalone_mode=False)
    said = json.loads(result.stdout)
    assert set(said["simulated"]) == set(NAMES)
    assert said["simulated"]["ours"]["score"]["series"] == 2
    assert "recorded" not in said

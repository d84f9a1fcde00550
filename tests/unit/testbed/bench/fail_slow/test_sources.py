"""Where series come from: the simulation, runs of the lab as they are drawn and read, and files of annotations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from whichrank.errors import FormatError, UsageError
from whichrank.testbed.bench.fail_slow import lab_runs
from whichrank.testbed.bench.fail_slow.annotated import Agreement, Annotated, agreement, read_annotated
from whichrank.testbed.bench.fail_slow.other_load import OtherLoad, _line_of, others_s
from whichrank.testbed.bench.fail_slow.series import FILE_NAME, Series, read_series
from whichrank.testbed.bench.fail_slow.simulated import CHANGING, HEALTHY, LENGTH, simulate
from whichrank.testbed.bench.results_file import append_result

# ---- simulated -------------------------------------------------------------------------------------------------------


def test_a_simulation_is_the_same_again_and_another_with_another_seed() -> None:
    assert simulate(2) == simulate(2)
    assert simulate(2)[0].values != simulate(2, seed=1)[0].values


def test_kinds_have_changes_or_have_none() -> None:
    made = simulate(5)
    assert len(made) == 5 * len(HEALTHY | CHANGING)
    assert all(bool(one.changes) == (one.kind in CHANGING) for one in made)
    assert all(len(one.values) == LENGTH and min(one.values) > 0 for one in made)


def test_steps_in_a_row_are_small_and_come_to_a_tenth_with_every_second_one() -> None:
    one = next(s for s in simulate(1) if s.kind == "steps-in-a-row")
    assert len(one.changes) == len(one.begins)
    assert all(begin < change for begin, change in zip(one.begins, one.changes, strict=True))


# ---- recorded --------------------------------------------------------------------------------------------------------


def test_runs_take_turns_and_are_the_same_when_recording_goes_on() -> None:
    runs = [lab_runs.draw(number) for number in range(6)]
    assert [run.kind for run in runs] == ["healthy", "cpu-contention", "congestion"] * 2
    assert runs == [lab_runs.draw(number) for number in range(6)]
    assert all(0 < run.onset < run.relief < run.length for run in runs)


def test_changes_are_the_first_iterations_that_ended_after_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN steps of eight ranks, one each second, from second 1 on; three of them are left out
    steps = {rank: (np.arange(20), np.arange(1, 21) * 10**9) for rank in range(lab_runs.RANKS)}
    monkeypatch.setattr(lab_runs, "_steps", lambda _: steps)
    with OtherLoad() as load:
        pass
    # WHEN a fault is set at second 9.5 and taken away at second 15.5
    found = list(lab_runs._series(lab_runs.draw(1), Path(), [9_500_000_000, 15_500_000_000], load))
    # THEN iteration 5 ended at second 10, and iteration 11 at second 16
    assert [one.changes for one in found] == [[5, 11]] * lab_runs.RANKS
    assert found[0].values == [1.0] * 16
    assert len(found[0].others_cores) == 16


@pytest.mark.parametrize("number", [[0, 1, 3], [0, 0, 1]])
def test_a_run_whose_steps_are_not_all_there_gives_no_series(
    monkeypatch: pytest.MonkeyPatch, number: list[int]
) -> None:
    steps = {rank: (np.array(number), np.arange(3)) for rank in range(lab_runs.RANKS)}
    monkeypatch.setattr(lab_runs, "_steps", lambda _: steps)
    with pytest.raises(lab_runs.RecordingError, match="steps of rank 0 are missing"):
        list(lab_runs._series(lab_runs.draw(0), Path(), [], OtherLoad()))


def test_series_are_read_as_they_were_written(tmp_path: Path) -> None:
    one = Series("run-0-rank-0", "healthy", [0.25, 0.26], [], run="run-0", others_cores=[0.0, 0.1])
    append_result(tmp_path / FILE_NAME, one)
    assert read_series(tmp_path) == [one]


def test_no_series_and_no_line_of_one_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no recorded series"):
        read_series(tmp_path)
    (tmp_path / FILE_NAME).write_text('{"name": 1}\n')
    with pytest.raises(FormatError):
        read_series(tmp_path)


# ---- the load of others ----------------------------------------------------------------------------------------------


def test_the_load_of_others_is_a_mean_around_each_moment() -> None:
    load = OtherLoad()
    load._samples = [(0.0, 100.0), (10.0, 100.0), (20.0, 110.0)]  # nothing for ten seconds, then one core
    assert load.cores(np.array([5.0, 15.0])).tolist() == [0.0, 1.0]
    assert load.cores(np.array([10.0]))[0] == pytest.approx(0.5)


def test_others_are_all_but_this_process_and_its_descendants() -> None:
    assert others_s() > 0
    assert _line_of(7, {7: 5, 5: 1, 1: 0}) == [7, 5, 1]


# ---- annotated -------------------------------------------------------------------------------------------------------


def test_a_place_is_right_if_an_annotator_has_one_near() -> None:
    one = Annotated("a", np.zeros(300), [[100, 200], [103], []])
    assert agreement(one, [98, 150]) == Agreement(reported=2, right=1, recall=(0.5 + 1) / 2)
    assert agreement(one, []) == Agreement(0, 0, 0.0)
    assert agreement(Annotated("b", np.zeros(300), [[], []]), [10]) == Agreement(1, 0, None)


def test_annotated_series_are_read(tmp_path: Path) -> None:
    (tmp_path / "annotations.json").write_text(json.dumps({"a": {"6": [1], "7": []}}))
    (tmp_path / "a.json").write_text(json.dumps({"series": [{"raw": [1.0, 2.0]}]}))
    (one,) = read_annotated(tmp_path)
    assert (one.name, one.values.tolist(), one.places) == ("a", [1.0, 2.0], [[1], []])


def test_what_is_no_folder_of_annotated_series_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the annotated series cannot be read"):
        read_annotated(tmp_path)
    (tmp_path / "annotations.json").write_text("[]")
    with pytest.raises(UsageError, match="these are no annotated series"):
        read_annotated(tmp_path)

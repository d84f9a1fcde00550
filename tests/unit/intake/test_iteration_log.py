"""Training logs: when iterations became longer, whatever stands around the lines; and never a rank."""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
from iteration_logs import OTHERS, PREFIXES, PROGRAMS, log_of, megatron, times

from whichrank.errors import IncompleteDataError
from whichrank.intake.iteration_lines import HINTS
from whichrank.intake.iteration_log import Tap
from whichrank.intake.read import read
from whichrank.model.incident import Incident
from whichrank.model.logged_iterations import LoggedIterations
from whichrank.server.analyze import analyze
from whichrank.surface.cli.analyze import command
from whichrank.verdict.words.text import paragraph

CHANGES = ((120, 1.5), (180, 1.0))
NEAR = 4
"""Iterations by which the onset may be off, where lines are torn or a pause stands beside it."""


def logged(text: str | bytes) -> LoggedIterations | None:
    """What a log says of iterations."""
    tap = Tap(io.BytesIO(text.encode() if isinstance(text, str) else text))
    stream = tap.buffered()
    while stream.read(1000):
        pass
    return tap.logged("job.log")


def incidents_of(path: Path, text: str | bytes) -> list[Incident]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return [incident for recording in read([path]).recordings for incident in analyze(recording)]


def facts(incident: Incident) -> dict[str, object]:
    return {fact.what: fact.value for fact in incident.evidence}


@pytest.mark.parametrize("torn", [0.0, 0.1])
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_slowdown_is_found_with_its_onset_relief_and_ratio(
    program: str, prefix: str, torn: float, tmp_path: Path
) -> None:
    rng = random.Random(f"{program} {prefix} {torn}")
    text = log_of(rng, program, times(rng, 260, CHANGES), prefix=prefix, torn=torn)
    (incident,) = incidents_of(tmp_path / "x", text)
    assert (incident.kind, incident.severity, incident.cause) == ("slow", "alert", "unknown")
    assert not incident.culprits
    assert not incident.candidates
    assert incident.stage is not None
    assert incident.stage.iteration is not None
    assert abs(incident.stage.iteration - 121) <= NEAR
    known = facts(incident)
    (worst,) = (value for what, value in known.items() if what.endswith("worst level"))
    (after,) = (value for what, value in known.items() if what.endswith("after it, in proportion"))
    assert worst == pytest.approx(1.5, abs=0.05)
    assert after == pytest.approx(1.0, abs=0.05)
    (place,) = (fact.where for fact in incident.evidence if fact.what.endswith("after it"))
    assert place is not None
    assert abs(int(place.split()[2].rstrip(",")) - 181) <= NEAR
    assert "names no rank" in paragraph(incident)
    assert any("whichrank run" in step for step in incident.next)


@pytest.mark.parametrize("program", PROGRAMS)
def test_pauses_and_noise_are_no_slowdown(program: str, tmp_path: Path) -> None:
    for seed in range(2):
        rng = random.Random(seed)
        assert incidents_of(tmp_path / "x", log_of(rng, program, times(rng, 400), torn=0.05)) == []


def test_a_slowdown_that_lasts_says_so(tmp_path: Path) -> None:
    rng = random.Random(1)
    (incident,) = incidents_of(tmp_path / "x", log_of(rng, "megatron", times(rng, 300, [(210, 1.25)])))
    assert facts(incident)["lasts until"] == "iteration 300, the last in the log"
    (first, *_) = incident.evidence
    assert (first.where or "").startswith("from iteration 211, logged at 2026-06-01 03:03:31")


def test_restarts_are_told_apart(tmp_path: Path) -> None:
    """GIVEN an attempt that was slow, and a later one from the last checkpoint that is not THEN nothing is reported."""
    rng = random.Random(2)
    first = log_of(rng, "megatron", times(rng, 250, [(150, 2.0)]))
    second = log_of(rng, "megatron", times(rng, 100), first=201)
    assert incidents_of(tmp_path / "x", first + second) == []
    (recording,) = read([tmp_path / "x"]).recordings
    assert recording.iterations is not None
    assert [(a.number[0], a.number[-1]) for a in recording.iterations.attempts] == [(1, 250), (201, 300)]
    assert any("earlier attempt" in text for text in recording.remarks)


def test_the_same_log_twice_is_one_attempt() -> None:
    rng = random.Random(3)
    text = log_of(rng, "megatron", times(rng, 50))
    found = logged(text + text)
    assert found is not None
    assert len(found.attempts) == 1


def test_lines_that_come_late_are_no_restart() -> None:
    rng = random.Random(4)
    lines = [megatron(number, value) for number, value in enumerate(times(rng, 60), 1)]
    for at in range(5, 55, 7):
        lines[at], lines[at + 2] = lines[at + 2], lines[at]
    found = logged("\n".join(lines) + "\n")
    assert found is not None
    (attempt,) = found.attempts
    assert attempt.number.tolist() == list(range(1, 61))


def test_several_ranks_that_log_are_one_job() -> None:
    rng = random.Random(5)
    seconds = times(rng, 60)
    lines = [f"{rank}: {megatron(n, value)}" for n, value in enumerate(seconds, 1) for rank in range(4)]
    found = logged("\n".join(lines))
    assert found is not None
    (attempt,) = found.attempts
    assert len(attempt.number) == 60


def test_a_larger_batch_is_no_slowdown(tmp_path: Path) -> None:
    rng = random.Random(6)
    seconds = times(rng, 300, [(150, 2.0)])
    text = "\n".join(megatron(n, value, 16 if n <= 150 else 32) for n, value in enumerate(seconds, 1)) + "\n"
    assert incidents_of(tmp_path / "x", text) == []
    (recording,) = read([tmp_path / "x"]).recordings
    assert any("batch size changes" in text for text in recording.remarks)


def test_a_line_that_another_one_tears_apart_is_left_out() -> None:
    one, other = megatron(7, 1.5), megatron(8, 9.5)
    cut = one.index("elapsed")
    found = logged("\n".join([*(megatron(n, 1.5) for n in range(1, 7)), one[:cut] + other, one[cut:]]))
    assert found is not None
    (attempt,) = found.attempts
    assert dict(zip(attempt.number.tolist(), attempt.value.tolist(), strict=True)) == dict.fromkeys(
        range(1, 7), 1.5
    ) | {8: 9.5}


def test_a_number_that_is_cut_is_not_believed() -> None:
    whole = megatron(9, 1234.5)
    cut = whole[: whole.index("1234500.0") + 4]
    found = logged("\n".join([*(megatron(n, 1.5) for n in range(1, 9)), cut, ""]))
    assert found is not None
    assert found.attempts[0].number.tolist() == list(range(1, 9))


def test_parts_of_a_rotated_log_and_copies_are_one_series(tmp_path: Path) -> None:
    rng = random.Random(7)
    seconds = times(rng, 300, [(150, 1.4)])
    (tmp_path / "a.log").write_text(log_of(rng, "megatron", seconds[:140]))
    (tmp_path / "b.log").write_text(log_of(rng, "megatron", seconds[140:], first=141))
    (tmp_path / "c.log").write_text(log_of(rng, "megatron", seconds[140:], first=141, torn=0.2))
    intake = read([tmp_path])
    (recording,) = intake.recordings
    (incident,) = analyze(recording)
    assert incident.stage is not None
    assert abs((incident.stage.iteration or 0) - 151) <= NEAR


def test_logs_of_two_jobs_are_two_recordings(tmp_path: Path) -> None:
    rng = random.Random(8)
    (tmp_path / "a.log").write_text(log_of(rng, "megatron", times(rng, 100)))
    (tmp_path / "b.log").write_text(log_of(rng, "megatron", times(rng, 100, usual_s=4.0)))
    assert len(read([tmp_path]).recordings) == 2


@pytest.mark.parametrize("form", ["utf-16", "gzip", "json"])
def test_other_forms_of_the_same_text(form: str, tmp_path: Path) -> None:
    rng = random.Random(9)
    text = log_of(rng, "megatron", times(rng, 260, CHANGES))
    records = (json.dumps({"log": line + "\n", "time": "2026-06-01T03:00:00Z"}) for line in text.split("\n"))
    forms = {"utf-16": text.encode("utf-16"), "gzip": gzip.compress(text.encode()), "json": "\n".join(records).encode()}
    assert len(incidents_of(tmp_path / "x", forms[form])) == 1


def test_a_text_that_explains_such_a_line_is_none(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Stats:\n```\n" + megatron(200, 0.43) + "\n```\n" + "\n".join(OTHERS))
    with pytest.raises(IncompleteDataError):
        read([tmp_path])


def test_few_lines_say_that_they_are_few(tmp_path: Path) -> None:
    assert incidents_of(tmp_path / "x", "\n".join(megatron(n, 1.3) for n in range(1, 9))) == []
    (recording,) = read([tmp_path / "x"]).recordings
    assert any("fewer than 16" in text for text in recording.remarks)


def test_the_command_ends_with_4_for_a_slowdown_and_5_where_nothing_is_known(tmp_path: Path) -> None:
    rng = random.Random(10)
    (tmp_path / "slow.log").write_text(log_of(rng, "megatron", times(rng, 260, CHANGES)))
    (tmp_path / "well.log").write_text(log_of(rng, "megatron", times(rng, 260)))
    slow = CliRunner().invoke(command, [str(tmp_path / "slow.log"), "--json"], standalone_mode=False)
    assert slow.return_value == 4
    (incident,) = json.loads(slow.stdout)["incidents"]
    assert incident["culprits"] == []
    well = CliRunner().invoke(command, [str(tmp_path / "well.log")], standalone_mode=False)
    assert well.return_value == 5
    assert "do not say which rank" in well.output


def test_long_lines_of_repeated_beginnings_take_no_time() -> None:
    began = time.process_time()
    for piece in ("iteration 1/ 2 | ", "| global_step: 5 |", "Epoch 0: : 1/2 [", "steps: 1 loss: ", "[rank3]: "):
        for end in HINTS:
            logged((piece * 20000).encode() + end + b"\n")
    assert time.process_time() - began < 20

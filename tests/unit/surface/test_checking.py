"""A check before a job: what is started in place of a script, what is heard of it, and files of floors."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from whichrank.act.check import Floor, Floors
from whichrank.errors import FormatError, IncompleteDataError, UsageError
from whichrank.model.check import LINE_BEGINS, Checked
from whichrank.surface.checking import command_of, read_floors, run_check, write_floors
from whichrank.surface.cli import main

pytest.importorskip("torch")
OURS = ["-m", "whichrank.sensors.check", "--limit", "3"]


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["torchrun", "--nproc-per-node", "4"], ["torchrun", "--nproc-per-node", "4"]),
        (["/x/torchrun", "--nnodes=2", "train.py", "--lr", "3"], ["/x/torchrun", "--nnodes=2"]),
        (["torchrun", "--nproc-per-node=2", "-m", "train", "-m"], ["torchrun", "--nproc-per-node=2"]),
        (["torchrun", "--no-python", "./train.sh"], ["torchrun"]),
        (
            ["python3", "-m", "torch.distributed.run", "--standalone", "a.py"],
            ["python3", "-m", "torch.distributed.run", "--standalone"],
        ),
    ],
)
def test_the_script_of_torchrun_is_left_out(words: list[str], kept: list[str]) -> None:
    assert command_of(words, ["--limit", "3"]) == [*kept, *OURS]


def test_another_launcher_has_our_program_behind_its_options() -> None:
    assert command_of(["srun", "-N", "2"], ["--limit", "3"]) == ["srun", "-N", "2", sys.executable, *OURS]


@pytest.mark.parametrize(
    "words", [["srun", "python", "train.py"], ["mpirun", "./train.py"], ["torchrun", "--nonsense=1"]]
)
def test_what_would_run_a_program_of_the_user_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        command_of(words, [])


def saying(*lines: str, code: int = 0) -> list[str]:
    program = f"import sys; print({chr(10).join(lines)!r}); sys.exit({code})"
    return [sys.executable, "-c", program]


def test_what_rank_0_says_is_heard_among_what_the_launcher_says() -> None:
    said: list[str] = []
    ours = LINE_BEGINS + msgspec.json.encode(Checked(world=3)).decode()
    found = run_check(saying("hello", f"[0]: {ours}", "bye"), 5.0, said.append)
    assert (found.world, found.late, said) == (3, (), ["hello", "bye"])


def test_a_launcher_that_waits_for_who_does_not_come_is_ended() -> None:
    ours = LINE_BEGINS + msgspec.json.encode(Checked(world=3, late=(2,), late_in="end")).decode()
    program = f"import time; print({ours!r}, flush=True); time.sleep(1000)"
    assert run_check([sys.executable, "-c", program], 900.0, lambda _: None).late == (2,)


@pytest.mark.parametrize(("command", "why"), [(saying("no", code=3), "exit code 3"), (saying("well"), "rank 0")])
def test_silence_is_said_to_be_one(command: list[str], why: str) -> None:
    with pytest.raises(IncompleteDataError, match=why):
        run_check(command, 5.0, lambda _: None)


def test_what_is_no_answer_is_refused() -> None:
    for content in ('{"world": 3', '{"world": "many"}', '{"schema": "whichrank.check/9", "world": 1}'):
        with pytest.raises(IncompleteDataError, match="cannot be read"):
            run_check(saying(LINE_BEGINS + content), 5.0, lambda _: None)
    with pytest.raises(UsageError, match="does not start"):
        run_check(["/no/such/launcher"], 5.0, lambda _: None)


def test_floors_are_kept_for_their_user(tmp_path: Path) -> None:
    path = tmp_path / "floors.json"
    assert read_floors(None) == read_floors(path, may_be_new=True) == Floors()
    floors = Floors(devices={"A": Floor(float32_flops=3.0)})
    write_floors(path, floors)
    assert read_floors(path) == floors
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    path.write_text('{"devices": {"A": {"speed": 3}}}')
    with pytest.raises(FormatError, match="no floors"):
        read_floors(path)
    with pytest.raises(UsageError, match="there is no file"):
        read_floors(tmp_path / "none")


@pytest.mark.parametrize(
    "line",
    [
        ["validate", "--floor", "f"], ["validate", "--wait", "3"],
        ["validate", "--learn", "f"], ["validate", "run", "--", "torchrun"],
        ["validate", "--ranks", "1", "--", "torchrun"], ["validate", "--max-pause", "3", "--", "torchrun"],
        ["validate", "--"], ["validate", "--sizes", "0", "--", "torchrun"],
    ],
)  # fmt: skip
def test_options_of_the_other_sort_are_refused(line: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert "mend" in capfd.readouterr().err

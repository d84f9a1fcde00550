"""With which exception a process ends, however its program ends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

import pytest

from whichrank.sensors.exceptions import cut_at_word, exception_hook, exception_note


def raised(path: str, message: str) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    try:
        exec(compile(f"raise ValueError({message!r})", path, "exec"))
    except ValueError as error:
        return type(error), error, error.__traceback__
    raise AssertionError


def test_exception_is_one_line_with_its_place() -> None:
    assert exception_note(*raised("train.py", "\nloss is nan\nand more")) == b"ValueError: loss is nan at train.py:1"


def test_exception_without_trace_or_text() -> None:
    assert exception_note(KeyError, KeyError(), None) == b"KeyError: "


def test_long_exception_keeps_its_start_and_the_end_of_its_path() -> None:
    note = exception_note(*raised("/very/long" * 30 + "/train.py", "x" * 500))
    assert len(note) <= 191
    assert note.startswith(b"ValueError: xxx")
    assert "x… at .../".encode() in note
    assert note.endswith(b"/train.py:1")


def test_only_the_interpreters_own_call_of_the_hook_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a program that calls the hook to print an exception WHEN it goes on THEN nothing is written down
    noted: list[bytes] = []
    shown: list[BaseException] = []
    hook = exception_hook(noted.append, lambda kind, value, trace: shown.append(value))
    said = raised("train.py", "loss is nan")
    hook(*said)
    assert (noted, shown) == ([], [said[1]])
    # AND an exception that nobody caught is
    monkeypatch.setattr(sys, "last_value", said[1], raising=False)
    hook(*said)
    assert noted == [exception_note(*said)]
    assert len(shown) == 2


def test_long_message_is_cut_at_a_word() -> None:
    note = exception_note(*raised("train.py", "the operator " + "has no sharding strategy " * 20)).decode()
    assert note.startswith("ValueError: the operator has no sharding strategy")
    cut, _, place = note.partition("…")
    assert place == " at train.py:1"
    assert cut.split()[-1] in ("has", "no", "sharding", "strategy")


@pytest.mark.parametrize(
    ("most", "said"), [(11, "one two six"), (10, "one two…"), (9, "one…"), (7, "one…"), (6, "one…"), (5, "on…")]
)
def test_cut_at_word(most: int, said: str) -> None:
    assert cut_at_word("one two six", most).decode() == said
    assert len(cut_at_word("one two six", most)) <= most


def test_cut_keeps_no_half_of_a_letter() -> None:
    for most in range(4, 40):
        cut_at_word("Größe überschreitet die Höchstlänge", most).decode()


def test_place_is_the_users_own_line() -> None:
    # GIVEN an error that a library raises for what the user's script asks of it
    library = "def check(value):\n    raise TypeError('no tensor')"
    scope: dict[str, object] = {}
    exec(compile(library, "/venv/lib/python3.11/site-packages/torch/check.py", "exec"), scope)
    with pytest.raises(TypeError) as caught:
        exec(compile("\n\ncheck(3)", "/home/me/train.py", "exec"), scope)
    trace = caught.value.__traceback__
    assert trace is not None
    assert exception_note(TypeError, caught.value, trace.tb_next) == b"TypeError: no tensor at /home/me/train.py:3"


PROGRAM = """
import atexit, multiprocessing as mp, os, signal, sys, threading
from whichrank.sensors import exceptions
def note(said):
    with open("noted", "ab") as file:
        file.write(said + b"\\n")
def fails(*_):
    {}["missing"]
def exits(*_):
    try:
        fails()
    except Exception:
        sys.exit(1)
def stops(*_):
    sys.exit(3)
def close():
    os.write(2, b"closed\\n")
if __name__ in ("__main__", "__mp_main__"):
    exceptions.watch(note, close)
if __name__ == "__main__":
    ACT
"""


def noted(folder: Path, act: str) -> tuple[str, int, str]:
    """What a program that does this writes down, its exit code and what it says."""
    program = folder / "train.py"
    program.write_text(PROGRAM.replace("ACT", act.replace("\n", "\n    ")))
    done = subprocess.run([sys.executable, program], cwd=folder, capture_output=True, text=True, check=False)
    path = folder / "noted"
    return path.read_text() if path.exists() else "", done.returncode, done.stderr


@pytest.mark.parametrize(
    "act",
    [
        "fails()",
        "exits()",
        "try:\n    fails()\nexcept Exception:\n    os._exit(1)",
        "child = mp.get_context('fork').Process(target=fails)\nchild.start(); child.join(); os._exit(child.exitcode)",
        "child = mp.get_context('spawn').Process(target=fails)\nchild.start(); child.join(); os._exit(child.exitcode)",
        "child = mp.get_context('spawn').Process(target=exits)\nchild.start(); child.join(); os._exit(child.exitcode)",
    ],
)
def test_exception_is_noted_however_the_process_ends(act: str, tmp_path: Path) -> None:
    # GIVEN a process of a program that ends because of an exception: uncaught, caught, or reported by multiprocessing
    said, code, _ = noted(tmp_path, act)
    # THEN it is written down with its text and its line, and the exit code is what it was
    assert code == 1
    assert said.startswith("KeyError: 'missing' at ")
    assert said.endswith("/train.py:8\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("act", "code"),
    [
        ("stops()", 3),
        ("try:\n    fails()\nexcept Exception:\n    pass\nstops()", 3),
        ("try:\n    fails()\nexcept Exception:\n    sys.exit(0)", 0),
        ("thread = threading.Thread(target=exits); thread.start(); thread.join()", 0),
        ("sys.exit('no data')", 1),
        ("try:\n    exits()\nexcept SystemExit:\n    pass", 0),
        ("import runpy\ndef main():\n    try:\n        exits()\n    except SystemExit:\n        pass\nmain()", 0),
    ],
)
def test_nothing_is_noted_that_is_not_why_it_ends(act: str, code: int, tmp_path: Path) -> None:
    said, ended, _ = noted(tmp_path, act)
    assert (said, ended) == ("", code)


def test_exit_in_a_handler_of_a_signal_is_that_signals(tmp_path: Path) -> None:
    said, code, _ = noted(tmp_path, "signal.signal(signal.SIGTERM, stops); os.kill(os.getpid(), 15); signal.pause()")
    assert (said, code) == ("SignalException: the program ended in its handler of SIGTERM\n", 3)


def test_a_handler_that_the_program_calls_itself_is_no_signal(tmp_path: Path) -> None:
    # GIVEN a function that cleans up, and is also the handler of SIGTERM WHEN a check of the program fails
    act = "signal.signal(signal.SIGTERM, stops)\ntry:\n    fails()\nexcept Exception:\n    pass\nstops()"
    assert noted(tmp_path, act)[:2] == ("", 3)


def test_exit_functions_stay_what_they_are(tmp_path: Path) -> None:
    act = "import pickle\nassert pickle.loads(pickle.dumps((sys.exit, os._exit))) == (sys.exit, os._exit)"
    act += "\ntry:\n    sys.exit()\nexcept SystemExit as end:\n    assert end.code is None"
    act += "\ntry:\n    sys.exit(1, 2)\nexcept TypeError:\n    pass\nos._exit(status=7)"
    assert noted(tmp_path, act) == ("", 7, "")


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("os._exit(0)", "closed\n"),
        ("child = mp.get_context('fork').Process(target=print)\nchild.start(); child.join()", "closed\n"),
        ("os._exit(3)", ""),
        ("child = mp.get_context('fork').Process(target=stops)\nchild.start(); child.join()", ""),
    ],
)
def test_an_end_in_order_is_closed_where_no_exit_hook_runs(tmp_path: Path, act: str, said: str) -> None:
    assert noted(tmp_path, act)[2] == said


def test_a_fault_of_ours_never_shows(tmp_path: Path) -> None:
    _, code, said = noted(tmp_path, "exceptions._note_of_exit = None; exits()")
    assert code == 1
    assert "whichrank: the exception was not noted" in said

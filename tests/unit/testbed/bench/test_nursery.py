"""The nursery of campaigns: it ends with whoever began it, and nothing of theirs is run."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from types import FrameType

import pytest

from whichrank.testbed.bench.nursery import Nursery


def test_who_is_interrupted_while_it_begins_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN somebody who presses Ctrl-C while torch is imported
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    nursery = Nursery()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            nursery.__enter__()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    # THEN its folder is gone, and so is the process
    assert list(tmp_path.iterdir()) == []
    assert nursery._process is None or nursery._process.poll() is not None


def test_what_stands_in_the_folder_of_who_asks_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a folder with a file that is called as a module that torch needs
    (tmp_path / "secrets.py").write_text("open('was-run', 'w')\n")
    monkeypatch.chdir(tmp_path)
    # THEN a nursery comes up all the same, and it was not run
    with Nursery() as nursery:
        assert nursery.path.is_socket()
    assert not (tmp_path / "was-run").exists()

"""What cannot work is refused in one sentence, with a way to mend it, before anything is started."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from whichrank.errors import UsageError
from whichrank.server.address import checked_address
from whichrank.surface.cli import main
from whichrank.surface.run.session import Session
from whichrank.testbed.bench import campaign, trial


@pytest.fixture(autouse=True)
def _nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHICHRANK_SHM", str(tmp_path / "shm"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(trial.Trial, "run", lambda _: pytest.fail("a trial was started"))
    monkeypatch.setattr(campaign.Trial, "run", lambda _: pytest.fail("a trial was started"))


def refused(capfd: pytest.CaptureFixture[str], code: int, *args: str) -> str:
    assert main(args) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("whichrank: ") == 1
    assert "\n  mend:  " in err
    return err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--layout", "bogus"], "expected tpN, ppN and dpN"),
        (["--layout", "tp3-pp2", "--ranks", "8"], "layout tp3-pp2 has 6 ranks, and the job has 8"),
        (["--hang-timeout", "nan"], "--hang-timeout is nan"),
        (["--hang-timeout", "inf"], "--hang-timeout is inf"),
        (["--fault", "bogus"], "there is no fault 'bogus'\n  mend:  whichrank demo --list"),
        (["--fault", "wrong-dtyp"], "mend:  did you mean 'wrong-dtype'? whichrank demo --list"),
    ],
)
def test_demo_that_cannot_run(capfd: pytest.CaptureFixture[str], options: list[str], said: str) -> None:
    assert said in refused(capfd, 2, "demo", *options)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["stacks", "--rank", "x"], "'--rank': 'x' is no whole number from 0 on."),
        (["stacks", "--rank", "-1"], "'--rank': '-1' is no whole number from 0 on."),
        (["demo", "--ranks", "1.5"], "'--ranks': '1.5' is no whole number from 2 to 64."),
        (["demo", "--hang-timeout", "soon"], "'--hang-timeout': 'soon' is no number of seconds from 1 on."),
        (["bench", "demo", "--seeds", "0"], "'--seeds': '0' is no whole number from 1 on."),
    ],
)
def test_number_that_is_none(capfd: pytest.CaptureFixture[str], command: list[str], said: str) -> None:
    assert main(command) == 2
    assert said in capfd.readouterr().err


def test_demo_whose_layout_has_no_place_for_the_fault(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: trial.Trial) -> None:
        raise ValueError("layout dp2 has nothing that skip-op could act on")

    monkeypatch.setattr(trial.Trial, "run", run)
    assert "nothing that skip-op could act on" in refused(capfd, 2, "demo", "--ranks", "2")


@pytest.mark.parametrize("command", [["demo"], ["bench", "demo"], ["bench", "matrix"]])
def test_no_torch(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "torch is not installed" in refused(capfd, 1, *command)


@pytest.mark.parametrize("content", [b"\x7fELF\x00\xff\n", b"{}\n", b"[]\n", b'{"setup": {}}\n', b"7\n"])
def test_results_that_are_none(capfd: pytest.CaptureFixture[str], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "results").write_bytes(content)
    assert "results, line 1" in refused(capfd, 1, "bench", "demo", "--results", str(tmp_path / "results"))
    assert (tmp_path / "results").read_bytes() == content


def test_results_without_a_place(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for place, said in ((tmp_path, "it is no file"), (tmp_path / "pipe", "it is no file"),
                        (tmp_path / "file" / "below", "File exists")):  # fmt: skip
        assert said in refused(capfd, 2, "bench", "demo", "--results", str(place))
    monkeypatch.setattr(Path, "exists", refuse)
    assert "Permission denied" in refused(capfd, 2, "bench", "demo", "--results", str(tmp_path / "other"))


@pytest.mark.parametrize("option", ["--serve", "--join", "--output"])
@pytest.mark.parametrize("value", ["--", "--quiet"])
def test_option_that_takes_the_next_one_for_its_value(
    capfd: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    assert f"{option} has no value: '{value}' follows it" in refused(capfd, 2, "run", option, value, "--", "true")


@pytest.mark.parametrize(
    ("option", "takes"), [("--output", "the path of a folder"), ("--serve", "HOST:PORT"), ("--join", "HOST:PORT")]
)
def test_option_that_is_empty(capfd: pytest.CaptureFixture[str], option: str, takes: str) -> None:
    err = refused(capfd, 2, "run", option, "", "--", "true")
    assert err.startswith(f"whichrank: {option} is '': it takes {takes}\n")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e300"])
@pytest.mark.parametrize("option", ["--hang-timeout", "--slow-window"])
def test_time_that_is_none(capfd: pytest.CaptureFixture[str], option: str, value: str) -> None:
    err = refused(capfd, 2, "run", option, value, "--", "true")
    assert err.startswith(f"whichrank: {option} is {float(value)!r}: it takes seconds above 0, at most 31,536,000")
    assert f"mend:  {option} " in err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("WHICHRANK_HANG_TIMEOUT_S", "soon", "WHICHRANK_HANG_TIMEOUT_S is 'soon': it takes seconds above 0"),
        ("WHICHRANK_SERVE", "x y", "WHICHRANK_SERVE: 'x y' is no address; it takes HOST:PORT"),
        ("WHICHRANK_JOIN", "a:b", "WHICHRANK_JOIN: 'a:b' is no address; it takes HOST:PORT"),
        ("WHICHRANK_DISABLE", "yes", "WHICHRANK_DISABLE is 'yes': it takes 1 or 0"),
        ("WHICHRANK_DISABLED", "1", "unknown setting 'WHICHRANK_DISABLED'"),
        ("WHICHRANK_CONFIG", "/no/file", "the settings file /no/file cannot be read: No such file"),
    ],
)
def test_environment_that_cannot_be_used(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setattr(Session, "run", lambda _: pytest.fail("the job was started"))
    monkeypatch.setenv(variable, value)
    err = refused(capfd, 2, "run", "--", "true")
    assert said in err
    assert f"unset {variable}" in err


@pytest.mark.parametrize(
    ("variable", "value", "command", "said"),
    [
        ("WHICHRANK_JOB", "a b", ["env"], "WHICHRANK_JOB: 'a b' cannot name a job"),
        ("WHICHRANK_JOB", "a b", ["agent"], "WHICHRANK_JOB: 'a b' cannot name a job"),
        ("WHICHRANK_CONNECT", "x y", ["agent", "--job", "j"], "WHICHRANK_CONNECT: 'x y' is no address"),
        ("WHICHRANK_CONNECT", "h:port", ["agent", "--job", "j"], "WHICHRANK_CONNECT: 'h:port' is no address"),
    ],
)
def test_option_that_came_from_a_variable_is_named_by_it(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    command: list[str],
    said: str,
) -> None:
    monkeypatch.setenv(variable, value)
    err = refused(capfd, 2, *command)
    assert err.startswith(f"whichrank: {said}")
    assert f"mend:  unset {variable}; " in err


def test_job_that_runs_unobserved_needs_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN that everything is turned off, and a settings file that is not there
    monkeypatch.setenv("WHICHRANK_DISABLE", "1")
    monkeypatch.setenv("WHICHRANK_CONFIG", "/no/file")
    monkeypatch.setattr(Session, "run", lambda _: 7)
    # THEN the job runs
    assert main(["run", "--", "true"]) == 7


@pytest.mark.parametrize(
    "command",
    [["env", "--join"], ["agent", "--job", "j", "--connect"], ["run", "--join"], ["run", "--serve"]],
    ids=" ".join,
)
@pytest.mark.parametrize("address", ["x y", "x\ty:1", "h:1\n", " ", "a\x07:1"])
def test_address_with_a_blank(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str], address: str
) -> None:
    monkeypatch.setattr(Session, "_prepare", lambda _: pytest.fail("something was started"))
    more = ["--", "true"] if command[0] == "run" else []
    assert "is no address" in refused(capfd, 2, *command, address, *more)


@pytest.mark.parametrize("address", ["h:1", "ipc:///a path/with blanks", "tcp://h:1", "29480"])
def test_address_that_is_one(address: str) -> None:
    assert checked_address("--join", address).startswith(("tcp://", "ipc://"))


def test_option_is_no_address() -> None:
    with pytest.raises(UsageError, match="--join has no value"):
        checked_address("--join", "--serve")

"""Settings: order of the sources, and errors that name file, key and the likely meaning."""

from __future__ import annotations

import ast
import inspect
import os
from pathlib import Path

import pytest

from whichrank import config
from whichrank.config import AnalyzerConfig, RunConfig, load_config
from whichrank.errors import ConfigError, UsageError


def write(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text)
    return path


def test_defaults() -> None:
    loaded = load_config(environ={})
    assert loaded.run == RunConfig()
    assert loaded.analyzer == AnalyzerConfig()
    assert (loaded.run.hang_timeout_s, loaded.run.slow_window_s, loaded.analyzer.suspect_after_s) == (300, 60, 2)


def test_later_source_wins(tmp_path: Path) -> None:
    # GIVEN a file that sets three, an environment that sets two of them, flags that set one
    path = write(tmp_path, "[run]\nhang_timeout_s = 10\nslow_window_s = 20\nquiet = true\n[analyzer]\ntick_s = 0.5\n")
    environ = {"WHICHRANK_HANG_TIMEOUT_S": "11", "WHICHRANK_SLOW_WINDOW_S": "21", "PATH": "/bin"}
    # WHEN all are loaded
    loaded = load_config({"hang_timeout_s": 12.0, "serve": None}, environ, path)
    # THEN each setting has the value of the last source that set it
    assert (loaded.run.hang_timeout_s, loaded.run.slow_window_s, loaded.run.quiet) == (12, 21, True)
    assert loaded.analyzer.tick_s == 0.5


def test_analyzer_is_given_the_hang_timeout_of_the_run() -> None:
    assert load_config({"hang_timeout_s": 7.0}, {}).analyzer.hang_timeout_s == 7


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("0", False), ("false", False)])
def test_switch_in_the_environment(text: str, value: bool) -> None:
    assert load_config(environ={"WHICHRANK_QUIET": text}).run.quiet is value


def test_file_named_in_the_environment(tmp_path: Path) -> None:
    path = write(tmp_path, "[run]\nslow_window_s = 5\n")
    assert load_config(environ={"WHICHRANK_CONFIG": str(path)}).run.slow_window_s == 5


def test_file_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whichrank.toml").write_text("[run]\nquiet = true\n")
    monkeypatch.chdir(tmp_path)
    assert load_config(environ={}).run.quiet


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[run]\nhang_timout_s = 1\n", ["[run] hang_timout_s", "did you mean 'hang_timeout_s'?"]),
        ("[runs]\nquiet = true\n", ["'runs'", "did you mean 'run'?"]),
        ("quiet = true\n", ["'quiet'", "write it under [run]"]),
        ("run = 3\n", ["'run' in ", " is 3: it takes a table", "write [run]"]),
        ("[[run]]\nquiet = true\n", ["it takes a table"]),
        ("[analyzer]\nhang_timeout_s = 1\n", ["'hang_timeout_s' belongs to another table", "[run]"]),
        ("[run]\nhang_timeout_s = '5'\n", ["hang_timeout_s in [run] of ", " is '5': it takes seconds above 0"]),
        (
            "[run]\nhang_timeout_s = -5\n",
            ["hang_timeout_s", " is -5: it takes seconds above 0", "hang_timeout_s = 300"],
        ),
        (
            "[analyzer]\nbusy_factor = 0.5\n",
            ["busy_factor", " is 0.5: it takes a number from 1 to 1,000", "busy_factor = 3"],
        ),
        ("[run]\nhang_timeout_s = nan\n", [" is nan: it takes seconds above 0"]),
        ("[run]\nhang_timeout_s = inf\n", [" is inf: it takes seconds above 0, at most 31,536,000"]),
        ("[run]\nhang_timeout_s = 1e300\n", [" is 1e+300: "]),
        (f"[run]\nhang_timeout_s = 0x{'f' * 4000}\n", [" is too long to be shown: it takes seconds"]),
        (f"[run]\nhang_timeout_s = {'9' * 5000}\n", ["is no TOML"]),
        ("[run]\nhang_timeout_s = true\n", [" is true: it takes seconds"]),
        ("[run]\nquiet = 'yes'\n", ["quiet in [run] of ", " is 'yes': it takes true or false", "quiet = true"]),
        ("[run]\noutput_dir = 7\n", [" is 7: it takes the path of a folder", 'output_dir = "whichrank-out/mine"']),
        ("[run]\noutput_dir = 'a\\u0000b'\n".replace("'", '"'), ["it takes the path of a folder"]),
        (
            "[analyzer]\ntick_s = 1e-9\n",
            ["tick_s in [analyzer] of ", "it takes seconds from 0.01 to 60", "tick_s = 0.25"],
        ),
        ("[analyzer]\ntick_s = 61\n", ["it takes seconds from 0.01 to 60"]),
        (f"[run]\nserve = {['x'] * 999}\n", [" is ['x', 'x', ", "...: it takes HOST:PORT"]),
        ("[run\n", ["is no TOML", "at line 1", "hang_timeout_s = 300"]),
        (f"a = {'[' * 9999}", ["is no TOML"]),
    ],
)
def test_wrong_file_is_named_with_key_and_hint(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(environ={}, path=path)
    assert str(path) in str(caught.value)
    assert caught.value.mend
    for part in parts:
        assert part in str(caught.value)


def test_bytes_that_are_no_text_are_no_toml(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\x00\xfe")
    with pytest.raises(ConfigError, match="is no TOML"):
        load_config(environ={}, path=tmp_path / "binary")


def test_only_regular_files_of_some_size_are_read(tmp_path: Path) -> None:
    # GIVEN a pipe that nobody writes to, a device without an end, a folder, and a file that is none of settings
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    for name, why in (
        ("pipe", "it is no regular file"),
        ("/dev/zero", "it is no regular file"),
        (".", "Is a directory"),
        ("large", "it is too large"),
    ):
        # WHEN one is named THEN the sentence says so, and how to take it back, at once
        with pytest.raises(ConfigError, match=why) as caught:
            load_config(environ={"WHICHRANK_CONFIG": str(tmp_path / name)})
        assert "unset WHICHRANK_CONFIG" in caught.value.mend
    assert load_config(environ={"WHICHRANK_CONFIG": "/dev/null"}).run == RunConfig()


def test_missing_file_is_an_error_when_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(environ={}, path=tmp_path / "none.toml")


def test_misspelt_variable_is_refused_and_foreign_ones_are_not() -> None:
    load_config(environ={"WHICHRANK_DISABLE": "1", "WHICHRANK_RING_DIR": "/dev/shm/x", "WHICHRANK_JOB": "a"})
    with pytest.raises(ConfigError, match="did you mean WHICHRANK_HANG_TIMEOUT_S"):
        load_config(environ={"WHICHRANK_HANG_TIMOUT_S": "5"})


@pytest.mark.parametrize(
    ("name", "text", "takes", "example"),
    [
        *[
            ("SLOW_WINDOW_S", t, "seconds above 0, at most", "60")
            for t in ("soon", "", "0", "-1", "nan", "inf", "1e300")
        ],
        ("TICK_S", "1e-300", "seconds from 0.01 to 60", "0.25"),
        ("BARRIER_FACTOR", "0", "a number from 1 to 1,000", "3"),
        ("QUIET", "maybe", "true or false", "true"),
    ],
)
def test_wrong_value_in_the_environment_names_the_variable(name: str, text: str, takes: str, example: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environ={f"WHICHRANK_{name}": text})
    assert caught.value.what.startswith(f"WHICHRANK_{name} is {text!r}: it takes {takes}")
    assert caught.value.mend == f"export WHICHRANK_{name}={example}, or unset WHICHRANK_{name}"


@pytest.mark.parametrize(
    ("flag", "value", "said", "mend"),
    [
        ("hang_timeout_s", float("inf"), "--hang-timeout is inf: it takes seconds", "--hang-timeout 300, or leave"),
        (
            "output_dir",
            "\0",
            "--output is '\\x00': it takes the path of a folder",
            "--output whichrank-out/mine, or leave",
        ),
    ],
)
def test_wrong_flag_is_named_as_it_is_written(flag: str, value: object, said: str, mend: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({flag: value}, {})
    assert said in caught.value.what
    assert caught.value.mend.startswith(mend)


@pytest.mark.parametrize("text", ["true", "yes", "2"])
def test_switch_that_turns_everything_off_is_not_guessed(text: str) -> None:
    with pytest.raises(ConfigError, match=f"WHICHRANK_DISABLE is '{text}': it takes 1 or 0"):
        load_config(environ={"WHICHRANK_DISABLE": text})
    with pytest.raises(ConfigError, match="did you mean WHICHRANK_DISABLE"):
        load_config(environ={"WHICHRANK_DISABLED": "1"})


def test_check_of_a_text_says_where_it_was_written(tmp_path: Path) -> None:
    # GIVEN a check, and a text that does not pass it
    def check(text: str) -> None:
        raise UsageError(f"'{text}' is no address")

    path = write(tmp_path, "[run]\njoin = 'x y'\n")
    # WHEN the text comes from a file or from the environment THEN that is what is said
    with pytest.raises(
        ConfigError, match=r"join in \[run\] of .*settings.toml: 'x y' is no address; it takes HOST:PORT"
    ):
        load_config(environ={}, path=path, checks={"join": check})
    with pytest.raises(ConfigError, match="WHICHRANK_JOIN: 'a' is no address"):
        load_config(environ={"WHICHRANK_JOIN": "a"}, path=path, checks={"join": check})
    load_config(environ={}, checks={"join": check})


def test_every_setting_has_an_example_that_it_takes(tmp_path: Path) -> None:
    for table in (RunConfig, AnalyzerConfig):
        for name in table.__struct_fields__:
            # GIVEN a wrong value for it, in the environment and in a file
            if table is AnalyzerConfig and name in ("hang_timeout_s", "slow_window_s"):  # of [run]
                continue
            section = "run" if table is RunConfig else "analyzer"
            with pytest.raises(ConfigError) as caught:
                load_config(environ={}, path=write(tmp_path, f"[{section}]\n{name} = []\n"))
            # WHEN the line is mended as the error says THEN it is taken
            line = caught.value.mend.rpartition(":  ")[2]
            load_config(environ={}, path=write(tmp_path, f"[{section}]\n{line}\n"))


def test_serve_and_join_are_reported_with_their_places() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"join": "b:1"}, {"WHICHRANK_SERVE": "a:1"})
    assert caught.value.where == "WHICHRANK_SERVE is 'a:1', --join is 'b:1'"


def test_serve_and_join_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="serve and join are both set"):
        load_config({"serve": "tcp://a:1", "join": "tcp://b:1"}, {})


def test_unknown_flag_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'hang_timeout'"):
        load_config({"hang_timeout": 1}, {})


def test_every_field_says_what_it_is_and_in_which_unit() -> None:
    tree = ast.parse(inspect.getsource(config))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            for field, text in zip(node.body[1::2], node.body[2::2], strict=True):
                assert isinstance(field, ast.AnnAssign)
                assert isinstance(field.target, ast.Name)
                assert isinstance(text, ast.Expr)
                words = ast.literal_eval(text.value)
                if field.target.id.endswith("_s"):
                    assert words.startswith("Seconds"), field.target.id
                else:
                    assert any(unit in words for unit in ("(a ratio)", "(a path)", "(no unit)", "Address")), words

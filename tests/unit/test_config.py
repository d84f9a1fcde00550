"""Settings: order of the sources, and errors that name file, key and the likely meaning."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from whichrank import config
from whichrank.config import AnalyzerConfig, RunConfig, load_config
from whichrank.errors import ConfigError


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
        ("run = 3\n", ["write [run]"]),
        ("[analyzer]\nhang_timeout_s = 1\n", ["'hang_timeout_s' belongs to another table", "[run]"]),
        ("[run]\nhang_timeout_s = '5'\n", ["hang_timeout_s", "'5'"]),
        ("[run]\nhang_timeout_s = -5\n", ["hang_timeout_s", "-5", "> 0"]),
        ("[analyzer]\nbusy_factor = 0.5\n", ["busy_factor", ">= 1"]),
        ("[run\n", ["is no TOML"]),
    ],
)
def test_wrong_file_is_named_with_key_and_hint(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(environ={}, path=path)
    assert str(path) in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_missing_file_is_an_error_when_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(environ={}, path=tmp_path / "none.toml")


def test_misspelt_variable_is_refused_and_foreign_ones_are_not() -> None:
    load_config(environ={"WHICHRANK_DISABLE": "1", "WHICHRANK_RING_DIR": "/dev/shm/x", "WHICHRANK_JOB": "a"})
    with pytest.raises(ConfigError, match="did you mean WHICHRANK_HANG_TIMEOUT_S"):
        load_config(environ={"WHICHRANK_HANG_TIMOUT_S": "5"})


def test_wrong_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="WHICHRANK_SLOW_WINDOW_S"):
        load_config(environ={"WHICHRANK_SLOW_WINDOW_S": "soon"})


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

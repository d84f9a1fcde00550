"""Building the C++ sensor: which compiler, which cache entry, and what is said when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.errors import SensorError
from whichrank.sensors import c10d


def tool(path: Path, script: str = "exit 0") -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_compiler_is_cxx_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, usual = tool(tmp_path / "mine"), tool(tmp_path / "g++")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", str(mine))
    assert c10d.compiler() == str(mine)
    monkeypatch.delenv("CXX")
    assert c10d.compiler() == str(usual)


def test_no_compiler_is_said_with_the_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SensorError, match=r"no C\+\+ compiler") as caught:
        c10d.compiler()
    assert "g++" in caught.value.mend


def test_cache_is_ours_then_xdgs_then_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHICHRANK_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert c10d.cache_folder() == Path("/a")
    monkeypatch.delenv("WHICHRANK_CACHE")
    assert c10d.cache_folder() == Path("/b/whichrank")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert c10d.cache_folder() == Path.home() / ".cache" / "whichrank"


def test_a_built_sensor_is_found_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = c10d.built_path()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert c10d.built_path() == before
    assert before.parent == c10d.cache_folder()


def test_failed_build_quotes_the_compiler_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(tool(tmp_path / "c++", "echo 'a.cpp:3: error: bad' >&2; exit 1")))
    target = tmp_path / "cache" / "x.so"
    with pytest.raises(SensorError, match="error: bad"):
        c10d.build(target, lambda _: None)
    assert [path.name for path in target.parent.iterdir()] == ["x.lock"]


def test_older_standard_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = 'case "$*" in *c++20*) exit 1;; esac; while [ "$1" != "-o" ]; do shift; done; echo built > "$2"'
    monkeypatch.setenv("CXX", str(tool(tmp_path / "c++", compiler)))
    said: list[str] = []
    target = tmp_path / "x.so"
    c10d.build(target, said.append)
    assert target.read_text() == "built\n"
    assert len(said) == 1
    c10d.build(target, said.append)  # it is there
    assert len(said) == 1


def test_prepare_never_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("WHICHRANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    said: list[str] = []
    c10d.prepare(said.append)
    assert len(said) == 1
    assert "the slower Python one takes its place" in said[0]


def test_switch_without_a_sensor_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c10d, "_sensor", None)
    with pytest.raises(SensorError, match="not in use"):
        c10d.observe(True)

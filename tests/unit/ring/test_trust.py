"""What other users could replace is not used: folders of rings, and sensors that were built before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from whichrank.errors import SensorError
from whichrank.ring import folder as folder_module
from whichrank.ring.folder import JobFolder, base_folder
from whichrank.ring.trust import unsafe_file, unsafe_folder
from whichrank.sensors import c10d
from whichrank.sensors.place import make_place

SOMEBODY = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def given_away(path: Path) -> Path:
    os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
    return path


def anothers(place: Path) -> Path:
    """A base of another user."""
    place.mkdir()
    place.chmod(0o1777)
    return given_away(place)


def in_anothers(place: Path) -> Path:
    """A base of ours in a folder of another user."""
    place.mkdir()
    (place / "base").mkdir()
    given_away(place)
    return place / "base"


def open_to_all(place: Path) -> Path:
    place.mkdir()
    place.chmod(0o777)
    return place


def in_one_open_to_all(place: Path) -> Path:
    open_to_all(place)
    (place / "base").mkdir(mode=0o700)
    return place / "base"


def through_anothers_link(place: Path) -> Path:
    (place.parent / "real").mkdir()
    place.symlink_to(place.parent / "real")
    return given_away(place)


def through_our_link_to_anothers(place: Path) -> Path:
    anothers(place.parent / "real")
    place.symlink_to(place.parent / "real")
    return place


@needs_root
@pytest.mark.parametrize(
    ("made", "why"),
    [
        (anothers, f"belongs to user {SOMEBODY}"),
        (in_anothers, f"belongs to user {SOMEBODY}"),
        (open_to_all, "other users can replace what is in"),
        (in_one_open_to_all, "other users can replace what is in"),
        (through_anothers_link, f"belongs to user {SOMEBODY}"),
        (through_our_link_to_anothers, f"belongs to user {SOMEBODY}"),
    ],
)
def test_a_base_that_another_user_owns_or_can_replace_is_refused(tmp_path: Path, made: object, why: str) -> None:
    # GIVEN a base folder
    base = made(tmp_path / "place")  # type: ignore[operator]
    # WHEN a run, and a rank that comes before any agent, would make the folder of a job in it
    with pytest.raises(SensorError, match="not safe from other users") as of_a_run:
        JobFolder.create("job", owner_pid=os.getpid(), base=base)
    with pytest.raises(SensorError, match="so no ring is made"):
        make_place(str(base / "other"))
    # THEN each says why, and the first how to mend it
    assert why in of_a_run.value.what
    assert "WHICHRANK_SHM=DIR" in of_a_run.value.mend
    assert not (base / "job").exists()


def sticky(place: Path) -> Path:
    place.mkdir()
    place.chmod(0o1777)
    return place


def behind_our_link(place: Path) -> Path:
    (place.parent / "real").mkdir()
    place.symlink_to(place.parent / "real")
    return place / "deep" / "er"


@pytest.mark.parametrize("made", [sticky, behind_our_link, lambda place: place / "not" / "there"])
def test_a_base_of_ours_is_used(tmp_path: Path, made: object) -> None:
    base = made(tmp_path / "place")  # type: ignore[operator]
    assert unsafe_folder(str(base), shared=True) == ""
    assert JobFolder.create("job", owner_pid=os.getpid(), base=base).is_ours()


@needs_root
def test_where_another_user_came_first_ours_has_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = anothers(tmp_path / "whichrank")
    monkeypatch.setattr(folder_module, "BASE", base)
    assert base_folder({}) == tmp_path / f"whichrank-{os.geteuid()}"
    assert JobFolder.create("job", owner_pid=os.getpid(), base=base_folder({})).is_ours()
    base.rmdir()
    assert base_folder({}) == base


@needs_root
def test_a_user_uses_what_root_has_made_and_not_what_another_has() -> None:
    with tempfile.TemporaryDirectory() as place:
        # GIVEN bases of root and of a user, where all may pass
        Path(place).chmod(0o755)
        roots, users = sticky(Path(place) / "roots"), anothers(Path(place) / "users")
        # WHEN yet another user asks
        code = (
            "import os, sys; from whichrank.ring.trust import unsafe_folder; os.setgid(777); os.setuid(777)\n"
            "print([bool(unsafe_folder(p, shared=True)) for p in sys.argv[1:]])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(roots), str(users)], capture_output=True, text=True, check=False
        )
    # THEN
    assert done.stdout == "[False, True]\n", done.stderr


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a sensor for this torch in it, and a compiler that says what it has built."""
    monkeypatch.setenv("WHICHRANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(c10d, "SPARE_CACHE", tmp_path / "spare" / "whichrank")
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != "-o" ]; do shift; done; echo fresh > "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    (tmp_path / "cache").mkdir(mode=0o700)
    built = c10d.built_path()
    built.write_text("old")
    built.chmod(0o700)
    return built


def test_a_sensor_that_only_we_can_write_is_taken(cache: Path) -> None:
    said: list[str] = []
    c10d.prepare(said.append)
    assert (said, cache.read_text()) == ([], "old")


@pytest.mark.parametrize("how", ["anothers", "writable", "link"])
def test_a_sensor_that_another_user_can_write_is_built_again(cache: Path, how: str) -> None:
    # GIVEN a file in the cache that is not ours alone
    if how == "writable":
        cache.chmod(0o775)
    elif how == "link":
        cache.rename(cache.with_name("elsewhere"))
        cache.symlink_to(cache.with_name("elsewhere"))
    elif os.geteuid() == 0:
        given_away(cache)
    else:
        pytest.skip("only root can give a file away")
    assert unsafe_file(str(cache))
    # WHEN a run prepares the sensor THEN another one takes its place, for us alone
    said: list[str] = []
    c10d.prepare(said.append)
    assert len(said) == 1
    assert (cache.read_text(), cache.lstat().st_mode & 0o777) == ("fresh\n", 0o700)
    assert not unsafe_file(str(cache))


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_cache_that_others_can_write_to_is_left_alone(cache: Path, mode: int, tmp_path: Path) -> None:
    # GIVEN a cache in which others could put a sensor of theirs
    cache.parent.chmod(mode)
    # WHEN a run prepares the sensor
    said: list[str] = []
    c10d.prepare(said.append)
    # THEN it is built elsewhere, which is said with the reason, and found there by the ranks
    spare = tmp_path / "spare" / f"whichrank-{os.geteuid()}"
    assert f"the c10d sensor is kept in {spare}" in said[0]
    assert str(cache.parent) in said[0]
    assert c10d.built_path().parent == spare
    assert c10d.built_path().read_text() == "fresh\n"
    assert (cache.read_text(), spare.stat().st_mode & 0o777) == ("old", 0o700)


@needs_root
def test_where_no_place_is_safe_the_slower_sensor_is_used(cache: Path, tmp_path: Path) -> None:
    given_away(cache.parent)
    (tmp_path / "spare" / f"whichrank-{os.geteuid()}").mkdir(parents=True)
    given_away(tmp_path / "spare" / f"whichrank-{os.geteuid()}")
    said: list[str] = []
    c10d.prepare(said.append)
    assert "the slower Python one takes its place: there is no safe place for it" in said[-1]
    with pytest.raises(SensorError, match="no safe place"):
        c10d.build(c10d.built_path(), said.append)

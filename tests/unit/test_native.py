"""The native part is found where it was installed, and its absence is an error that says how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

import whichrank
from whichrank import native
from whichrank.errors import NativeLibraryError


def test_installed_files_are_found() -> None:
    assert native.native_path(native.CORE).is_file()
    assert native.native_path(native.C10D_SOURCE).is_file()
    assert (native.native_path(native.INCLUDE) / "whichrank" / "ring.h").is_file()


def test_core_loads_and_is_one_per_process() -> None:
    core = native.load_core()
    assert core is native.load_core()
    assert core.wr_now_ns is not None
    again = native.loaded_core()
    assert again is not None
    assert again._handle == core._handle


def test_every_place_of_the_package_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a package in two places, as an editable install has it, the native part in the second
    source, built = tmp_path / "source", tmp_path / "built"
    (built / "_native").mkdir(parents=True)
    (built / "_native" / "extra.so").touch()
    monkeypatch.setattr(whichrank, "__path__", [str(source), str(built)])
    # THEN it is found there
    assert native.native_path("extra.so") == built / "_native" / "extra.so"


def test_absence_says_where_it_searched_and_how_to_mend() -> None:
    with pytest.raises(NativeLibraryError) as caught:
        native.native_path("libnothing.so")
    assert "libnothing.so" in caught.value.what
    assert "_native" in caught.value.where
    assert "pip install" in caught.value.mend


def test_damaged_library_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / native.CORE
    broken.write_bytes(b"no library")
    monkeypatch.setattr(native, "native_path", lambda name: tmp_path / name)
    with pytest.raises(NativeLibraryError, match="does not load"):
        native.load_core.__wrapped__()
    assert native.loaded_core() is None

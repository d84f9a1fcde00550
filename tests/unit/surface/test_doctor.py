"""`whichrank doctor`: each check, on this machine and with the thing it looks for taken away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whichrank import native
from whichrank.errors import NativeLibraryError
from whichrank.surface import doctor
from whichrank.surface.cli import main


def missing(name: str) -> Path:
    raise NativeLibraryError(f"the native file {name} is not installed", mend=native.MEND)


def mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    """Let the test's folder be on a file system of this kind."""
    (tmp_path / "mounts").write_text(
        f"/dev/vda / ext4 rw 0 0\nx {tmp_path} {kind} rw 0 0\nx {tmp_path}/other xfs rw 0 0\n"
    )
    monkeypatch.setattr(doctor, "MOUNTS", tmp_path / "mounts")


def test_shared_memory_is_where_rings_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a folder of the user's own on a tmpfs, which is not there yet
    mounted(monkeypatch, tmp_path, "tmpfs")
    check = doctor.check_shared_memory({"WHICHRANK_SHM": f"{tmp_path}/a/b"})
    # THEN that one is looked at, and not /dev/shm
    assert check.verdict == "ok"
    assert check.found.startswith(f"WHICHRANK_SHM={tmp_path}/a/b will be made in {tmp_path}, which has ")
    # WHEN it is there, or the variable is not set
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert doctor.check_shared_memory({"WHICHRANK_SHM": f"{tmp_path}/a/b"}).found.startswith(
        f"WHICHRANK_SHM={tmp_path}/a/b has "
    )
    assert doctor.check_shared_memory({}).found.startswith("/dev/shm")


@pytest.mark.parametrize("below", ["", "/x/y"])
def test_shared_memory_that_is_no_folder(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    check = doctor.check_shared_memory({"WHICHRANK_SHM": f"{tmp_path}/file{below}"})
    assert check.verdict == "fail"
    assert f"{tmp_path}/file" in check.found
    assert "is no folder" in check.found
    assert "unset WHICHRANK_SHM" in (check.mend or "")


def test_shared_memory_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert "unset WHICHRANK_SHM" in (doctor.check_shared_memory({"WHICHRANK_SHM": str(tmp_path)}).mend or "")
    assert doctor.check_shared_memory({}).mend == "mount -t tmpfs tmpfs /dev/shm"


def test_shared_memory_on_a_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted(monkeypatch, tmp_path, "ext4")
    check = doctor.check_shared_memory({"WHICHRANK_SHM": str(tmp_path)})
    assert check.verdict == "warn"
    assert "it is on ext4 and not on a tmpfs" in check.found


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"WHICHRANK_TICK_S": "soon"}, "WHICHRANK_TICK_S is 'soon'"),
        ({"WHICHRANK_CONFIG": "/no/file"}, "the settings file /no/file cannot be read"),
    ],
)
def test_settings_that_keep_a_run_from_starting(environ: dict[str, str], said: str) -> None:
    assert doctor.check_settings({}).verdict == "ok"
    check = doctor.check_settings(environ)
    assert check.verdict == "fail"
    assert said in check.found
    assert check.mend


@pytest.mark.parametrize(("free_mib", "verdict"), [(1000, "ok"), (10, "warn"), (0, "fail")])
def test_shared_memory_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_mib: int, verdict: str
) -> None:
    mounted(monkeypatch, tmp_path, "tmpfs")
    usage = type("Usage", (), {"free": free_mib << 20})
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
    assert doctor.check_shared_memory({"WHICHRANK_SHM": str(tmp_path)}).verdict == verdict


@pytest.mark.parametrize(
    ("scope", "mend"), [("1", "sysctl kernel.yama.ptrace_scope=0"), ("3", "reboot"), ("0", "--cap-add SYS_PTRACE")]
)
def test_refused_ptrace_names_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, mend: str) -> None:
    monkeypatch.setattr(doctor, "_sibling_can_trace", lambda: False)
    (tmp_path / "scope").write_text(f"{scope}\n")
    check = doctor.check_ptrace(tmp_path / "scope")
    assert check.verdict == "warn"
    assert check.mend is not None
    assert mend in check.mend


def test_ptrace_is_really_tried() -> None:
    assert doctor.check_ptrace().verdict in {"ok", "warn"}


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert doctor.check_compiler().verdict == "ok"
    monkeypatch.setenv("PATH", str(tmp_path))
    check = doctor.check_compiler()
    assert check.verdict == "warn"
    assert "g++" in (check.mend or "")
    monkeypatch.setenv("WHICHRANK_CACHE", str(tmp_path / "cache"))
    assert doctor.check_c10d_sensor(say=print).verdict == "warn"


def test_sensor_that_does_not_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # GIVEN an empty cache and a compiler that refuses
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'sensor.cpp:1: error: no member named x' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("WHICHRANK_CACHE", str(tmp_path / "cache"))
    said: list[str] = []
    # WHEN it is checked
    check = doctor.check_c10d_sensor(said.append)
    # THEN the compiler's own words are shown, and what the job will do instead
    assert check.verdict == "warn"
    assert "no member named x" in check.found
    assert "slower Python sensor" in check.found
    assert len(said) == 1


def test_compiler_that_cxx_names_is_reported_and_not_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # GIVEN a CXX that names nothing, beside a compiler that is there
    monkeypatch.setenv("CXX", "/nonexist")
    monkeypatch.setenv("WHICHRANK_CACHE", str(tmp_path / "cache"))
    # THEN it is said, with the line that mends it, and no other one is taken
    check = doctor.check_compiler()
    assert check.verdict == "warn"
    assert "CXX is '/nonexist', and there is no such program" in check.found
    assert (check.mend or "").startswith("unset CXX (")
    sensor = doctor.check_c10d_sensor(pytest.fail)
    assert (sensor.verdict, sensor.mend) == ("warn", "see C++ compiler above")
    said: list[str] = []
    doctor.c10d.prepare(said.append)
    assert len(said) == 1
    assert "CXX is '/nonexist'" in said[0]
    assert "slower Python one" in said[0]
    assert "\n" not in said[0]
    # WHEN there is no other one THEN nobody is advised to set what is set
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.check_compiler().mend == "apt-get install g++; unset CXX"


def test_compiler_with_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # GIVEN a wrapper before the compiler, as build systems have it
    wrapper = tmp_path / "ccache"
    wrapper.write_text('#!/bin/sh\n[ "$1" = g++ ] || exit 1\nwhile [ "$1" != -o ]; do shift; done\necho built > "$2"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", f"{wrapper} g++")
    monkeypatch.setenv("WHICHRANK_CACHE", str(tmp_path / "cache"))
    # THEN it is used with its arguments
    assert doctor.check_compiler().verdict == "ok"
    assert doctor.check_c10d_sensor(lambda _: None).verdict == "ok"


def test_no_check_ends_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # GIVEN a machine on which neither `true` nor `sleep` is found, and a check that fails in an unforeseen way
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "check_pidfd", lambda: 1 // 0)
    monkeypatch.setattr(doctor, "check_torch", lambda: doctor.Check(name="torch", verdict="ok", found="2.13"))
    found = {check.name: check for check in doctor.all_checks(say=lambda _: None)}
    # THEN all are there
    assert list(found)[-4:] == ["socket sensor", "ptrace", "py-spy", "pidfd"]
    assert found["socket sensor"].verdict == "ok"
    assert found["pidfd"].verdict == "warn"
    assert "could not be checked: ZeroDivisionError" in found["pidfd"].found
    assert "No such file" not in found["ptrace"].found


def test_sensor_in_the_cache_is_not_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built = tmp_path / "built.so"
    built.touch(mode=0o700)
    monkeypatch.setattr(doctor.c10d, "built_path", lambda: built)
    assert doctor.check_c10d_sensor(pytest.fail) == doctor.Check(name="c10d sensor", verdict="ok", found=str(built))


def test_torch_of_a_broken_python(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n")
    python.chmod(0o755)
    check = doctor.check_torch(str(python))
    assert check.verdict == "fail"
    assert "No module named 'torch'" in check.found
    assert check.mend == f"{python} -m pip install torch"


def test_torch_without_distributed(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 2.13.0 without torch.distributed\n")
    python.chmod(0o755)
    assert doctor.check_torch(str(python)).verdict == "fail"


@pytest.mark.parametrize(
    ("environ", "verdict", "said"),
    [
        ({}, "ok", "import torch loads the sensor"),
        ({"WHICHRANK_DISABLE": "1"}, "fail", "WHICHRANK_DISABLE"),
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "fail", "TORCH_DEVICE_BACKEND_AUTOLOAD"),
    ],
)
def test_autoload(environ: dict[str, str], verdict: str, said: str) -> None:
    check = doctor.check_autoload(environ)
    assert check.verdict == verdict
    assert said in check.found


def test_autoload_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an environment in which nothing can be imported as torch
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    # THEN nobody is reported that it loads the sensor
    check = doctor.check_autoload({})
    assert (check.verdict, check.mend) == ("warn", "see torch above")
    assert "no torch" in check.found


def test_missing_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "entry_points", lambda group: [])
    assert doctor.check_autoload({}).verdict == "fail"


def test_native_part_present_and_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_core().verdict == "ok"
    monkeypatch.setattr(native, "native_path", missing)
    native.load_core.cache_clear()
    assert (doctor.check_core().verdict, doctor.check_socket_sensor().verdict) == ("fail", "warn")


def test_socket_sensor_that_cannot_be_preloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / native.SOCKET).write_bytes(b"no library")
    monkeypatch.setattr(native, "native_path", lambda name: tmp_path / name)
    check = doctor.check_socket_sensor()
    assert check.verdict == "warn"
    assert "cannot be preloaded" in check.found


def test_remaining_checks_hold_here() -> None:
    assert doctor.check_py_spy().verdict == "ok"
    assert doctor.check_pidfd().verdict == "ok"


def test_command_prints_each_check_with_its_mend(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    checks = [
        doctor.Check(name="one", verdict="ok", found="fine"),
        doctor.Check(name="two", verdict="warn", found="less", mend="do this"),
    ]
    monkeypatch.setattr(doctor, "all_checks", lambda say: checks)
    assert main(["doctor"]) == 0
    assert capfd.readouterr().out == "ok    one: fine\nwarn  two: less\n      mend: do this\n"
    checks.append(doctor.Check(name="three", verdict="fail", found="none", mend="that"))
    assert main(["doctor", "--json"]) == 1
    assert [entry["verdict"] for entry in json.loads(capfd.readouterr().out)] == ["ok", "warn", "fail"]


def test_without_torch_a_run_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said: list[str] = []
    doctor.c10d.prepare(said.append)
    assert len(said) == 1
    assert "torch is not installed for this Python, so none" in said[0]
    assert "\n" not in said[0]
    assert "sensor" not in said[0]


def test_without_torch_no_compiler_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    check = doctor.check_c10d_sensor(pytest.fail)
    assert check.verdict == "warn"
    assert "compiler" not in (check.mend or "")
    assert "no torch" in check.found

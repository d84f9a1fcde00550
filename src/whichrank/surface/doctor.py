"""The checks of `whichrank doctor`: does this machine have what diagnosis needs, and how is each point mended?

Each check is a function that looks at one thing and returns what it found. Where the outcome depends on more than a
file mode (a container's seccomp profile, a security module), the check tries the real thing on a process of its own
instead of guessing from settings. One thing is left behind: the c10d sensor, built and cached for the job to come.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from whichrank import native
from whichrank.config import load_config
from whichrank.errors import ConfigError, NativeLibraryError, SensorError
from whichrank.model.sensors import C10D, SOCKET
from whichrank.ring.folder import base_folder
from whichrank.ring.trust import unsafe_folder
from whichrank.sensors import c10d
from whichrank.server.place import absolute

MEBIBYTE = 1 << 20
RING_BYTES = MEBIBYTE
"""The most that one rank's ring takes."""
COMFORTABLE_RINGS = 64

MOUNTS = Path("/proc/self/mounts")
_ELSEWHERE = "unset WHICHRANK_SHM, or name a folder on a tmpfs that you can write to"
_SEE_TORCH = "see torch above"
YAMA_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")

Verdict = Literal["ok", "warn", "fail"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found."""

    name: str
    verdict: Verdict
    """warn: a part of the diagnosis is missing; fail: there can be none."""
    found: str
    mend: str | None = None


def check_settings(environ: Mapping[str, str]) -> Check:
    """A wrong setting keeps `whichrank run` from starting the job."""
    name = "settings"
    try:
        load_config(environ=environ)
    except ConfigError as error:
        what = error.what if error.where in error.what else f"{error.what} ({error.where})"
        return Check(name=name, verdict="fail", found=what, mend=error.mend or None)
    return Check(name=name, verdict="ok", found="what the environment and the settings file say can be used")


def check_shared_memory(environ: Mapping[str, str]) -> Check:
    """Rings live there: it must be writable and hold 1 MiB per rank."""
    name = "shared memory"
    base = base_folder(environ)
    said = f"WHICHRANK_SHM={base}" if environ.get("WHICHRANK_SHM") else str(base)
    folder = _nearest(base)
    at = said if folder == base else f"{said} will be made in {folder}, which"
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        found = f"{at} is {'not writable' if folder.is_dir() else 'no folder'}"
        mend = _ELSEWHERE if said != str(base) else "mount -t tmpfs tmpfs /dev/shm"
        return Check(name=name, verdict="fail", found=found, mend=mend)
    if why := unsafe_folder(str(base), shared=True):
        found = f"{said} is not safe from other users: {why}"
        return Check(
            name=name, verdict="fail", found=found, mend="WHICHRANK_SHM=DIR with a folder of your own on a tmpfs"
        )
    free = shutil.disk_usage(folder).free
    lacking: Verdict = "warn" if free >= RING_BYTES else "fail"
    found = f"{at} has {free // MEBIBYTE:,} MiB free; a rank takes up to 1 MiB"
    mount, kind = _mount_of(folder)
    if kind not in ("", "tmpfs", "ramfs"):
        found = f"{found}; it is on {kind} and not on a tmpfs, which slows the ranks down"
        return Check(name=name, verdict=lacking, found=found, mend=_ELSEWHERE)
    if free < COMFORTABLE_RINGS * RING_BYTES:
        mend = f"mount -o remount,size=1G {mount}   (container: start it with --shm-size=1g)"
        return Check(name=name, verdict=lacking, found=found, mend=mend)
    return Check(name=name, verdict="ok", found=found)


def _nearest(path: Path) -> Path:
    """The path itself, or as much of it as is there."""
    path = absolute(path)
    return next((place for place in (path, *path.parents) if os.path.lexists(place)), path)


def _mount_of(folder: Path) -> tuple[str, str]:
    """Where the file system of a folder is mounted, and its kind; empty if the kind is not known."""
    found = (str(folder), "")
    place, longest = os.path.realpath(folder), -1
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(errors="replace").splitlines():
            _, mount, kind, *_ = [*line.split(" "), "", "", ""]
            inside = mount == "/" or place == mount or place.startswith(f"{mount}/")
            if inside and len(mount) >= longest:
                found, longest = (mount, kind), len(mount)
    return found


def check_ptrace(scope_file: Path = YAMA_SCOPE) -> Check:
    """Stacks are read by py-spy, which is no parent of the ranks; so one child tries to trace another here."""
    name = "ptrace"
    if _sibling_can_trace():
        return Check(name=name, verdict="ok", found="a process may read the stack of another")
    scope = scope_file.read_text().strip() if scope_file.exists() else "0"
    if scope == "0":
        found, mend = "refused by the container or its seccomp profile", "start the container with --cap-add SYS_PTRACE"
    elif scope == "3":
        found, mend = "switched off until reboot (kernel.yama.ptrace_scope = 3)", "reboot with another ptrace_scope"
    else:
        found, mend = f"refused (kernel.yama.ptrace_scope = {scope})", "sudo sysctl kernel.yama.ptrace_scope=0"
    return Check(name=name, verdict="warn", found=f"{found}: incidents come without stacks", mend=mend)


def _sibling_can_trace() -> bool:
    tracer = (
        "import ctypes, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]\n"
        "libc.ptrace.restype = ctypes.c_long\n"
        "PTRACE_SEIZE = 0x4206\n"
        "sys.exit(libc.ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None) != 0)\n"
    )
    traced = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(60)"])
    try:
        return subprocess.run([sys.executable, "-I", "-c", tracer, str(traced.pid)], check=False).returncode == 0
    finally:
        traced.kill()
        traced.wait()


def check_py_spy() -> Check:
    """The program that reads the stacks of suspects."""
    beside_python = Path(sysconfig.get_path("scripts")) / "py-spy"
    path = str(beside_python) if beside_python.exists() else shutil.which("py-spy")
    if path is None:
        found = "py-spy is missing: incidents come without stacks"
        return Check(name="py-spy", verdict="warn", found=found, mend=f"{sys.executable} -m pip install py-spy")
    return Check(name="py-spy", verdict="ok", found=path)


def check_compiler() -> Check:
    """The c10d sensor is compiled for the installed torch at first use."""
    try:
        path = c10d.compiler()
    except SensorError as error:
        found = f"{error.what}: where no c10d sensor is built yet, the slower Python one is used"
        return Check(name="C++ compiler", verdict="warn", found=found, mend=error.mend)
    version = "version not known"
    with contextlib.suppress(OSError):  # it may be no program after all
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        version = (done.stdout.splitlines() or [version])[0]
    return Check(name="C++ compiler", verdict="ok", found=f"{path}: {version}")


def check_c10d_sensor(say: Callable[[str], None]) -> Check:
    """The sensor for this torch; built now if it is not cached, so that the job need not."""
    name = f"{C10D.name} sensor"
    try:
        path = c10d.built_path()
        if not c10d.is_built(path):
            c10d.build(path, say)
    except (SensorError, OSError, subprocess.SubprocessError) as error:
        what = error.what if isinstance(error, SensorError) else str(error)
        mend = "install a C++17 compiler that fits this torch, or name one: CXX=g++-12 whichrank doctor"
        if find_spec("torch") is None:
            return Check(name=name, verdict="warn", found="there is no torch to build it for", mend=_SEE_TORCH)
        if check_compiler().verdict != "ok":
            mend = "see C++ compiler above"
        return Check(name=name, verdict="warn", found=f"{what}: the slower Python sensor is used", mend=mend)
    return Check(name=name, verdict="ok", found=str(path))


def check_torch(python: str = sys.executable) -> Check:
    """The torch of this Python; tried in a process of its own, since an import may fail in any way."""
    program = (
        "import torch, torch.distributed as d\n"
        "print(torch.__version__, 'with torch.distributed' if d.is_available() else 'without torch.distributed')"
    )
    done = subprocess.run(
        [python, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "WHICHRANK_DISABLE": "1"},
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        mend = f"{python} -m pip install torch"
        return Check(name="torch", verdict="fail", found=f"{python} cannot import torch: {reason}", mend=mend)
    found = done.stdout.strip()
    if "without" in found:
        return Check(name="torch", verdict="fail", found=found, mend="install a torch built with USE_DISTRIBUTED=1")
    return Check(name="torch", verdict="ok", found=found)


def check_autoload(environ: Mapping[str, str]) -> Check:
    """`import torch` switches the sensor on through an entry point."""
    name = "autoload"
    if find_spec("torch") is None:
        return Check(name=name, verdict="warn", found="there is no torch that could load the sensor", mend=_SEE_TORCH)
    if environ.get("WHICHRANK_DISABLE") == "1":
        return Check(name=name, verdict="fail", found="WHICHRANK_DISABLE=1 is set", mend="unset WHICHRANK_DISABLE")
    if environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        found = "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading the sensor"
        return Check(name=name, verdict="fail", found=found, mend="unset TORCH_DEVICE_BACKEND_AUTOLOAD")
    if not any(point.name == "whichrank" for point in entry_points(group="torch.backends")):
        found = "the entry point torch.backends: whichrank is not installed"
        return Check(name=name, verdict="fail", found=found, mend=native.MEND)
    return Check(name=name, verdict="ok", found="import torch loads the sensor")


def check_core() -> Check:
    """The library that writes and samples rings."""
    try:
        native.load_core()
    except NativeLibraryError as error:
        return Check(name="native library", verdict="fail", found=error.what, mend=error.mend)
    return Check(name="native library", verdict="ok", found=str(native.native_path(native.CORE)))


def check_socket_sensor() -> Check:
    """The library for LD_PRELOAD; tried on a program that does nothing."""
    name = f"{SOCKET.name} sensor"
    try:
        path = native.native_path(native.SOCKET)
    except NativeLibraryError as error:
        return Check(name=name, verdict="warn", found=error.what, mend=error.mend)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ""],
        env={**os.environ, "LD_PRELOAD": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or done.stderr:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        return Check(name=name, verdict="warn", found=f"it cannot be preloaded: {reason}", mend=native.MEND)
    return Check(name=name, verdict="ok", found=str(path))


def check_pidfd() -> Check:
    """The agent watches processes by pidfd, so that a reused pid cannot mislead it."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        found = f"pidfd_open is refused: {error}"
        return Check(
            name="pidfd", verdict="warn", found=found, mend="use Linux 5.3 or newer, or allow pidfd_open in seccomp"
        )
    return Check(name="pidfd", verdict="ok", found=f"Linux {os.uname().release}")


def all_checks(say: Callable[[str], None]) -> list[Check]:
    """Every check, in the order in which things are needed; `say` is reported when one takes time."""
    checks: dict[str, Callable[[], Check]] = {
        "settings": lambda: check_settings(os.environ),
        "shared memory": lambda: check_shared_memory(os.environ),
        "native library": check_core,
        "torch": check_torch,
        "autoload": lambda: check_autoload(os.environ),
        "C++ compiler": check_compiler,
        f"{C10D.name} sensor": lambda: check_c10d_sensor(say),
        f"{SOCKET.name} sensor": check_socket_sensor,
        "ptrace": check_ptrace,
        "py-spy": check_py_spy,
        "pidfd": check_pidfd,
    }
    return [_checked(name, check) for name, check in checks.items()]


def _checked(name: str, check: Callable[[], Check]) -> Check:
    """What a check finds; one that cannot look says so, and the others still do."""
    try:
        return check()
    except Exception as error:
        what = " ".join(str(error).split()) or "no message"
        return Check(name=name, verdict="warn", found=f"this could not be checked: {type(error).__name__}: {what}")

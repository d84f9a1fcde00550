"""The C++ c10d sensor: built once for the installed torch, cached, loaded and switched on.

Its ABI is that of one torch build, so it is compiled on the user's machine at first use (about ten seconds) and kept
under a key of source, headers and torch version. Ranks that start together build once: the first takes a file
lock, the others wait. `whichrank run` prepares it before the job starts, so ranks normally only load it.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from whichrank.errors import SensorError
from whichrank.native import C10D_SOURCE, INCLUDE, load_core, native_path
from whichrank.ring.trust import unsafe_file, unsafe_folder
from whichrank.sensors import backward, groups, meetings, remote, steps

if TYPE_CHECKING:
    from whichrank.sensors.identity import Identity

STANDARDS = ("c++20", "c++17")
BUILD_TIMEOUT_S = 300
SPARE_CACHE = Path("/var/tmp/whichrank")  # noqa: S108  # with our number behind it, and looked at before it is used

_sensor: ctypes.CDLL | None = None  # once it is loaded into this process


def torch_folder() -> Path:
    """The installed torch, found without importing it.

    Raises:
        SensorError: There is none.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise SensorError("torch is not installed for this Python", where=sys.executable, mend="pip install torch")
    return Path(spec.origin).parent


def compiler() -> str:
    """The C++ compiler: the program that `$CXX` names, else the first of c++, g++ and clang++.

    Raises:
        SensorError: There is none, or not the one that `$CXX` names.
    """
    return _compiler()[0]


def _compiler() -> list[str]:
    """The compiler and what `$CXX` says behind it, as in `CXX="ccache g++"`."""
    named = os.environ.get("CXX", "").strip()
    other = next((path for path in map(shutil.which, ("c++", "g++", "clang++")) if path), None)
    if not named:
        if other is None:
            raise SensorError("no C++ compiler was found", mend="apt-get install g++")
        return [other]
    for words in ([named], _words(named)):
        if words and (path := shutil.which(words[0])):
            return [path, *words[1:]]
    mend = f"unset CXX ({other} is used then), or let it name a compiler" if other else "apt-get install g++; unset CXX"
    raise SensorError(f"CXX is '{named}', and there is no such program", mend=mend)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an open quote
        return []


def cache_folder() -> Path:
    """Where built sensors are kept: `$WHICHRANK_CACHE`, else `$XDG_CACHE_HOME/whichrank`, else `~/.cache/whichrank`."""
    own = os.environ.get("WHICHRANK_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whichrank"


def safe_cache_folder() -> Path:
    """The cache, or a folder in /var/tmp where other users can write to the cache: they could give us code to run."""
    usual = cache_folder()
    return usual if not unsafe_folder(str(usual), shared=False) else SPARE_CACHE.with_name(f"whichrank-{os.geteuid()}")


def is_built(target: Path) -> bool:
    """Whether the sensor is there, and nobody but root and ourselves can have written it."""
    try:
        return not unsafe_file(str(target))
    except OSError:
        return False


def built_path() -> Path:
    """Where the sensor for this torch is, or will be; a built one needs no compiler any more.

    Raises:
        SensorError: No torch, or no native part.
    """
    sources = [native_path(C10D_SOURCE), *sorted((native_path(INCLUDE) / "whichrank").glob("*.h"))]
    torch_version = (torch_folder() / "version.py").read_bytes()
    key = hashlib.sha256(b"\0".join((*(source.read_bytes() for source in sources), torch_version)))
    found = re.search(rb"^__version__[^=\n]*=\s*['\"]([^'\"]+)", torch_version, re.MULTILINE)
    version = re.sub(r"[^0-9A-Za-z.+]", "", found.group(1).decode()) if found else "unknown"
    return safe_cache_folder() / f"c10d-{version}-{key.hexdigest()[:16]}.so"


def build(target: Path, say: Callable[[str], None]) -> None:
    """Compile the sensor to `target` unless another process does it first; `say` is reported when it takes time.

    A file there that another user could have written is replaced.

    Raises:
        SensorError: Its folder is not safe from other users, or it does not compile; then the message holds the
            compiler's first error.
    """
    compiler()  # before anything is announced
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if why := unsafe_folder(str(target.parent), shared=False):
        raise SensorError(f"there is no safe place for it: {why}", mend="WHICHRANK_CACHE=DIR with a folder of your own")
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_built(target):
            return
        say(f"whichrank: building the c10d sensor for this torch, once (about 10 s) -> {target}")
        made = target.with_suffix(f".{os.getpid()}.tmp")
        errors = ""
        for standard in STANDARDS:
            command = _command(standard, made)
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, env=_quiet_environment()
            )
            if result.returncode == 0:
                made.chmod(0o700)
                made.replace(target)
                return
            errors = errors or result.stderr
        made.unlink(missing_ok=True)
    first = next((line for line in errors.splitlines() if "error" in line), errors[:200])
    raise SensorError(f"the c10d sensor does not compile: {first}", where=compiler(), mend="whichrank doctor")


def _command(standard: str, made: Path) -> list[str]:
    torch = torch_folder()
    include = torch / "include"
    api = include / "torch" / "csrc" / "api" / "include"
    return [*_compiler(), "-O2", f"-std={standard}", "-fPIC", "-shared", "-fvisibility=hidden", "-w",
            f"-I{native_path(INCLUDE)}", f"-I{include}", f"-I{api}", str(native_path(C10D_SOURCE)), "-o", str(made),
            f"-L{torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]  # fmt: skip


def _quiet_environment() -> dict[str, str]:
    """The compiler must not be watched, nor find itself preloaded."""
    return {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "WHICHRANK_DIR")}


def prepare(say: Callable[[str], None]) -> None:
    """Build the sensor ahead of the job if it is not cached. Never raises: the ranks then use the fallback."""
    try:
        target = built_path()
        if target.parent != cache_folder():
            why = unsafe_folder(str(cache_folder()), shared=False)
            say(f"whichrank: the c10d sensor is kept in {target.parent}, for in the cache it is not safe: {why}")
        if not is_built(target):
            build(target, say)
    except (SensorError, OSError, subprocess.SubprocessError) as error:
        what, mend = (error.what, error.mend) if isinstance(error, SensorError) else (str(error), "whichrank doctor")
        said = f"the C++ sensor cannot be used, the slower Python one takes its place: {what}"
        if importlib.util.find_spec("torch") is None:
            said = f"{what}, so none of its processes can be watched ({sys.executable})"
        say(f"whichrank: {said}; to mend it: {mend}")


def switch_on(directory: bytes, identity: Identity, open_now: bool) -> None:
    """Load the sensor into this process and start observing.

    Args:
        directory: The job's folder in shared memory.
        identity: What is known of this process.
        open_now: Make the ring at once instead of at the first process group.

    Raises:
        SensorError: It cannot be built or loaded, or another user could have written it.
    """
    global _sensor
    target = built_path()
    if not is_built(target):
        build(target, lambda line: print(line, file=sys.stderr, flush=True))
    load_core()
    try:
        sensor = ctypes.CDLL(str(target))
    except OSError as error:
        raise SensorError(f"the c10d sensor does not load: {error}", where=str(target), mend=f"rm {target}") from error
    sensor.wr_c10d_enable.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
    sensor.wr_c10d_enable.restype = None
    sensor.wr_c10d_enable(directory, ctypes.byref(identity))
    if open_now:
        sensor.wr_c10d_open_ring()
    _follow_groups()
    steps.watch()
    backward.watch()
    remote.watch(sensor.wr_c10d_open_ring)
    meetings.watch()
    _sensor = sensor


def _follow_groups() -> None:
    import torch

    sensor = torch.ops.whichrank
    groups.watch(
        opened=lambda group: sensor.open_group(group.boxed()),
        retimed=sensor.retime_groups,
        closed=lambda group: sensor.close_group(group.boxed()),
    )


def observe(on: bool) -> None:
    """Let operations pass unobserved, or observe them again. For measurements.

    Raises:
        SensorError: The C++ sensor is not in use in this process.
    """
    if _sensor is None:
        raise SensorError("the C++ sensor is not in use in this process", mend="whichrank doctor")
    _sensor.wr_c10d_switch(int(on))

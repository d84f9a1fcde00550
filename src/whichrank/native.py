"""Finds and loads the native part.

CMake installs it into the package folder `whichrank/_native/`. In an ordinary install that lies beside this file. In an
editable one Python comes from `src/`, while the build has put `_native/` into site-packages, which the
package's search path names too; so every entry of `whichrank.__path__` is looked through. This works without
the metadata of the distribution, also in a process that autoloads whichrank before `site` has finished.
"""

from __future__ import annotations

import ctypes
import os
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import whichrank
from whichrank.errors import NativeLibraryError

CORE = "libwhichrank.so"
SOCKET = "libwhichrank_socket.so"
COLUMNS = "libwhichrank_columns.so"
C10D_SOURCE = "c10d_sensor.cpp"
INCLUDE = "include"

MEND = "pip install --force-reinstall --no-deps whichrank  (in a checkout: rm -f .venv/.whichrank-setup; scripts/setup)"


def native_folders() -> list[Path]:
    """Where files of the native part may lie, best first."""
    packages = [Path(entry) for entry in whichrank.__path__]
    packages += [Path(sysconfig.get_path(scheme)) / "whichrank" for scheme in ("platlib", "purelib")]
    return [package / "_native" for package in dict.fromkeys(packages)]


def native_path(name: str) -> Path:
    """The file or folder `name` of the native part, for instance `CORE` or `INCLUDE`.

    Raises:
        NativeLibraryError: It is not installed.
    """
    folders = native_folders()
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    raise NativeLibraryError(
        f"the native file {name} is not installed",
        where=", ".join(str(folder) for folder in folders),
        mend=MEND,
    )


@cache
def load_core() -> ctypes.CDLL:
    """The core library, loaded once per process. Callers declare the signatures that they use.

    Its symbols are made visible to libraries that are loaded after it, such as the c10d sensor.

    Raises:
        NativeLibraryError: It is not installed, or does not load on this machine.
    """
    return _declared(load(CORE, ctypes.RTLD_GLOBAL))


def load(name: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """A library of the native part.

    Args:
        name: Of its file.
        mode: As dlopen knows it.

    Raises:
        NativeLibraryError: It is not installed, or does not load on this machine.
    """
    path = native_path(name)
    try:
        return ctypes.CDLL(str(path), mode=mode)
    except OSError as error:
        raise NativeLibraryError(f"{name} does not load: {error}", where=str(path), mend=MEND) from error


def on_ring(core: ctypes.CDLL, name: str, *arguments: Any) -> Callable[..., None]:
    """A function of the core library that writes into this process's ring; it does nothing where there is none.

    Args:
        core: The library.
        name: A function that takes the ring first and returns nothing.
        arguments: The ctypes types of what it takes behind the ring.
    """
    function = getattr(core, name)
    function.argtypes, function.restype = (ctypes.c_void_p, *arguments), None
    process_ring = core.wr_process_ring

    def call(*values: Any) -> None:
        ring = process_ring()
        if ring:
            function(ring, *values)

    return call


def loaded_core() -> ctypes.CDLL | None:
    """The core library if this process has it already, by whatever way; never loads it."""
    try:
        return _declared(ctypes.CDLL(str(native_path(CORE)), mode=os.RTLD_NOLOAD))
    except (OSError, NativeLibraryError):
        return None


def _declared(core: ctypes.CDLL) -> ctypes.CDLL:
    """With the types of the functions that several sensors call."""
    core.wr_process_ring.restype = ctypes.c_void_p
    core.wr_meeting_begin.argtypes = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint32)
    core.wr_remote_wait_begin.argtypes = (ctypes.c_void_p, ctypes.c_int32)
    core.wr_outside_wait_end.argtypes, core.wr_outside_wait_end.restype = (ctypes.c_void_p, ctypes.c_int), None
    return core

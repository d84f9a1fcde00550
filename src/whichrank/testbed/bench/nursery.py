"""A nursery of launchers for many trials in a row: torch is imported once for all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import TracebackType
from typing import Final

from whichrank.errors import NativeLibraryError
from whichrank.native import SOCKET, native_path
from whichrank.testbed.bench.launch import job_environment
from whichrank.testbed.demo.folders import new_folder

_PRELOAD: Final = "LD_PRELOAD"


class Nursery:
    """Runs while it is entered; ends with this process in any case.

    Attributes:
        path: Of the socket that a launcher's `--nursery` takes.
    """

    def __init__(self) -> None:
        self._folder = new_folder("whichrank-nursery-", has_socket=True)
        self.path = self._folder / "socket"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Nursery:
        command = [sys.executable, "-m", "whichrank.testbed.demo.nursery", str(self.path), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, env=_environment()
            )
            assert self._process.stdout is not None
            self._process.stdout.readline()  # it is ready, or has said why not
        except BaseException:  # Ctrl-C: `__exit__` is not called then
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    """What the loader and torch read when they begin; the rest is that of each run."""
    try:
        socket_sensor = {_PRELOAD: ":".join(filter(None, (os.environ.get(_PRELOAD), str(native_path(SOCKET)))))}
    except NativeLibraryError:
        socket_sensor = {}
    return job_environment(socket_sensor, on_nodes=False)

"""The labs of this machine: each has a file that says what it is, so that another command finds it and removes it.

A lab that a command makes for itself ends with the command: by its own hand, or, if it is killed, by a janitor that
waits for its end. One that `whichrank lab up` makes stays until `down`. Whatever both have missed is found by name.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from whichrank.errors import UsageError
from whichrank.ring.folder import is_alive, remove_dead, start_ticks
from whichrank.testbed.lab.namespaces import PREFIX, namespaces, processes_in, remove_namespaces
from whichrank.testbed.lab.network import Network, NoLabError, require_tools
from whichrank.testbed.lab.topology import Topology

FOLDER: Final = Path("/run/whichrank-lab")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_NAME: Final = re.compile(r"[a-z0-9]{1,12}")
_SUFFIX: Final = ".json"


class LabFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in the file of a lab.

    Attributes:
        made: UTC.
        owner_pid: The command that it ends with; 0: it stays until `down`.
        owner_ticks: When that process started, field 22 of /proc/PID/stat.
    """

    name: str
    nodes: int
    leaves: int
    spines: int
    ports: int
    rate: str
    made: datetime
    owner_pid: int = 0
    owner_ticks: int = 0
    schema: str = "whichrank.testbed.lab/1"

    @property
    def topology(self) -> Topology:
        """Of its network."""
        return Topology(self.nodes, self.leaves, self.spines, self.ports)

    @property
    def is_abandoned(self) -> bool:
        """Whether the command that it was to end with has gone."""
        return self.owner_pid != 0 and not is_alive(self.owner_pid, self.owner_ticks)


class Lab:
    """A lab that is up.

    Args:
        file: What it is.
    """

    def __init__(self, file: LabFile) -> None:
        self.file = file
        self.network = Network(file.name, file.topology, file.rate)
        self._janitor: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls, topology: Topology, rate: str, name: str | None = None, *, stays: bool = False) -> Lab:
        """Make one.

        Args:
            topology: Of its network.
            rate: Of every cable, in the words of tc: ``200mbit``.
            name: Up to twelve letters and digits; drawn if None.
            stays: Until `remove`; else it ends with this process.

        Raises:
            UsageError: There is one of this name, or it cannot be named so.
            NoLabError: It cannot be made here; nothing is left behind.
        """
        require_tools()
        name = secrets.token_hex(3) if name is None else checked_name(name, "--name lab1")
        file = LabFile(
            name, topology.nodes, topology.leaves, topology.spines, topology.ports, rate, datetime.now(UTC),
            os.getpid(), start_ticks(os.getpid()),
        )  # fmt: skip
        is_taken = any(namespace.startswith(f"{PREFIX}{name}-") for namespace in namespaces())
        try:
            is_begun = not is_taken and _begin(file)
        except OSError as error:
            what = f"no lab can be written down in {FOLDER}: {error.strerror}"
            raise NoLabError(what, mend="run it as root") from error
        if not is_begun:
            raise UsageError(f"there is a lab '{name}' already", mend=f"whichrank lab down {name}")
        lab = cls(file)
        lab._hire()
        try:
            lab.network.up()
            if stays:
                lab._stay()
        except BaseException:
            lab.close()
            raise
        return lab

    def _stay(self) -> None:
        """It ends with nobody any more; until it was whole, it was this process's."""
        self.file = msgspec.structs.replace(self.file, owner_pid=0, owner_ticks=0)
        beside = _whole(self.file.name)
        beside.touch(mode=0o600)
        beside.write_bytes(msgspec.json.encode(self.file))
        beside.replace(_path(self.file.name))
        self._dismiss()

    def _hire(self) -> None:
        """Start the janitor, which shares nothing with us that a signal to us would reach."""
        command = [sys.executable, "-P", "-m", "whichrank.testbed.lab.janitor", self.file.name]
        null = subprocess.DEVNULL
        self._janitor = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)

    def close(self) -> None:
        """Remove it."""
        remove(self.file.name)
        self._dismiss()

    def _dismiss(self) -> None:
        if self._janitor is not None:
            self._janitor.kill()
            self._janitor.wait()
            self._janitor = None


def _begin(file: LabFile) -> bool:
    """Write the file of a lab that is to be made; whether there was none."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    try:
        _path(file.name).touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    _path(file.name).write_bytes(msgspec.json.encode(file))
    return True


def labs() -> list[LabFile]:
    """All labs of which there is a file, by name."""
    return [file for path in sorted(FOLDER.glob(f"*{_SUFFIX}")) if (file := _read(path))]


def _read(path: Path) -> LabFile | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=LabFile)
    except (OSError, msgspec.DecodeError):
        return None  # it has just gone, or is just being written; what it made is found by name


def is_still(file: LabFile) -> bool:
    """Whether this is the lab that is known by its name, and not another one or none."""
    return _read(_path(file.name)) == file


def exists(name: str) -> bool:
    """Whether there is a file of this lab: one of this name is up, or is being made."""
    return _path(name).exists()


def find(name: str) -> Lab:
    """The lab of this name.

    Raises:
        UsageError: There is none.
    """
    file = _read(_path(checked_name(name)))
    if file is None:
        raise UsageError(f"there is no lab '{name}'", mend="whichrank lab status")
    return Lab(file)


def is_anything_left(name: str) -> bool:
    """Whether there is anything of a lab."""
    return bool(_namespaces(checked_name(name)) or list(_cgroups(name)) or exists(name))


def remove(name: str) -> bool:
    """Kill what runs in a lab and remove all of it; whether there was anything."""
    there = is_anything_left(name)
    remove_namespaces(_namespaces(name))
    remove_dead()  # the memory of jobs that were killed
    for group in list(_cgroups(name)):
        _remove_cgroup(group)
    for path in (_path(name), _whole(name)):
        path.unlink(missing_ok=True)
    return there


def _namespaces(name: str) -> list[str]:
    return [namespace for namespace in namespaces() if namespace.startswith(f"{PREFIX}{name}-")]


def remove_all() -> list[str]:
    """Remove every lab, also those of which only parts are left; their names."""
    names = {path.name.removesuffix(_SUFFIX) for path in FOLDER.glob(f"*{_SUFFIX}")}
    names |= {namespace.removeprefix(PREFIX).split("-")[0] for namespace in namespaces()}
    names |= {group.name.removeprefix(PREFIX).split("-")[0] for group in _cgroups()}
    return sorted(name for name in names if _NAME.fullmatch(name) and remove(name))


def remove_abandoned() -> list[str]:
    """Remove the labs whose command has gone; their names."""
    return [file.name for file in labs() if file.is_abandoned and remove(file.name)]


def occupants(file: LabFile) -> int:
    """How many processes run in a lab."""
    network = Network(file.name, file.topology, file.rate)
    return sum(len(processes_in(network.namespace(place))) for place in file.topology.places)


def checked_name(name: str, mend: str = "whichrank lab status  lists those that are up") -> str:
    """The name, if a lab can have it.

    Args:
        name: Of a lab.
        mend: What to do where it cannot be one.

    Raises:
        UsageError: It cannot.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"a lab cannot be called {name!r}: up to twelve small letters and digits", mend=mend)
    return name


def _path(name: str) -> Path:
    return FOLDER / f"{name}{_SUFFIX}"


def _whole(name: str) -> Path:
    """What takes the place of its file when it is up to stay."""
    return FOLDER / f"{name}.whole"


def _cgroups(name: str = "") -> Iterator[Path]:
    """Directly below the root of cgroup v2, or of each controller of v1."""
    beginning = f"{PREFIX}{name}-" if name else PREFIX
    for pattern in (f"{beginning}*", f"*/{beginning}*"):
        yield from (path for path in _CGROUPS.glob(pattern) if path.is_dir())


def _remove_cgroup(group: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()

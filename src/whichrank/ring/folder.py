"""The folder of a job's rings, `/dev/shm/whichrank/<job>/`: made, found, recognised as dead, removed.

The base folder may be shared by the users of a node, as /tmp is (sticky, mode 1777), but only root and ourselves may
have made it: its owner could put another one in its place. So where somebody else came first, ours has another name
(`BASE-<uid>`). A job's folder is its owner's alone (0700). Its file `owner` names the process that answers for it:
`whichrank run`, an agent, or a launcher's shell.

A folder is dead when its owner and every process with a ring in it are gone; only then may it be removed. A process is
known by pid *and* start time, since pids are used again. Containers may share /dev/shm without sharing
pids: what was made under another boot or in another pid namespace cannot be judged from here and is left alone.

Removing is tidying and never worth an error: only files of the kinds that whichrank makes are removed, and what
cannot be removed (a read-only mount, somebody else's file) is left behind with its owner, for a later run to try again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from whichrank.errors import RingFormatError, SensorError, UsageError
from whichrank.ring.end_signals import FILE_NAMES as END_SIGNALS_NAMES
from whichrank.ring.reader import RingReader
from whichrank.ring.trust import unsafe_folder

BASE: Final = Path("/dev/shm/whichrank")  # noqa: S108  # shared on purpose, as the docstring says
OWNER: Final = "owner"
SUFFIX: Final = ".ring"
SOCKET_NAME: Final = "analyzer.sock"
"""Where the analyzer of this node listens."""
_JOB: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Owner:
    """The process that answers for a folder."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat."""
    boot: str
    namespace: str
    """Boot and pid namespace in which `pid` means something."""
    output: str = ""
    """Where the run writes its incidents; empty if nowhere."""

    def alive(self) -> bool:
        """False only if the process is surely gone."""
        return (self.boot, self.namespace) != (_boot(), _namespace()) or is_alive(self.pid, self.start_ticks)


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 if it is gone or a zombie."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = content[content.rfind(b")") + 2 :].split()
    return 0 if len(fields) < 20 or fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(pid: int, ticks: int) -> bool:
    """Whether this very process still runs; `ticks` 0 stands for any start time."""
    now = start_ticks(pid)
    return now != 0 and ticks in (0, now)


def base_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of all jobs: `$WHICHRANK_SHM`, else `BASE`, else `BASE-<uid>` where `BASE` is another user's."""
    if named := (os.environ if environ is None else environ).get("WHICHRANK_SHM"):
        return Path(named)
    try:
        is_anothers = BASE.lstat().st_uid not in (0, os.geteuid())
    except OSError:
        is_anothers = False
    return BASE.with_name(f"{BASE.name}-{os.geteuid()}") if is_anothers else BASE


def checked_job(job: str) -> str:
    """The job's name, if it can be that of a folder.

    Raises:
        UsageError: It cannot.
    """
    if not _JOB.fullmatch(job):
        what = (
            f"'{job}' cannot name a job: letters, digits, dot, dash and underscore, at most 63, a letter or digit first"
        )
        raise UsageError(what, mend="give another name: --job NAME")
    return job


class JobFolder:
    """The folder of one job. `create` makes it, `JobFolder(path)` looks at one that is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job = path.name

    @classmethod
    def create(cls, job: str, *, owner_pid: int, output: str = "", base: Path | None = None) -> JobFolder:
        """Make the folder with its owner, or take over one of ours that has no living owner.

        Raises:
            SensorError: There is no place for rings on this node, or none that is safe from other users.
            UsageError: The name is wrong, or a living process owns a job of this name.
        """
        base = base_folder() if base is None else base
        folder = cls(base / checked_job(job))
        owner = Owner(owner_pid, start_ticks(owner_pid), _boot(), _namespace(), output)
        try:
            _make_base(base)
            _refuse_unsafe(base)
            folder._make(owner)
        except OSError as error:
            raise SensorError(
                f"the folder for rings cannot be made ({error.strerror}), so the job runs unobserved",
                where=str(folder.path),
                mend="whichrank doctor; or put rings on another tmpfs: WHICHRANK_SHM=DIR",
            ) from error
        return folder

    def rings(self) -> list[Path]:
        """The ring files, by name; empty if the folder is gone."""
        try:
            with os.scandir(self.path) as entries:
                return sorted(self.path / entry.name for entry in entries if entry.name.endswith(SUFFIX))
        except OSError:
            return []

    def owner(self) -> Owner | None:
        """The owner, or None if the folder has none that can be read."""
        try:
            return Owner(**json.loads((self.path / OWNER).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def is_ours(self) -> bool:
        """Whether it is a folder of this user that nobody else can read."""
        try:
            status = self.path.lstat()
        except OSError:
            return False
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077

    def is_dead(self) -> bool:
        """Whether its owner and all processes of its rings are gone. One without an owner is not judged."""
        owner = self.owner()
        return owner is not None and not owner.alive() and not any(ring_alive(ring) for ring in self.rings())

    def remove(self) -> bool:
        """Remove the rings whose process is gone, and the folder if nothing is left; True if it is gone.

        Raises nothing: what cannot be removed, or is of no kind that we make, stays, and with it folder and owner.
        """
        rings = self.rings()
        living = [ring for ring in rings if ring_alive(ring)]
        for ring in rings:
            if ring not in living:
                _unlink(ring, stat.S_ISREG)
        if living:
            return False
        _unlink(self.path / SOCKET_NAME, stat.S_ISSOCK)
        for name in END_SIGNALS_NAMES:
            _unlink(self.path / name, stat.S_ISREG)
        with contextlib.suppress(OSError):
            if set(os.listdir(self.path)) <= {OWNER}:  # noqa: PTH208  # names are all that is needed
                _unlink(self.path / OWNER, stat.S_ISREG)
                self.path.rmdir()
        return not os.path.lexists(self.path)

    def _make(self, owner: Owner) -> None:
        """Folder and owner appear together, so that nobody sees one without the other and takes it for dead."""
        import shutil  # these two take 0.5 MiB, of which an agent has no use whose run has made the folder
        import tempfile

        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=self.path.parent))
        try:
            (fresh / OWNER).touch(mode=0o600)
            (fresh / OWNER).write_text(json.dumps(asdict(owner)), encoding="utf-8")
            try:
                fresh.rename(self.path)
                return
            except OSError:
                if not self.is_ours():
                    raise
            before = self.owner()
            if before is not None and before.pid != owner.pid and before.alive():
                raise UsageError(
                    f"a job of the name '{self.job}' runs on this node",
                    where=f"process {before.pid}",
                    mend="give another name: --job NAME",
                )
            (fresh / OWNER).rename(self.path / OWNER)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def job_folders(base: Path | None = None) -> list[JobFolder]:
    """The jobs of this user on this node, newest first."""
    base = base_folder() if base is None else base
    found = []
    with contextlib.suppress(OSError):
        found = [JobFolder(path) for path in base.iterdir() if _JOB.fullmatch(path.name)]
    ours = [folder for folder in found if folder.is_ours()]
    return sorted(ours, key=lambda folder: _changed_s(folder.path), reverse=True)


def remove_dead(base: Path | None = None) -> list[str]:
    """Remove the folders of dead jobs of this user, as far as that can be done; the names of those that are gone."""
    return [folder.job for folder in job_folders(base) if folder.is_dead() and folder.remove()]


def ring_alive(path: Path) -> bool:
    """Whether the process of a ring file still runs; a file that cannot be read is judged by its name alone."""
    try:
        with RingReader(path) as reader:
            header = reader.header()
        return is_alive(int(header["pid"][0]), int(header["pid_start_ticks"][0]))
    except (RingFormatError, OSError):
        return path.stem.isascii() and path.stem.isdigit() and is_alive(int(path.stem), 0)


def _unlink(path: Path, is_ours: Callable[[int], bool]) -> None:
    """Remove a file if it is of the kind that we make; stay silent if it is not, or cannot be removed."""
    with contextlib.suppress(OSError):
        if is_ours(path.lstat().st_mode):
            path.unlink()


def _changed_s(path: Path) -> float:
    """When it last changed; 0 if another process has removed it meanwhile."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _make_base(base: Path) -> None:
    try:
        base.mkdir(parents=True)
    except FileExistsError:
        pass
    else:
        base.chmod(0o1777)
    if base == BASE and os.geteuid() == 0:
        _make_sticky(base.parent)


def _make_sticky(shared: Path) -> None:
    """What /dev/shm is everywhere but in Kubernetes, which mounts a memory volume there that all may write to."""
    status = shared.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        with contextlib.suppress(OSError):
            shared.chmod(stat.S_IMODE(status.st_mode) | stat.S_ISVTX)


def _refuse_unsafe(base: Path) -> None:
    why = unsafe_folder(str(base), shared=True)
    if why:
        raise SensorError(
            f"the folder for rings is not safe from other users ({why}), so the job runs unobserved",
            where=str(base),
            mend="put rings into a folder of your own on a tmpfs: WHICHRANK_SHM=DIR; or set the sticky bit: chmod +t",
        )


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""

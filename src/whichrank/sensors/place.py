"""The folder in which this process makes its ring, made if nobody has.

`whichrank run` and `whichrank agent` make it on their own node. On the others of a Slurm job the ranks may come before
any agent, with nothing but the variables of `whichrank env`. The rules are those of `ring.folder`, which cannot be
imported here: it needs NumPy. A folder made here has no owner until an agent takes it over.
"""

from __future__ import annotations

import contextlib
import os
import stat

from whichrank.errors import SensorError
from whichrank.ring.trust import unsafe_folder


def make_place(directory: str) -> None:
    """Make the job's folder (0700) and the one of all jobs above it (1777, as /tmp), unless they are there.

    What cannot be made is left for the ring itself to say.

    Raises:
        SensorError: The folder is another user's, who could read or forge rings in it, or could be replaced by one, or
            it is no folder.
    """
    base = os.path.dirname(os.path.abspath(directory))  # noqa: PTH100, PTH120  # pathlib is not loaded for this
    with contextlib.suppress(OSError):
        os.mkdir(base)  # noqa: PTH102
        os.chmod(base, 0o1777)  # noqa: PTH101, S103
    with contextlib.suppress(OSError):
        os.mkdir(directory, 0o700)  # noqa: PTH102
    try:
        there = os.lstat(directory)
    except OSError:
        return
    if not stat.S_ISDIR(there.st_mode):
        raise SensorError(f"{directory} is no folder, so no ring is made in it", mend="whichrank doctor")
    if there.st_uid != os.geteuid():
        what = f"{directory} belongs to user {there.st_uid}, so no ring is made in it"
        raise SensorError(what, mend="give another name: --job NAME")
    if why := unsafe_folder(base, shared=True):
        raise SensorError(f"{why}, so no ring is made in {directory}", mend="WHICHRANK_SHM=DIR, or chmod +t")

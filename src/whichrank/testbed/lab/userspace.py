"""A lab without root: the command runs once more as root of a user namespace, where the kernel allows that.

There it has networks and mounts of its own, so a lab lives and ends with its command. Control groups stay what they
were: faults that need one cannot be done.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from whichrank.testbed.lab.namespaces import INSIDE
from whichrank.testbed.lab.network import NoLabError

_UNSHARE: Final = ("unshare", "--user", "--map-root-user", "--mount", "--net", "--")
_TOOLS_AT: Final = "/usr/sbin:/sbin"
"""Where tools of the administrator are, which a user's PATH need not name."""
_MOUNTS: Final = 'mount -t tmpfs tmpfs /run && mkdir /run/netns && exec "$@"'


def become_root_of_a_namespace(arguments: Sequence[str]) -> None:
    """Replace this process by the same command inside; returns if it is root already, or is inside.

    Args:
        arguments: Of `whichrank`.

    Raises:
        NoLabError: The kernel gives no user namespace to this user.
    """
    if os.geteuid() == 0 or os.environ.get(INSIDE):
        return
    tried = ["sh", "-c", _MOUNTS, "sh"]
    if not shutil.which("unshare") or subprocess.run([*_UNSHARE, *tried, "true"], capture_output=True).returncode:
        what = "a lab needs root here: this kernel gives no user namespace to this user"
        raise NoLabError(what, mend="run it as root")
    command = [*_UNSHARE, *tried, sys.executable, "-P", "-m", "whichrank", *arguments]
    path = f"{os.environ.get('PATH', os.defpath)}:{_TOOLS_AT}"
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1", "PATH": path})  # noqa: S606  # there is no shell to ask for


def refuse_without_root() -> None:
    """Labs that stay are found in /run, and a user namespace ends with its command.

    Raises:
        NoLabError: This user is not root.
    """
    if os.geteuid() != 0:
        what = "a lab that stays needs root; one for a single run does not"
        raise NoLabError(what, mend="whichrank lab run, or this command as root")

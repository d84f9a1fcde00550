"""Removes a lab whose command has gone without doing so: ``python -m whichrank.testbed.lab.janitor NAME``."""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Final

from whichrank.testbed.lab import box

LATE_S: Final = 1.0


def main(name: str) -> int:
    """Wait for the end of the lab's owner, and remove the lab."""
    file = box.find(name).file
    try:
        pidfd = os.pidfd_open(file.owner_pid)
    except ProcessLookupError:
        pidfd = -1
    if pidfd >= 0 and not file.is_abandoned:
        select.select([pidfd], [], [])
    if box.is_still(file):  # somebody may have removed it, and made another one of its name
        box.remove(name)
    time.sleep(LATE_S)  # what the owner had started may have gone on making it
    if not box.exists(name):
        box.remove(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""What a user may do next: which steps make sense only while the processes are as the incident found them."""

from __future__ import annotations

import re
from typing import Final

_OF_PROCESSES: Final = re.compile(r"whichrank (?:stacks|validate)|\bkill -|\bss -|while it stands still")


def needs_processes(step: str) -> bool:
    """Whether a step looks at processes as they hang, or does something to one: afterwards a pid may be another's."""
    return bool(_OF_PROCESSES.search(step))

"""What the launcher gave to all ranks of a job alike: read once from the environment with which a rank was started.

A value counts only where the environment is that of a rank (`RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` all
set): without these a script has to find its peers in another way, and what stands there may be of anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from whichrank.agent.rank import RankWatch
from whichrank.model.telemetry import Launch

MOST_BYTES: Final = 1 << 20
"""Of an environment; the rest is not looked at."""
MOST_NAME: Final = 128
_OF_A_RANK: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class LaunchReader:
    """Knows the launch of the ranks of one node.

    Args:
        name: The job's name, if the user gave the same one on all nodes.
    """

    def __init__(self, name: str = "") -> None:
        self._nothing = Launch(name=name)
        self._of_process: dict[tuple[int, int], Launch] = {}

    def of(self, watches: Iterable[RankWatch]) -> Launch:
        """What the living ranks have alike; nothing but the name where they differ, as two jobs in one run do."""
        living = {(watch.pid, watch.start_ticks) for watch in watches if not watch.ended_ns}
        if self._of_process.keys() != living:
            self._of_process = {key: self._of_process.get(key) or self._read(key[0]) for key in living}
        reported = set(self._of_process.values()) - {self._nothing}
        return reported.pop() if len(reported) == 1 else self._nothing

    def _read(self, pid: int) -> Launch:
        return launch_of(environment_of(pid), self._nothing.name)


def launch_of(environ: Mapping[str, str], name: str = "") -> Launch:
    """What an environment says of the launch."""
    if not all(environ.get(variable) for variable in _OF_A_RANK):
        return Launch(name=name)
    return Launch(
        name=name,
        run_id=environ.get("TORCHELASTIC_RUN_ID", "")[:MOST_NAME],
        master_port=_number(environ["MASTER_PORT"]),
        world_size=_number(environ["WORLD_SIZE"]),
    )


def environment_of(pid: int) -> dict[str, str]:
    """The environment with which a process was started; empty if we may not know."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123  # bounded, where Path reads all
            content = file.read(MOST_BYTES)
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in content.split(b"\0"))
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs if name}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0

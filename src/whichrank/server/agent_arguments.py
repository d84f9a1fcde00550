"""The arguments with which `whichrank run` starts its agent: those of `whichrank agent`, in one order.

By them `python -m whichrank` knows such an agent and starts it without the command line, whose modules take 1.5 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AgentArguments(NamedTuple):
    """What the agent of a run is told; the key of the job is in its environment."""

    job: str
    connect: str
    """The address at which the analyzer listens."""
    run_pid: int

    def as_given(self) -> list[str]:
        """For `whichrank`."""
        options = ("--job", self.job, "--connect", self.connect, "--wait", "--run-pid", str(self.run_pid))
        return ["agent", *options]

    @classmethod
    def from_given(cls, arguments: Sequence[str]) -> AgentArguments | None:
        """None if a run does not start its agent with these."""
        match arguments:
            case ["agent", "--job", job, "--connect", connect, "--wait", "--run-pid", pid] if pid.isdigit():
                return cls(job, connect, int(pid))
        return None

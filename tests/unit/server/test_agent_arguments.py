"""By its arguments the agent of a run is known, and by nothing else."""

from __future__ import annotations

import pytest

from whichrank.server.agent_arguments import AgentArguments


def test_what_a_run_gives_is_known() -> None:
    arguments = AgentArguments("job", "ipc:///x", 7)
    assert AgentArguments.from_given(arguments.as_given()) == arguments


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["agent"],
        ["why", "--job", "j", "--connect", "c", "--wait", "--run-pid", "7"],
        ["agent", "--job", "j", "--connect", "c", "--run-pid", "7", "--wait"],
        ["agent", "--job", "j", "--connect", "c", "--wait", "--run-pid", "x"],
        ["agent", "--job", "j", "--connect", "c", "--wait", "--run-pid", "7", "--help"],
    ],
)
def test_what_a_user_gives_goes_to_the_command_line(given: list[str]) -> None:
    assert AgentArguments.from_given(given) is None

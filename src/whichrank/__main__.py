"""`python -m whichrank` is the command `whichrank`; the agent of a run is started without the command line."""

import sys

from whichrank.server.agent_arguments import AgentArguments


def main() -> int:
    """Run the command that was given, or the agent."""
    if arguments := AgentArguments.from_given(sys.argv[1:]):
        from whichrank.server.agent_process import run_for

        return run_for(arguments)
    from whichrank.surface.cli import main as run_command

    return run_command()


if __name__ == "__main__":
    sys.exit(main())

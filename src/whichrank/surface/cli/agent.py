"""`whichrank agent`."""

from __future__ import annotations

import os

import click


@click.command(name="agent")
@click.option("--job", envvar="WHICHRANK_JOB", help="Name of the job (default: $WHICHRANK_JOB).")
@click.option(
    "--connect", envvar=["WHICHRANK_CONNECT", "WHICHRANK_JOIN"], metavar="ADDR", help="Where the analyzer listens."
)
@click.option("--insecure", envvar="WHICHRANK_INSECURE", is_flag=True, help="The analyzer asks for no key.")
@click.option("--wait", "stay", is_flag=True, help="Stay until SIGTERM, also while no rank is there.")
@click.option("--run-pid", type=int, hidden=True, help="The run that has started it.")
def command(job: str | None, connect: str | None, insecure: bool, stay: bool, run_pid: int | None) -> int:
    """Watch the ranks of one node and report to the analyzer, in the foreground.

    `whichrank run` starts it by itself. For launchers that cannot be wrapped, start it on every node before the job:

    \b
        eval "$(whichrank env --join HOST:PORT --job NAME)"
        whichrank agent &

    It ends when the processes of all its ranks have ended, or at SIGTERM; with exit code 6 where the analyzer is of
    another job.
    """
    from whichrank.ring.folder import checked_job
    from whichrank.server.address import joined_endpoint
    from whichrank.server.agent_process import open_agent, run_agent
    from whichrank.surface.origin import named_by_origin

    if job:
        with named_by_origin("job"):
            checked_job(job)
    if connect:
        with named_by_origin("connect"):
            endpoint = joined_endpoint("--connect", connect, os.environ, insecure=insecure)
        if run_pid is None and endpoint.address.startswith("tcp:"):  # nobody else says who does not let it in
            from whichrank.surface.run.reach import Reach

            Reach(endpoint, say=lambda why: click.echo(f"whichrank: {why}", err=True))
    agent, folder = open_agent(job, connect, stay=stay, insecure=insecure, run_pid=run_pid)
    run_agent(agent, folder, connect=connect, run_pid=run_pid)
    return 0

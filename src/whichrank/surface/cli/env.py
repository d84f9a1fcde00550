"""`whichrank env`."""

from __future__ import annotations

import os

import click


@click.command(name="env")
@click.option("--job", envvar="WHICHRANK_JOB", help="Name of the job, the same on all nodes (default: a new one).")
@click.option(
    "--join", envvar="WHICHRANK_JOIN", metavar="ADDR", help="Where the analyzer listens, for `whichrank agent`."
)
@click.option("--insecure", envvar="WHICHRANK_INSECURE", is_flag=True, help="The analyzer asks for no key.")
def command(job: str | None, join: str | None, insecure: bool) -> None:
    """Print the environment of a watched job, for launchers that cannot be wrapped.

    \b
        eval "$(whichrank env --join HOST:PORT --job $SLURM_JOB_ID)"
        whichrank agent &          # on every node, before the ranks
        srun python train.py

    It also makes the folder for rings on this node, which belongs to the calling shell; `whichrank agent` makes it on
    the others.
    """
    from whichrank.ring.folder import JobFolder, checked_job, remove_dead
    from whichrank.server import environment
    from whichrank.server.address import INSECURE, KEY, joined_endpoint
    from whichrank.surface.origin import named_by_origin

    endpoint = None
    if join is not None:
        endpoint = joined_endpoint("--join", join, os.environ, insecure=insecure)
    job = job or environment.new_job_name()
    with named_by_origin("job"):
        checked_job(job)
    remove_dead()
    folder = JobFolder.create(job, owner_pid=os.getppid())
    variables = environment.additions(folder, os.environ)
    if endpoint:
        variables[environment.CONNECT] = endpoint.address
        variables |= {KEY: endpoint.key, INSECURE: "0"} if endpoint.key else {INSECURE: "1"} if insecure else {}
    click.echo(environment.exports(variables))

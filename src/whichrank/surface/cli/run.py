"""`whichrank run`."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import click


@click.command(name="run", context_settings={"allow_interspersed_args": False})
@click.option("--hang-timeout", type=float, metavar="S", help="Seconds without progress until an alert (300).")
@click.option("--slow-window", type=float, metavar="S", help="Seconds over which a slowdown is judged (60).")
@click.option("--output", metavar="DIR", help="Where incidents are written (whichrank-out/<job>).")
@click.option("--serve", metavar="ADDR", help="Analyze here for other machines too: HOST:PORT.")
@click.option("--join", metavar="ADDR", help="Let the machine at HOST:PORT analyze, or that in @FILE.")
@click.option("--insecure", is_flag=True, default=None, help="Serve or join without a key: trust the network.")
@click.option("--quiet", is_flag=True, default=None, help="Print nothing but alerts.")
@click.option("--record", is_flag=True, default=None, help="Keep the telemetry too, for `whichrank replay`.")
@click.option("--validate", type=click.Choice(["off", "auto"]), help="Pause training to prove what is slow (off).")
@click.option(
    "--mitigate",
    type=click.Choice(["advise", "ask", "auto"]),
    help="Act on what is slow, ask first, or only say what would help (advise).",
)
@click.option("--checkpoints", metavar="DIR", help="Where a program with a Reorderable writes its state when asked.")
@click.argument("job_command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    hang_timeout: float | None,
    slow_window: float | None,
    output: str | None,
    serve: str | None,
    join: str | None,
    insecure: bool | None,
    quiet: bool | None,
    record: bool | None,
    validate: str | None,
    mitigate: str | None,
    checkpoints: str | None,
    job_command: tuple[str, ...],
) -> int:
    """Run a job and name the rank that hangs it, live.

    \b
        whichrank run -- torchrun --nproc-per-node 8 train.py

    The job is a plain child: its terminal, its signals and its exit code stay as they are. Incidents are appended to
    DIR/incidents.jsonl as they are found, and printed on stderr.
    """
    from whichrank.surface.run.sender import kept_from_new_threads

    with kept_from_new_threads():  # NumPy starts some
        from whichrank.config import Config, load_config
        from whichrank.errors import ConfigError
        from whichrank.server.address import checked_address, checked_endpoint, refuse_option
        from whichrank.server.environment import is_off
        from whichrank.surface.run.job import exit_like
        from whichrank.surface.run.session import Session

    for option, value in (("--serve", serve), ("--join", join), ("--output", output), ("--checkpoints", checkpoints)):
        refuse_option(option, value)
    flags = {
        "hang_timeout_s": hang_timeout,
        "slow_window_s": slow_window,
        "output_dir": output,
        "serve": serve,
        "join": join,
        "insecure": insecure,
        "quiet": quiet,
        "record": record,
        "validate": validate,
        "mitigate": mitigate,
        "checkpoints": checkpoints,
    }
    checks: dict[str, Callable[[str], object]] = {
        "serve": partial(checked_address, "--serve"),
        "join": partial(checked_endpoint, "--join"),
    }
    try:
        config = load_config(flags, checks=checks)
    except ConfigError:
        if not is_off(os.environ):
            raise
        config = Config()  # no setting matters to a job that runs unobserved
    return exit_like(Session(config, job_command).run())

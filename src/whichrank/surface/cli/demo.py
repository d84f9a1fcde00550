"""`whichrank demo`: a real training job, a fault, the verdict, and then the truth."""

from __future__ import annotations

import math
import sys

import click

from whichrank.surface.numbers import Seconds, WholeNumber


@click.command(name="demo")
@click.option("--fault", default="stop", show_default=True, help="What to do to the job; see --list.")
@click.option("--ranks", type=WholeNumber(2, 64), default=8, show_default=True, help="Ranks of the job.")
@click.option("--seed", type=int, default=0, show_default=True, help="Draws victim, moment, variant and layout.")
@click.option(
    "--launcher", type=click.Choice(["preloaded", "torchrun"]), default="preloaded", show_default=True,
    help="preloaded: torch is imported once and the ranks are forked.",
)  # fmt: skip
@click.option("--layout", default="", help="Such as tp2-pp2-dp2; drawn by the seed if not given.")
@click.option("--hang-timeout", type=Seconds(min=1), default=8.0, show_default=True, help="Seconds.")
@click.option("--no-steps", is_flag=True, help="Ranks note no optimizer steps: iterations are found by operations.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--list", "list_faults", is_flag=True, help="List the faults and end.")
def command(
    fault: str, ranks: int, seed: int, launcher: str, layout: str, hang_timeout: float, no_steps: bool, as_json: bool,
    list_faults: bool,
) -> int:  # fmt: skip
    """Run a real data x tensor x pipeline parallel job over Gloo, break it, and see whether whichrank names the rank.

    The job computes a little and sleeps a fixed device time, so that eight ranks behave like devices on two cores. The
    injector draws victim and moment once the job is under way; nothing that whichrank reads carries them. Exit code 0:
    verdict and truth agree; 1: they do not.
    """
    from whichrank.surface.leave import leave_on_signals
    from whichrank.surface.trial.show import run_and_show
    from whichrank.surface.trial.words import known_fault, listed
    from whichrank.testbed.bench.setup import Setup, demo_faults
    from whichrank.testbed.lab.userspace import become_root_of_a_namespace

    faults = demo_faults()
    if list_faults:
        click.echo(listed(faults))
        return 0
    nodes = known_fault(fault, faults).nodes
    _refuse_what_cannot_run(ranks, layout, hang_timeout)
    if nodes > 1:
        become_root_of_a_namespace(sys.argv[1:])
    leave_on_signals()

    setup = Setup(
        fault, ranks, seed, launcher, layout,  # type: ignore[arg-type]  # click has checked it
        hang_timeout_s=hang_timeout, has_steps=not no_steps,
    )  # fmt: skip
    said = f"{ranks} ranks under 'whichrank run', fault '{fault}', seed {seed}, hang timeout {hang_timeout:g} s"
    said += setup.switched
    return run_and_show(setup, "demo", said, "whichrank demo --layout tp2-pp2-dp2 --ranks 8", as_json=as_json)


def _refuse_what_cannot_run(ranks: int, layout: str, hang_timeout: float) -> None:
    """Before anything is started: a job that cannot start would only be reported as "no fault done"."""
    from whichrank.errors import UsageError
    from whichrank.sensors.c10d import torch_folder
    from whichrank.testbed.demo.layout import Layout

    if not math.isfinite(hang_timeout):
        raise UsageError(f"--hang-timeout is {hang_timeout:g}: it takes seconds", mend="--hang-timeout 8")
    if layout:
        try:
            size = Layout.parse(layout).world_size
        except ValueError as error:
            raise UsageError(str(error), mend="--layout tp2-pp2-dp2, or leave it out and one is drawn") from error
        if size != ranks:
            what = f"layout {layout} has {size} ranks, and the job has {ranks}"
            raise UsageError(what, mend=f"whichrank demo --layout {layout} --ranks {size}")
    torch_folder()

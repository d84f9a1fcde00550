"""`whichrank lab run` and `whichrank lab list`: a job over a lab of its own, broken, and the verdict."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from whichrank.surface.numbers import WholeNumber

if TYPE_CHECKING:
    from whichrank.testbed.lab.scenarios import Scenario

_OPTIONS = (
    click.option("--nodes", type=WholeNumber(1, 64), default=4, show_default=True, help="Nodes."),
    click.option(
        "--leaves", type=WholeNumber(1, 32), default=2, show_default=True, help="Switches that nodes hang on."
    ),
    click.option("--spines", type=WholeNumber(1, 32), default=2, show_default=True, help="Switches that join leaves."),
    click.option("--ports", type=WholeNumber(1, 2), default=1, show_default=True, help="Ports of a node."),
    click.option("--rate", default="200mbit", show_default=True, help="Of every cable, each way, as tc writes it."),
)


def network_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a lab's network is made with."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command()
@click.option("--scenario", default="stop", show_default=True, help="What is done to the job; see `lab list`.")
@click.option("--workload", default="", help="The job; drawn by the seed if not given. See `lab list`.")
@click.option("--seed", type=int, default=0, show_default=True, help="Draws victim, moment, variant and workload.")
@click.option("--ranks", type=WholeNumber(2, 64), default=8, show_default=True, help="Of the job, over all nodes.")
@click.option("--lab", metavar="NAME", help="Run in this lab, which is up, instead of an own one.")
@network_options
@click.option(
    "--launcher", type=click.Choice(["preloaded", "torchrun"]), default="preloaded", show_default=True,
    help="preloaded: torch is imported once and the ranks are forked.",
)  # fmt: skip
@click.option(
    "--validate",
    type=click.Choice(["off", "auto"]),
    default="off",
    show_default=True,
    help="Pause training to prove what is slow, and wait for what comes of it.",
)
@click.option(
    "--slow-window",
    type=click.FloatRange(1.0, 3600.0),
    metavar="S",
    default=10.0,
    show_default=True,
    help="Seconds over which a slowdown is judged.",
)
@click.option("--no-steps", is_flag=True, help="Ranks note no optimizer steps: iterations are found by operations.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep what the run wrote here, with its telemetry.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def run(
    scenario: str, workload: str, seed: int, ranks: int, lab: str | None, nodes: int, leaves: int, spines: int,
    ports: int, rate: str, launcher: str, validate: str, slow_window: float, no_steps: bool, keep: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Run a real job over a lab of its own, break it, and see whether whichrank names what is at fault.

    Each node has its own `whichrank run` with an agent; the first one analyzes. The lab is removed at the end; one
    that is up stays, but what was done to its network is undone. With --validate auto nothing is done for two windows,
    so that it is known what iterations take. Exit code 0: verdict and truth agree; 1: they do not.
    """
    from whichrank.sensors.c10d import torch_folder
    from whichrank.surface.leave import leave_on_signals
    from whichrank.surface.trial.show import run_and_show
    from whichrank.surface.trial.words import known_fault
    from whichrank.testbed.bench.methods.campaign import job_args_of, quiet_of_claim_s
    from whichrank.testbed.bench.setup import Setup, lab_faults
    from whichrank.testbed.lab.box import checked_name, remove_abandoned
    from whichrank.testbed.lab.network import checked_rate
    from whichrank.testbed.lab.scenarios import known_as
    from whichrank.testbed.lab.topology import Topology
    from whichrank.testbed.lab.userspace import become_root_of_a_namespace, refuse_without_root

    wanted = known_fault(scenario, known_as(lab_faults()), "scenario", "whichrank lab list")
    job = _workload(wanted, workload, seed)
    torch_folder()
    if lab is not None:
        checked_name(lab)
        _refuse_network_options()
        refuse_without_root()
    else:
        become_root_of_a_namespace(sys.argv[1:])
    remove_abandoned()
    leave_on_signals()
    topology = None if lab else Topology(nodes, leaves, spines, ports)
    setup = Setup(
        wanted.fault, ranks, seed, launcher,  # type: ignore[arg-type]  # click has checked it
        variant=wanted.variant, workload=job, topology=topology, rate=checked_rate(rate), lab=lab or "",
        record=keep is not None, job_args=job_args_of(wanted), quiet_s=quiet_of_claim_s(wanted),
        has_steps=not no_steps, validates=validate == "auto", slow_window_s=slow_window,
    )  # fmt: skip
    where = f"in the lab '{lab}'" if lab else f"on {nodes} nodes, cables of {rate}"
    said = f"{ranks} ranks of '{job}' {where}, scenario '{scenario}', seed {seed}{setup.switched}"
    return run_and_show(setup, "lab", said, "whichrank lab run --workload 3d", as_json=as_json, keep=keep)


def _workload(scenario: Scenario, workload: str, seed: int) -> str:
    """The one that is asked for, or the seed's; one in which nothing would come of the scenario is refused."""
    from whichrank.errors import UsageError
    from whichrank.testbed.lab.programs import PROGRAMS

    fit = [name for name in PROGRAMS if scenario.fits(name)]
    if workload in PROGRAMS and workload not in fit:
        what = f"nothing would come of the scenario '{scenario.name}' in the workload '{workload}'"
        raise UsageError(what, mend=f"--workload {' or '.join(fit)}")
    return workload or scenario.workload(seed)


def _refuse_network_options() -> None:
    from whichrank.errors import UsageError

    context = click.get_current_context()
    for name in ("nodes", "leaves", "spines", "ports", "rate"):
        if context.get_parameter_source(name) != ParameterSource.DEFAULT:
            raise UsageError(f"--{name} is of a lab that is made; --lab is one that is up", mend=f"leave --{name} out")


@click.command(name="list")
def list_all() -> None:
    """The workloads, what can be done to them, and what `lab score` runs."""
    from whichrank.surface.trial.words import listed
    from whichrank.testbed.bench.setup import lab_faults
    from whichrank.testbed.lab.programs import PROGRAMS
    from whichrank.testbed.lab.scenarios import by_class

    width = max(map(len, PROGRAMS))
    click.echo("Workloads (--workload):")
    for name, program in PROGRAMS.items():
        click.echo(f"  {name:{width}}  {program.description}")
    click.echo("\nScenarios (--scenario):\n")
    click.echo(listed(lab_faults()))
    click.echo("\nRun by `lab score`, by the class that CCL-D gives them:\n")
    for head, names in by_class():
        click.echo(textwrap.fill(", ".join(names), 110, initial_indent=f"  {head:7}", subsequent_indent=" " * 9))

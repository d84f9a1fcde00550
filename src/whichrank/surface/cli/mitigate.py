"""`whichrank mitigate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

from whichrank.surface.numbers import WholeNumber
from whichrank.surface.terminal import show, show_json, talk

COMMAND = "whichrank mitigate {} RUN"


@click.group(name="mitigate")
def command() -> None:
    """See what is done about something slow in a running job, have the next step done, or take one back.

    RUN is the folder that the run writes into (default: that of the newest run here).
    """


def _with_run(function: Callable[..., Any]) -> Callable[..., Any]:
    json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    run_argument = click.argument("run", metavar="[RUN]", type=click.Path(path_type=Path), required=False)
    return run_argument(json_option(function))


@command.command()
@_with_run
def status(run: Path | None, *, as_json: bool) -> None:
    """What was done, what it was to gain and has gained, and how it is now."""
    import msgspec

    from whichrank.server.incidents_file import job_of
    from whichrank.server.mitigations_file import mitigated_in, read_now
    from whichrank.surface.asking import folder_of
    from whichrank.surface.mitigated import now_line, sentence_of

    folder = folder_of(run, COMMAND.format("status"))
    lines, now = mitigated_in(folder, job_of(folder)), read_now(folder)
    if as_json:
        show_json(msgspec.json.format(msgspec.json.encode({"now": now, "steps": lines}), indent=2))
        return
    for line in lines:
        show(f"{line.at.astimezone():%Y-%m-%d %H:%M:%S}  {sentence_of(line)}")
    show(now_line(now) if now is not None else "Nothing is slow that could be acted on, and nothing is changed.")


@command.command()
@_with_run
def plan(run: Path | None, *, as_json: bool) -> None:
    """The next step: what it costs, and what it would gain."""
    import msgspec

    from whichrank.server.mitigations_file import read_now
    from whichrank.surface.asking import folder_of
    from whichrank.surface.mitigated import plan_lines

    now = read_now(folder_of(run, COMMAND.format("plan")))
    if as_json:
        show_json(msgspec.json.format(msgspec.json.encode(now and now.plan), indent=2))
        return
    for line in plan_lines(now):
        show(line)


@command.command(name="apply")
@click.argument("step", type=WholeNumber(min=1))
@_with_run
def apply_step(step: int, run: Path | None, *, as_json: bool) -> int:
    """Have the step with this number done now: `plan` shows it.

    Exit codes: 0 it is done, 5 it cannot be.
    """
    return _want("apply", step, run, as_json=as_json)


@command.command()
@click.argument("step", type=WholeNumber(min=1))
@_with_run
def revert(step: int, run: Path | None, *, as_json: bool) -> int:
    """Take the step with this number back: `status` shows it. It is not done again while nothing else is slow.

    Exit codes: 0 it is taken back, 5 it cannot be.
    """
    return _want("revert", step, run, as_json=as_json)


@command.command()
@click.option("--no-checkpoint", is_flag=True, help="Do not ask the job to write its state now.")
@_with_run
def handover(run: Path | None, *, as_json: bool, no_checkpoint: bool) -> int:
    """Write what a restart without the slow or broken node needs, into RUN/handover.txt and RUN/handover.json.

    The job is asked for a checkpoint first: a program with a Reorderable that was started with --checkpoints writes one
    between two iterations, and goes on.

    Exit codes: 0 it is written, 5 it is written and the job was asked for a checkpoint and has not written one.
    """
    import msgspec

    from whichrank.errors import IncompleteDataError
    from whichrank.surface.asking import folder_of
    from whichrank.surface.handover import handover_lines, handover_of, write_handover
    from whichrank.surface.leave import leave_on_signals
    from whichrank.surface.mitigating import checkpoint

    folder = folder_of(run, COMMAND.format("handover"))
    leave_on_signals()
    problem = "" if no_checkpoint else checkpoint(folder, talk)
    found = handover_of(folder)
    if problem:
        talk(f"the job has not written a checkpoint: {problem}")
    if as_json:
        show_json(msgspec.json.format(msgspec.json.encode(found), indent=2))
    path = write_handover(folder, found)
    if as_json:
        return IncompleteDataError.exit_code if problem else 0
    for line in handover_lines(found):
        show(line)
    talk(f"written to {path}")
    return IncompleteDataError.exit_code if problem else 0


def _want(what: Literal["apply", "revert"], step: int, run: Path | None, *, as_json: bool) -> int:
    import msgspec

    from whichrank.errors import IncompleteDataError
    from whichrank.server.mitigations_file import MitigateAsked
    from whichrank.surface.asking import folder_of
    from whichrank.surface.leave import leave_on_signals
    from whichrank.surface.mitigated import sentence_of
    from whichrank.surface.mitigating import mitigate

    folder = folder_of(run, COMMAND.format(f"{what} {step}"))
    leave_on_signals()
    line = mitigate(folder, MitigateAsked(what=what, step=step), talk)
    if as_json:
        show_json(msgspec.json.encode(line))
    else:
        show(sentence_of(line))
    return IncompleteDataError.exit_code if line.what == "refused" else 0

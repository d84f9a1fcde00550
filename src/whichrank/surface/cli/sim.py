"""`whichrank sim`: a training job that is computed instead of run, the verdict, and then the truth."""

from __future__ import annotations

from pathlib import Path

import click

from whichrank.surface.numbers import WholeNumber


@click.command(name="sim")
@click.option("--layout", default="", help="Such as tp2-cp2-dp4-pp2 or dp8-ep4; drawn by the seed if not given.")
@click.option("--schedule", default="", metavar="NAME|CSV", help="1f1b, gpipe, interleaved, or a CSV of torch's.")
@click.option("--microbatches", type=WholeNumber(1, 4096), default=None, help="Of an iteration.")
@click.option("--layers", type=WholeNumber(1, 256), default=None, help="Of a pipeline stage.")
@click.option(
    "--fault", type=click.Choice(["none", "hang", "lost", "slow", "delay", "imbalance"]), default="hang",
    show_default=True, help="What is done to it, at a place drawn by the seed.",
)  # fmt: skip
@click.option(
    "--factor",
    type=click.FloatRange(1.0, 1000.0),
    default=2.0,
    show_default=True,
    help="Of own times, with --fault slow.",
)
@click.option("--seed", type=WholeNumber(0, 2**31), default=0, show_default=True, help="Of chance.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=None, help="Folder; by default whichrank-out/sim-SEED."
)
@click.option("--json", "as_json", is_flag=True, help="Print incidents and truth as JSON.")
def command(
    layout: str, schedule: str, microbatches: int | None, layers: int | None, fault: str, factor: float, seed: int,
    output: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Simulate a training job, break it, and see what whichrank says of it.

    Nothing is run: what ranks do, and when, is computed, and goes through the analyzer as agents would report it. It is
    kept as by `run --record`: `whichrank why DIR`, `replay DIR` and `export` read it; truth.json says what was done.
    Exit codes as in `why`: 0 no alert, 3 a hang or failure, 4 a slowdown.

    \b
    Faults: none       nothing
            hang       a rank goes no further from some place on: asleep, computing, stopped or dead
            lost       a message never comes, or a collective that all have entered never ends
            slow       a rank computes longer in one phase, in all, or in one microbatch
            delay      a rank takes 50 ms to 30 s longer in one microbatch
            imbalance  ranks have unequal work, and none is at fault
    """
    import msgspec

    from whichrank.model.incident import encode_incident
    from whichrank.server.incidents_file import FILE_NAME
    from whichrank.server.private_file import write_private
    from whichrank.server.replay import replay
    from whichrank.surface.cli.why import exit_code_of, print_text
    from whichrank.surface.leave import leave_on_signals
    from whichrank.surface.terminal import progress_bar, show, show_json, talk
    from whichrank.testbed.sim.recorded import TRUTH_NAME, Wanted, drawn_by, record, truth_of

    leave_on_signals()
    wanted = Wanted(layout, schedule, microbatches or 0, layers or 0, fault, factor, seed)
    job, done = drawn_by(wanted)
    folder = _folder_for(output or Path(f"whichrank-out/sim-{seed}"))
    truth = truth_of(job, done, job.run())
    (folder / FILE_NAME).unlink(missing_ok=True)  # what was said of an earlier job, should this one be interrupted
    write_private(folder / TRUTH_NAME, msgspec.json.format(msgspec.json.encode(truth)))
    with progress_bar() as progress:
        task = progress.add_task(f"{job.layout.ranks} ranks, {job.layout.name}, {job.name}", total=None)
        tape = record(job, done, folder, lambda at_s: progress.update(task, completed=at_s, refresh=True))
    replayed = replay(tape)
    write_private(folder / FILE_NAME, b"".join(encode_incident(one) + b"\n" for one in replayed.incidents))
    if as_json:
        show_json(msgspec.json.encode({"incidents": replayed.incidents, "truth": truth}))
        return exit_code_of(replayed.incidents)
    if replayed.incidents:
        print_text(replayed.incidents)
    else:
        show("No incident.")
    show("Truth: " + ", ".join(f"{name} {_shown(value)}" for name, value in truth.items() if value not in (None, [])))
    talk(f"kept in {folder}; go through it again: whichrank replay {folder}")
    return exit_code_of(replayed.incidents)


def _folder_for(path: Path) -> Path:
    """A folder for a tape, made if it is not there; an earlier simulated job in it is replaced.

    Raises:
        UsageError: It cannot be made, or it holds the recording of something else.
    """
    from whichrank.errors import UsageError
    from whichrank.server.incidents_file import FILE_NAME as INCIDENTS
    from whichrank.server.private_file import make_private
    from whichrank.testbed.sim.recorded import TRUTH_NAME
    from whichrank.wire.tape import FILE_NAME as TAPE

    try:
        make_private(path)
    except OSError as error:
        raise UsageError(
            f"the folder cannot be made: {error.strerror}", where=str(path), mend="--output DIR"
        ) from error
    if any((path / name).exists() for name in (TAPE, INCIDENTS)) and not (path / TRUTH_NAME).exists():
        raise UsageError("the folder holds a recording that is not simulated", where=str(path), mend="--output DIR")
    return path


def _shown(value: object) -> str:
    return " or ".join(value) if isinstance(value, list) else str(value)

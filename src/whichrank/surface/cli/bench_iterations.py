"""`whichrank bench iterations`: the iteration time that is found, beside the true one."""

from __future__ import annotations

import click

from whichrank.surface.terminal import progress_bar


@click.command()
@click.option("--only", "names", multiple=True, metavar="NAME", help="Only this workload; may be given again.")
@click.option("--no-steps", is_flag=True, help="Ranks note no optimizer steps: iterations are found by operations.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def iterations(names: tuple[str, ...], no_steps: bool, as_json: bool) -> int:
    """Compare the iteration time that whichrank finds with that of the ranks, in each workload; prints the table.

    Takes three quarters of a minute for each workload. Exit code 0: all are within one percent; 1: they are not.
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.sensors.c10d import torch_folder
    from whichrank.testbed.bench.iteration_time import WORKLOADS, Compared, compare_all, iterations_table
    from whichrank.testbed.bench.tables import NO_STEPS

    if unknown := [name for name in names if name not in WORKLOADS]:
        known = ", ".join(WORKLOADS)
        raise UsageError(f"there is no workload '{unknown[0]}'", where=known, mend=f"--only '{next(iter(WORKLOADS))}'")
    chosen = [name for name in WORKLOADS if not names or name in names]
    torch_folder()  # without torch no job begins
    with progress_bar() as progress:
        bar = progress.add_task("workloads", total=len(chosen))

        def show_progress(one: Compared) -> None:
            progress.advance(bar)
            off = "no iterations found" if one.off is None else f"{one.off:+.2%}"
            progress.console.print(f"{one.workload}: {off}")

        results = compare_all(chosen, has_steps=not no_steps, show_progress=show_progress)
    if as_json:
        click.echo(msgspec.json.encode(results).decode())
    else:
        click.echo("\n\n".join([iterations_table(results), *([NO_STEPS] if no_steps else [])]))
    return 0 if all(one.is_right for one in results) else 1

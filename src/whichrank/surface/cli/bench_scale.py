"""`whichrank bench scale`: what whichrank takes for a job of up to 65,536 ranks."""

from __future__ import annotations

import click

from whichrank.surface.terminal import progress_bar


@click.command("scale")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
@click.option("--quick", is_flag=True, help="Small jobs, a minute or two: see that it works.")
@click.option("--only", "names", multiple=True, metavar="NAME", help="Only this part; may be given again.")
def scale(as_json: bool, quick: bool, names: tuple[str, ...]) -> int:
    """Time and memory for simulated jobs of 64 to 65,536 ranks; prints the tables.

    Takes about half an hour, two cores and 12 GiB of memory.

    \b
    Parts: location    one location of eight kinds of halts, with its verdict checked
           graph       MegaTrace's drill-down, of all pipelines and pruned
           ingest      CPU and memory of an analyzer that all agents report to over ZeroMQ
           simulation  ten iterations of 65,536 ranks
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.testbed.bench.scale.parts import PARTS, measure, table

    if unknown := [name for name in names if name not in PARTS]:
        raise UsageError(f"there is no part '{unknown[0]}'", mend=f"--only {'|'.join(PARTS)}")
    chosen = [name for name in PARTS if not names or name in names]
    with progress_bar() as progress:
        bars = {name: progress.add_task(PARTS[name], total=1.0) for name in chosen}
        results = measure(
            chosen,
            quick=quick,
            show_progress=lambda name, share: progress.update(bars[name], completed=share, refresh=True),
        )
    click.echo(msgspec.json.encode(results).decode() if as_json else table(results))
    return 0 if results.are_met else 1

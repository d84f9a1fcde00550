"""`whichrank bench gate`: jobs are paused again and again, and train as if nothing had been."""

from __future__ import annotations

import click

from whichrank.surface.numbers import WholeNumber
from whichrank.surface.terminal import progress_bar


@click.command()
@click.option("--pauses", type=WholeNumber(min=1), default=1000, show_default=True, help="Pauses of each job.")
@click.option("--only", "names", multiple=True, metavar="JOB", help="Only this job; may be given again.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def gate(pauses: int, names: tuple[str, ...], as_json: bool) -> int:
    """Pause jobs under load, and kill who holds them; prints the table.

    The jobs are ddp, fsdp2 and 3d, on the CPU, beside a busy process for each core. A thousand pauses of each take
    about half an hour.
    Exit code 0: none hung, all ranks waited at the same point, and what they computed is equal bit for bit to a job
    that is not paused; 1: they did not.
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.sensors.c10d import torch_folder
    from whichrank.testbed.bench.gate import RANKS, gate_table, try_job

    if unknown := [name for name in names if name not in RANKS]:
        raise UsageError(f"there is no job '{unknown[0]}'", mend=f"--only {'|'.join(RANKS)}")
    torch_folder()  # without torch no job begins
    results = []
    with progress_bar() as progress:
        for name in [name for name in RANKS if not names or name in names]:
            bar = progress.add_task(name, total=1.0)
            results.append(try_job(name, pauses, lambda share, bar=bar: progress.update(bar, completed=share)))  # type: ignore[misc]
            progress.update(bar, completed=1.0)
    click.echo(msgspec.json.encode(results).decode() if as_json else gate_table(results))
    return 0 if all(one.is_right for one in results) else 1

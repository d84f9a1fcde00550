"""`whichrank validate`."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from whichrank.surface.terminal import show, show_json, talk

PATIENCE_S = 60.0
"""Beyond the longest pause: until the run has heard of it, and ranks have come so far."""


class _BeforeLauncher(click.Command):
    """What stands behind `--` is a launcher, with options of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the launcher, and parse what is before it."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["launcher"] = tuple(args[at + 1 :]) if at < len(args) else None
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """As it is written."""
        return [*super().collect_usage_pieces(ctx), "[-- LAUNCHER...]"]


@click.command(name="validate", cls=_BeforeLauncher)
@click.argument("run", metavar="[RUN]", type=click.Path(path_type=Path), required=False)
@click.option("--ranks", metavar="N,N,...", help="Measure only these ranks and their links (default: all).")
@click.option("--sizes", metavar="MIB,MIB,...", help="Messages on links, in MiB, four at most (default: 1,4,16,64).")
@click.option("--max-pause", type=click.FloatRange(0.1, 10.0), default=10.0, show_default=True, metavar="S",
              help="Pause training for so many seconds at most.")  # fmt: skip
@click.option(
    "--wait",
    type=click.FloatRange(1.0, 3600.0),
    default=30.0,
    show_default=True,
    metavar="S",
    help="With a launcher: ranks wait for each other for so long.",
)
@click.option(
    "--floor",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With a launcher: the least that each device must do.",
)
@click.option(
    "--learn",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With a launcher: write what these devices do into FILE, as a floor.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(
    ctx: click.Context, run: Path | None, ranks: str | None, sizes: str | None, max_pause: float, wait: float,
    floor: Path | None, learn: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Pause a running job, measure its ranks and links, and let it go on. Or measure before a job.

    RUN is the folder that the run writes into (default: that of the newest run here). All ranks wait behind the same
    iteration, in no operation: for some seconds they multiply matrices, copy memory and send messages over the
    process groups of the job. Then training goes on from where it was; what it computes is the same bit for bit.

    With a launcher behind `--` no job is paused: it starts a program that measures, in place of a training script. A
    script of torchrun's and its arguments may stand there, and are left out.

    \b
        whichrank validate --learn floors.json -- torchrun --nproc-per-node 8
        whichrank validate --floor floors.json -- torchrun --nproc-per-node 8 train.py

    Exit codes: 0 all is as quick, 4 a rank or a link is slow, 5 nothing could be said.
    """
    launcher = ctx.meta["launcher"]
    if launcher is not None:
        _refuse(ctx, ("run", "ranks", "max_pause"), "is of a job that runs, and no launcher may stand beside it")
        from whichrank.surface.before_job import check

        return check(launcher, _sizes(sizes), wait, floor, learn, as_json=as_json)
    _refuse(ctx, ("wait", "floor", "learn"), "needs a launcher behind `--`")
    import msgspec

    from whichrank.server.validations_file import Asked
    from whichrank.surface.asking import folder_of
    from whichrank.surface.leave import leave_on_signals
    from whichrank.surface.validated import exit_code, sentence_of
    from whichrank.surface.validating import COMMAND, validate

    asked = Asked(
        suspects=_numbers("--ranks", ranks),
        sizes=_sizes(sizes),
        longest_s=max_pause,
    )
    leave_on_signals()
    result = validate(folder_of(run, COMMAND), asked, max_pause + PATIENCE_S, talk)
    if as_json:
        show_json(msgspec.json.encode(result))
    else:
        show(sentence_of(result))
    return exit_code(is_slow=bool(result.slow_ranks or result.slow_links), is_known=result.is_healthy)


def _numbers(option: str, text: str | None) -> tuple[int, ...]:
    from whichrank.errors import UsageError

    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 8 for part in parts):
        raise UsageError(
            f"{option} takes whole numbers with commas between them", mend=f"whichrank validate {option} 1,2"
        )
    return tuple(map(int, parts))


def _sizes(text: str | None) -> tuple[int, ...]:
    """Of messages, bytes."""
    from whichrank.errors import UsageError
    from whichrank.model.rows import SIZES
    from whichrank.server.validations_file import MOST_SIZE

    sizes = tuple(size << 20 for size in _numbers("--sizes", text))
    if len(sizes) > SIZES or any(not 0 < size <= MOST_SIZE for size in sizes):
        raise UsageError("--sizes has one to four numbers from 1 to 256", mend="whichrank validate --sizes 1,2,4")
    return sizes


def _refuse(ctx: click.Context, names: tuple[str, ...], why: str) -> None:
    """Refuse those of these options that stand on the command line."""
    from whichrank.errors import UsageError
    from whichrank.surface.checking import EXAMPLE

    written = {"run": "RUN", "max_pause": "--max-pause"}
    for name in names:
        if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise UsageError(f"{written.get(name, f'--{name}')} {why}", mend=EXAMPLE)

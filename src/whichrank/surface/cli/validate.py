"""`whichrank validate`."""

from __future__ import annotations

from pathlib import Path

import click

from whichrank.surface.terminal import show, show_json, talk

EXIT_SLOW = 4
EXIT_INCOMPLETE = 5
PATIENCE_S = 60.0
"""Beyond the longest pause: until the run has heard of it, and ranks have come so far."""


@click.command(name="validate")
@click.argument("run", metavar="[RUN]", type=click.Path(path_type=Path), required=False)
@click.option("--ranks", metavar="N,N,...", help="Measure only these ranks and their links (default: all).")
@click.option("--sizes", metavar="MIB,MIB,...", help="Messages on links, in MiB, four at most (default: 1,16,32,64).")
@click.option("--max-pause", type=click.FloatRange(0.1, 10.0), default=10.0, show_default=True, metavar="S",
              help="Pause training for so many seconds at most.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(run: Path | None, ranks: str | None, sizes: str | None, max_pause: float, as_json: bool) -> int:
    """Pause a running job, measure its ranks and links, and let it go on.

    RUN is the folder that the run writes into (default: that of the newest run here). All ranks wait behind the same
    iteration, in no operation: for some seconds they multiply matrices, copy memory and send messages over the
    process groups of the job. Then training goes on from where it was; what it computes is the same bit for bit.

    Exit codes: 0 all is as quick, 4 a rank or a link is slow, 5 nothing could be said.
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.server.validations_file import MOST_SIZE, Asked
    from whichrank.surface.leave import leave_on_signals
    from whichrank.surface.validated import sentence_of
    from whichrank.surface.validating import ask_and_wait, folder_of

    asked = Asked(
        suspects=_numbers("--ranks", ranks),
        sizes=tuple(size << 20 for size in _numbers("--sizes", sizes)),
        longest_s=max_pause,
    )
    if len(asked.sizes) > 4 or any(not 0 < size <= MOST_SIZE for size in asked.sizes):
        raise UsageError("--sizes has one to four numbers from 1 to 256", mend="whichrank validate --sizes 1,2,4")
    leave_on_signals()
    result = ask_and_wait(folder_of(run), asked, max_pause + PATIENCE_S, talk)
    if as_json:
        show_json(msgspec.json.encode(result))
    else:
        show(sentence_of(result))
    if result.slow_ranks or result.slow_links:
        return EXIT_SLOW
    return 0 if result.is_healthy else EXIT_INCOMPLETE


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

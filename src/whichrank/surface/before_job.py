"""`whichrank validate -- LAUNCHER...`: measure, judge, show, and end with an exit code."""

from __future__ import annotations

from pathlib import Path

import msgspec

from whichrank.act.check import judge_check, learned
from whichrank.errors import UsageError
from whichrank.surface.checked import as_plain, sentence_of_check, table_of
from whichrank.surface.checking import EXAMPLE, command_of, read_floors, run_check, write_floors
from whichrank.surface.leave import leave_on_signals
from whichrank.surface.terminal import show, show_json, talk
from whichrank.surface.validated import exit_code


def check(
    launcher: tuple[str, ...],
    sizes: tuple[int, ...],
    wait_s: float,
    floor: Path | None,
    learn: Path | None,
    *,
    as_json: bool,
) -> int:
    """Measure before a job, and show what came of it.

    Args:
        launcher: Its words.
        sizes: Of messages, bytes; none: those that fit the device.
        wait_s: For which ranks wait for each other in each part.
        floor: File with the least that devices must do.
        learn: File to which what they do is written.
        as_json: Print one JSON object.

    Returns:
        The exit code.

    Raises:
        WhichrankError: Of wrong use, or since nothing was measured.
    """
    if not launcher:
        raise UsageError("nothing stands behind `--`", mend=EXAMPLE)
    floors, before = read_floors(floor), read_floors(learn, may_be_new=True)
    options = ["--limit", str(wait_s)]
    options += ["--sizes", ",".join(str(size) for size in sizes)] if sizes else []
    command = command_of(launcher, options)
    leave_on_signals()
    talk("check: processes start, compute, copy memory and send messages for some seconds")
    checked = run_check(command, wait_s, lambda line: show(line, err=True))
    judged = judge_check(checked, floors)
    if as_json:
        show_json(msgspec.json.encode(as_plain(checked, judged)))
    else:
        if judged.speeds:
            show(table_of(judged))
        show(sentence_of_check(checked, judged, floors))
    if learn is not None and judged.speeds and not judged.is_slow:
        write_floors(learn, learned(judged.speeds, before))
        talk(f"check: what these devices do is in {learn}")
    is_known = judged.is_compared or judged.has_floor(floors) or learn is not None
    has_problem = any(one.problem for one in judged.speeds)
    is_complete = is_known and not has_problem and not checked.late
    return exit_code(is_slow=judged.is_slow and not checked.late, is_known=is_complete)

"""`whichrank validate -- LAUNCHER...`: measure, judge, show, and end with an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from whichrank.act.check import judge_check, learned
from whichrank.errors import UsageError
from whichrank.server.validations_file import MOST_SIZE
from whichrank.surface.checked import as_plain, sentence_of_check, table_of
from whichrank.surface.checking import EXAMPLE, command_of, read_floors, run_check, write_floors
from whichrank.surface.leave import leave_on_signals
from whichrank.surface.terminal import show, show_json, talk

EXIT_SLOW: Final = 4
EXIT_INCOMPLETE: Final = 5


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
        sizes: Of messages, MiB; none: those that fit the device.
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
    if len(sizes) > 4 or any(not 0 < size << 20 <= MOST_SIZE for size in sizes):
        raise UsageError("--sizes has one to four numbers from 1 to 256", mend="whichrank validate --sizes 1,2,4")
    floors, before = read_floors(floor), read_floors(learn, may_be_new=True)
    options = ["--limit", str(wait_s)]
    options += ["--sizes", ",".join(str(size << 20) for size in sizes)] if sizes else []
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
    if checked.late:
        return EXIT_INCOMPLETE
    if judged.is_slow:
        return EXIT_SLOW
    is_known = judged.is_compared or any(one.device in floors.devices for one in judged.speeds) or learn is not None
    has_problem = any(one.problem for one in judged.speeds)
    return 0 if is_known and not has_problem else EXIT_INCOMPLETE

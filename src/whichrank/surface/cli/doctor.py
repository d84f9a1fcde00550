"""`whichrank doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whichrank.model.plain_text import one_line
from whichrank.surface.terminal import show, show_json, talk

if TYPE_CHECKING:
    from whichrank.surface.doctor import Check

_MARK = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as one JSON array.")
def command(as_json: bool) -> int:
    """Check whether this machine has what diagnosis needs, and say how to mend each point.

    Run it with the Python of the training job. Exit codes: 0 diagnosis works (perhaps with less detail), 1 it cannot.
    """
    import msgspec

    from whichrank.surface.doctor import all_checks
    from whichrank.surface.pipe import reader_may_leave

    checks = all_checks(say=lambda text: talk(text.removeprefix("whichrank: ")))
    with reader_may_leave():
        if as_json:
            show_json(msgspec.json.encode(checks))
        else:
            for check in checks:
                _print(check)
    return 1 if any(check.verdict == "fail" for check in checks) else 0


def _print(check: Check) -> None:
    mark, colour = _MARK[check.verdict]
    show(mark, colour=colour, nl=False)
    show(f"  {check.name}: {one_line(check.found)}")
    if check.mend:
        show(f"      mend: {one_line(check.mend)}")

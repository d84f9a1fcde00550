"""The two tables of a job, ranks and communicators, in as few columns as the width asks for.

A mark is a word and not only a colour, so that nothing is lost under NO_COLOR.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, Literal

from rich.table import Table
from rich.text import Text

from whichrank.surface.watch.frame import CommunicatorNow, RankNow
from whichrank.surface.watch.words import operation_text, short_duration

WIDE: Final = 100
WITH_TIMES: Final = 84
LONG_S: Final = 2.0
"""What lasts longer stands out."""

MARK_STYLE: Final = {"blamed": "bold red", "suspected": "bold yellow", "awaited": "bold magenta", "": ""}
_STATE_STYLE: Final = {
    "stopped": "bold red",
    "traced": "yellow",
    "disk wait": "yellow",
    "exit 0": "dim",
    "ended": "red",
}


def ranks_table(rows: Sequence[RankNow], width: int) -> Table:
    """One line per rank."""
    has_marks = any(row.mark for row in rows)
    has_iterations = any(row.iteration is not None for row in rows)
    has_times = width >= WITH_TIMES and any(row.own_s is not None for row in rows)
    table = _table()
    _column(table, "rank", "right")
    if has_marks:
        _column(table, "", min_width=9)
    _column(table, "pid", "right")
    _column(table, "state", min_width=8)
    if has_iterations:
        _column(table, "iter", "right")
    if not has_iterations or width >= WIDE:
        _column(table, "ops", "right")
    if has_times:
        for name in ("own", "transfer", "wait"):
            _column(table, name, "right")
    table.add_column("operation", ratio=1, no_wrap=True, overflow="ellipsis", min_width=16)
    _column(table, "for", "right", min_width=6)
    _column(table, "main", min_width=5)
    for row in rows:
        cells: list[Text | str] = [Text(str(row.rank), style=MARK_STYLE[row.mark])]
        if has_marks:
            cells.append(Text(row.mark, style=MARK_STYLE[row.mark]))
        cells += [Text(str(row.pid), style="dim"), _state(row)]
        if has_iterations:
            cells.append("" if row.iteration is None else f"{row.iteration:,}")
        if not has_iterations or width >= WIDE:
            cells.append(f"{row.ops:,}")
        if has_times:
            cells += [_part(row.own_s), _part(row.transfer_s), _part(row.waiting_s)]
        cells += [_operation(row), _for(row), Text(row.main_wait, style="dim" if row.main_wait == "lock" else "")]
        table.add_row(*cells)
    return table


def _part(seconds: float | None) -> str:
    """A part of an iteration."""
    return "" if seconds is None else f"{seconds * 1e3:.0f} ms" if seconds < 10 else f"{seconds:.0f} s"


def communicators_table(rows: Sequence[CommunicatorNow], width: int) -> Table:
    """One line per communicator."""
    has_p2p = any(row.p2p for row in rows)
    table = _table()
    _column(table, "communicator", max_width=20)
    _column(table, "role")
    _column(table, "size", "right")
    _column(table, "issued", "right")
    if has_p2p:
        _column(table, "p2p", "right")
    _column(table, "slowest", max_width=14)
    _column(table, "waiting")
    table.add_column("members", ratio=1, no_wrap=True, overflow="ellipsis", min_width=7)
    for row in rows:
        issued = f"{row.issued_min:,}" if row.issued_min == row.issued_max else f"{row.issued_min:,}-{row.issued_max:,}"
        cells: list[Text | str] = [
            Text(row.name),  # as a plain string it would be markup
            _role(row),
            str(row.size) if row.here == row.size else f"{row.here} of {row.size}",
            Text(issued, style="" if row.issued_min == row.issued_max else "bold"),
        ]
        if has_p2p:
            cells.append(f"{row.p2p:,}" if row.p2p else "")
        cells += [_slowest(row), _waiting(row), Text(compact(row.members), style="dim")]
        table.add_row(*cells)
    return table


def compact(ranks: Sequence[int]) -> str:
    """Ranks in short: `0-3,6`, and `0,4,..,28` for a long even stride."""
    if len(ranks) > 3:
        strides = {b - a for a, b in itertools.pairwise(ranks)}
        if len(strides) == 1 and strides != {1}:
            return f"{ranks[0]},{ranks[1]},..,{ranks[-1]}"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a},{b}" for a, b in runs)


def _table() -> Table:
    return Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")


def _column(
    table: Table,
    name: str,
    justify: Literal["left", "right"] = "left",
    *,
    min_width: int | None = None,
    max_width: int | None = None,
) -> None:
    table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", min_width=min_width, max_width=max_width)


def _state(row: RankNow) -> Text:
    if row.fault:
        return Text("ring cut", style="yellow")
    abnormal = row.ended and row.state != "exit 0"
    return Text(row.state, style=_STATE_STYLE.get(row.state, "red" if abnormal else ""))


def _operation(row: RankNow) -> Text:
    if row.operation:
        return Text(operation_text(row.operation))
    if row.ended:
        return Text("")
    flight = f", {row.in_flight} in flight" if row.in_flight else ""
    if row.state == "stopped":
        inside = f"inside {operation_text(row.entered)}" if row.entered else f"in no operation{flight}"
        return Text(inside, style="cyan")
    if row.phase:
        return Text(f"phase '{row.phase}'{flight}", style="cyan")
    return Text(f"own code{flight}" if row.started else "no process group yet", style="cyan")


def _for(row: RankNow) -> Text:
    seconds = row.blocked_s if row.blocked_s is not None else row.idle_s
    if seconds is None:
        return Text("")
    return Text(short_duration(seconds), style="bold" if seconds >= LONG_S else "dim")


def _role(row: CommunicatorNow) -> str:
    """With a question mark where it is inferred."""
    return f"{row.role}{'' if row.role_confidence == 1 else '?'}" if row.role else ""


def _slowest(row: CommunicatorNow) -> Text:
    if row.awaited:
        return Text(compact(row.awaited), style="bold magenta")
    return Text(compact(row.behind), style="dim" if row.longest_wait_s < LONG_S else "")


def _waiting(row: CommunicatorNow) -> Text:
    if not row.waiting:
        return Text("")
    text = f"{row.waiting} for {short_duration(row.longest_wait_s)}"
    return Text(text, style="bold" if row.longest_wait_s >= LONG_S else "dim")

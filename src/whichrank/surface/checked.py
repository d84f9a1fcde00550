"""What a check before a job says, as a table and as JSON."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from whichrank.act.check import CheckJudgement, Floor, Floors, Speed
from whichrank.model.check import Checked
from whichrank.model.plain_text import one_line
from whichrank.surface.validated import rate_of
from whichrank.verdict.words.amounts import ranges

MOST_ROWS: Final = 64
"""Ranks of which each has a row; of a larger job those that are slow, and the first."""
_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"))
_COLUMNS: Final = ("rank", "node", "device", "fp32 FLOP/s", "bf16 FLOP/s", "fp16 FLOP/s", "memory", "link in", "")
_SHOWN: Final = {
    "float32_flops": "fp32", "bfloat16_flops": "bf16", "float16_flops": "fp16", "memory_bytes_per_s": "memory",
    "link_bytes_per_s": "link in",
}  # fmt: skip


def table_of(judged: CheckJudgement) -> str:
    """A row for each rank, with what is wrong of it at the end."""
    wrong = wrong_of(judged)
    speeds = judged.speeds
    shown = speeds if len(speeds) <= MOST_ROWS else [s for at, s in enumerate(speeds) if at < 8 or s.rank in wrong]
    rows = [_COLUMNS, *(_row(one, "; ".join(wrong.get(one.rank, []))) for one in shown)]
    width = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    lines = ["  ".join(cell.ljust(width[at]) for at, cell in enumerate(row)).rstrip() for row in rows]
    left_out = len(speeds) - len(shown)
    return "\n".join([*lines, *([f"and {left_out} others, of which nothing is wrong"] if left_out else [])])


def wrong_of(judged: CheckJudgement) -> dict[int, list[str]]:
    """By rank, what is wrong."""
    wrong: dict[int, list[str]] = {}
    for one in judged.ranks:
        wrong.setdefault(one.rank, []).append(f"{one.what} takes {one.factor:.1f} times as long")
    for link in judged.links:
        slow, usual = rate_of(link.bytes_per_s), rate_of(link.usual_bytes_per_s)
        wrong.setdefault(link.dst, []).append(f"from rank {link.src} {slow} go through, elsewhere {usual}")
    for rank, least in judged.below.items():
        names = ", ".join(f"{_SHOWN[name]} (1/{factor:.1f} of it)" for name, factor in least.items())
        wrong.setdefault(rank, []).append(f"below the floor: {names}")
    for speed in judged.speeds:
        if speed.problem:
            wrong.setdefault(speed.rank, []).append(one_line(speed.problem))
    return wrong


def sentence_of_check(checked: Checked, judged: CheckJudgement, floors: Floors) -> str:
    """In one line."""
    if checked.late:
        plural = "s" * (len(checked.late) > 1)
        return (
            f"check: rank{plural} {ranges(checked.late)} did not come to '{checked.late_in}', for which"
            f" {checked.world - len(checked.late)} ranks waited: nothing can be said of the others"
        )
    wrong = wrong_of(judged)
    has_floor = judged.has_floor(floors)
    if wrong:
        plural = "s" * (len(wrong) > 1)
        return f"check: something is wrong with rank{plural} {ranges(sorted(wrong))}, of {checked.world} in all"
    if judged.is_compared or has_floor:
        against = (
            "the others and the floor"
            if has_floor and judged.is_compared
            else "the floor"
            if has_floor
            else "the others"
        )
        return f"check: all {checked.world} ranks and their links are as quick as {against}"
    return f"check: {checked.world} ranks are too few to be held against each other; give a floor (--floor FILE)"


def as_plain(checked: Checked, judged: CheckJudgement) -> dict[str, Any]:
    """For `--json`."""
    return {
        "schema": checked.schema,
        "world": checked.world,
        "late": list(checked.late),
        "late_in": checked.late_in,
        "ranks": msgspec.to_builtins(judged.speeds),
        "slow_ranks": msgspec.to_builtins(judged.ranks),
        "slow_links": msgspec.to_builtins(judged.links),
        "below_floor": {str(rank): dict(least) for rank, least in judged.below.items()},
        "is_slow": judged.is_slow,
        "is_compared": judged.is_compared,
    }


def _row(one: Speed, wrong: str) -> tuple[str, ...]:
    flops = [_amount(getattr(one, name)) for name in Floor.__struct_fields__[:3]]
    rates = [rate_of(each) if each else "-" for each in (one.memory_bytes_per_s, one.link_bytes_per_s)]
    return (str(one.rank), one_line(one.host), one_line(one.device)[:30], *flops, *rates, wrong)


def _amount(value: float) -> str:
    for unit, letter in _UNITS:
        if value >= unit:
            return f"{value / unit:.3g} {letter}"
    return f"{value:.3g}" if value else "-"

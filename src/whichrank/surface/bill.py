"""What stragglers cost a job, and what fixing some would buy, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whichrank.verdict.words.amounts import count, duration, ranges

if TYPE_CHECKING:
    from whichrank.server.what_if import Bill

_NOTHING: Final = 0.005
"""Share of the slowdown below which it is said that a fix buys nothing: it would be written as 0 %."""
_WHY: Final = {
    "last_stage": "So the last pipeline stage has more to do; no rank is at fault.",
    "sequences": "So some microbatches are longer than others; no rank is at fault.",
    "spread": "So neither a few ranks, nor the last pipeline stage, nor long microbatches explain it.",
}


def sentences_of(bill: Bill) -> list[str]:
    """Whole sentences, the most important first; one only where the job is not slow."""
    step, ideal = duration(bill.step_s), duration(bill.ideal_step_s)
    if bill.explanation == "none":
        return [f"A step takes {step}; without stragglers it would take {ideal} (S = {bill.slowdown:.2f})."]
    lost_s = bill.step_s - bill.ideal_step_s
    many = len(bill.slowest_ranks) > 1
    who = f"rank{'s' * many} {ranges(bill.slowest_ranks)}, the slowest"
    mw, ms, long = bill.slowest_ranks_share, bill.last_stage_share, bill.longest_microbatches_share
    return [
        f"Stragglers make a step {bill.slowdown:.2f} times as long: it takes {step} and would take {ideal} (S).",
        f"Fixing {who}, would save {_saved(mw, lost_s)} (Mw = {_share(mw)}).",
        f"Fixing the last pipeline stage would save {_saved(ms, lost_s)} (Ms = {_share(ms)}).",
        f"Microbatches of one length would save {_saved(long, lost_s)}.",
        _WHY.get(bill.explanation, f"So {_few(len(bill.faulty_ranks))}."),
    ]


def _few(ranks: int) -> str:
    return "one slow rank explains it" if ranks == 1 else f"{count(ranks, 'slow rank')} explain it"


def _share(share: float) -> str:
    """With two digits; 0.00 without a sign."""
    return f"{round(share, 2) + 0.0:.2f}"


def _saved(share: float, lost_s: float) -> str:
    """Of each step."""
    return "nothing" if share < _NOTHING else f"{duration(share * lost_s)} of each step"

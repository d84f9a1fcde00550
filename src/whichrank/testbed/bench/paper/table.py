"""Figure 7 of MegaTrace as tables: who names the right rank, for hangs and for what is slow, on simulated jobs.

Methods of others are our readings of what papers describe (`READINGS`), and not the code of their authors: a figure
here is none that they have published. Wrong names, misses and false alarms are counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from whichrank.testbed.bench.paper.cells import CELLS, Group
from whichrank.testbed.bench.paper.hear import METHODS, OURS, SAY_PARTS
from whichrank.testbed.bench.paper.intervals import CONFIDENCE, Counts, Estimate, share
from whichrank.testbed.bench.paper.runs import Result
from whichrank.testbed.sim.program import OPTIMIZER

TITLES: Final = {
    OURS: "whichrank", "megatrace": "MegaTrace", "c4d": "C4D", "ccl-d": "CCL-D", "jit": "JIT-style timeout",
    "holmes": "Holmes-style", "minder": "Minder-style", "megascale": "MegaScale-style heat map",
}  # fmt: skip
HANG: Final = (OURS, "megatrace", "c4d", "ccl-d", "jit")
"""Methods that claim hangs."""
SLOW: Final = (OURS, "megatrace", "holmes", "minder", "megascale", "c4d", "ccl-d")
"""Methods that claim slow ranks."""
READINGS: Final = (
    "Simulated jobs only. All methods look at the same telemetry. Those of others are our readings of what papers"
    " describe, and not the code of their authors; what was decided where a paper is silent stands at the head of each"
    " module. A slow rank is to be named where iterations are longer by 5 % or more; a right name where they are not is"
    f" counted apart, neither as right nor as wrong. Brackets are {CONFIDENCE:.0%} intervals: Wilson's of shares, and a"
    " bootstrap over runs of F1. It has none where all runs are right, or none is: recall and precision say"
    " then how sure it is."
)


def counts_of(results: Iterable[Result], method: str) -> Counts:
    """What came of a method."""
    words = Counter(_count(one.is_due, one.outcomes[method].verdict) for one in results if method in one.outcomes)
    return Counts(**words)


def _count(is_due: bool, verdict: str) -> str:
    if is_due:
        return verdict if verdict in ("right", "wrong") else "silent"
    return "false" if verdict == "wrong" else "other"


def tables(results: Sequence[Result]) -> str:
    """All tables, in Markdown."""
    parts = [READINGS]
    for make in (_hang_table, _slow_table, _magnitudes, _nobody_table, _parts_table):
        parts += [text] if (text := make(results)) else []
    return "\n\n".join(parts)


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """By cell and method: counts, recall, precision and F1."""
    return {name: {method: _numbers(counts_of(mine, method)) for method in METHODS} for name, mine in _by_cell(results)}


def _numbers(counts: Counts) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(counts, name) for name in ("right", "wrong", "silent", "false", "other")}
    return {**found, "recall": counts.recall, "precision": counts.precision, "f1": counts.f1}


def _by_cell(results: Sequence[Result], group: Group | None = None) -> list[tuple[str, list[Result]]]:
    names = [cell.name for cell in CELLS.values() if group in (None, cell.group)]
    found = [(name, [one for one in results if one.cell == name]) for name in names]
    return [(name, mine) for name, mine in found if mine]


def _in(results: Sequence[Result], group: Group) -> list[Result]:
    return [one for _, mine in _by_cell(results, group) for one in mine]


def _hang_table(results: Sequence[Result]) -> str:
    cells = _by_cell(results, "hang")
    if not cells:
        return ""
    every = [one for _, mine in cells for one in mine]
    heads = ["recall", "precision", "F1", "right", "wrong name", "reported, nobody named", "not reported"]
    heads += [f"{name}, right" for name, _ in cells]
    rows = []
    for method in HANG:
        counts, verdicts = counts_of(every, method), Counter(one.outcomes[method].verdict for one in every)
        figures = [verdicts[word] for word in ("right", "wrong", "unknown", "silent")]
        each = [_of(counts_of(mine, method).right, len(mine)) for _, mine in cells]
        rows.append([TITLES[method], *_scores(counts), *map(str, figures), *each])
    title = f"Hangs: n = {len(every)} runs ({', '.join(f'{name} {len(mine)}' for name, mine in cells)})"
    return _table(title, ["method", *heads], rows)


def _slow_table(results: Sequence[Result]) -> str:
    every = _in(results, "slow")
    if not every:
        return ""
    in_graph = [one for one in every if one.truth.phase != OPTIMIZER]
    heads = ["method", "recall", "precision", "F1", "right", "wrong name", "missed", "right name, nothing due"]
    heads += ["wrong name, nothing due", "F1 without the optimizer's"]
    rows = []
    for method in SLOW:
        counts = counts_of(every, method)
        apart = sum(not one.is_due and one.outcomes[method].verdict == "right" for one in every)
        figures = [counts.right, counts.wrong, counts.silent, apart, counts.false]
        rows.append([TITLES[method], *_scores(counts), *map(str, figures), _text(counts_of(in_graph, method).f1)])
    due = sum(one.is_due for one in every)
    title = (
        f"Slow ranks: n = {len(every)} runs, {due} of which are due; {len(in_graph)} are not in the optimizer's step"
    )
    return _table(title, heads, rows)


def _magnitudes(results: Sequence[Result]) -> str:
    cells = _by_cell(results, "slow")
    if not cells:
        return ""
    rows = []
    for name, mine in cells:
        due = sum(one.is_due for one in mine)
        rows.append([name, str(len(mine)), str(due), *(_text(counts_of(mine, method).f1) for method in SLOW)])
    heads = ["slow by", "n", "due", *(TITLES[method] for method in SLOW)]
    return _table("F1 by magnitude", heads, rows)


def _nobody_table(results: Sequence[Result]) -> str:
    cells = _by_cell(results, "nobody")
    if not cells:
        return ""
    rows = [
        [TITLES[method], *(_of(counts_of(mine, method).false, len(mine)) for _, mine in cells)] for method in METHODS
    ]
    heads = ["method", *(f"{name}, n = {len(mine)}" for name, mine in cells)]
    return _table("Runs with a name where nobody is at fault", heads, rows)


def _parts_table(results: Sequence[Result]) -> str:
    groups: tuple[Group, ...] = ("hang", "slow")
    rows = []
    for group in groups:
        named = [one for one in _in(results, group) if one.is_due]
        for method in SAY_PARTS:
            right = [one for one in named if one.outcomes[method].verdict == "right"]
            cells = _part(right, method, "phase", lambda one: one.truth.phase >= 0)
            cells += _part(right, method, "microbatch", lambda one: one.truth.microbatch >= 0)
            rows.append([group, TITLES[method], str(len(right)), *cells])
    if not any(int(row[2]) for row in rows):
        return ""
    heads = ["", "method", "runs with the right rank"]
    heads += [f"{what} {how}" for what in ("phase", "microbatch") for how in ("right", "not said", "wrong")]
    text = "Phase and microbatch, where the right rank was named and one of them is at fault"
    return _table(text, heads, rows)


def _part(results: Sequence[Result], method: str, name: str, is_one: Callable[[Result], bool]) -> list[str]:
    said = Counter(getattr(one.outcomes[method], name) for one in results if is_one(one))
    return [_of(said[True], said.total()), str(said[None]), str(said[False])]


def _scores(counts: Counts) -> list[str]:
    return [_text(counts.recall), _text(counts.precision), _text(counts.f1)]


def _text(estimate: Estimate | None) -> str:
    """`0.95 (0.91-0.97)`, or `1.00` where resampling gives nothing else."""
    if estimate is None:
        return "-"
    is_empty = estimate.low == estimate.high
    return f"{estimate.value:.2f}" + ("" if is_empty else f" ({estimate.low:.2f}-{estimate.high:.2f})")


def _of(count: int, of: int) -> str:
    """`3/200 (0.01-0.04)`."""
    estimate = share(count, of)
    return "-" if estimate is None else f"{count}/{of} ({estimate.low:.2f}-{estimate.high:.2f})"


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([title, "", f"| {' | '.join(heads)} |", "|---" + "|--:" * (len(heads) - 1) + "|", *lines])

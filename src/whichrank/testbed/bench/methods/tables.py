"""The tables of a score: by class of fault as in CCL-D table 1, and by scenario; and the first one as a picture.

A method of others counts only in the runs that its source claims (`claims`), and there by what it claims to do. So its
denominators are smaller than ours, and a `-` says that nothing is claimed. What was not claimed is not counted at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from statistics import median
from typing import Final

import msgspec

from whichrank.model.incident import Incident
from whichrank.testbed.bench.judge import is_phase_right, right_names
from whichrank.testbed.bench.methods.campaign import OURS, Run
from whichrank.testbed.bench.methods.claims import due_of
from whichrank.testbed.bench.tables import NO_STEPS
from whichrank.testbed.demo.plan import Truth
from whichrank.testbed.lab.scenarios import CLAIMED, CLASSES, SCENARIOS

TITLES: Final = {
    OURS: "whichrank",
    "ras": "RAS counts",
    "flight-recorder": "Flight Recorder",
    "stacks": "Stack comparison",
    "c4d": "C4D",
    "greyhound": "Greyhound",
    "megatrace": "MegaTrace (hang)",
    "ccl-d": "CCL-D",
    "bisection": "Bisection",
}
OTHERS: Final = "our re-implementation"
"""Said of every method of others wherever a figure of it stands."""
HEALTHY: Final = "none"
"""Jobs in which nobody is at fault."""
_COLUMNS: Final = (*CLASSES, HEALTHY)
_HEADS: Final = {
    "H1": "H1 not entered", "H2": "H2 inconsistent", "H3": "H3 hardware", "S1": "S1 computation",
    "S2": "S2 communication", "S3": "S3 both", HEALTHY: "nobody",
}  # fmt: skip


def verdict_of(run: Run, method: str) -> str | None:
    """What came of a method in a run; ours by every word as it ran.

    None: nothing was done, the method did not look, or its source claims nothing there. A fault that the job absorbs
    need not be reported.
    """
    if not run.was_done or not _is_claimed(run, method):
        return None
    if method == OURS:
        verdict = run.verdict
    elif method in run.outcomes:
        verdict = run.outcomes[method].verdict
    else:
        return None
    return "absorbed" if verdict in ("missed", "late") and run.is_absorbed else verdict


def _is_claimed(run: Run, method: str) -> bool:
    return method == OURS or due_of(method, run.scenario) is not None


def methods_of(runs: Iterable[Run]) -> list[str]:
    """Ours last."""
    known = {name for run in runs for name in run.outcomes}
    return [name for name in TITLES if name in known and name != OURS] + [OURS]


def class_table(runs: Sequence[Run]) -> str:
    """Markdown: right runs of those claimed, and wrong names, by method and class; then times.

    Ours has a line for all runs, and one for those that others have heard too.
    """
    heads = [_HEADS[column] for column in _COLUMNS]
    lines = [
        f"| method (of others: {OTHERS}) | {' | '.join(heads)} | hang detected, s | slow detected, s | located, ms |",
        "|---|" + "--:|" * (len(heads) + 3),
    ]
    lines += [_class_row(TITLES[method], runs, method) for method in methods_of(runs)]
    heard = [run for run in runs if run.outcomes.keys() - {OURS}]
    if heard and len(heard) < len(runs):
        lines.append(_class_row(f"{TITLES[OURS]}, those runs", heard, OURS))
    return "\n".join(lines)


def _class_row(title: str, runs: Sequence[Run], method: str) -> str:
    cells = [_cell([run for run in runs if _column(run) == column], method) for column in _COLUMNS]
    times = [_seconds(_detected(runs, method, kind)) for kind in ("H", "S")]
    return f"| {title} | {' | '.join([*cells, *times, _number(_located(runs, method))])} |"


def _located(runs: Iterable[Run], method: str) -> list[float]:
    """Milliseconds that the words which were right took."""
    claimed = [run for run in runs if _is_claimed(run, method)]
    return [
        o.located_ms for run in claimed if (o := run.outcomes.get(method)) and o.verdict == "right" and o.located_ms
    ]


def _column(run: Run) -> str:
    return run.fault_class or HEALTHY


def _counts(runs: Iterable[Run], method: str) -> Counter[str]:
    return Counter(verdict for run in runs if (verdict := verdict_of(run, method)))


def _cell(runs: Sequence[Run], method: str) -> str:
    """`9/10`, and how many of the others were wrong, or reported without a name; `-` where nothing is claimed."""
    counts = _counts(runs, method)
    total = counts.total() - counts["absorbed"]
    if not total:
        return "-"
    known = {"wrong": counts["wrong_name"] + counts["false_alarm"], "unnamed": counts["unknown"]}
    said = ", ".join(f"{count} {word}" for word, count in known.items() if count)
    return f"{counts['right']}/{total}" + (f" ({said})" if said else "")


def _detected(runs: Iterable[Run], method: str, kind: str) -> list[float]:
    """Seconds to the first word, of faults that were reported rightly."""
    found = []
    for run in runs:
        if (run.fault_class or "").startswith(kind) and verdict_of(run, method) == "right":
            at_s = run.detected_s if method == OURS else run.outcomes[method].detected_s
            found += [at_s] if at_s is not None else []
    return found


def _seconds(values: Sequence[float]) -> str:
    return f"{median(values):.1f} ({max(values):.1f})" if values else "-"


def _number(values: Sequence[float]) -> str:
    return f"{median(values):.2f}" if values else "-"


def scenario_table(runs: Sequence[Run]) -> str:
    """Markdown: a row for each scenario, on whichrank alone."""
    lines = [
        "| scenario | class | n | under torchrun | right | unknown | missed | late | several | wrong cause "
        "| wrong name | false alarm | ranks right | links right | phase right | class right | absorbed "
        "| detected, median (max) s | located, ms | iterations longer |",
        "|---|---|" + "--:|" * 18,
    ]
    lines += [_row(name, _column(mine[0]), mine) for name, mine in _by_scenario(runs)]
    lines.append(_row("**all**", "", runs))
    return "\n".join(lines)


def methods_table(runs: Sequence[Run]) -> str:
    """Markdown: a row for each scenario, and what came of each method of others; empty if none has heard a run."""
    others = [method for method in methods_of(runs) if method != OURS]
    if not others:
        return ""
    lines = [
        f"| scenario ({OTHERS} of each method) | class |" + "".join(f" {TITLES[method]} |" for method in others),
        "|---|---|" + "--:|" * len(others),
    ]
    for name, mine in [*_by_scenario(runs), ("**all**", runs)]:
        column = _column(mine[0]) if mine is not runs else ""
        lines.append(f"| {name} | {column} | {' | '.join(_cell(mine, method) for method in others)} |")
    return "\n".join(lines)


def _by_scenario(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    names = dict.fromkeys(scenario.name for scenario in (*SCENARIOS, *CLAIMED))
    found = [(name, [run for run in runs if run.scenario == name]) for name in names]
    return [(name, mine) for name, mine in found if mine]


def _row(name: str, column: str, runs: Sequence[Run]) -> str:
    counts = _counts(runs, OURS)
    undone = sum(not run.was_done for run in runs)
    words = ("right", "unknown", "missed", "late", "several", "wrong_cause", "wrong_name", "false_alarm")
    seconds = [r.detected_s for r in runs if r.detected_s is not None and verdict_of(r, OURS) not in ("absorbed", None)]
    longer = [run.longer for run in runs if run.longer is not None]
    cells = [
        str(len(runs)) + (f" ({undone} not done)" if undone else ""),
        str(sum(run.launcher == "torchrun" for run in runs)),
        *(str(counts[word]) for word in words),
        *_names(runs),
        _share(o.is_class_right for run in runs if (o := run.outcomes.get(OURS))),
        str(counts["absorbed"]),
        _seconds(seconds),
        _number(_located(runs, OURS)),
        f"{median(longer):.0%}" if longer else "-",
    ]
    return f"| {name} | {column} | {' | '.join(cells)} |"


def _names(runs: Iterable[Run]) -> tuple[str, str, str]:
    """Of the runs whose alerts name ranks, and of those whose alerts name links: in how many all are at fault.

    And of those that name the slow rank, and in which one phase is at fault: in how many it was said.
    """
    known = []
    for run in (run for run in runs if run.truth is not None):
        truth = msgspec.convert(run.truth, Truth)
        alerts = [word for word in msgspec.convert(run.incidents, list[Incident]) if word.severity == "alert"]
        known.append((*right_names(truth, alerts), is_phase_right(truth, alerts)))
    ranks, links, phases = zip(*known, strict=True) if known else ((), (), ())
    return _share(ranks), _share(links), _share(phases)


def _share(known: Iterable[bool | None]) -> str:
    given = [right for right in known if right is not None]
    return f"{sum(given)}/{len(given)}" if given else "-"


def picture(runs: Sequence[Run]) -> str:
    """The first table as SVG: the share of right runs as the length of a bar, wrong names in red."""
    methods = methods_of(runs)
    left, wide, high, top = 160, 136, 38, 46
    width, height = left + wide * len(_COLUMNS) + 10, top + high * len(methods) + 56
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, column in enumerate(_COLUMNS):
        parts.append(f'<text x="{left + number * wide}" y="28" font-weight="bold">{escape(_HEADS[column])}</text>')
    for line, method in enumerate(methods):
        y = top + line * high
        parts += _label(method, y)
        for number, column in enumerate(_COLUMNS):
            mine = [run for run in runs if _column(run) == column]
            parts += _bar(_counts(mine, method), left + number * wide, y, wide - 64)
    legend = (
        "green: right; red: wrong name or false alarm; grey: nothing, or nobody named. Lab: real processes, Gloo.",
        f"Of others: {OTHERS}, on the runs that their sources claim; - where a source claims nothing.",
    )
    if any(not run.has_steps for run in runs):
        legend = (f"{legend[0]} {NO_STEPS}", legend[1])
    for line, text in enumerate(legend):
        parts.append(f'<text x="10" y="{height - 28 + 16 * line}" fill="#555">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _label(method: str, y: int) -> list[str]:
    if method == OURS:
        return [f'<text x="10" y="{y + 17}" font-weight="bold">{escape(TITLES[method])}</text>']
    return [
        f'<text x="10" y="{y + 13}">{escape(TITLES[method])}</text>',
        f'<text x="10" y="{y + 25}" font-size="10" fill="#777">{OTHERS}</text>',
    ]


def _bar(counts: Counter[str], x: int, y: int, width: int) -> list[str]:
    total = counts.total() - counts["absorbed"]
    if not total:
        return [f'<text x="{x}" y="{y + 17}" fill="#999">-</text>']
    right = width * counts["right"] / total
    wrong = width * (counts["wrong_name"] + counts["false_alarm"]) / total
    return [
        f'<rect x="{x}" y="{y + 5}" width="{width}" height="16" fill="#ddd"/>',
        f'<rect x="{x}" y="{y + 5}" width="{right:.1f}" height="16" fill="#2e9e5b"/>',
        f'<rect x="{x + width - wrong:.1f}" y="{y + 5}" width="{wrong:.1f}" height="16" fill="#d33"/>',
        f'<text x="{x + width + 4}" y="{y + 17}">{counts["right"]}/{total}</text>',
    ]

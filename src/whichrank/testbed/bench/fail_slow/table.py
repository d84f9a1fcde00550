"""Tables 3 and 4 of Greyhound again: one table for each source of series, never mixed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from whichrank.detect.change_points import LEAST_CHANGE, ChangePoints
from whichrank.testbed.bench.fail_slow.annotated import MARGIN, Annotated, agreement
from whichrank.testbed.bench.fail_slow.methods import METHODS, NAMES, OFFLINE, OURS, Report, all_ours
from whichrank.testbed.bench.fail_slow.score import WITHIN, Found, Score, found_in, score
from whichrank.testbed.bench.fail_slow.series import Series

TITLES: Final = {
    "sliding-window": "sliding window",
    "bocd": "BOCD",
    "bocd+v": "BOCD+V, as in the paper",
    "cusum": "CUSUM",
    "pelt": "PELT (offline)",
    OURS: "whichrank",
}
QUIET_OTHERS: Final = 0.3
"""Cores. A run beside which other programs took more at any time has slowdowns of which nobody has the truth, so it
stands in a table of its own."""
DEFINITIONS: Final = (
    f"A change is found if it is reported with one of the {WITHIN} values that follow it. Accuracy: series with all"
    " changes found and nothing else reported. False positive: a series without a change that has a report, of those"
    " without. False negative: a series in which a change is not found, of those with changes. Delay: iterations of the"
    " new level that the method has seen when it reports, the first one counted as 1; sharp changes only. Of what was"
    " recorded, a report while a fault lasts is none of these and not false if hindsight shows a change there (the"
    " medians of ten values before and after differ by a tenth): what others do varies. Strictly: they are false."
)
NO_ANNOTATED: Final = "Annotated series: left out; name a folder of them with --annotated FOLDER."

Progress = Callable[[str, int, int], None]
"""Called with a method, how many series it has been through, and how many there are."""


def score_all(series: Sequence[Series], show_progress: Progress) -> dict[str, dict[str, Any]]:
    """Let every method go through all series.

    Returns:
        By method: `score` of all, and `by_kind` of each kind.
    """
    values = [np.array(one.values) for one in series]
    results = {}
    for method in NAMES:
        reports = _reports(method, values, show_progress)
        found = [found_in(one, said, method) for one, said in zip(series, reports, strict=True)]
        by_kind = defaultdict[str, list[Found]](list)
        for one, what in zip(series, found, strict=True):
            by_kind[one.kind].append(what)
        results[method] = {"score": score(found), "by_kind": {kind: score(what) for kind, what in by_kind.items()}}
    return results


def agree_all(annotated: Sequence[Annotated], show_progress: Progress) -> dict[str, dict[str, Any]]:
    """Let every method go through the annotated series.

    Returns:
        By method and name of the series: its `Agreement`.
    """
    values = [one.values for one in annotated]
    results = {}
    for method in NAMES:
        reports = _reports(method, values, show_progress)
        results[method] = {
            one.name: agreement(one, [report.place for report in said])
            for one, said in zip(annotated, reports, strict=True)
        }
    return results


def _reports(method: str, values: list[np.ndarray], show_progress: Progress) -> list[list[Report]]:
    show_progress(method, 0, len(values))
    if method == OURS:
        reports = all_ours(values)
    else:
        reports = []
        for one in values:
            reports.append(METHODS[method](one))
            show_progress(method, len(reports), len(values))
    show_progress(method, len(values), len(values))
    return reports


def sort_recorded(series: Sequence[Series]) -> tuple[list[Series], list[Series], list[Series]]:
    """Sort recorded series by what is known without any method.

    Returns:
        Those of a quiet machine; those beside which other programs ran; and of both those whose fault made less than a
        tenth of difference, by the medians before, within and after it, so that nothing need be reported.
    """
    quiet, busy, faint = list[Series](), list[Series](), list[Series]()
    for one in series:
        where = faint if _is_faint(one) else busy if max(one.others_cores, default=0.0) > QUIET_OTHERS else quiet
        where.append(one)
    return quiet, busy, faint


def _is_faint(series: Series) -> bool:
    edges = [0, *series.changes, len(series.values)]
    levels = [float(np.median(series.values[a:b])) for a, b in pairwise(edges)]
    return any(abs(b - a) < LEAST_CHANGE * a for a, b in pairwise(levels))


def score_table(title: str, results: dict[str, dict[str, Any]], runs: int = 0) -> str:
    """Markdown: a row for each method, then what is right by kind of series."""
    scores: dict[str, Score] = {method: result["score"] for method, result in results.items()}
    one = scores[OURS]
    n = f"n = {one.series} series" + (f" of {runs} runs" if runs else "")
    varied = any(s.strictly_right < s.right for s in scores.values())
    rows = [["method", "accuracy", *["strictly"] * varied, "false-positive rate", "false-negative rate",
             "median delay, iterations"]]  # fmt: skip
    for method, s in scores.items():
        delay = "-" if s.delay is None or method == OFFLINE else f"{s.delay:g}"  # that one has the whole series
        rows.append(
            [TITLES[method], _share(s.right, s.series), *[_share(s.strictly_right, s.series)] * varied,
             _share(s.false_positive, s.healthy), _share(s.false_negative, s.changing), delay]
        )  # fmt: skip
    lines = [
        f"{title}: {n}, {one.changing} with changes and {one.healthy} without",
        "",
        f"| {' | '.join(rows[0])} |",
        "|---" * len(rows[0]) + "|",
        *(f"| {' | '.join(row)} |" for row in rows[1:]),
    ]
    kinds = list(results[OURS]["by_kind"])
    lines += ["", f"| series right, by kind | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for method, result in results.items():
        cells = [f"{s.right}/{s.series}" for s in result["by_kind"].values()]
        lines.append(f"| {TITLES[method]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def agreement_table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown: for each annotated series the places that are right, of those reported, and the recall."""
    names = list(results[OURS])
    lines = [
        f"Annotated series: n = {len(names)}, places within {MARGIN} values of one of an annotator's; right of those"
        " reported, and the mean share of an annotator's places that is found",
        "",
        f"| method | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for method, by_name in results.items():
        cells = [
            f"{a.right}/{a.reported}, " + ("none to find" if a.recall is None else f"{a.recall:.0%}")
            for a in by_name.values()
        ]
        lines.append(f"| {TITLES[method]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def bank_cost(series: int, feeds: int = 40) -> dict[str, float]:
    """What the bank of ours costs: CPU milliseconds of one value of each series, and bytes of each.

    Args:
        series: How many.
        feeds: Values of each, after the warm-up.
    """
    bank, rng, took_ms = ChangePoints(series), np.random.default_rng(0), list[float]()
    for _ in range(feeds + 20):
        values = 1 + 0.02 * rng.standard_normal(series)
        begun_s = time.process_time()
        bank.feed(values)
        took_ms.append(1e3 * (time.process_time() - begun_s))
    usual = took_ms[20:]
    return {
        "series": series,
        "median_ms": float(np.median(usual)),
        "longest_ms": max(usual),
        "warm_up_ms": max(took_ms[:20]),
        "bytes_per_series": bank.nbytes / series,
    }


def cost_line(cost: dict[str, float]) -> str:
    """The same as a sentence."""
    return (
        f"{cost['series']:,.0f} series x one value: median {cost['median_ms']:.0f} ms of CPU, at most"
        f" {cost['longest_ms']:.0f} ms, once {cost['warm_up_ms']:.0f} ms at the end of the warm-up;"
        f" {cost['bytes_per_series']:.0f} bytes for each series."
    )


def _share(count: int, of: int) -> str:
    return f"{count / of:.1%} ({count}/{of})" if of else "-"


def recorded_sentence(quiet: int, busy: int, faint: int) -> str:
    """What is in which table of recorded series, and what in none.

    Args:
        quiet: Series of a quiet machine.
        busy: Series beside which other programs ran.
        faint: Series whose fault made no difference.
    """
    if not quiet + busy + faint:
        return "Recorded in the lab: left out; record runs with --record FOLDER, and name them with --recorded FOLDER."
    return (
        f"Recorded series: {quiet} of a quiet machine, {busy} beside which other programs took more than {QUIET_OTHERS}"
        f" cores (their slowdowns are real, and nobody has the truth of them); {faint} are left out, since their fault"
        " made less than a tenth of difference."
    )

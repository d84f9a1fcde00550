"""The tables that stand in the docs, made from a campaign's results."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from whichrank.testbed.demo.slow import SLOW

Results = Sequence[dict[str, Any]]

NO_STEPS: Final = "Optimizer steps were not noted: iterations were found by their operations."
"""Stands below each table of such runs; they share none with others."""
_COSTS = (("below 10%", -np.inf, 0.1), ("10% to 20%", 0.1, 0.2), ("20% to 50%", 0.2, 0.5), ("from 50%", 0.5, np.inf))
"""Shares by which iterations are longer: from a fifth on a slowdown is to be found within two windows."""


def accuracy_table(results: Results) -> str:
    """Markdown: one row per fault; right, unknown, missed, wrong names and false alarms counted apart.

    Runs whose ranks noted no optimizer steps have a table of their own, which says so.
    """
    with_steps = [result for result in results if _has_steps(result)]
    without = [result for result in results if not _has_steps(result)]
    tables = [_accuracy_of(with_steps)] if with_steps or not without else []
    tables += [f"{_accuracy_of(without)} {NO_STEPS}"] if without else []
    return "\n\n".join(tables)


def _has_steps(result: dict[str, Any]) -> bool:
    return bool(result["setup"].get("has_steps", True))  # a file of before has no such field


def _accuracy_of(results: Results) -> str:
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        variant = f" {result['setup']['variant']}" if result["fault"] in SLOW else ""
        name = result["fault"] + variant + ("" if not result["setup"]["job_args"] else " (after a re-init)")
        groups.setdefault(name, []).append(result)
    timed = any(r.get("longer") is not None for r in results)
    lines = [
        "| fault | n | under torchrun | right | unknown | missed | late | several | wrong cause | wrong name "
        "| false alarm | reason right | alert after, median (max) s |" + " iterations longer, median (range) |" * timed,
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|" + "--:|" * timed,
    ]
    for name in sorted(groups, key=lambda n: (_is_healthy(groups[n]), n)):
        lines.append(_row(name, groups[name]) + f" {_longer(groups[name])} |" * timed)
    lines.append(_row("**all**", [r for g in groups.values() for r in g]) + " |" * timed)
    return "\n".join([*lines, *(["", *_by_cost(results)] if timed else []), "", timeouts_line(results)])


def _by_cost(results: Results) -> list[str]:
    """One row for each range of what a fault costs an iteration, where that was seen."""
    lines = ["| iterations longer | n | right | late | missed | wrong name |", "|---|--:|--:|--:|--:|--:|"]
    known = [r for r in results if r.get("longer") is not None and not _is_healthy([r])]
    for name, low, high in _COSTS:
        verdicts = Counter(r["verdict"] for r in known if low <= r["longer"] < high)
        counts = (verdicts.total(), *(verdicts[v] for v in ("right", "late", "missed", "wrong_name")))
        lines.append(f"| {name} | " + " | ".join(map(str, counts)) + " |")
    return lines


def _is_healthy(results: Results) -> bool:
    return not any(r["truth"] and r["truth"]["kind"] != "healthy" for r in results)


def _row(name: str, results: Results) -> str:
    verdicts = Counter(r["verdict"] for r in results)
    torchrun = sum(r["setup"]["launcher"] == "torchrun" for r in results)
    seconds = [r["seconds_to_alert"] for r in results if r["seconds_to_alert"] is not None]
    after = f"{np.median(seconds):.1f} ({max(seconds):.1f})" if seconds else "-"
    names = ("right", "unknown", "missed", "late", "several", "wrong_cause", "wrong_name", "false_alarm")
    reasons = [r["reason_agrees"] for r in results if r["reason_agrees"] is not None]
    reason = f"{sum(reasons)} of {len(reasons)}" if reasons else "-"
    cells = [str(len(results)), str(torchrun), *(str(verdicts[n]) for n in names), reason, after]
    undone = f" ({verdicts['no_fault_done']} not done)" if verdicts["no_fault_done"] else ""
    return f"| {name}{undone} | " + " | ".join(cells) + " |"


def _longer(results: Results) -> str:
    """By how much iterations were longer, where that was seen."""
    shares = [r["longer"] for r in results if r.get("longer") is not None]
    return f"{np.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})" if shares else "-"


def timeouts_line(results: Results) -> str:
    """The timeouts that differ from the defaults."""
    hang = sorted({r["setup"]["hang_timeout_s"] for r in results})
    notice = sorted({r["setup"]["notice_min_s"] for r in results})
    windows = sorted({r["setup"]["slow_window_s"] for r in results})
    return (
        f"Hang timeout {', '.join(f'{h:g}' for h in hang)} s (default 300 s), "
        f"notices from {', '.join(f'{n:g}' for n in notice)} s (default 10 s), "
        f"window of slowness {', '.join(f'{w:g}' for w in windows)} s (default 60 s)."
    )


IDLE_LOAD = 0.25
"""Load per core above which something else runs."""
_VERDICTS = {"": "", "met": "", "missed": " (**missed**)", "undecided": " (too noisy here to tell)"}


def overhead_table(results: dict[str, Any], parts: Collection[str] = ()) -> str:
    """Markdown: what whichrank costs, from what `overhead.measure` gives or its JSON.

    Args:
        results: `machine`, `rows`, `skipped` and `quick`.
        parts: Only rows of these parts; all by default.
    """
    rows = [row for row in results["rows"] if not parts or row["part"] in parts]
    lines = ["| what | theirs | target | measured, median [quartiles], n |", "|---|---|---|---|"]
    for row in rows:
        verdict = _VERDICTS[row["verdict"]]
        measured = f"{_measured(row)}, n {row['n']:,}" + ("" if row["of"] == "runs" else f" {row['of']}")
        lines.append(f"| {row['what']} | {row['theirs'] or '-'} | {row['target'] or '-'}{verdict} | {measured} |")
    notes = [f"{row['what'].partition(' (')[0]}: {row['note']}." for row in rows if row["note"]]
    notes += [
        f"Not measured: {part} ({why})." for part, why in results["skipped"].items() if not parts or part in parts
    ]
    if results["quick"]:
        notes.insert(0, "A quick run: small n, no figures for the docs.")
    load, cores = results["machine"]["load_before"][0], results["machine"]["cores"]
    if load > IDLE_LOAD * cores:
        notes.insert(
            0, f"The machine was busy before it began (load {load:.1f} on {cores} cores): no figures for the docs."
        )
    return "\n\n".join(["\n".join(lines), machine_line(results["machine"]), *notes])


def machine_line(machine: dict[str, Any]) -> str:
    """The machine on which it was measured, and what else it did."""
    before, after = (" ".join(f"{load:.2f}" for load in machine[f"load_{when}"]) for when in ("before", "after"))
    return (
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}, "
        f"torch {machine['torch']}; load average (1, 5, 15 min) {before} before, {after} after."
    )


def _measured(row: dict[str, Any]) -> str:
    unit = row["unit"]
    scale = scale_of(statistics.median(abs(row[name]) for name in ("low", "median", "high")), unit)
    sign = "+" if row["base"] is not None or row["upper"] is not None else ""
    text = amount(row["median"], unit, sign, scale)
    if row["low"] != row["high"]:
        low, high = (amount(row[end], unit, sign, scale) for end in ("low", "high"))
        text += f" [{low}, {high}]" if row["spread"] == "quartiles" else f" [{low} to {high}, all runs]"
    if row["base"] is not None:
        text += f" on {amount(row['base'], unit)} ({100 * row['median'] / row['base']:+,.1f} %)"
    if row["upper"] is not None:
        mean, upper = amount(row["mean"], unit, sign), amount(row["upper"], unit, sign)
        text += f"; mean {mean}, upper 95 % bound {upper}, noise ±{amount(row['resolution'], unit)}"
    elif row["mean"] is not None:
        text += f"; mean {amount(row['mean'], unit)}"
    return text


_SCALES = {
    "ns": ((1.0, "ns"), (1e3, "µs"), (1e6, "ms")),
    "ms": ((1e-3, "µs"), (1.0, "ms"), (1e3, "s")),
    "records/s": ((1.0, "records/s"), (1e6, "M records/s")),
}
Scale = tuple[float, str]


def scale_of(figure: float, unit: str) -> Scale:
    """The unit of the family of `unit` that suits a figure of this size, and what it is in `unit`."""
    scales = _SCALES.get(unit, ((1.0, unit),))
    return next((scale for scale in reversed(scales) if abs(figure) >= scale[0]), scales[0])


def amount(figure: float, unit: str, sign: str = "", scale: Scale | None = None) -> str:
    """A figure with three significant digits and its unit.

    Args:
        figure: In `unit`.
        unit: One of `overhead.Unit`.
        sign: "+" to show it also where it is not negative.
        scale: What to show it in; by default what suits it.
    """
    factor, name = scale or scale_of(figure, unit)
    value = figure / factor
    digits = 0 if unit == "B" or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    if unit == "%" and abs(value) < 0.1:
        digits = 3
    return f"{value:{sign},.{digits}f} {name}"

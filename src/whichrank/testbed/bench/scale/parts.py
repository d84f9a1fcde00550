"""The parts of `bench scale`, and all of their figures as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from whichrank.testbed.bench.figures import Figure
from whichrank.testbed.bench.scale import graph, ingest, location, simulation
from whichrank.testbed.bench.scale.fits import Fit, fit
from whichrank.testbed.sim.halts import WHERE

PARTS: Final = {
    "location": "one location by the size of the job",
    "graph": "MegaTrace's drill-down of one iteration",
    "ingest": "what an analyzer takes in over ZeroMQ",
    "simulation": "simulating a job",
}
"""Titles by name."""
QUICK_SIZES: Final = (64, 512)
QUICK_RANKS: Final = 4_096
SIMULATIONS: Final = 3
ShowProgress = Callable[[str, float], None]
"""Is told a part and the share of it that is done."""


@dataclass(frozen=True, slots=True)
class Results:
    """All that was measured.

    Attributes:
        figures: By part.
        fits: Of ingest, lines over ranks.
    """

    figures: dict[str, list[Figure]]
    fits: list[Fit]

    @property
    def are_met(self) -> bool:
        """Whether everything is as it must be."""
        return all(one.is_met for some in self.figures.values() for one in some)


def measure(names: Sequence[str], *, quick: bool, show_progress: ShowProgress) -> Results:
    """Measure these parts.

    Args:
        names: Of `PARTS`.
        quick: On small jobs, to see that it works.
        show_progress: See there.
    """
    figures: dict[str, list[Figure]] = {}
    for name in names:
        of_part = figures[name] = []
        for share, some in _of(name, quick, lambda share, name=name: show_progress(name, share)):  # type: ignore[misc]
            of_part += some
            show_progress(name, share)
    return Results(figures, _fits(figures.get("ingest", [])))


def _of(name: str, quick: bool, show_share: Callable[[float], None]) -> Iterator[tuple[float, list[Figure]]]:
    """Figures of a part as they come, and the share of it that is done then."""
    if name == "location":
        sizes: Sequence[int] = QUICK_SIZES if quick else location.SIZES
        todo = [(ranks, where) for ranks in sizes for where in WHERE]
        most = sum(ranks for ranks, _ in todo)
        for at, (ranks, where) in enumerate(todo, 1):
            yield sum(size for size, _ in todo[:at]) / most, list(location.measure([ranks], [where]))
    elif name == "graph":
        sizes = QUICK_SIZES if quick else graph.SIZES
        for at, ranks in enumerate(sizes, 1):
            yield at / len(sizes), list(graph.measure([ranks]))
    elif name == "ingest":
        sizes = QUICK_SIZES[1:] if quick else ingest.SIZES
        for at, ranks in enumerate(sizes, 1):
            yield at / len(sizes), list(ingest.measure([ranks]))
    else:
        ranks, times = (QUICK_RANKS, 1) if quick else (simulation.RANKS, SIMULATIONS)
        yield 1.0, [simulation.measure(ranks, simulation.ITERATIONS, times, show_share)]


def _fits(figures: Sequence[Figure]) -> list[Fit]:
    lines = []
    for word, unit in (("one analyzer, all", "cores"), ("memory", "MiB")):
        some = [one for one in figures if word in one.what]
        lines.append(fit(word, unit, [one.ranks for one in some], [one.median for one in some]))
    return [line for line in lines if line]


def table(results: Results) -> str:
    """Markdown: a table for each part, and lines below that of ingest."""
    blocks = []
    for name, figures in results.figures.items():
        lines = [f"**{PARTS[name]}**", "", "| what | ranks | n | median | range | unit | must | met |"]
        lines.append("|---|--:|--:|--:|--:|---|--:|---|")
        lines += [_row(one) for one in figures]
        if name == "ingest":
            lines += ["", *(_line(one) for one in results.fits)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _row(one: Figure) -> str:
    must = "" if one.limit is None else f"≤ {one.limit:g}"
    is_asked = one.limit is not None or one.is_right is not None
    met = ("yes" if one.is_met else "verdict wrong" if one.is_right is False else "no") if is_asked else ""
    spread = f"{one.low:,.2f} to {one.high:,.2f}"
    return f"| {one.what} | {one.ranks:,} | {one.n} | {one.median:,.2f} | {spread} | {one.unit} | {must} | {met} |"


def _line(one: Fit) -> str:
    return (
        f"{one.what}: {one.slope:.4g} {one.unit} for each 1,000 ranks, and {one.intercept:.3g} {one.unit}"
        f" (R² {one.r2:.4f})"
    )

"""Series that are simulated: what real iteration times do, one thing at a time, with change points that are known.

The level is 1 before anything happens, with noise of 1 to 5 % that is drawn for each series. Kinds of `HEALTHY` have no
change of a tenth; those of `CHANGING` do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from whichrank.testbed.bench.fail_slow.series import Series

Floats = NDArray[np.float64]
LENGTH: Final = 400
"""Values of each series."""
NOISE: Final = (0.01, 0.05)
_FIRST: Final = (80, 150)
"""Where the first change comes."""
_LASTS: Final = (60, 120)
"""Values of a level between two changes."""


class Shape(NamedTuple):
    """What happens in a series.

    Attributes:
        level: Of each value, (LENGTH,).
        changes: See `Series`.
        begins: See `Series`.
    """

    level: Floats
    changes: list[int]
    begins: list[int]


Maker = Callable[[Generator], tuple[Floats, Shape]]
"""Draws a series: its values, and what happens in it."""


def simulate(count: int, seed: int = 0) -> list[Series]:
    """So many series of each kind."""
    made = []
    for kind, make in KINDS.items():
        for number in range(count):
            rng = np.random.default_rng([seed, *kind.encode(), number])
            values, shape = make(rng)
            made.append(Series(f"{kind}-{number}", kind, values.tolist(), shape.changes, begins=shape.begins))
    return made


def _steady(_: Generator) -> Shape:
    return Shape(np.ones(LENGTH), [], [])


def _small_step(rng: Generator) -> Shape:
    """One step of 3 to 7 %."""
    level = np.ones(LENGTH)
    level[rng.integers(*_FIRST) :] *= 1 + rng.uniform(0.03, 0.07)
    return Shape(level, [], [])


def _small_drift(rng: Generator) -> Shape:
    """A drift of 3 to 7 % over the whole series."""
    return Shape(np.linspace(1, 1 + rng.uniform(0.03, 0.07), LENGTH), [], [])


def _step(rng: Generator, least: float = 0.15) -> Shape:
    """Slower by 15 to 100 %, and as before again."""
    onset = int(rng.integers(*_FIRST))
    relief = onset + int(rng.integers(*_LASTS))
    level = np.ones(LENGTH)
    level[onset:relief] *= 1 + rng.uniform(least, 1.0)
    return Shape(level, [onset, relief], [])


def _large_step(rng: Generator) -> Shape:
    """Slower by 40 to 100 %, and as before again."""
    return _step(rng, least=0.4)


def _steps_in_a_row(rng: Generator) -> Shape:
    """Two or four steps of 6 to 9 % each: together more than a tenth with every second one."""
    level, places = np.ones(LENGTH), [int(rng.integers(60, 90))]
    for _ in range(rng.choice([1, 3])):
        places.append(places[-1] + int(rng.integers(40, 60)))
    for place in places:
        level[place:] *= 1 + rng.uniform(0.06, 0.09)
    return Shape(level, places[1::2], places[::2])


def _ramp(rng: Generator) -> Shape:
    """Slower by 20 to 60 %, little by little over 20 to 60 values."""
    begin, length, size = int(rng.integers(*_FIRST)), int(rng.integers(20, 60)), rng.uniform(0.2, 0.6)
    level = 1 + size * np.clip((np.arange(LENGTH) - begin) / length, 0, 1)
    return Shape(level, [begin + length], [begin])


def _noise(rng: Generator) -> Floats:
    return np.asarray(rng.uniform(*NOISE) * rng.standard_normal(LENGTH))


def _much_noise(rng: Generator) -> Floats:
    """8 to 12 %, as the lab has it where other programs share its cores."""
    return np.asarray(rng.uniform(0.08, 0.12) * rng.standard_normal(LENGTH))


def _heavy_tails(rng: Generator) -> Floats:
    """Student's t with 3 degrees of freedom, 2 % wide."""
    return np.asarray(0.02 * rng.standard_t(3, LENGTH))


def _made(shape: Callable[[Generator], Shape], noise: Callable[[Generator], Floats]) -> Maker:
    def make(rng: Generator) -> tuple[Floats, Shape]:
        drawn = shape(rng)
        return np.maximum(drawn.level * (1 + noise(rng)), 0.1), drawn

    return make


def _with_checkpoints(make: Maker) -> Maker:
    """One iteration in 15 to 60 takes 1.5 to 5 times as long, or two in a row."""

    def make_with(rng: Generator) -> tuple[Floats, Shape]:
        values, shape = make(rng)
        every, factor = int(rng.integers(15, 60)), rng.uniform(1.5, 5)
        for place in range(int(rng.integers(every)), LENGTH, every):
            values[place : place + rng.integers(1, 3)] *= factor
        return values, shape

    return make_with


def _with_pauses(make: Maker) -> Maker:
    """One iteration in 50 takes 2 to 20 times as long, at random."""

    def make_with(rng: Generator) -> tuple[Floats, Shape]:
        values, shape = make(rng)
        hit = rng.random(LENGTH) < 0.02
        values[hit] *= rng.uniform(2, 20, hit.sum())
        return values, shape

    return make_with


HEALTHY: Final = {
    "noise": _made(_steady, _noise),
    "much-noise": _made(_steady, _much_noise),
    "heavy-tails": _made(_steady, _heavy_tails),
    "checkpoints": _with_checkpoints(_made(_steady, _noise)),
    "pauses": _with_pauses(_made(_steady, _noise)),
    "small-step": _made(_small_step, _noise),
    "small-drift": _made(_small_drift, _noise),
}
CHANGING: Final = {
    "step": _made(_step, _noise),
    "step-much-noise": _made(_large_step, _much_noise),
    "step-heavy-tails": _made(_step, _heavy_tails),
    "step-checkpoints": _with_checkpoints(_made(_step, _noise)),
    "steps-in-a-row": _made(_steps_in_a_row, _noise),
    "ramp": _made(_ramp, _noise),
}
KINDS: Final = HEALTHY | CHANGING

"""Logs of a pipeline, as PipeMorph writes them, of a 1F1B schedule that is computed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

Work = Callable[[int, int], float]
"""By stage and step, how many times longer it computes."""


def schedule(stage: int, stages: int, micro: int) -> list[str]:
    """Forward and backward computations of a stage in their order."""
    ahead = min(stages - stage - 1, micro)
    middle = [kind for _ in range(micro - ahead) for kind in "FB"]
    return ["F"] * ahead + middle + ["B"] * ahead


Timed = tuple[str, float, float]
"""Kind, begin and end of a computation, milliseconds."""


def played(
    stages: int, micro: int, length: Mapping[str, float], work: Callable[[int], float],
    link: Mapping[tuple[int, int], float],
) -> list[list[Timed]]:  # fmt: skip
    """By stage, kind, begin and end of each computation in milliseconds."""
    orders = [schedule(stage, stages, micro) for stage in range(stages)]
    spans: list[list[Timed]] = [[] for _ in range(stages)]
    ends: dict[tuple[str, int, int], float] = {}
    at, counts = [0.0] * stages, [dict.fromkeys("FB", 0) for _ in range(stages)]
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            if len(spans[stage]) == len(orders[stage]):
                continue
            kind = orders[stage][len(spans[stage])]
            number, other = counts[stage][kind], stage - 1 if kind == "F" else stage + 1
            came = 0.0
            if 0 <= other < stages:
                if (kind, other, number) not in ends:
                    continue
                came = ends[kind, other, number] + link.get((min(stage, other), max(stage, other)), 1.0)
            begin = max(at[stage], came)
            end = begin + length[kind] * work(stage)
            ends[kind, stage, number] = at[stage] = end
            counts[stage][kind] += 1
            spans[stage].append((kind, begin, end))
            moved = True
    return spans


def noisy(rng: random.Random, work: Work, step: int) -> Callable[[int], float]:
    """By stage, with noise of a per cent."""
    return lambda stage: work(stage, step) * max(rng.gauss(1, 0.01), 0.9)


def logs_of(
    rng: random.Random, work: Work, *, stages: int = 4, micro: int = 12, steps: int = 24, absolute: bool = False,
    link: Mapping[tuple[int, int], float] | None = None, new: bool = True,
) -> list[str]:  # fmt: skip
    """The log of each stage."""
    texts, began_ms = [""] * stages, 1.76e12 if absolute else 0.0
    unit, name = ("(ms)", "RANK") if new else ("ms", "Rank")
    for step in range(1, steps + 1):
        spans = played(stages, micro, {"F": 33.0, "B": 65.0}, noisy(rng, work, step), link or {})
        for stage, mine in enumerate(spans):
            texts[stage] += f"[{name}{stage}] Iteration {step}\n" + "".join(
                f"[{name}{stage}] {kind} @ {began_ms + a:.4f} {unit} to {began_ms + b:.4f} {unit}, cudaEventElapsed = "
                f"{b - a:.4f} {unit}\n"
                for kind, a, b in mine
            )
        if absolute:
            began_ms += max(end for mine in spans for _, _, end in mine) + 100
    return texts

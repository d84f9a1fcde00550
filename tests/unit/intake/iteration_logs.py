"""Training logs made for tests: each program's lines, what stands before them, and damage."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final


def megatron(number: int, seconds: float, batch: int = 16) -> str:
    return (
        f" [2026-06-01 03:{number // 60 % 60:02d}:{number % 60:02d}] iteration {number:8d}/  500000 | consumed "
        f"samples: {number * batch:12d} | elapsed time per iteration (ms): {seconds * 1000:.1f} | learning rate: "
        f"1.342000E-04 | global batch size: {batch:5d} | lm loss: 7.399415E+00 | loss scale: 1.0 | grad norm: 2.918 "
        "| number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def old_megatron(number: int, seconds: float) -> str:
    return (
        f" iteration {number:8d}/   10000 | elapsed time per iteration (ms): {seconds * 1000:.1f} | learning rate "
        "1.000E-04 | lm loss 6.5E+00 | loss scale 1.0 |"
    )


def endless_megatron(number: int, seconds: float) -> str:
    return (
        f" iteration {number:8d}/infinity | consumed samples: {number * 8:12d} | elapsed time per iteration (ms): "
        f"{seconds * 1000:.1f} | learning rate: 1.000E-04 | global batch size:     8 | lm loss: 6.5E+00 |"
    )


def nemo_2(number: int, seconds: float) -> str:
    return (
        f"Training epoch {number // 100}, iteration {number % 100}/99 | lr: 6.897e-06 | global_batch_size: 128 | "
        f"global_step: {number} | reduced_train_loss: 11.96 | train_step_timing in s: {seconds:.4g} | "
        f"consumed_samples: {number * 128}"
    )


def nemo_1(number: int, seconds: float) -> str:
    return (
        f"Epoch 0: :  47%|####7     | {number}/5000 [06:19<07:13, v_num=0, reduced_train_loss=11.50, "
        f"global_step={number:.4g}, consumed_samples=12288.0, train_step_timing in s={seconds:#.4g}]"
    )


def deepspeed_pipeline(number: int, seconds: float) -> str:
    return f"steps: {number} loss: 5.5508 iter time (s): {seconds:0.3f} samples/sec: {32 / seconds:0.3f}"


def deepspeed(number: int, seconds: float) -> str:
    return (
        f"[2026-06-01 03:{number // 60 % 60:02d}:{number % 60:02d},711] [INFO] [timer.py:260:stop] epoch=0/micro_step="
        f"{number * 4}/global_step={number}, RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec={32 / seconds}, "
        "MemAllocated=4.32GB, MaxMemAllocated=38.49GB"
    )


PROGRAMS: Final[dict[str, Callable[[int, float], str]]] = {
    "megatron": megatron, "old megatron": old_megatron, "endless megatron": endless_megatron, "nemo 2": nemo_2,
    "nemo 1": nemo_1, "deepspeed pipeline": deepspeed_pipeline, "deepspeed": deepspeed,
}  # fmt: skip
PREFIXES: Final[dict[str, Callable[[int], str]]] = {
    "none": lambda _: "",
    "srun": lambda _: " 3: ",
    "torchrun": lambda _: "[default7]:",
    "rank": lambda _: "[rank7]: ",
    "time": lambda number: f"2026-06-01T03:00:{number % 60:02d}.123Z ",
    "kubernetes": lambda _: "[pod/job-worker-1/pytorch] ",
    "quoted": lambda _: "> ",
    "coloured": lambda _: "\x1b[36m",
}
OTHERS: Final = (
    "Saving checkpoint at iteration", "time (ms) | forward-compute: 53.79 | backward-compute: 90.1",
    "WARNING: something",
    " validation loss at iteration 100 | lm loss value: 7.1E+00 |", "iteration 5", "{'loss': 3.1}",
)  # fmt: skip


def times(
    rng: random.Random, count: int, changes: Sequence[tuple[int, float]] = (), usual_s: float = 1.3
) -> list[float]:
    """Seconds of iterations with a warm-up, noise of a per cent, and pauses; a factor holds from its iteration on."""
    found, factor = [], 1.0
    at = dict(changes)
    for number in range(count):
        factor = at.get(number, factor)
        pause = 5.0 if number % 50 == 49 else 9.0 if number == 0 else 1.0
        found.append(usual_s * factor * pause * max(rng.gauss(1, 0.01), 0.9))
    return found


def log_of(
    rng: random.Random,
    program: str,
    seconds: Sequence[float],
    *,
    prefix: str = "none",
    first: int = 1,
    torn: float = 0.0,
) -> str:
    """A log with other lines between, in which a share of the lines is torn."""
    lines = []
    for number, value in enumerate(seconds, first):
        if rng.random() < 0.2:
            lines.append(PREFIXES[prefix](number) + rng.choice(OTHERS))
        line = PREFIXES[prefix](number) + PROGRAMS[program](number, value)
        if rng.random() < torn:
            cut = rng.randrange(len(line))
            line = rng.choice((line[:cut], line[:cut] + rng.choice(OTHERS) + line[cut:], line[cut:]))
        lines.append(line)
    return ("\r" if program == "nemo 1" else "\n").join(lines) + "\n"

"""Lines in which a training program says how long an iteration took, by the program that writes them.

Megatron-LM (`megatron/training/training.py`; older ones without a time or samples, some with `/infinity`):
    ` [2025-04-13 23:41:12] iteration 100/ 500000 | consumed samples: 1600 | elapsed time per iteration (ms): 1234.5 |`
NeMo 2 (its progress printer), and NeMo 1 (a progress bar, which ends its lines with a carriage return):
    `Training epoch 0, iteration 5/99 | lr: 1e-06 | global_step: 5 | train_step_timing in s: 3.528 | ...`
    `Epoch 0: : 47%|###| 7/15 [06:19<07:13, global_step=5.000, train_step_timing in s=49.50]`
DeepSpeed's pipeline engine (`runtime/pipe/engine.py`), and its timer (`utils/timer.py`), which has a rate alone:
    `steps: 200 loss: 5.5508 iter time (s): 0.936 samples/sec: 136.706`
    `epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec=25.70, MemAllocated=4GB`

A line may have been cut, or another one may stand in the middle of it. So what comes behind a number in a whole line
has to come behind it here, and between an iteration's number and its time no other iteration may begin.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

MOST_NUMBER: Final = 1 << 40
MOST_S: Final = 1e6
"""Of an iteration; what is longer is something else."""
HINTS: Final = (
    b"elapsed time per iteration (ms):",
    b"train_step_timing in s",
    b"iter time (s):",
    b"CurrSamplesPerSec=",
)
"""One of these stands in each of them."""
_NUMBER: Final = r"\d{1,12}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?"
_WHOLE: Final = r"\d{1,12}"
_MEGATRON: Final = re.compile(
    rf"(?<!\w)iteration\s{{1,16}}(?P<number>{_WHOLE})/\s{{0,16}}(?:{_WHOLE}|infinity)\s{{1,4}}\|"
    r"(?P<between>[^\n]{0,400}?) elapsed time per iteration \(ms\):\s{1,4}(?P<ms>\d{1,12}\.\d{1,3}) \|"
)
_ANOTHER: Final = re.compile(rf"(?<!\w)(?:iteration\s{{1,16}}|(?:global_step|steps): ){_WHOLE}")
_NEMO_2: Final = re.compile(
    rf"\| global_step: (?P<number>{_WHOLE}) \|(?P<between>[^\n]{{0,400}}?)"
    rf" train_step_timing in s: (?P<s>{_NUMBER})(?: \||\s{{0,4}}$)"
)
_NEMO_1: Final = re.compile(
    rf"Epoch (?P<epoch>\d{{1,6}}): [^\n\[\]]{{0,200}}? (?P<number>{_WHOLE})/(?P<total>{_WHOLE}) \["
    rf"(?P<between>[^\n\[\]]{{0,600}}?) train_step_timing in s=(?P<s>{_NUMBER})[,\]]"
)
_PIPELINE: Final = re.compile(
    rf"(?<!\w)steps: (?P<number>{_WHOLE}) loss: (?P<between>[^\n]{{1,200}}?)"
    rf"iter time \(s\): (?P<s>\d{{1,9}}\.\d{{1,9}}) samples/sec: \d"
)
_DEEPSPEED: Final = re.compile(
    rf"/global_step=(?P<number>{_WHOLE}), RunningAvgSamplesPerSec=[\w.+-]{{1,40}}, "
    rf"CurrSamplesPerSec=(?P<rate>{_NUMBER})(?:, |\s{{0,4}}$)"
)
_BATCH: Final = re.compile(rf"global[ _]batch[ _]size:\s{{1,8}}({_WHOLE}) ?\|")
_AT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
SECONDS: Final = "s"
PER_SAMPLE: Final = "s per sample"


class Line(NamedTuple):
    """What one line says.

    Attributes:
        number: Of the iteration.
        value: How long it took, or took on average since the last line.
        batch: Samples in an iteration, 0 if it does not say.
        at: When it was written, in its own words; empty if it does not say.
    """

    number: int
    value: float
    batch: int = 0
    at: str = ""


class Program(NamedTuple):
    """Who writes such lines.

    Attributes:
        name: For people.
        unit: Of the values.
        pattern: Groups `number`, one of `ms`, `s` and `rate`; `epoch` and `total` where the number begins anew in each.
    """

    name: str
    unit: str
    pattern: re.Pattern[str]


PROGRAMS: Final = (
    Program("Megatron-LM", SECONDS, _MEGATRON), Program("NeMo", SECONDS, _NEMO_2), Program("NeMo", SECONDS, _NEMO_1),
    Program("DeepSpeed", SECONDS, _PIPELINE), Program("DeepSpeed", PER_SAMPLE, _DEEPSPEED),
)  # fmt: skip
"""The first is believed where several write: Megatron-DeepSpeed has lines of two."""


def lines_in(text: str) -> list[tuple[int, Line]]:
    """What a line of a log says of iterations, each with its place in `PROGRAMS`; several where line ends were lost."""
    found = []
    for place, program in enumerate(PROGRAMS):
        match = program.pattern.search(text)
        while match:
            another = _ANOTHER.search(text, *match.span("between")) if "between" in match.groupdict() else None
            line = None if another else _line(match, text)
            if line is not None:
                found.append((place, line))
            match = program.pattern.search(text, another.start() if another else match.end())
    return found


def _line(match: re.Match[str], text: str) -> Line | None:
    """What a match says; None if a number is none."""
    said = match.groupdict()
    number = int(said["number"])
    if said.get("epoch"):
        number += int(said["epoch"]) * int(said["total"])
    rate = float(said.get("rate") or 0)
    value = 1 / rate if rate else float(said.get("ms") or 0) / 1000 or float(said.get("s") or 0)
    if not (0 <= number < MOST_NUMBER and math.isfinite(value) and 0 < value < MOST_S):
        return None
    another = match.re.search(text, match.end())
    end = min(match.end() + 400, another.start() if another else len(text))
    batch = _BATCH.search(text, match.start(), end) or _BATCH.search(text, max(0, match.start() - 200), match.start())
    times = _AT.findall(text, max(0, match.start() - 60), match.start())
    return Line(number, value, int(batch.group(1)) if batch else 0, times[-1] if times else "")

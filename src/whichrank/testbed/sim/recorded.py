"""A simulated job kept as a run is that was recorded: a tape that `whichrank replay` goes through, and the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from whichrank.errors import UsageError
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import Schedule, ScheduleError, from_csv, gpipe, interleaved, one_f_one_b
from whichrank.testbed.sim.faults import (
    DELAYS_S,
    Fault,
    draw_delay,
    draw_hang,
    draw_healthy,
    draw_imbalance,
    draw_lost,
    draw_slow,
    phases_of,
)
from whichrank.testbed.sim.run import Run
from whichrank.testbed.sim.trial import CONFIG, Drawn, batches, draw_job, longer_by
from whichrank.wire.tape import FILE_NAME, Head, TapeWriter

TRUTH_NAME: Final = "truth.json"
ONSET: Final = 15
"""Iterations before a fault: what is usual is known then."""
STAGES_PER_RANK: Final = 2
"""Of an interleaved schedule."""
MOST_CHARACTERS: Final = 1 << 24
"""Of a schedule's CSV."""
MOST_RANKS: Final = 4096
"""Of a job that is kept: its tape takes some 10 KiB of a rank and iteration."""


@dataclass(frozen=True)
class Wanted:
    """What is asked for; what is left out is drawn by the seed.

    Attributes:
        layout: Such as `tp2-dp4-pp2`.
        schedule: `1f1b`, `gpipe`, `interleaved`, or the path of a CSV of torch's.
        microbatches: Of an iteration.
        layers: Of a pipeline stage.
        fault: `none`, `hang`, `lost`, `slow`, `delay` or `imbalance`.
        factor: Of own times, of a slow rank.
        seed: Of chance.
    """

    layout: str = ""
    schedule: str = ""
    microbatches: int = 0
    layers: int = 0
    fault: str = "hang"
    factor: float = 2.0
    seed: int = 0


def drawn_by(wanted: Wanted) -> tuple[Drawn, Fault]:
    """The job and what is done to it.

    Raises:
        UsageError: There is no such job.
    """
    some = draw_job(wanted.seed, (wanted.layout,)) if wanted.layout else draw_job(wanted.seed)
    if some.layout.ranks > MOST_RANKS:
        what = f"a job of {some.layout.ranks:,} ranks is too large to be kept: {MOST_RANKS:,} at most"
        raise UsageError(what, mend="whichrank bench scale measures larger ones")
    name = wanted.schedule or some.name
    count = wanted.microbatches or some.schedule.microbatches
    schedule = _schedule(name, some.layout, count) if wanted.schedule or wanted.microbatches else some.schedule
    job = Drawn(some.layout, schedule, name, wanted.layers or some.layers, wanted.seed)
    if wanted.fault == "lost" and job.layout.ranks == 1:
        raise UsageError("a job of one rank sends nothing that could be lost", mend="--layout dp2")
    rng, run = np.random.default_rng([wanted.seed, 7]), job.run()
    draw: dict[str, Callable[[], Fault]] = {
        "none": lambda: draw_healthy(run, rng, ONSET),
        "hang": lambda: draw_hang(run, rng, ONSET),
        "lost": lambda: draw_lost(run, rng, ONSET),
        "slow": lambda: draw_slow(run, rng, (wanted.factor,), ONSET),
        "delay": lambda: draw_delay(run, rng, *DELAYS_S, ONSET),
        "imbalance": lambda: draw_imbalance(run, rng, ONSET),
    }
    return job, draw[wanted.fault]()


def _schedule(name: str, layout: Layout, microbatches: int) -> Schedule:
    if name == "interleaved" and layout.pp == 1:  # without messages two stages look like twice as many microbatches
        raise UsageError("stages are interleaved on two ranks of a pipeline at least", mend="--layout pp2-dp2")
    try:
        if name == "interleaved":
            return interleaved(layout.pp, STAGES_PER_RANK, microbatches)
        if name in ("1f1b", "gpipe"):
            return (gpipe if name == "gpipe" else one_f_one_b)(layout.pp, microbatches)
        with Path(name).open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
        if len(text) > MOST_CHARACTERS:
            raise ScheduleError(f"it has more than {MOST_CHARACTERS:,} characters")
        schedule = from_csv(text.splitlines())
    except (ScheduleError, UnicodeDecodeError) as error:
        raise UsageError(f"there is no such schedule: {error}", where=name) from error
    except OSError as error:
        what = f"there is no schedule '{name}': {error.strerror}"
        raise UsageError(what, mend="--schedule 1f1b|gpipe|interleaved|FILE.csv") from error
    if schedule.ranks != layout.pp:
        what = f"a schedule for {schedule.ranks} ranks does not fit pipelines of {layout.pp}"
        raise UsageError(what, where=name, mend=f"--layout pp{schedule.ranks}-dp2")
    return schedule


def record(job: Drawn, fault: Fault, folder: Path, show_progress: Callable[[float], None]) -> Path:
    """Compute the job, and keep what its agents report.

    Args:
        job: The job.
        fault: What is done to it.
        folder: Where; it is there.
        show_progress: Called with the seconds of the job so far.

    Returns:
        The tape.

    Raises:
        OSError: It cannot be written.
    """
    tape = TapeWriter(folder / FILE_NAME, Head("simulated", 0.0, msgspec.to_builtins(CONFIG)))
    try:
        for at_s, told in batches(job, fault):
            for batch in told:
                tape.write("batch", at_s, batch)
            tape.write("tick", at_s)
            show_progress(at_s)
    finally:
        tape.close()
    return folder / FILE_NAME


def truth_of(job: Drawn, fault: Fault, run: Run) -> dict[str, Any]:
    """What was done, by name."""
    return {
        "layout": job.layout.name,
        "schedule": job.name,
        "microbatches": job.schedule.microbatches,
        "layers": job.layers,
        "seed": job.seed,
        "kind": fault.kind,
        "where": fault.where,
        "rank": fault.rank if fault.rank >= 0 else None,
        "sender": fault.sender if fault.sender >= 0 else None,
        "phases": sorted(phases_of(fault, run)),
        "microbatch": fault.microbatch if fault.microbatch >= 0 else None,
        "factor": fault.factor,
        "delay_s": fault.delay_s,
        "iteration": fault.onset - 1,  # from 0, as verdicts count
        "longer": round(longer_by(job, fault), 4) if fault.kind in ("slow", "imbalance") else None,
    }

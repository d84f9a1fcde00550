"""Iteration times of several files put together: parts of a log that was rotated, copies, and logs of several nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from whichrank.intake.formats import ITERATIONS
from whichrank.intake.plain_text import for_people
from whichrank.intake.recording import Recording
from whichrank.model.logged_iterations import Attempt, LoggedIterations
from whichrank.model.picture import Recorded

LEFT_OPEN: Final = (
    "iteration times of a whole job do not say which rank is late, or whether it hangs now: that needs dumps of the "
    "Flight Recorder, the lines of PyTorch's watchdog, or `whichrank run`"
)
LEAST_ITERATIONS: Final = 16
"""Of an attempt, below which a change is not seen: eight say what is usual, and three are a new level."""
MOST_LISTED: Final = 4
SAME: Final = 0.02
"""Share by which two logs may differ in a time that both have: they round."""
LEAST_SAME: Final = 0.9
"""Share of the iterations in both logs whose times agree, from which they are of one job."""


def recordings_of(logs: Sequence[LoggedIterations], name: str) -> list[Recording]:
    """A recording for each job whose iteration times are known.

    Args:
        logs: Of each file, in order.
        name: Of the job.
    """
    jobs: list[LoggedIterations] = []
    for log in logs:
        for place, job in enumerate(jobs):
            if (both := _together(job, log)) is not None:
                jobs[place] = both
                break
        else:
            jobs.append(log)
    return [
        Recording(
            name, ITERATIONS, (), 0.0, None, {}, about=Recorded(shows_hangs=False),
            remarks=_remarks(job, len(jobs) > 1), left_open=LEFT_OPEN, iterations=job,
        )
        for job in jobs
    ]  # fmt: skip


def _together(one: LoggedIterations, other: LoggedIterations) -> LoggedIterations | None:
    """Two logs of one job as one; None if nothing says that they are."""
    if (one.program, one.unit) != (other.program, other.unit):
        return None
    first, last = one.attempts[-1], other.attempts[0]
    shared, mine, theirs = np.intersect1d(first.number, last.number, assume_unique=True, return_indices=True)
    if len(shared):
        differ = np.abs(first.value[mine] - last.value[theirs]) > SAME * first.value[mine]
        if differ.mean() > 1 - LEAST_SAME or len(one.attempts) > 1 or len(other.attempts) > 1:
            return None
        more = ~np.isin(last.number, shared)
        return replace(one, attempts=(_sorted(first, _some(last, more)),))
    if last.number[0] > first.number[-1] and len(other.attempts) == 1:
        return replace(one, attempts=(*one.attempts[:-1], _sorted(first, last)))
    return None


def _some(attempt: Attempt, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Attempt:
    at = tuple(text for text, is_one in zip(attempt.at, which.tolist(), strict=True) if is_one)
    return Attempt(attempt.number[which], attempt.value[which], attempt.batch[which], at)


def _sorted(one: Attempt, other: Attempt) -> Attempt:
    number = np.concatenate((one.number, other.number))
    order = np.argsort(number, kind="stable")
    value, batch = np.concatenate((one.value, other.value)), np.concatenate((one.batch, other.batch))
    at = (*one.at, *other.at)
    return Attempt(number[order], value[order], batch[order], tuple(at[place] for place in order.tolist()))


def _remarks(log: LoggedIterations, has_others: bool) -> tuple[str, ...]:
    """What the log says in all, and of earlier attempts."""
    where = f"'{for_people(log.where)}': " if has_others else ""
    last = log.attempts[-1]
    said = [f"{where}{_in_words(last, log)}"]
    if len(last.number) < LEAST_ITERATIONS:
        said.append(f"{where}of fewer than {LEAST_ITERATIONS} iteration times a change of their level is not known")
    if len(np.unique(last.batch)) > 1:
        said.append(f"{where}the batch size changes; iterations before and after that are not compared")
    if earlier := log.attempts[:-1]:
        shown = "; ".join(_in_words(one, log) for one in earlier[-MOST_LISTED:])
        many = "an earlier attempt" if len(earlier) == 1 else f"{len(earlier)} earlier attempts"
        said.append(f"{where}this is about the last attempt; the log has {many}: {shown}")
    return tuple(said)


def _in_words(attempt: Attempt, log: LoggedIterations) -> str:
    first, last, usual = attempt.number[0], attempt.number[-1], float(np.median(attempt.value))
    of = "an iteration" if log.unit == "s" else "a sample"
    return f"{log.program} logged iterations {first:,} to {last:,}; the median of {of} is {usual:.4g} s"

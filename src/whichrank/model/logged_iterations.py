"""How long iterations of a job took, as a training program's own log says it: one series for the whole job."""

from __future__ import annotations

from dataclasses import dataclass, field

from whichrank.model.iterations import Floats, Ints


@dataclass(frozen=True)
class Attempt:
    """One life of the job: its iteration numbers rise.

    Attributes:
        number: Of each iteration that was logged, rising, (n,). Programs log each one, or the mean since the last line.
        value: How long it took, in the unit of the log, (n,).
        batch: Samples of all ranks in an iteration, 0 where the line does not say it, (n,).
        at: When the line was written, as it says it; empty where it does not, (n,).
    """

    number: Ints
    value: Floats
    batch: Ints
    at: tuple[str, ...]


@dataclass(frozen=True)
class LoggedIterations:
    """What a log says of iterations.

    Attributes:
        program: Which wrote it.
        unit: `s`, or `s per sample` where only a rate of samples is logged.
        attempts: In order; the last is the latest one.
        where: The file.
    """

    program: str
    unit: str
    attempts: tuple[Attempt, ...] = field(default=())
    where: str = ""

"""Logs with a known culprit, each by its number: the same number makes the same log on every machine."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from whichrank.testbed.bench.logs.dressing import ENCODINGS, LOSSLESS, LOSSY, PREFIXES
from whichrank.testbed.bench.logs.faults import FAULTS
from whichrank.testbed.bench.logs.jobs import OPS, VERSIONS, Job

MOST_RANKS = 64
ONE_IN_LOSSY = 4


@dataclass(frozen=True)
class Made:
    """A log.

    Attributes:
        name: Version, prefix, fault, damage and encoding.
        fault: Of these the fault.
        data: The bytes of the file.
        culprit: Who is at fault, in the last attempt of which a line is there.
        decides: Whether it says so; else the culprit should be among the candidates.
        is_mentioned: Whether any line tells that there is such a rank.
        first_culprit: Who was at fault in the attempt before that, -1: there is none.
    """

    name: str
    fault: str
    data: bytes
    culprit: int
    decides: bool
    is_mentioned: bool
    first_culprit: int = -1


def make(number: int, fault: str = "") -> Made:
    """A log.

    Args:
        number: Which one.
        fault: Of this fault; empty: the number says it.
    """
    random = Random(number)
    world = random.choice((2, 3, 4, 8, 8, 8, 16, 32, MOST_RANKS))
    name = fault or list(FAULTS)[number % len(FAULTS)]
    version = random.choice(VERSIONS)
    job = Job(
        world, random.randrange(world), version, random.randrange(40, 50_000), random.randrange(4, 22),
        random.choice(OPS), random.randrange(1, 1 << 24), random,
    )  # fmt: skip
    said = FAULTS[name](job)
    prefix = "none" if said.is_whole else random.choice(list(PREFIXES))
    is_lossy = random.randrange(ONE_IN_LOSSY) == 0 and not said.is_whole
    damages = LOSSY if is_lossy else LOSSLESS
    damage = "none" if said.is_whole else random.choice(list(damages))
    encoding = random.choice(list(ENCODINGS))
    lines = said.dressed(PREFIXES[prefix], job.hour)
    if damage.startswith("wrapped") and prefix in ("docker", "CloudWatch"):
        damage = "none"  # what is JSON is not wrapped by hand
    else:
        lines = damages[damage](random, lines)
    text = "\n".join(lines) + "\n"
    first_culprit = said.first_culprit
    if first_culprit >= 0 and is_lossy and f"SeqNum={job.seq}," not in text:
        job.culprit, first_culprit = first_culprit, -1  # nothing of the last attempt is left
    mentioned = (
        any(f"{word}{job.culprit}" in text for word in ("rank", "Rank ", "rank ", "task ", ": ")) if lines else False
    )
    label = f"{number}: {version.name}, {prefix}, {name}, {damage}, {encoding}, {world} ranks, rank {job.culprit}"
    decides = said.decides and not is_lossy
    return Made(
        label, name, ENCODINGS[encoding](text), job.culprit, decides, mentioned or job.culprit < world - 1,
        first_culprit,
    )  # fmt: skip

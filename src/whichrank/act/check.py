"""What a check before a job says: which ranks and links are slow beside the others, and which are below a floor.

Devices of one name are held against each other, and against what was asked of them or learned of them. Two ranks say
nothing of each other, but a floor says something of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import numpy as np

from whichrank.act.judgement import SlowLink, SlowRank, judge
from whichrank.act.validation import Measured
from whichrank.model.check import Checked, CheckedRank
from whichrank.model.codes import MULTIPLIED

LEARNED: Final = 0.9
"""Share of what devices of one name do in the middle, below which one is too slow (Greyhound, section 4.3)."""
_BYTES: Final = 8
"""Of a float that is copied: read, and written."""


class Floor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least that a device must do; 0: whatever it is."""

    float32_flops: float = 0.0
    bfloat16_flops: float = 0.0
    float16_flops: float = 0.0
    memory_bytes_per_s: float = 0.0
    link_bytes_per_s: float = 0.0


class Floors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By the name of a device: a file of `--floor` and `--learn`."""

    schema: Literal["whichrank.floors/1"] = "whichrank.floors/1"
    devices: dict[str, Floor] = {}


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank does at best, as a row of the table; 0 where it was not measured."""

    rank: int
    host: str
    device: str
    float32_flops: float
    bfloat16_flops: float
    float16_flops: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    """From the rank before it, by the largest messages that went over."""
    problem: str = ""

    def least_of(self, floor: Floor) -> dict[str, float]:
        """What is below its floor, and how many times it would have to be."""
        asked = {name: float(getattr(floor, name)) for name in Floor.__struct_fields__}
        have = {name: float(getattr(self, name)) for name in asked}
        return {name: asked[name] / have[name] for name in asked if 0 < have[name] < asked[name]}


@dataclass(frozen=True)
class CheckJudgement:
    """What is said.

    Attributes:
        speeds: Of each rank.
        ranks: Slow beside others of the same device, the slowest first.
        links: The same.
        below: By rank, what is below its floor, and times that it would have to be.
        is_compared: Ranks or links were held against anything.
    """

    speeds: tuple[Speed, ...]
    ranks: tuple[SlowRank, ...]
    links: tuple[SlowLink, ...]
    below: Mapping[int, Mapping[str, float]]
    is_compared: bool

    @property
    def is_slow(self) -> bool:
        """Whether something is."""
        return bool(self.ranks or self.links or self.below)

    def has_floor(self, floors: Floors) -> bool:
        """Whether the device of any rank has one."""
        return any(one.device in floors.devices for one in self.speeds)


def judge_check(checked: Checked, floors: Floors) -> CheckJudgement:
    """Say what is slow.

    Args:
        checked: What all ranks have measured.
        floors: What is asked of devices; of others nothing is.
    """
    speeds = tuple(_speed(one, checked) for one in checked.ranks)
    ranks: list[SlowRank] = []
    is_compared = False
    for device in sorted({one.device for one in checked.ranks}):
        alike = judge(_measured([one for one in checked.ranks if one.device == device]), {})
        ranks += alike.ranks
        is_compared |= alike.seen_from > 0
    slow = {one.rank for one in ranks if one.what == "compute"}
    links = judge(_links(checked, slow), {one.rank: one.host for one in checked.ranks})
    below = {one.rank: one.least_of(floors.devices[one.device]) for one in speeds if one.device in floors.devices}
    return CheckJudgement(
        speeds=speeds,
        ranks=tuple(sorted(ranks, key=lambda one: -one.factor)),
        links=links.links,
        below={rank: least for rank, least in below.items() if least},
        is_compared=is_compared or bool(below),
    )


def learned(speeds: tuple[Speed, ...], before: Floors) -> Floors:
    """Floors by what devices of each name do in the middle; of other names as they were.

    Args:
        speeds: Of ranks that are well.
        before: What was known.
    """
    devices = dict(before.devices)
    for device in {one.device for one in speeds}:
        alike = [one for one in speeds if one.device == device]
        devices[device] = Floor(**{name: _middle(alike, name) for name in Floor.__struct_fields__})
    return Floors(devices=devices)


def _middle(alike: list[Speed], name: str) -> float:
    known = [value for one in alike if (value := float(getattr(one, name))) > 0]
    return LEARNED * float(np.median(known)) if known else 0.0


def _speed(one: CheckedRank, checked: Checked) -> Speed:
    kinds = [[s for s in one.compute_s[at :: len(MULTIPLIED)] if s > 0] for at in range(len(MULTIPLIED))]
    flops = [2 * checked.side**3 / min(kind) if kind else 0.0 for kind in kinds]
    link = next((link.bytes / min(link.seconds) for link in reversed(one.links) if link.seconds), 0.0)
    memory = _BYTES * checked.copied / min(one.memory_s) if one.memory_s else 0.0
    return Speed(
        rank=one.rank, host=one.host, device=one.device, float32_flops=flops[0], bfloat16_flops=flops[1],
        float16_flops=flops[2], memory_bytes_per_s=memory, link_bytes_per_s=link, problem=one.problem,
    )  # fmt: skip


def _measured(ranks: list[CheckedRank]) -> Measured:
    """The speeds of these ranks, as of a validation."""
    repeats = max((len(one.memory_s) for one in ranks), default=0)
    compute = np.full((len(ranks), len(MULTIPLIED), repeats), np.nan)
    memory = np.full((len(ranks), repeats), np.nan)
    for at, one in enumerate(ranks):
        if len(one.compute_s) == len(MULTIPLIED) * repeats:
            compute[at] = np.array(one.compute_s).reshape(repeats, len(MULTIPLIED)).T
        memory[at, : len(one.memory_s)] = one.memory_s
    compute[compute <= 0] = np.nan
    return Measured(np.array([one.rank for one in ranks]), compute, memory)


def _links(checked: Checked, slow: set[int]) -> Measured:
    """The links of all but slow ranks, as of a validation."""
    nothing = np.full((0, len(MULTIPLIED), 0), np.nan)
    each = ((link.src, one.rank, link.bytes, list(link.seconds)) for one in checked.ranks for link in one.links)
    links = [link for link in each if slow.isdisjoint(link[:2])]
    return Measured(np.zeros(0, np.int64), nothing, nothing[:, 0].copy(), links)

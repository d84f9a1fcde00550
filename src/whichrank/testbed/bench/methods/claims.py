"""What each method of others claims to find, by kind of scenario: the one table behind every score, row and picture.

A method is scored on what its source says that it does, and on nothing else. `CLAIMS` holds for each kind of scenario
the methods that claim it, and what they owe there. A method that is not listed gets a "-" in the tables.

Sources, method by method:

- `ras`: NCCL's user guide, "RAS" (2.24 to 2.32): ranks whose counts of launched collectives differ, and processes that
  do not answer. It counts five types and knows neither sizes nor roots nor send and receive. It is asked while the job
  is there, so it claims nothing of a job that has ended.
- `flight-recorder`: PyTorch, `torchfrtrace`: collectives that not all members have recorded, or that they have recorded
  with another type, size or data type. It claims nothing where all have recorded the same (hardware, network). Of Gloo
  it records no send and receive.
- `stacks`: CCL-D section 6.2.1 on the baseline that it builds from XPUTimer and ParaStack: "covers all hang anomalies
  but fails to detect slow ones". A stack shows no switch, so faults of which only the path can be named are left out.
- `c4d`: C4 section III.A: communication hang and non-communication hang are *detected* ("relatively easy", how they are
  located is not described); a slow connection, source or destination; a rank that is slow by "additional computation or
  data loading". Nothing of several slow ranks, of a rank and a link at once, or of operations that do not match; work
  that is uneven by design breaks its assumption of "balanced computing costs" (section II.C).
- `greyhound`: section 4.2 and tables 3, 4 and 6: it *detects* that iterations have begun to take longer, by slow
  computation, CPU contention or congestion, alone or together (sections 3.2 to 3.4). It names ranks after it has paused
  the job, which is not built here. A job that is slow from its start has no change. Garbage collection and uneven
  sequences are normal fluctuations (section 4.2), and data loading is not among its causes (table 1). No hangs.
- `megatrace`: sections III.C and V.A: hangs by infinite delays in computation and in communication, and broken paths of
  the network. Not fail-stop, and not what fails at initialization (section II.B). Its search for what is slow is not
  built here.
- `ccl-d`: section 2.2 (H1 to H3, S1 to S3) and 6.2.1. It names ranks of GPUs, "rather than the devices (e.g., switches
  or routers)" (section 1): a rank at either end of a link will do, and faults of switches are left out. Not explicit
  failures (section 1), not a rank that is in no communicator (H1 is of "ranks in the communicator"), not point-to-point
  operations, and one rank at a time ("the rank with minimal communication time", section 4.2.2). Slow from the start
  needs a baseline that an administrator gives (equation 1), and none is given here. It counts uneven work as a slow
  rank (table 2, data inequality and imbalanced compute), where we say that nobody is at fault: not scored.
- `bisection`: CCL-D sections 2.3 and 6.2.1: "restricted to hardware or network faults", of which those of the network
  outlast the job here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Due = Literal["name", "end", "detect"]
"""What a method owes: `name` the rank or the link at fault; `end` a rank at either end of the link will do; `detect`
say that something is wrong, of the right kind: nobody need be named, but whoever is named must be at fault."""
Kind = Literal[
    "rank stays away", "rank pauses", "job ends or goes on", "rank never begins", "another operation",
    "one iteration ahead", "another root", "another order", "another peer", "rank stops inside", "node lost",
    "link dead", "switch dead", "rank slow", "rank lacks CPU", "rank waits for data", "rank collects garbage",
    "slow from the start", "two ranks slow", "link slow", "switch slow", "rank and link slow", "all slow",
    "uneven work", "healthy",
]  # fmt: skip

KINDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "rank stays away": ("stop", "sleep-gil", "stuck-io", "stalled-loader", "slow-then-stop"),
    "rank pauses": ("stop-and-continue",),
    # Gloo ends the job, or trains on with wrong numbers: no hang that anybody could wait for.
    "job ends or goes on": ("kill", "skip-op", "repeat-op", "wrong-shape", "wrong-dtype", "wrong-reduce-op"),
    "rank never begins": ("never-init",),
    "another operation": ("wrong-op",),
    "one iteration ahead": ("ahead",),
    "another root": ("wrong-root",),
    "another order": ("wrong-order",),
    "another peer": ("wrong-peer",),
    "rank stops inside": ("stop-in-op",),
    "node lost": ("unplugged", "mute-node"),
    "link dead": ("one-way", "lost-flow"),
    "switch dead": ("dead-spine", "partition"),
    "rank slow": ("slow-compute", "slow-layers", "slow-forward", "slow-backward", "flap"),
    "rank lacks CPU": ("cpu-limit", "cpu-contention"),
    "rank waits for data": ("slow-data",),
    "rank collects garbage": ("gc-storm",),
    "slow from the start": ("slow-start",),
    "two ranks slow": ("two-slow", "two-causes"),
    "link slow": ("slow-link", "slow-inbound", "lossy-link", "congested", "link-jitter"),
    "switch slow": ("congested-spine",),
    "rank and link slow": ("slow-link-and-compute",),
    "all slow": ("slow-every-rank",),
    "uneven work": ("more-tokens", "longer-sequences", "wander", "long-last-stage", "absorbed"),
    "healthy": (
        "none", "jitter", "gc", "late-checkpoint", "rank0-eval", "first-compile", "log-gather", "elastic-join",
        "reroute",
    ),
}  # fmt: skip
"""The faults of each kind, by their names in the catalogue."""

_HANGS: Final = ("ras", "flight-recorder", "stacks", "megatrace")
"""For hangs only: a job that is merely uneven must leave them silent."""

CLAIMS: Final[Mapping[Kind, Mapping[str, Due]]] = {
    "rank stays away": {
        "ras": "name", "flight-recorder": "name", "stacks": "name", "c4d": "detect", "megatrace": "name",
        "ccl-d": "name",
    },
    "rank pauses": {"megatrace": "name"},  # it lasts as long as the hang timeout of the others
    "job ends or goes on": {},
    "rank never begins": {"stacks": "name"},
    "another operation": {"ras": "name", "flight-recorder": "name", "stacks": "name", "ccl-d": "name"},
    "one iteration ahead": {"flight-recorder": "name", "stacks": "name", "ccl-d": "name"},
    "another root": {"stacks": "name", "ccl-d": "name"},
    "another order": {"ras": "name", "flight-recorder": "name", "stacks": "name", "ccl-d": "name"},
    "another peer": {"stacks": "name"},
    "rank stops inside": {"ras": "name", "stacks": "name", "c4d": "detect", "megatrace": "name", "ccl-d": "name"},
    "node lost": {
        "ras": "name", "stacks": "name", "c4d": "detect", "megatrace": "name", "ccl-d": "end", "bisection": "name",
    },
    "link dead": {"stacks": "end", "c4d": "detect", "megatrace": "name", "ccl-d": "end", "bisection": "name"},
    "switch dead": {"c4d": "detect", "megatrace": "name", "bisection": "name"},
    "rank slow": {"c4d": "name", "greyhound": "detect", "ccl-d": "name"},
    "rank lacks CPU": {"c4d": "name", "greyhound": "detect", "ccl-d": "name"},
    "rank waits for data": {"c4d": "name", "ccl-d": "name"},
    "rank collects garbage": {"c4d": "name", "ccl-d": "name"},
    "slow from the start": {"c4d": "name"},
    "two ranks slow": {"greyhound": "detect"},
    "link slow": {"c4d": "name", "greyhound": "detect", "ccl-d": "end", "bisection": "name"},
    "switch slow": {"c4d": "name", "greyhound": "detect", "bisection": "name"},
    "rank and link slow": {"greyhound": "detect", "ccl-d": "end"},
    "all slow": {"greyhound": "detect"},
    "uneven work": {**dict.fromkeys(_HANGS, "name"), "greyhound": "detect"},
    "healthy": {**dict.fromkeys((*_HANGS, "c4d", "ccl-d", "bisection"), "name"), "greyhound": "detect"},
}  # fmt: skip
"""By kind of scenario: the methods that claim it, and what they owe there."""

_KIND_OF: Final[Mapping[str, Kind]] = {fault: kind for kind, faults in KINDS.items() for fault in faults}


def kind_of(scenario: str) -> Kind:
    """The kind of a scenario.

    Args:
        scenario: Its name, which begins with that of its fault.

    Raises:
        KeyError: `KINDS` does not hold it.
    """
    return _KIND_OF[scenario.split()[0]]


def due_of(method: str, scenario: str) -> Due | None:
    """What a method of others owes in a scenario; None: its source claims nothing there.

    Args:
        method: A key of `campaign.METHOD_NAMES`.
        scenario: Name of a scenario.
    """
    return CLAIMS[kind_of(scenario)].get(method)

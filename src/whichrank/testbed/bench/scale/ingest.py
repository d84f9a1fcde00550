"""What one analyzer takes of a CPU and of memory while all agents of a job report to it over ZeroMQ.

Each size runs in two processes of its own: `sender` is all agents, `receiver` the analyzer. The first iterations count
for memory only: communicators are made known in them, and what an iteration is.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from whichrank.errors import WhichrankError
from whichrank.testbed.bench.figures import Figure, figure
from whichrank.testbed.bench.scale.receiver import LONGEST_S, Received
from whichrank.testbed.bench.scale.sender import iteration_s, rounds_of

SIZES: Final = (512, 4_096, 16_384, 65_536)
WARM: Final = 3
"""Iterations that are not counted."""
COUNTED: Final = 3
CORES: Final = 2.0
"""Of which one analyzer may take all, at the largest size."""
MEMORY_MIB: Final = 4096.0
"""That it may take there."""
RECEIVER: Final = "whichrank.testbed.bench.scale.receiver"
END_S: Final = 60.0
"""To begin and to end, beside what the receiver allows itself."""


def receive(ranks: int, iterations: int) -> Received:
    """Run both processes.

    Raises:
        WhichrankError: One of them fails, or takes too long.
    """
    command = [sys.executable, "-m", RECEIVER, str(ranks), str(iterations)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LONGEST_S + END_S, check=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        last = (error.stderr or b"").decode(errors="replace").strip().rpartition("\n")[2]
        raise WhichrankError(
            f"the analyzer of {ranks:,} ranks could not be measured: {last or 'it takes too long'}"
        ) from error
    return msgspec.json.decode(done.stdout, type=Received)


def figures_of(ranks: int, received: Received, warm: int = WARM) -> Iterator[Figure]:
    """What it has cost for each second of the job, by part, and the most memory."""
    counted, job_s = received.iterations[warm:], iteration_s(ranks)
    is_largest = ranks == SIZES[-1]
    is_right = received.alerts == 0 and received.dropped == 0
    if not counted:
        what = f"one analyzer kept up ({len(received.iterations)} iterations in {LONGEST_S:g} s)"
        yield figure(what, ranks, [0.0], "of 1", is_right=False)
    else:

        def cores(what: str, costs: Sequence[float], limit: float | None = None) -> Figure:
            right = is_right if limit or "all" in what else None
            return figure(what, ranks, [cost / job_s for cost in costs], "cores", limit, right)

        yield cores(
            f"one analyzer, all ({rounds_of(ranks) / job_s:.0f} rounds/s a rank)",
            [one.cpu_s for one in counted],
            CORES if is_largest else None,
        )
        yield cores("of these, to receive and decode", [one.decode_s for one in counted])
        yield cores("of these, to take in", [one.feed_s for one in counted])
        yield cores("of these, to tick", [one.tick_s for one in counted])
        yield figure("records", ranks, [one.records / job_s for one in counted], "1/s")
    yield figure("memory of one analyzer, peak", ranks, [received.peak_mib], "MiB", MEMORY_MIB if is_largest else None)
    if received.iterations:
        yield figure("first iteration, communicators made known", ranks, [received.iterations[0].cpu_s], "s")


def measure(sizes: Sequence[int], counted: int = COUNTED) -> Iterator[Figure]:
    """The cost of one analyzer, by size."""
    for ranks in sizes:
        yield from figures_of(ranks, receive(ranks, WARM + counted))

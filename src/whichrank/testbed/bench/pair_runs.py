"""Short training jobs on pairs of a lab's nodes, all pairs at once: how long does an iteration take?"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from whichrank.testbed.bench.launch import end, job_environment, preloaded
from whichrank.testbed.demo.hub import Hub
from whichrank.testbed.lab.network import Network

Pair = tuple[int, int]
ITERATIONS: Final = 12
_JOB: Final = ("-m", "whichrank.testbed.lab.workloads.ddp", "--device-ms", "1", "--log-every", "0")
_LONGEST_S: Final = 15.0
_BESIDE: Final = 3.0
"""A pair has so many times as long as the first that was done."""
_FIRST_PORT: Final = 29700
_END_WITHIN_S: Final = 10.0


class PairRuns:
    """Runs them.

    Args:
        network: Of the lab; what is done to it stays.
        local: Ranks on a node.
        nursery: Socket of one that has torch loaded, for the launchers.
    """

    def __init__(self, network: Network, local: int, nursery: Path) -> None:
        self._network = network
        self._local = local
        self._nursery = nursery
        self._port = _FIRST_PORT

    def train(self, pairs: Sequence[Pair]) -> dict[Pair, float | None]:
        """Train on all pairs at once, no node in two of them; seconds of an iteration, None if none was done."""
        hubs = [Hub(lambda _: {}) for _ in pairs]
        jobs: list[subprocess.Popen[bytes]] = []
        try:
            for pair, hub in zip(pairs, hubs, strict=True):
                hub.start()
                self._port += 1
                jobs += [self._start(pair, place, hub) for place in range(2)]
            _wait(hubs)
        finally:
            end(jobs, _END_WITHIN_S)
            for hub in hubs:
                hub.close()
        return {pair: _iteration_s(hub) for pair, hub in zip(pairs, hubs, strict=True)}

    def _start(self, pair: Pair, place: int, hub: Hub) -> subprocess.Popen[bytes]:
        command = [
            *self._network.command(pair[place]), *preloaded(self._nursery),
            "--nproc", str(self._local), "--nodes", "2", "--node", str(place),
            "--master", f"{self._network.address(pair[0])}:{self._port}", "--", *_JOB, "--iterations", str(ITERATIONS),
        ]  # fmt: skip
        environment, null = job_environment(hub.env(), on_nodes=True), subprocess.DEVNULL
        return subprocess.Popen(command, env=environment, stdin=null, stdout=null, stderr=null, start_new_session=True)


def _wait(hubs: Sequence[Hub]) -> None:
    begun_s = time.monotonic()
    until_s, is_first = begun_s + _LONGEST_S, True
    while (now_s := time.monotonic()) < until_s:
        done = [len(hub.began_ns) >= ITERATIONS for hub in hubs]
        if all(done):
            return
        if any(done) and is_first:
            is_first, until_s = False, min(until_s, begun_s + _BESIDE * (now_s - begun_s))
        time.sleep(0.05)


def _iteration_s(hub: Hub) -> float | None:
    """The median of the later half."""
    took_ns = [after - at for at, after in pairwise(sorted(hub.began_ns.values()))]
    return statistics.median(took_ns[len(took_ns) // 2 :]) / 1e9 if took_ns else None

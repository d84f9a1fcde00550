"""The analyzer of a simulated job in a process of its own: it takes what comes over ZeroMQ as the server does.

It says as JSON what each iteration of the job has cost it. Its CPU time is the kernel's, over all threads, those of
ZeroMQ too; its memory is the highest that it had.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.model.commands import Reply
from whichrank.model.telemetry import RECORD_REPORTED
from whichrank.testbed.bench.scale.sender import PER_NODE, open_files
from whichrank.wire.transport import Arrival
from whichrank.wire.zmq_transport import ZmqAnalyzerEnd

TICK_S: Final = 0.25
"""Between two ticks, at least (`config.RunConfig.tick_s`)."""
TICKS_OF_A_CORE: Final = 0.2
"""What ticks may cost while nothing is suspected (`server.loop`)."""
CREDIT: Final = 4
SENDER: Final = "whichrank.testbed.bench.scale.sender"
WAIT_S: Final = 0.25
LONGEST_S: Final = 480.0
"""After so long it ends, however many iterations are over."""


class Iteration(msgspec.Struct, frozen=True):
    """What one iteration of the job has cost.

    Attributes:
        cpu_s: Of all.
        decode_s: Of these to receive and decode.
        feed_s: Of these to feed the analyzer.
        tick_s: Of these to tick.
        ticks: How many.
        records: That were taken in.
        wall_s: How long it took.
    """

    cpu_s: float
    decode_s: float
    feed_s: float
    tick_s: float
    ticks: int
    records: int
    wall_s: float


class Received(msgspec.Struct, frozen=True):
    """What came of it.

    Attributes:
        iterations: The whole ones.
        peak_mib: The most memory that was resident.
        dropped: Messages that were not understood.
        alerts: That were reported: there should be none.
    """

    iterations: list[Iteration]
    peak_mib: float
    dropped: int
    alerts: int


class Receiver:
    """An analyzer, and what its work costs.

    Args:
        ranks: Of the job.
    """

    def __init__(self, ranks: int) -> None:
        open_files()
        self._end = ZmqAnalyzerEnd(["tcp://127.0.0.1:0"])
        self._analyzer = Analyzer(AnalyzerConfig(), "simulated", 0.0)
        self._nodes, self._next_tick_s = ranks // PER_NODE, 0.0
        self._cost = {"decode_s": 0.0, "feed_s": 0.0, "tick_s": 0.0}
        self._ticks = self._records = self._alerts = 0
        self.address = self._end.addresses[0]

    def take(self, iterations: int) -> Received:
        """Take what comes until so many iterations are over, or time is."""
        begin_s, found, heard = time.monotonic(), list[Iteration](), dict[int, set[str]]()
        before = time.process_time(), begin_s
        while len(found) < iterations and time.monotonic() - begin_s < LONGEST_S:
            for arrival in self._step():
                heard.setdefault(arrival.batch.sequence, set()).add(arrival.batch.agent)
            while len(heard.get(len(found) + 1, ())) == self._nodes:
                now = time.process_time(), time.monotonic()
                found.append(self._iteration(now[0] - before[0], now[1] - before[1]))
                before = now
        return Received(found, _peak_mib(), self._end.dropped, self._alerts)

    def _iteration(self, cpu_s: float, wall_s: float) -> Iteration:
        one = Iteration(cpu_s=cpu_s, wall_s=wall_s, ticks=self._ticks, records=self._records, **self._cost)
        self._cost = dict.fromkeys(self._cost, 0.0)
        self._ticks = self._records = 0
        return one

    def _step(self) -> list[Arrival]:
        """Take what has come, answer it, tick if that is due. Returns what has a number."""
        marks = [time.process_time()]
        arrivals = self._end.receive(WAIT_S)
        now_s = time.monotonic()
        marks.append(time.process_time())
        news = [arrival.batch for arrival in arrivals if not (arrival.batch.is_well and arrival.is_new_agent)]
        if news:
            self._analyzer.feed_all(news, now_s)
        for arrival in arrivals:
            batch = arrival.batch
            if not batch.is_well:
                self._records += len(batch.records) // RECORD_REPORTED.itemsize
                self._analyzer.orders(batch.agent)
                self._end.reply(batch.agent, Reply(CREDIT, batch.sequence))
        marks.append(time.process_time())
        if now_s >= self._next_tick_s:
            self._alerts += sum(one.severity == "alert" for one in self._analyzer.tick(now_s))
            self._ticks += 1
            cost_s = time.process_time() - marks[-1]
            self._next_tick_s = now_s + max(TICK_S, cost_s / TICKS_OF_A_CORE)
        marks.append(time.process_time())
        for name, (begin_s, end_s) in zip(self._cost, pairwise(marks), strict=True):
            self._cost[name] += end_s - begin_s
        return [arrival for arrival in arrivals if not arrival.batch.is_well]


def _peak_mib() -> float:
    """Of this program since it began; what its parent had does not count, as it would in `getrusage`."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main(argv: Sequence[str]) -> int:
    """Of the process: ranks and iterations. Prints a `Received`."""
    ranks, iterations = map(int, argv)
    receiver = Receiver(ranks)
    sender = [sys.executable, "-m", SENDER, receiver.address, str(ranks), str(iterations)]
    with subprocess.Popen(sender) as process:
        try:
            received = receiver.take(iterations)
        finally:
            process.kill()
    sys.stdout.buffer.write(msgspec.json.encode(received) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

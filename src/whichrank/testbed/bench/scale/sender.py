"""The agents of a simulated job in one process: it computes the job and sends what agents would, at their pace.

Each agent has a connection of its own, as far as the process may have open files, and sends one batch an iteration;
beside that it says each second that all is well. Iterations take as long as `ITERATION_S`, and batches are spread over
them as those of real agents are.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from typing import Final

import zmq

from whichrank.model.telemetry import Batch
from whichrank.testbed.bench.scale.jobs import LONG, MOST_STAGES, job_of
from whichrank.testbed.sim.run import Times
from whichrank.testbed.sim.telemetry import Agents
from whichrank.wire.zmq_transport import ZmqAgentEnd

ROUNDS_PER_S: Final = 20.0
"""Operations of a rank in a second (the load that is asked for)."""
WORDS: Final = 4
"""That all is well, between two batches of an agent: one a second."""
PER_NODE: Final = 8
FILES_PER_SOCKET: Final = 2
"""A connection, and what wakes its reader."""
OTHER_FILES: Final = 200
AGAIN_S: Final = 0.005
"""A batch that a socket does not take is tried again so much later."""
HEAR_S: Final = 0.2
"""Between two looks at all sockets for answers: one takes tens of milliseconds of a core that the analyzer may need."""


PATIENCE_S: Final = 15.0
"""Without any answer for so long what is not answered is sent again."""


def rounds_of(ranks: int) -> float:
    """Operations of a rank in an iteration, on average over pipeline ranks."""
    first = job_of(ranks, LONG, Times())
    counts = [sum(item.do.value in ("share", "receive", "send") for item in program) for program in first.programs]
    return sum(counts) / len(counts)


def iteration_s(ranks: int) -> float:
    """Seconds of an iteration in which a rank has `ROUNDS_PER_S`."""
    return rounds_of(ranks) / ROUNDS_PER_S


def open_files() -> int:
    """As many as this process may have, and allows itself now."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def connections_of(ranks: int) -> int:
    """How many connections the agents of a job have: each one, if that many can be open."""
    return min(ranks // PER_NODE, (open_files() - OTHER_FILES) // FILES_PER_SOCKET)


class Sender:
    """All agents of one job.

    Args:
        address: Of the analyzer.
        ranks: Of the job.
    """

    def __init__(self, address: str, ranks: int) -> None:
        self._each_s = iteration_s(ranks)
        # In 1F1B the pipeline ranks begin one after the other: microbatches + stages - 1 blocks of three times forward.
        forward_s = self._each_s / (3 * (LONG + MOST_STAGES - 1))
        self._run = job_of(ranks, LONG, Times(forward_s=forward_s))
        self._agents = Agents(self._run, PER_NODE)
        self._nodes = ranks // PER_NODE
        connections = connections_of(ranks)
        zmq.Context.instance().set(zmq.MAX_SOCKETS, connections + 1)
        self._ends = [ZmqAgentEnd(address) for _ in range(connections)]
        self._words: list[Batch | None] = [None] * self._nodes
        self._unanswered: list[list[Batch]] = [[] for _ in self._ends]

    def send(self, iterations: int) -> None:
        """Go through so many iterations."""
        due_s = 0.0
        for _ in range(iterations):
            due_s = max(due_s, time.monotonic()) + self._each_s  # what was late is not made up for
            batches = self._agents.report([self._run.iterate()])
            begin_s = time.monotonic()
            for node, batch in enumerate(batches):
                self._send(node, batch)
                self._unanswered[node % len(self._ends)].append(batch)
                for word in range(1, WORDS + 1):
                    other = (node + word * self._nodes // (WORDS + 1)) % self._nodes
                    if (well := self._words[other]) is not None:
                        self._send(other, well)
                self._words[node] = _word_of(batch)
                ahead_s = begin_s + (due_s - begin_s) * (node + 1) / self._nodes - time.monotonic()
                if ahead_s > AGAIN_S:
                    time.sleep(ahead_s)
            self._hear()
        for end in self._ends:
            end.close()
        zmq.Context.instance().term()

    def _hear(self) -> None:
        """Wait until all batches were answered; what was not for long is sent again, as an agent does."""
        heard_s = time.monotonic()
        while any(self._unanswered):
            for end, waiting in zip(self._ends, self._unanswered, strict=True):
                if waiting and (replies := len(end.receive())):
                    del waiting[:replies]
                    heard_s = time.monotonic()
            if time.monotonic() - heard_s > PATIENCE_S:
                for at, waiting in enumerate(self._unanswered):
                    for batch in waiting:
                        self._send(at, batch)
                heard_s = time.monotonic()
            time.sleep(HEAR_S)

    def _send(self, node: int, batch: Batch) -> None:
        end = self._ends[node % len(self._ends)]
        while not end.send(batch):
            time.sleep(AGAIN_S)


def _word_of(batch: Batch) -> Batch:
    """That all is well, of the agent that has sent this."""
    return Batch(
        version=batch.version, job=batch.job, agent=batch.agent, host=batch.host, sequence=0, sent_ns=batch.sent_ns,
        sent_realtime_ns=batch.sent_realtime_ns, delay_bound_ns=batch.delay_bound_ns, node_ranks=batch.node_ranks,
        is_well=True,
    )  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Of the process: address, ranks and iterations."""
    address, ranks, iterations = argv
    Sender(address, int(ranks)).send(int(iterations))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

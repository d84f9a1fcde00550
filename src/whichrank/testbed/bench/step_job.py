"""The job whose steps are timed: data-parallel training on two ranks, nothing but computation and its all-reduces.

Started as a program it is the launcher, which starts itself again once per rank. No step sleeps; two ranks of one
thread each on two cores leave no core idle, so whatever whichrank does on these cores lengthens a step. The amount of
computation is given (`batch`), or found once by `calibrate`, so that all runs that are compared do the same.

With `switch`, the observer is off in half of the blocks: both ranks switch the c10d sensor, and rank 0 stops (SIGSTOP)
and continues the agent and `whichrank run`, in which the analyzer is. What cannot be switched, the preloaded
socket sensor and the heartbeat thread, is for whole runs with and without to measure. After a change the first quarter
of a second is not counted: there the agent catches up with what it has not read.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from whichrank.testbed.demo.ports import free_port

RANKS: Final = 2
STEP_S: Final = 0.1
WARM_STEPS: Final = 10
CALIBRATION_STEPS: Final = 8
FIRST_BATCH: Final = 256
WIDTH, LAYERS, BUCKET_MB = 512, 8, 1
MASTER: Final = "127.0.0.1"
LET_GO_S: Final = 0.5


@dataclass(frozen=True)
class Plan:
    """What a job is to do.

    Attributes:
        result: Where rank 0 writes what it measured, as JSON.
        batch: Samples per rank and step; 0: find the batch that takes `STEP_S` of CPU time.
        pairs: Pairs of blocks; each block is `settle` steps that are not counted and `steps` that are.
        steps: Counted steps in a block.
        settle: Uncounted steps before them.
        switch: Switch the observer off in one block of each pair; else all blocks are alike.
        observers: Processes that are stopped while it is off. The launcher fills this in.
    """

    result: str
    batch: int = 0
    pairs: int = 1
    steps: int = 20
    settle: int = 3
    switch: bool = False
    observers: tuple[int, ...] = ()


@dataclass
class StepTimes:
    """What a job measured; one entry per block, in order.

    Attributes:
        batch: Samples per rank and step.
        on: Whether the observer was on.
        wall_s: Mean seconds of a counted step, at rank 0.
        cpu_s: CPU seconds of both ranks per counted step.
        agent_cpu_s: CPU seconds of the agent in the counted steps of the block.
        run_cpu_s: CPU seconds of `whichrank run` in them.
        ops: Operations that were recorded per counted step, at rank 0.
        messages: TCP messages sent and received per counted step, at rank 0.
        trained_s: Seconds from the first step to the end of the last, counted or not.
    """

    batch: int
    on: list[bool] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    agent_cpu_s: list[float] = field(default_factory=list)
    run_cpu_s: list[float] = field(default_factory=list)
    ops: float = 0.0
    messages: float = 0.0
    trained_s: float = 0.0


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process; the clock of Linux that clock_getcpuclockid(3) names."""
    return time.clock_gettime((~pid << 3) | 2)


def order_of(pairs: int, seed: int = 0) -> list[bool]:
    """On or off for each block: pairs of one each, in random order."""
    draw = random.Random(seed)
    return [on for _ in range(pairs) for on in draw.choice(((True, False), (False, True)))]


# ---- a rank ----------------------------------------------------------------------------------------------------------


class Trainer:
    """Model, data and the step of one rank."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist
        from torch import nn

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self._model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=BUCKET_MB)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-4)
        self._torch, self._dist = torch, dist
        self.rank = dist.get_rank()
        self.use(FIRST_BATCH)

    def use(self, batch: int) -> None:
        """Train with this many samples from now on."""
        self.batch = batch
        self._inputs = self._torch.randn(batch, WIDTH)

    def step(self) -> None:
        """One training step; at its end the ranks have met in the all-reduce of the loss."""
        self._optimizer.zero_grad()
        loss = self._model(self._inputs).square().mean()
        loss.backward()
        self._optimizer.step()
        reported = loss.detach()
        self._dist.all_reduce(reported)
        reported.item()

    def steps(self, count: int) -> float:
        """Mean seconds of `count` steps."""
        start_s = time.perf_counter()
        for _ in range(count):
            self.step()
        return (time.perf_counter() - start_s) / count

    def calibrate(self) -> None:
        """Find the batch with which a step takes a rank `STEP_S` of CPU time, as a wall time would on an idle machine.

        All ranks take rank 0's word.
        """
        for _ in range(3):
            self.steps(2)
            start_s = time.process_time()
            self.steps(CALIBRATION_STEPS)
            used_s = (time.process_time() - start_s) / CALIBRATION_STEPS
            batch = [max(8, round(self.batch * STEP_S / used_s))]
            self._dist.broadcast_object_list(batch, 0)
            self.use(batch[0])

    def gathered(self, mine: list[float]) -> list[list[float]]:
        """What every rank has, by rank."""
        all_of_them: list[Any] = [None] * RANKS
        self._dist.all_gather_object(all_of_them, mine)
        return all_of_them

    def close(self) -> None:
        """Leave the process group, and let Gloo's threads let go of the last operation.

        One that drops the last reference to a tensor of Python while the interpreter ends aborts the process.
        """
        self._dist.destroy_process_group()
        time.sleep(LET_GO_S)


class Switch:
    """Turns the observer on and off; every rank has one, only rank 0's stops processes."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self._observers = plan.observers if rank == 0 else ()
        self._switches = plan.switch
        self._on = True

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self._observers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def turn(self, on: bool) -> None:
        """On or off; nothing happens if it is."""
        if not self._switches or on == self._on:
            return
        from whichrank.sensors import c10d

        self._on = on
        c10d.observe(on)
        for pid in self._observers:
            os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)


def run_rank(plan: Plan) -> None:
    """Train as planned; rank 0 writes the result."""
    trainer = Trainer()
    if plan.batch:
        trainer.use(plan.batch)
    else:
        trainer.calibrate()
    begun_s = time.perf_counter()
    trainer.steps(WARM_STEPS)
    reported, own_cpu_s = StepTimes(trainer.batch), list[float]()
    with Switch(plan, trainer.rank) as switch:
        for on in order_of(plan.pairs):
            switch.turn(on)
            trainer.steps(plan.settle)
            seen, observers = _recorded(), [cpu_s(pid) for pid in plan.observers]
            start_s = time.process_time()
            reported.wall_s.append(trainer.steps(plan.steps))
            own_cpu_s.append((time.process_time() - start_s) / plan.steps)
            used = [cpu_s(pid) - before for pid, before in zip(plan.observers, observers, strict=True)]
            reported.on.append(on)
            reported.run_cpu_s.append(used[0] if used else 0.0)
            reported.agent_cpu_s.append(sum(used[1:]))
            if on:
                reported.ops, reported.messages = (
                    (now - then) / plan.steps for now, then in zip(_recorded(), seen, strict=True)
                )
    reported.trained_s = time.perf_counter() - begun_s
    reported.cpu_s = [sum(block) for block in zip(*trainer.gathered(own_cpu_s), strict=True)]
    if trainer.rank == 0:
        Path(plan.result).write_text(json.dumps(asdict(reported)), encoding="utf-8")
    trainer.close()


def _recorded() -> tuple[int, int]:
    """Operations and TCP messages that the ring of this process has counted; zeros where there is none."""
    folder = os.environ.get("WHICHRANK_DIR")
    path = Path(folder or "/", f"{os.getpid()}.ring")
    if not folder or not path.exists():
        return 0, 0
    import numpy as np

    from whichrank.ring.layout import RING

    ring = np.fromfile(path, RING, count=1)[0]
    connections = ring["connection"]
    return int(ring["header"]["head"]), int((connections["messages_sent"] + connections["messages_received"]).sum())


# ---- the launcher ----------------------------------------------------------------------------------------------------


def launch(plan: Plan) -> int:
    """Start the ranks and wait for them; the first exit code that is not 0."""
    observers = _observers() if plan.switch else ()
    reported = json.dumps(asdict(plan) | {"observers": observers})
    if observers:
        Path(plan.result).with_suffix(".pids").write_text(json.dumps(observers), encoding="utf-8")
    environment = os.environ | {
        "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": MASTER,
        "MASTER_PORT": str(free_port(MASTER)),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    command = [sys.executable, "-m", "whichrank.testbed.bench.step_job", reported]
    ranks = [
        subprocess.Popen(command, env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(RANKS)
    ]
    try:
        while (codes := [rank.poll() for rank in ranks]).count(None):
            if any(codes):
                break
            time.sleep(0.2)
        return next((code for code in codes if code), 0)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def _observers() -> tuple[int, ...]:
    """`whichrank run`, whose child we are, and the agent, its other child."""
    parent, deadline_s = os.getppid(), time.monotonic() + 30.0
    while time.monotonic() < deadline_s:
        agents = [pid for pid in _children(parent) if b"agent" in _arguments(pid)]
        if agents:
            return parent, *agents
        time.sleep(0.1)
    raise SystemExit("no agent runs beside this job")


def _children(parent: int) -> Iterator[int]:
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                content = (place / "stat").read_bytes()
                if int(content[content.rfind(b")") + 2 :].split()[1]) == parent:
                    yield int(place.name)


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def main(text: str) -> int:
    """The launcher, or a rank where the environment says so.

    Args:
        text: The plan as JSON.
    """
    values = json.loads(text)
    plan = Plan(**(values | {"observers": tuple(values.get("observers", ()))}))
    if "RANK" not in os.environ:
        return launch(plan)
    run_rank(plan)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

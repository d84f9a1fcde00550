"""`whichrank bench gate`: real jobs on a busy machine are paused again and again, and train as if nothing had been.

Whoever holds the gates is here, without server and agent: the gate alone is tried. A job is paused behind a step that
no rank has made, all must come exactly there, and then it goes on. At the end a second job makes as many steps without
any sensor: parameters must be equal bit for bit. Besides, a process that holds the gates is killed, and it is measured
when the job goes on by itself.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from whichrank.errors import SensorError, WhichrankError
from whichrank.ring.gate import RingGate
from whichrank.ring.reader import RingReader
from whichrank.sensors.c10d import prepare

RANKS: Final = {"ddp": 4, "fsdp2": 4, "3d": 8}
"""By kind of job, its world size; 3d: two pipeline stages of two replicas of two tensor-parallel ranks."""
AHEAD_S: Final = 0.05
"""Of steps that are left to ranks when they are to be kept."""
START_S: Final = 2.0
"""The same, of a process that is started to keep them."""
MEASURED_S: Final = 2.0
"""In which it is measured how long a step takes."""
FIRST_STEPS: Final = 5
PATIENCE_S: Final = 120.0
"""For a start, and for all ranks to come."""
LONGEST_RUN_S: Final = 1800.0
"""For an end."""
LONGEST_S: Final = 10.0
"""Of a pause, as in a validation."""
LOOK_S: Final = 0.002
"""Between two looks at gates."""
KILLS: Final = 10
"""Of a process that holds the gates, in each job."""
_ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "WHICHRANK_JOB": "gate"}
_LOAD: Final = "while True: pass"


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one job."""

    job: str
    ranks: int
    pauses: int
    """How often it was paused."""
    hangs: int
    """Pauses to which not all ranks came, or that not all left."""
    astray: int
    """Pauses in which a rank waited behind another step, or in an operation."""
    is_equal: bool
    """Its parameters are those of a job that is not paused, bit for bit."""
    steps: int
    come_s: tuple[float, ...]
    """From the order until all ranks waited, by pause."""
    goes_on_s: tuple[float, ...]
    """From the death of who held the gates until the last rank went on, by kill."""

    @property
    def is_right(self) -> bool:
        """Whether nothing went wrong."""
        return self.is_equal and not self.hangs and not self.astray


def try_job(job: str, pauses: int, show_progress: Callable[[float], None]) -> GateResult:
    """Pause one job.

    Args:
        job: A key of RANKS.
        pauses: How often.
        show_progress: Called with the share that is done.

    Raises:
        SensorError: The job does not start, or does not end.
    """
    prepare(lambda _: None)
    with tempfile.TemporaryDirectory(prefix="whichrank-gate-") as name, _load():
        paused, plain = Path(name, "paused"), Path(name, "plain")
        with _started(job, 0, paused, is_seen=True) as process:
            holder = _Holder(process, _rings(process, paused / "rings", RANKS[job]))
            for number in range(1, pauses + 1):
                holder.pause(number)
                show_progress(0.7 * number / pauses)
            goes_on_s = [holder.die(pauses + number) for number in range(1, KILLS + 1)]
            (paused / "enough").touch()
            _wait(process, paused)
        said = _said(paused, RANKS[job])
        steps = int(said[0].split()[0])
        with _started(job, steps, plain, is_seen=False) as process:
            _wait(process, plain)
        return GateResult(
            job=job, ranks=RANKS[job], pauses=pauses, hangs=holder.hangs, astray=holder.astray,
            is_equal=said == _said(plain, RANKS[job]), steps=steps, come_s=tuple(holder.come_s),
            goes_on_s=tuple(goes_on_s),
        )  # fmt: skip


def gate_table(results: Sequence[GateResult]) -> str:
    """What came of it, a line for each figure."""
    lines = ["| job | what | n | median | most |", "|---|---|---:|---:|---:|"]
    for one in results:
        job = f"{one.job}, {one.ranks} ranks"
        same = "equal" if one.is_equal else "DIFFERENT"
        lines += [
            f"| {job} | pauses that hang | {one.pauses} | {one.hangs} | |",
            f"| {job} | pauses in which a rank waits elsewhere | {one.pauses} | {one.astray} | |",
            f"| {job} | parameters after {one.steps:,} steps, beside a job that is not paused | 1 | {same} | |",
            f"| {job} | from the order until all wait | {len(one.come_s)} | {_seconds(one.come_s)} |",
            f"| {job} | who holds the gates is killed: until all go on | {len(one.goes_on_s)}"
            f" | {_seconds(one.goes_on_s)} |",
        ]
    return "\n".join(lines)


def _seconds(values: Sequence[float]) -> str:
    return f"{np.median(values):.3f} s | {max(values):.3f} s" if values else " | "


class _Holder:
    """Holds the gates of a job.

    Args:
        process: Its launcher.
        paths: Of all rings.
    """

    def __init__(self, process: subprocess.Popen[bytes], paths: Sequence[Path]) -> None:
        self._process, self._paths = process, paths
        self._gates, self._readers = [RingGate(path) for path in paths], [RingReader(path) for path in paths]
        self._random = random.Random(1)
        self.hangs, self.astray, self.come_s = 0, 0, list[float]()
        began_s, before = time.monotonic(), min(self._steps())
        time.sleep(MEASURED_S)
        self._step_s = (time.monotonic() - began_s) / max(1, min(self._steps()) - before)

    def pause(self, number: int) -> None:
        """Keep all ranks behind a step, look at them, and let them go."""
        step = self._step_in(AHEAD_S) + self._random.randrange(3)
        began_s = time.monotonic()
        _shut(self._gates, number, step)
        if self._until("arrived", number):
            self.come_s.append(time.monotonic() - began_s)
            is_blocked = any(len(reader.snapshot().waits) for reader in self._readers)
            self.astray += is_blocked or self._steps() != [step] * len(self._gates)
            time.sleep(self._random.random() * 0.01)
        else:
            self.hangs += 1
        self._open()
        self.hangs += not self._until("opened", number)

    def die(self, number: int) -> float:
        """Have a process hold the gates and kill it: seconds until the last rank goes on."""
        command = [sys.executable, "-m", "whichrank.testbed.bench.gate", str(number), str(self._step_in(START_S))]
        with subprocess.Popen([*command, *map(str, self._paths)], stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            killed_ns = time.monotonic_ns()
            process.kill()
        self.hangs += not self._until("opened", number, is_renewed=False)
        self._open()
        return (max(int(gate.read()["opened_ns"]) for gate in self._gates) - killed_ns) / 1e9

    def _step_in(self, seconds: float) -> int:
        return max(self._steps()) + max(3, math.ceil(seconds / self._step_s))

    def _open(self) -> None:
        for gate in self._gates:
            gate.open()

    def _steps(self) -> list[int]:
        return [int(gate.read()["steps"]) for gate in self._gates]

    def _until(self, field: str, number: int, *, is_renewed: bool = True) -> bool:
        """Wait until all ranks say this number; whether they do."""
        give_up_s, count = time.monotonic() + PATIENCE_S, 0
        while any(int(gate.read()[field]) != number for gate in self._gates):
            if time.monotonic() > give_up_s or self._process.poll() is not None:
                return False
            count += 1
            for gate in self._gates if is_renewed else ():
                gate.renew(count)
            time.sleep(LOOK_S)
        return True


def _shut(gates: Sequence[RingGate], number: int, step: int) -> None:
    for gate in gates:
        gate.shut(number, longest_s=LONGEST_S, at_step=step)


def _hold_until_killed(number: int, step: int, gates: Sequence[RingGate]) -> None:
    """Keep all ranks behind a step, and say so once they have come there."""
    _shut(gates, number, step)
    is_said, count = False, 0
    while True:
        count += 1
        for gate in gates:
            gate.renew(count)
        if not is_said and all(int(gate.read()["arrived"]) == number for gate in gates):
            is_said = True
            print("closed", flush=True)
        time.sleep(LOOK_S)


@contextlib.contextmanager
def _load() -> Iterator[None]:
    """A busy process for each core."""
    busy = [subprocess.Popen([sys.executable, "-c", _LOAD]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _started(job: str, steps: int, folder: Path, *, is_seen: bool) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "rings").mkdir(parents=True)
    environment = os.environ | _ENVIRONMENT
    environment |= {"WHICHRANK_DIR": str(folder / "rings")} if is_seen else {"WHICHRANK_DISABLE": "1"}
    command = ["whichrank.testbed.demo.launcher", "--nproc", str(RANKS[job]), "--"]
    command += ["-m", "whichrank.testbed.bench.gated_job", job, str(steps), str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", *command], env=environment, stdout=log, stderr=log)
    try:
        yield process
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _rings(process: subprocess.Popen[bytes], folder: Path, ranks: int) -> list[Path]:
    """Of all ranks, once each has made a few steps."""
    give_up_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_s and process.poll() is None:
        time.sleep(0.1)
        paths = sorted(folder.glob("*.ring"))
        with contextlib.suppress(OSError, WhichrankError):
            if len(paths) == ranks and all(_steps_of(path) > FIRST_STEPS for path in paths):
                return paths
    raise SensorError("the job makes no steps", where=_tail(folder.parent), mend="whichrank doctor")


def _steps_of(path: Path) -> int:
    gate = RingGate(path)
    try:
        return int(gate.read()["steps"])
    finally:
        gate.let_go()


def _wait(process: subprocess.Popen[bytes], folder: Path) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        if process.wait(LONGEST_RUN_S) == 0:
            return
    raise SensorError("the job does not come to its end", where=_tail(folder), mend="whichrank doctor")


def _tail(folder: Path) -> str:
    lines = (folder / "log").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it says nothing"


def _said(folder: Path, ranks: int) -> list[str]:
    return [(folder / f"said.{rank}").read_text() for rank in range(ranks)]


if __name__ == "__main__":
    _hold_until_killed(int(sys.argv[1]), int(sys.argv[2]), [RingGate(Path(path)) for path in sys.argv[3:]])

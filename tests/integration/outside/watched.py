"""A job under the real `whichrank run`, as a user starts it: what it said, what was found, and its end.

Faults are struck by somebody who knows nothing but pids (`whichrank.testbed.demo.outside`). That a job is under way is
read from what its script prints, so neither the victim nor the moment is taken from whichrank.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from whichrank.model.incident import Incident, decode_incident
from whichrank.testbed.bench.launch import preloaded as preloaded_launcher
from whichrank.testbed.bench.setup import HANG_TIMEOUT_S, NOTICE_MIN_S
from whichrank.testbed.demo.outside import OutsideInjector, Struck, ranks_below, ranks_from_file
from whichrank.testbed.demo.ports import free_port

RANKS = 4
PATIENCE_S = 150.0
"""Longer than anything takes; it is no claim about speed."""
TOOLS = Path(sys.executable).parent
UNDER_WAY = "step 10 "


class Watched:
    """A command under `whichrank run`, and everything of it ends with the block.

    Args:
        folder: working directory of the job, made if it is not there; incidents go where a run puts them by default.
        command: of the job.
        ranks: world size.
        environ: more variables for it.
    """

    def __init__(self, folder: Path, command: list[str], ranks: int = RANKS, **environ: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.ranks = ranks
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            self.process = subprocess.Popen(
                [TOOLS / "whichrank", "run", "--hang-timeout", str(HANG_TIMEOUT_S), "--", *command],
                cwd=folder,
                env=environment() | environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def pids(self) -> dict[int, int]:
        """Pids by rank, from the launcher's file or from the tree of processes."""
        return ranks_from_file(self.folder / "pids") or ranks_below(self.process.pid)

    def strike(self, blow: str, seed: str, after_s: tuple[float, float] = (2.0, 3.0)) -> Struck:
        """Strike a rank once the script says that it is under way.

        The first moment after that is late for an agent that looks for new ranks twice a second: how a process ended
        can be reported only of one that was seen before.
        """

        def find() -> dict[int, int]:
            assert self.process.poll() is None, f"it ended too early\n{self.log()}"
            return self.pids() if UNDER_WAY in self.said("stdout") else {}

        return OutsideInjector(blow, self.ranks, seed, find, after_s).strike(PATIENCE_S)

    def words(self) -> list[Incident]:
        """Every line that was written so far, updates too."""
        found = [path.read_bytes() for path in self.folder.glob("whichrank-out/*/incidents.jsonl")]
        lines = found[0].splitlines(keepends=True) if found else []
        return [decode_incident(line) for line in lines if line.endswith(b"\n")]

    def alerts(self) -> list[Incident]:
        """The alerts among them."""
        return [word for word in self.words() if word.severity == "alert"]

    def until(self, check: Callable[[], bool], what: str) -> None:
        """Wait until `check` holds."""
        give_up_s = time.monotonic() + PATIENCE_S
        while not check():
            assert time.monotonic() < give_up_s, f"not seen: {what}\n{self.words()}\n{self.log()}"
            time.sleep(0.1)

    def wait(self) -> int:
        """The exit code, once it has ended."""
        self.until(lambda: self.process.poll() is not None, "its end")
        return int(self.process.returncode)

    def said(self, stream: str) -> str:
        """What stands on stdout or stderr so far."""
        return (self.folder / stream).read_text(errors="replace")

    def log(self) -> str:
        """The last that it said, for people."""
        return self.said("stdout")[-500:] + self.said("stderr")[-4000:]

    def end(self) -> None:
        """End the job: the launcher first, then ranks that do not obey."""
        pids = self.pids().values()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.7)
        if self.process.poll() is None:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def environment() -> dict[str, str]:
    """Of a user's shell: nothing of another watched job, and a port that no other torchrun has."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WHICHRANK_")}
    kept |= {name: value for name, value in os.environ.items() if name == "WHICHRANK_CACHE"}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        kept.pop(name, None)
    return kept | {
        "PATH": f"{TOOLS}:{kept['PATH']}",
        "OMP_NUM_THREADS": "1",
        "PET_MASTER_PORT": str(free_port()),
        "WHICHRANK_NOTICE_MIN_S": str(NOTICE_MIN_S),
    }


def preloaded(
    nursery: Path, workload: str, *arguments: str, steps: int = 100_000, ranks: int = RANKS
) -> list[str]:  # fmt: skip
    """The command of a workload whose ranks are forked from a process that has loaded torch; any of them can doze."""
    launcher = [*preloaded_launcher(nursery), "--nproc", str(ranks), "--pids", "pids", "--"]
    script = [f"whichrank.testbed.demo.workloads.{workload}", "--steps", str(steps), *arguments]
    return [*launcher, "-m", "whichrank.testbed.demo.doze", *script]


def named(words: list[Incident]) -> set[int]:
    """Every rank that any of these lines names, as culprit or as candidate."""
    return {culprit.rank for word in words for culprit in (*word.culprits, *word.candidates)}


def judge(struck: Struck, words: list[Incident], log: str) -> None:
    """The last alert has the rank, the cause and the reason, and no line at all names anybody else."""
    last = [word for word in words if word.severity == "alert"][-1]
    reported = f"{struck}\n{words}\n{log}"
    assert [culprit.rank for culprit in last.culprits] == [struck.rank], reported
    assert last.cause in struck.blow.causes, reported
    assert last.reason == struck.blow.reason, reported
    assert named(words) == {struck.rank}, reported

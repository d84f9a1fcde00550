"""A process that is a rank as far as anybody outside can see: `ring_writer.py`, commanded line by line."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

PROGRAM = Path(__file__).with_name("ring_writer.py")
PATIENCE_S = 120.0


class RankProcess:
    """Starts in `folder` and has its ring when this returns; killed when the block ends."""

    def __init__(self, folder: Path, rank: int = 0, world: int = 1, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), str(rank), str(world), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self.ring = folder / f"{self.pid}.ring"
        assert self._answer() == "ready"

    def __enter__(self) -> RankProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()

    def do(self, line: str) -> str:
        """Command a step and return its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._answer()

    def order(self, line: str) -> None:
        """Command a step that gives no answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def eventually(check: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until `check` holds."""
    deadline_s = time.monotonic() + patience_s
    while not check():
        assert time.monotonic() < deadline_s, f"not within {patience_s} s"
        time.sleep(0.02)

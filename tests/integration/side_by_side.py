"""A node of a job under `whichrank run`, without torch: for tests of several of them side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rank_process import eventually

from whichrank.model.incident import Incident, decode_incident

NODE = Path(__file__).with_name("ranks_of_a_node.py")


class Run:
    """`whichrank run` over some ranks of a job; it has ended when the block ends.

    Args:
        folder: Made; all that it writes lies there.
        ranks: The first, and how many.
        world: Of the job.
        port: MASTER_PORT.
        options: Of `whichrank run`.
        on: What the command is started with, such as `unshare`.
        environ: Variables besides.
    """

    def __init__(
        self,
        folder: Path,
        ranks: tuple[int, int],
        world: int,
        port: int,
        *options: str,
        on: Sequence[str] = (),
        **environ: str,
    ) -> None:
        folder.mkdir()
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WHICHRANK_")}
        self.environ = kept | {"WHICHRANK_SHM": str(folder / "shm"), "NO_COLOR": "1", **environ}
        command = [*on, sys.executable, "-m", "whichrank", "run", "--output", str(folder / "out"), *options]
        command += ["--", sys.executable, str(NODE), *map(str, (*ranks, world, port))]
        with (folder / "said").open("wb") as said:
            self.process = subprocess.Popen(
                command, env=self.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "under way\n", self.said()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.communicate(timeout=60)

    def whichrank(self, *words: str, on: Sequence[str] = ()) -> str:
        """What a command prints beside the run, on both streams."""
        done = subprocess.run(
            [*on, sys.executable, "-m", "whichrank", *words],
            env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False,
        )  # fmt: skip
        return done.stdout.decode()

    def said(self) -> str:
        return (self.folder / "said").read_text()

    def address(self) -> str:
        """For `--join`: the file that the run has written."""
        eventually(lambda: "analyzes at" in self.said())
        return f"@{self.folder / 'out' / 'join'}"

    def stop(self, rank: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"stop {rank}\n")
        self.process.stdin.flush()

    def end(self) -> int:
        self.process.communicate(timeout=60)
        return self.process.returncode

    def alerts(self) -> list[Incident]:
        path = self.folder / "out" / "incidents.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [word for word in map(decode_incident, lines) if word.severity == "alert"]

"""Real Gloo jobs under `whichrank run`, on one node or on two, and a line between two nodes that can be cut."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from whichrank.errors import RingFormatError
from whichrank.model.incident import Incident, decode_incident
from whichrank.ring.reader import RingReader
from whichrank.testbed.demo.ports import free_port
from whichrank.wire.keys import new_key

NODE = Path(__file__).parent / "programs" / "node.py"
PATIENCE_S = 150.0


class RealJob:
    """A job whose nodes are runs of `whichrank run`; `end` leaves nothing behind."""

    def __init__(self, folder: Path, world: int) -> None:
        self.folder, self.world = folder, world
        self.runs: list[subprocess.Popen[bytes]] = []
        self._port = free_port()
        self._key = new_key()

    def start(self, first: int, here: int, *options: str) -> Path:
        """Start a node with `here` ranks from `first` on; where its run writes."""
        output = self.folder / f"node-{len(self.runs)}"
        output.mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WHICHRANK_", "TORCHELASTIC_"))}
        kept |= {"WHICHRANK_CACHE": os.environ["WHICHRANK_CACHE"]} if "WHICHRANK_CACHE" in os.environ else {}
        kept |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NO_COLOR": "1", "FOLDER": str(self.folder)}
        kept |= {"WHICHRANK_SHM": str(output / "shm"), "WHICHRANK_KEY": self._key}
        run = [sys.executable, "-m", "whichrank", "run", "--output", str(output), *options, "--"]
        node = [sys.executable, str(NODE), str(first), str(here), str(self.world), str(self._port)]
        with (output / "said").open("wb") as said:
            self.runs.append(subprocess.Popen([*run, *node], env=kept, cwd=output, stdout=said, stderr=said))
        return output

    def order(self, what: str) -> None:
        """Make a file that ranks look for."""
        (self.folder / what).touch()

    def issued(self) -> dict[int, tuple[int, int]]:
        """By rank: its pid and how many operations it has issued."""
        found = {}
        for path in self.folder.glob("node-*/shm/*/*.ring"):
            with suppress(RingFormatError, OSError), RingReader(path) as reader:
                header = reader.header()[0]
                found[int(header["rank"])] = int(header["pid"]), int(header["ordinal"])
        return found

    def until(self, check: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until `check` holds."""
        give_up_s = time.monotonic() + patience_s
        while not check():
            assert time.monotonic() < give_up_s, f"not within {patience_s} s: {what}\n{self.said()}"
            assert all(run.poll() is None for run in self.runs), f"a node ended before: {what}\n{self.said()}"
            time.sleep(0.05)

    def until_all_have_issued(self, operations: int) -> None:
        """Wait until the job is well under way."""
        self.until(
            lambda: len(issued := self.issued()) == self.world and min(n for _, n in issued.values()) >= operations,
            f"{operations} operations of each rank",
        )

    def said(self) -> str:
        """What all nodes have said."""
        return "\n".join(f"{p.parent.name}:\n{p.read_text()[-3000:]}" for p in self.folder.glob("node-*/said"))

    def end(self) -> None:
        """Kill every process of the job, the agents too."""
        mark = f"FOLDER={self.folder}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
        for run in self.runs:
            run.wait()


class Line:
    """Forwards a TCP port until it is cut: then it is silent and keeps what it was given, as a broken network does."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.forwarded_bytes = 0
        self._whole = threading.Event()
        self._whole.set()
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self.mend()
        self._threads[0].join()
        self._listener.close()
        self.mend()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """Be silent from now on."""
        self._whole.clear()

    def mend(self) -> None:
        """Reset what hung in the line, and forward again."""
        for end in self._ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends.clear()
        self._whole.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._whole.wait()
                self._ends.append(near)
                far = socket.create_connection(("127.0.0.1", self._to_port))
                self._ends.append(far)
                for ends in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=self._pump, args=ends))
                    self._threads[-1].start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                self._whole.wait()
                sink.sendall(content)
                self.forwarded_bytes += len(content)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def alerts(output: Path) -> list[Incident]:
    """Alerts that a run has written, every word of them, oldest first."""
    path = output / "incidents.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    words = [decode_incident(line) for line in lines if line.endswith(b"\n")]
    return [word for word in words if word.severity == "alert"]


def agents_of(folder: Path) -> list[int]:
    """Pids of the agents of a job."""
    mark, found = f"FOLDER={folder}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_agent = b"whichrank\0agent\0" in (entry / "cmdline").read_bytes()
            if is_agent and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found

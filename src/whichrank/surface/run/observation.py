"""What watches a job from the process of `whichrank run`: the agent of this node, and the analyzer or the way to one.

All that takes long to import is imported with this file, and the session does that once the job runs: a job starts at
once, and one that ends at once with no ring never pays for it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import zmq

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig, Config
from whichrank.errors import SensorError, WhichrankError
from whichrank.ring.folder import SOCKET_NAME, JobFolder
from whichrank.server.address import (
    JOIN_FILE,
    KEY,
    Endpoint,
    address_for_others,
    joined_endpoint,
    served_endpoint,
)
from whichrank.server.loop import AnalyzerLike, AnalyzerLoop
from whichrank.server.private_file import write_private
from whichrank.server.record import Record
from whichrank.server.supervisor import AgentSupervisor
from whichrank.server.taped import Taped, head_of
from whichrank.surface.run.console import Console
from whichrank.surface.run.reach import Reach
from whichrank.wire.address import AddressInUseError, is_from_here_only
from whichrank.wire.tape import FILE_NAME
from whichrank.wire.zmq_transport import ZmqAnalyzerEnd

LONGEST_SOCKET_PATH: Final = 100
_JOIN_FLUSH_S: Final = 5.0
_JOIN_POLL_S: Final = 0.5


class Observation:
    """Watches one job. Close it at the end.

    Args:
        config: All settings.
        folder: Where the job's rings come.
        console: Says what is found.

    Attributes:
        loop: The analyzer's loop; None before the start, where another machine analyzes, and after `give_up`.
    """

    def __init__(self, config: Config, folder: JobFolder, console: Console) -> None:
        self.loop: AnalyzerLoop | None = None
        self._config = config
        self._folder = folder
        self._console = console
        self._end: ZmqAnalyzerEnd | None = None
        self._join: AgentSupervisor | None = None
        self._reach: Reach | None = None
        self._key = ""
        self._poller = zmq.Poller()
        self._closing: list[Callable[[], None]] = []

    def listen(self) -> None:
        """Let agents come.

        Raises:
            AddressInUseError: Something else listens at the address of `--serve`.
            SensorError: It cannot listen for another reason.
        """
        try:
            self._end = self._opened()
        except WhichrankError as error:
            if isinstance(error, AddressInUseError) and self._config.run.serve:  # asked for before the job is started
                what = f"{error.what}, so the job is not started"
                raise AddressInUseError(what, where=error.where, mend=error.mend) from error
            what = f"{error.what}, so the job runs without diagnosis"
            raise SensorError(what, where=error.where, mend=error.mend) from error
        self._closing.append(self._end.close)

    def start(self, record: Record | None) -> None:
        """Start the agent, and the analyzer if this is the machine that analyzes.

        Args:
            record: Where incidents are written; None if there is no place.
        """
        log = record.folder / "agent.log" if record else None
        if self._config.run.join:
            joined = joined_endpoint("--join", self._config.run.join, os.environ, insecure=self._config.run.insecure)
            self._join, self._reach = AgentSupervisor(self._folder, joined, log), Reach(joined)
            self._closing.append(self._join.close)
            self._join.step()
        else:
            self._analyze(record, log)

    def wait(self, fd: int) -> None:
        """Until this descriptor is readable, or there is something to do."""
        self._poller.register(fd, zmq.POLLIN)  # which it may be already
        self._poller.poll(self._wait_ms())

    def step(self) -> None:
        """Do what is due."""
        if self.loop:
            self.loop.step()
        if self._join:
            self._join.step()
            self._say_of_join(self._join)

    def give_up(self) -> None:
        """Analyze no more."""
        if self.loop:
            for socket in self.loop.pollables():
                self._poller.unregister(socket)
            self.loop = None

    def drain(self) -> None:
        """The job has ended: let agents say what they still have, and come to the final verdict."""
        if self._join:
            deadline_s = time.monotonic() + _JOIN_FLUSH_S
            while not self._join.end() and time.monotonic() < deadline_s:
                time.sleep(0.02)
        if self.loop:
            self.loop.drain()

    def close(self) -> None:
        """Let go of everything."""
        while self._closing:
            with contextlib.suppress(Exception):
                self._closing.pop()()

    def _analyze(self, record: Record | None, log: Path | None) -> None:
        if self._end is None:
            self.listen()
        assert self._end
        agent = AgentSupervisor(self._folder, Endpoint(self._end.addresses[0], ""), log)
        self._closing.append(agent.close)
        offset_s = time.time() - time.monotonic()
        analyzer = _analyzer(self._config.analyzer, self._folder.job, offset_s)
        if self._config.run.record and record:
            analyzer = self._taped(analyzer, record.folder, offset_s)
        tick_s = self._config.analyzer.tick_s
        self.loop = AnalyzerLoop(
            self._end,
            analyzer,
            agent,
            tick_s,
            self._console,
            record,
            may_pause=self._config.run.validate == "auto",
            mitigate=self._config.run.mitigate,
        )
        for socket in self.loop.pollables():
            self._poller.register(socket, zmq.POLLIN)
        self.loop.step()

    def _taped(self, analyzer: AnalyzerLike, folder: Path, utc_offset_s: float) -> AnalyzerLike:
        head = head_of(self._config.analyzer, self._folder.job, utc_offset_s)
        try:
            taped = Taped(analyzer, folder / FILE_NAME, head, self._console.say)
        except OSError as error:
            self._console.say(f"this run is not recorded: {error.strerror} ({folder / FILE_NAME})")
            return analyzer
        self._closing.append(taped.close)
        return taped

    def say_where(self, record: Record | None) -> None:
        """How others join, once it listens. The key is written to a file: a terminal's text may be kept for others."""
        assert self._end
        address = self._end.addresses[-1]
        others = address_for_others(address)
        hows = [f"--join {others} and the same {KEY}"] if KEY in os.environ else []
        warning = ""
        if address.startswith("ipc:"):
            hows = [f"--join {address}"]
        elif not self._key:
            hows = [f"--join {others} --insecure"]
            warning = "; whoever reaches this port can send false data, and nothing is encrypted"
        elif record:
            path = record.folder / JOIN_FILE
            with contextlib.suppress(OSError):
                write_private(path, Endpoint(others, self._key).as_text().encode() + b"\n")
                self._closing.append(path.unlink)
                hows.insert(0, f"--join @{shlex.quote(str(path))}")
        how = " or ".join(hows)
        what = f"start the others with {how}" if how else f"set {KEY} on all machines, since no file can hold the key"
        here = ", which no other machine reaches" if is_from_here_only(address) else ""
        self._console.say(f"this machine analyzes at {address}{here}; {what}{warning}")

    def _opened(self) -> ZmqAnalyzerEnd:
        run = self._config.run
        if run.serve is None:
            return ZmqAnalyzerEnd([self._local_address()])
        address, self._key = served_endpoint(run.serve, os.environ, insecure=run.insecure)
        return ZmqAnalyzerEnd([self._local_address(), address], self._key)

    def _local_address(self) -> str:
        """For the agent of this node a socket in the job's own folder, or in another one if that path is too long."""
        path = self._folder.path / SOCKET_NAME
        if len(str(path)) > LONGEST_SOCKET_PATH:
            short = tempfile.TemporaryDirectory(prefix="whichrank-")
            self._closing.append(short.cleanup)
            path = Path(short.name) / SOCKET_NAME
        return f"ipc://{path}"

    def _say_of_join(self, join: AgentSupervisor) -> None:
        if news := join.news():
            self._console.say(news)
        if self._reach and (why := self._reach.failed()):
            self._console.say(why)
            self._reach = None

    def _wait_ms(self) -> int | None:
        if self.loop:
            return int(self.loop.wait_s() * 1000) + 1
        return int(_JOIN_POLL_S * 1000) if self._join else None


def _analyzer(config: AnalyzerConfig, job: str, utc_offset_s: float) -> AnalyzerLike:
    return Analyzer(config, job, utc_offset_s=utc_offset_s, is_live=True)

"""What watches a job from the process of `whichrank run`: the agent of this node, and the analyzer or the way to one.

All that takes long to import is imported with this file, and the session does that once the job runs: a job starts at
once, and one that ends at once with no ring never pays for it.
"""

from __future__ import annotations

import contextlib
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
from whichrank.server.agent_process import AgentSupervisor
from whichrank.server.loop import AnalyzerLike, AnalyzerLoop
from whichrank.server.record import Record
from whichrank.server.taped import Taped, head_of
from whichrank.surface.run.console import Console
from whichrank.surface.run.reach import Reach
from whichrank.wire.address import AddressInUseError, full_address, is_from_here_only
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
        self._poller = zmq.Poller()
        self._closing: list[Callable[[], None]] = []

    def listen(self) -> None:
        """Let agents come.

        Raises:
            AddressInUseError: Something else listens at the address of `--serve`.
            SensorError: It cannot listen for another reason.
        """
        try:
            self._end = ZmqAnalyzerEnd(self._addresses())
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
            address = full_address(self._config.run.join)
            self._join, self._reach = AgentSupervisor(self._folder, address, log), Reach(address)
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
            self._poller.unregister(self.loop.pollable())
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
        agent = AgentSupervisor(self._folder, self._end.addresses[0], log)
        self._closing.append(agent.close)
        offset_s = time.time() - time.monotonic()
        analyzer = _analyzer(self._config.analyzer, self._folder.job, offset_s)
        if self._config.run.record and record:
            analyzer = self._taped(analyzer, record.folder, offset_s)
        tick_s = self._config.analyzer.tick_s
        self.loop = AnalyzerLoop(self._end, analyzer, agent, tick_s, self._console, record)
        self._poller.register(self.loop.pollable(), zmq.POLLIN)
        self.loop.step()
        if self._config.run.serve:
            address = self._end.addresses[-1]
            others = "start the others with --join"
            if is_from_here_only(address):
                others = "no other machine reaches that: give --serve the address of a network interface, or 0.0.0.0"
            self._console.say(f"this machine analyzes at {address}; {others}")

    def _taped(self, analyzer: AnalyzerLike, folder: Path, utc_offset_s: float) -> AnalyzerLike:
        head = head_of(self._config.analyzer, self._folder.job, utc_offset_s)
        try:
            taped = Taped(analyzer, folder / FILE_NAME, head, self._console.say)
        except OSError as error:
            self._console.say(f"this run is not recorded: {error.strerror} ({folder / FILE_NAME})")
            return analyzer
        self._closing.append(taped.close)
        return taped

    def _addresses(self) -> list[str]:
        """For the agent of this node a socket in the job's own folder, or in another one if that path is too long."""
        path = self._folder.path / SOCKET_NAME
        if len(str(path)) > LONGEST_SOCKET_PATH:
            short = tempfile.TemporaryDirectory(prefix="whichrank-")
            self._closing.append(short.cleanup)
            path = Path(short.name) / SOCKET_NAME
        return [f"ipc://{path}", *([self._config.run.serve] if self._config.run.serve else [])]

    def _say_of_join(self, join: AgentSupervisor) -> None:
        if news := join.news():
            self._console.say(news)
        if self._reach and self._reach.failed():
            self._console.say(f"no analyzer answers at {self._reach.address}; still trying")
            self._reach = None

    def _wait_ms(self) -> int | None:
        if self.loop:
            return int(self.loop.wait_s() * 1000) + 1
        return int(_JOIN_POLL_S * 1000) if self._join else None


def _analyzer(config: AnalyzerConfig, job: str, utc_offset_s: float) -> AnalyzerLike:
    return Analyzer(config, job, utc_offset_s=utc_offset_s, is_live=True)

"""Logs, read for what they say of ranks: torchrun's and srun's, those of torch's watchdog, of NCCL, of the kernel.

A log is text of any length and mostly of other things, so lines are read one by one, and only those that look
like one that is known are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import IO, Final

from whichrank.errors import FormatError
from whichrank.intake.facts import Fact, Xid, status_of_code
from whichrank.intake.log_time import UNTIMED, torch_time_s, torchrun_time_s
from whichrank.intake.watchdog import HINTS, Standing, Watchdog

MOST_LINE: Final = 1 << 14
MOST_BYTES: Final = 8 << 30
MOST_FACTS: Final = 1 << 20
MOST_RANK: Final = 1 << 20
MOST_WARNINGS: Final = 3
"""Of NCCL, of each process: the first ones, since the others are of what followed."""
_FIELD: Final = re.compile(r"^\s*(time|host|rank|exitcode|error_file|traceback)\s*: ?(.*)$")
_RANK: Final = re.compile(r"^(\d{1,9}) \(local_rank: \d{1,9}\)$")
_EXIT: Final = re.compile(r"^(-?\d{1,9}) \(pid: (\d{1,10})\)$")
_SRUN: Final = re.compile(r"srun: error: (\S+): tasks? ([\d,\-]+): (.+)$")
_NCCL: Final = re.compile(r"(?<![\w.:-])([\w.-]{1,255}):(\d{1,10}):\d{1,10} \[(\d{1,4})\] .*?NCCL (INFO|WARN) (.*)$")
_NCCL_RANK: Final = re.compile(r"\brank (\d{1,9}) nranks (\d{1,9})\b")
_XID: Final = re.compile(
    r"(?:(\S{1,255}) kernel: .{0,255}?)?NVRM: Xid \((PCI:[0-9a-fA-F:.]+)\): (\d{1,6})(?:, pid='?(\d{1,10})'?)?,? ?(.*)$"
)
_RESTART: Final = re.compile(
    r"will restart worker group|\b(?:TORCHELASTIC_RESTART_COUNT|restart_count) ?[=:] ?([1-9]\d{0,5})\b"
)
"""torchrun begins another attempt, or something says which one it is."""
_SIGNALS: Final = {
    "Killed": 9, "Terminated": 15, "Aborted": 6, "Segmentation fault": 11, "Bus error": 7, "Hangup": 1, "Interrupt": 2,
    "Floating point exception": 8, "Illegal instruction": 4, "Out Of Memory": 9,
}  # fmt: skip


@dataclass
class Log:
    """What a log says.

    Attributes:
        facts: Of ranks.
        xids: Of devices.
        standings: How far ranks are on their groups, by torch's watchdog.
        most_rank: The highest rank that its watchdogs mention, -1 if they mention none.
        restarts_s: When its launcher said that it starts the workers again, see `log_time`.
    """

    facts: list[Fact] = field(default_factory=list)
    xids: list[Xid] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    most_rank: int = -1
    restarts_s: list[float] = field(default_factory=list)


def read_log(stream: IO[bytes]) -> Log:
    """What a text says of ranks, processes and devices.

    Raises:
        FormatError: It says nothing of them, or is too long.
    """
    log = Log()
    block: dict[str, str] = {}
    nccl, watchdog = _Nccl(), Watchdog()
    at_s, attempt = UNTIMED, 0
    for line in _lines(stream):
        before = len(log.facts)
        if (said_s := torch_time_s(line)) >= 0:
            at_s = said_s
        if found := _FIELD.match(line):
            name, value = found.groups()
            if name == "time":
                block = {}
            block[name] = value.strip()
            if name == "traceback":
                log.facts += _of_torchrun(block)
        elif found := _RESTART.search(line):
            number = int(found.group(1) or attempt + 1)
            if number > attempt:
                attempt, watchdog.part = number, watchdog.part + 1
                log.restarts_s.append(at_s)
        elif "srun: error:" in line:
            log.facts += _of_srun(line)
        elif " NCCL " in line and (found := _NCCL.search(line)):
            nccl.see(*found.groups())
        elif any(hint in line for hint in HINTS):
            watchdog.see(line)
        elif "NVRM: Xid" in line and (found := _XID.search(line)):
            host, device, number_, pid, words = found.groups()
            log.xids.append(Xid(int(number_), device, host or "", int(pid or 0), words[:200]))
        elif block.get("traceback") == "Traceback (most recent call last):" and line.strip():
            log.facts = _with_exception(log.facts, block, line)
        for place in range(before, len(log.facts)):
            one = log.facts[place]
            log.facts[place] = replace(one, at_s=at_s if one.at_s < 0 else one.at_s, part=watchdog.part)
        if len(log.facts) + len(log.xids) + len(watchdog.standings) > MOST_FACTS:
            raise FormatError("it says too much of ranks to be a log")
    log.facts += (replace(fact, part=watchdog.part) for fact in nccl.facts())
    log.standings, log.most_rank = watchdog.reported(), watchdog.most_rank
    if not log.facts and not log.xids and not log.standings:
        raise FormatError("it says nothing of ranks")
    return log


class _Nccl:
    """What processes write with NCCL_DEBUG=WARN or INFO: who they are, and what went wrong first.

    A process says its rank when it joins a communicator; of several the largest is taken for all of the job.
    """

    def __init__(self) -> None:
        self._rank: dict[tuple[str, int], tuple[int, int]] = {}
        self._warnings: dict[tuple[str, int], list[str]] = {}

    def see(self, host: str, pid: str, _device: str, level: str, text: str) -> None:
        """A line of a process."""
        process = host, int(pid)
        if level == "WARN":
            warnings = self._warnings.setdefault(process, [])
            if len(warnings) < MOST_WARNINGS and len(self._warnings) < MOST_FACTS:
                warnings.append(f"NCCL warns: {text[:200]}")
        elif found := _NCCL_RANK.search(text):
            rank, size = int(found.group(1)), int(found.group(2))
            if rank < size <= MOST_RANK and size > self._rank.get(process, (0, 0))[1]:
                self._rank[process] = rank, size

    def facts(self) -> list[Fact]:
        """Of the processes that said their rank in the largest communicator."""
        most = max((size for _, size in self._rank.values()), default=0)
        known = {  # a rank that is started again is another process
            rank: Fact(rank, host, pid, words=tuple(self._warnings.get((host, pid), ())), world_size=size)
            for (host, pid), (rank, size) in self._rank.items()
            if size == most
        }
        return list(known.values())


def _lines(stream: IO[bytes]) -> Iterator[str]:
    total = 0
    while line := stream.readline(MOST_LINE):
        total += len(line)
        if total > MOST_BYTES:
            raise FormatError(f"it is longer than {MOST_BYTES >> 30} GiB")
        yield line.decode("utf-8", "replace").rstrip("\r\n")


def _of_torchrun(block: dict[str, str]) -> list[Fact]:
    """A failure in torchrun's summary: host, rank, exit code, the first line of what it says of the cause."""
    rank, ended = _RANK.match(block.get("rank", "")), _EXIT.match(block.get("exitcode", ""))
    if not rank or not ended or int(rank.group(1)) >= MOST_RANK:
        return []
    code, pid = int(ended.group(1)), int(ended.group(2))
    words = f"exitcode {code} (torchrun, {block.get('time', 'time not known')})"
    at_s = torchrun_time_s(block.get("time", ""))
    return [Fact(int(rank.group(1)), block.get("host", ""), pid, status_of_code(code), words=(words,), at_s=at_s)]


def _with_exception(facts: list[Fact], block: dict[str, str], line: str) -> list[Fact]:
    """The traceback goes on: its last line that begins like one names the exception."""
    found = re.match(r"^\s*(\w+(?:\.\w+)*(?:Error|Exception|Interrupt|Exit)\b.*)$", line)
    rank = _RANK.match(block.get("rank", ""))
    if not found or not rank or not facts or facts[-1].rank != int(rank.group(1)):
        return facts
    last = facts[-1]
    return [*facts[:-1], replace(last, exception=found.group(1)[:200])]


def _of_srun(line: str) -> list[Fact]:
    """`srun: error: node3: tasks 4-7: Exited with exit code 1`: tasks are ranks where srun starts them itself."""
    found = _SRUN.search(line)
    if not found:
        return []
    host, tasks, how = found.groups()
    exited = re.match(r"Exited with exit code (\d{1,9})", how)
    signal = next((number for word, number in _SIGNALS.items() if how.startswith(word)), None)
    if exited:
        status = status_of_code(int(exited.group(1)))
    elif signal is not None:
        status = signal
    else:
        return []
    return [Fact(rank, host, 0, status, words=(f"{how} (srun)",), by_task=True) for rank in _numbers(tasks)]


def _numbers(text: str) -> list[int]:
    """`0,3,5-7` as numbers."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()) and int(last or first) < MOST_RANK:
            found += range(int(first), int(last or first) + 1)
    return found

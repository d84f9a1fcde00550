"""What launchers write of processes that ended: torchrun, srun, mpirun; and who raised what, by its traceback."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from whichrank.intake.facts import SIGKILL, SIGTERM, Fact, status_of_code, survived
from whichrank.intake.lines.prefixes import MOST_RANK, Who
from whichrank.intake.log_time import UNTIMED, torchrun_time_s

_FIELD: Final = re.compile(r"^\s{0,16}(time|host|rank|exitcode|error_file|traceback)\s{0,8}: ?(.{0,400})$")
_RANK: Final = re.compile(r"^(\d{1,9}) \(local_rank: \d{1,9}\)")
_EXIT: Final = re.compile(r"^(-?\d{1,9}) \(pid: (\d{1,10})\)")
_SRUN: Final = re.compile(r"srun: error: (\S{1,128}): tasks? ([\d,\-]{1,4096}): (.{1,200})$")
_MPIRUN: Final = re.compile(
    r" noticed that process rank (\d{1,7}) with PID (\d{1,10}) on node (\S{1,128}) exited on signal (\d{1,3})"
)
_RAISED: Final = re.compile(r"^\s{0,8}([A-Za-z_][\w.]{0,120}(?:Error|Exception|Interrupt|Exit)(?:: .{0,400})?)$")
_NAMED: Final = re.compile(r"^((?:\w{1,64}\.){0,8}[A-Z]\w{2,64}(?:: .{0,400})?)$")
"""Of an exception whose name does not say that it is one; believed at the end of a traceback only."""
_OF_OTHERS: Final = re.compile(
    r"(?<![\w/.-])NCCL(?![\w/.-])|\bnccl[A-Z]\w|\bDist(?:Backend|Network|Store|QueueEmpty)?Error\b|Watchdog caught|"
    r"monitoredBarrier|[Gg]loo|[Cc]onnection ?(?:closed|reset|refused|aborted|timed)|BrokenPipe|Broken pipe|EOFError|"
    r"CalledProcessError|ChildFailedError|TCPStore|[Ss]ocket (?:has )?[Tt]imed? ?[Oo]ut|SignalException|TimeoutError|"
    r"Rendezvous\w*Error|KeyboardInterrupt|SystemExit|waiting for clients|store[- ]based barrier|wait timeout|"
    r"client socket|\bRPC\b|[Rr]emote rank|from rank \d|with process \d|in process 0\b|DDP expects same model|"
    r"queue\.Empty"
)
"""An exception that another rank's end, delay or other model can have led to."""
_OF_DEVICE: Final = re.compile(
    r"watchdog thread terminated with exception: (CUDA error: (?!.{0,40}shutting down).{1,160})$"
)
"""An error of its device that a rank's watchdog has met, and no timeout."""
_IGNORED: Final = "Exception ignored in"
_GOES_ON: Final = re.compile(
    r"\b(?:step|iter|iteration|epoch|loss)\b.{0,40}\d|\b(?:INFO|DEBUG|WARNING)\b|fall(?:ing|s)? ?back|\b[Rr]etrying\b"
)
"""What a rank writes that works on: no line of an exception's text."""
_SIGNALS: Final = {
    "Killed": 9, "Terminated": 15, "Aborted": 6, "Segmentation fault": 11, "Bus error": 7, "Hangup": 1, "Interrupt": 2,
    "Floating point exception": 8, "Illegal instruction": 4, "Out Of Memory": 9,
}  # fmt: skip


class Launchers:
    """The lines of launchers in a log.

    Attributes:
        facts: Of ranks that ended, in the order in which they are written.
    """

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._blocks: dict[Who, dict[str, str]] = {}
        self._traceback: dict[Who, bool] = {}
        self._raised: set[Who] = set()

    def see(self, line: str, who: Who, at_s: float = UNTIMED) -> bool:
        """A line that may be of a launcher; whether it was."""
        writer = who._replace(time="")
        before = len(self.facts)
        if found := _FIELD.match(line):
            self._see_field(writer, *found.groups())
        elif "srun: error:" in line:
            self.facts += _of_srun(line)
        elif found := _MPIRUN.search(line):
            rank, pid, host, number = found.groups()
            words = (f"ended by signal {number} (mpirun)",)
            self.facts.append(Fact(int(rank), host, int(pid), int(number), words=words))
        elif (found := _OF_DEVICE.search(line)) and who.rank is not None:
            self.facts.append(_with_exception(Fact(who.rank, who.host, who.pid), found.group(1)))
        elif line.startswith(_IGNORED):
            self._traceback[writer] = False
        elif line.startswith("Traceback (most recent call last)"):
            self._traceback.setdefault(writer, True)
        elif found := _RAISED.match(line) or (_NAMED.match(line) if self._traceback.get(writer) else None):
            self._see_exception(writer, found.group(1)[:200])
        else:
            if writer in self._raised and _GOES_ON.search(line):
                self._goes_on(writer)
            return False
        for place in range(before, len(self.facts)):
            one = self.facts[place]
            self.facts[place] = replace(one, at_s=at_s if one.at_s < 0 else one.at_s)
        return True

    def ended_of_themselves(self) -> list[Fact]:
        """The facts of a job that Slurm has ended, without tasks that it has ended with it."""
        return [
            fact
            for fact in self.facts
            if fact.lacked_memory or not fact.by_task or fact.status not in (SIGKILL, SIGTERM)
        ]

    def _see_field(self, writer: Who, name: str, value: str) -> None:
        if name == "time":
            self._blocks[writer] = {}
        block = self._blocks.setdefault(writer, {})
        block[name] = value.strip()
        if name == "traceback":
            self.facts += _of_torchrun(block)

    def _see_exception(self, writer: Who, text: str) -> None:
        """The last line of a traceback names the exception, in torchrun's summary or behind a rank's prefix."""
        block = self._blocks.get(writer, {})
        rank = _RANK.match(block.get("rank", ""))
        of_block = block.get("traceback") == "Traceback (most recent call last):" and rank is not None
        if of_block and rank and self.facts and self.facts[-1].rank == int(rank.group(1)):
            self.facts[-1] = _with_exception(self.facts[-1], text)
        elif self._traceback.pop(writer, False) and writer.rank is not None:
            self._raised.add(writer)
            self.facts.append(_with_exception(Fact(writer.rank, writer.host, writer.pid), text))

    def _goes_on(self, writer: Who) -> None:
        """A rank works on behind an exception: the program has caught it."""
        self._raised.discard(writer)
        for at in reversed(range(len(self.facts))):
            if self.facts[at].rank == writer.rank and self.facts[at].exception:
                self.facts[at] = survived(self.facts[at])
                break


def _with_exception(fact: Fact, text: str) -> Fact:
    if _OF_OTHERS.search(text):
        return replace(fact, words=(*fact.words, f"raised {text}"))
    return replace(fact, exception=text)


def _of_torchrun(block: dict[str, str]) -> list[Fact]:
    """A failure in torchrun's summary: host, rank, exit code, the first line of what it says of the cause."""
    rank, ended = _RANK.match(block.get("rank", "")), _EXIT.match(block.get("exitcode", ""))
    if not rank or not ended or int(rank.group(1)) >= MOST_RANK:
        return []
    code, pid = int(ended.group(1)), int(ended.group(2))
    words = f"exitcode {code} (torchrun, {block.get('time', 'time not known')})"
    at_s = torchrun_time_s(block.get("time", ""))
    return [Fact(int(rank.group(1)), block.get("host", ""), pid, status_of_code(code), words=(words,), at_s=at_s)]


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
    lacked = how.startswith("Out Of Memory")
    return [
        Fact(rank, host, 0, status, words=(f"{how} (srun)",), by_task=True, lacked_memory=lacked)
        for rank in numbers_in(tasks)
    ]


def numbers_in(text: str, most: int = MOST_RANK) -> list[int]:
    """`0,3,5-7` as numbers, those that are below `most`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if (
            first.isdecimal()
            and (not last or last.isdecimal())
            and len(last or first) < 16
            and int(last or first) < most
        ):
            found += range(int(first), min(int(last or first), int(first) + MOST_RANK) + 1)
    return found

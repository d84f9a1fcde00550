"""What ends of processes and pods say that does not name a rank: Ray, Kubernetes, DeepSpeed's launcher, accelerate.

Ray and Kubernetes name a process or a pod; which ranks those have say other lines. DeepSpeed and accelerate name
neither: DeepSpeed prints the command of the process that it started last, whichever has ended, so that its local rank
is not to be believed.

Kubernetes starts containers again one by one, while those of other pods go on waiting. Its words do not say which of
them failed first, so nobody is named by them; what is said is where the log of the failed container is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from whichrank.intake.facts import status_of_code
from whichrank.intake.lines.prefixes import MOST_RANK, Who
from whichrank.intake.log_time import UNTIMED
from whichrank.intake.plain_text import for_people

HINTS: Final = (
    "Worker exit type: ", ", memory used=", "world_rank=", "Setting up process group for", "OOMKilled", "Evicted",
    "[launch.py:", "CalledProcessError", "Name:   ", "restarting failed container", "Restart Count:",
    "CrashLoopBackOff", "failed (exitcode: ", "terminated with code", "terminated with signal",
    "terminated with exit code", "terminated with the following error", "CANCELLED", "Node failure on ", "MEMBER: ",
)  # fmt: skip
MOST: Final = 1 << 16
MOST_REMARKS: Final = 8
_RAYLET: Final = re.compile(
    r"Worker IP address: (\S{1,64}) Worker port: \d{1,6} Worker PID: (\d{1,10}) Worker exit type: (\w{1,40}) "
    r"Worker exit detail: (.{1,400})"
)
_EXIT_CODE: Final = re.compile(r"exit code (-?\d{1,6})\b")
_RAY_MEMORY: Final = re.compile(
    r"Memory on the node \(IP: (\S{1,64}), ID: \w{1,64}\) where the \w{1,16} \(.{0,400}?\bpid=(\d{1,10}), memory used="
)
_RAY_RANK: Final = re.compile(
    r"\((?:node_id=\w{1,64}, )?ip=([\w.:-]{1,64}), pid=(\d{1,10})\) world_rank=(\d{1,7}), local_rank="
)
_RAY_SELF: Final = re.compile(r"Setting up process group for: \S{1,200} \[rank=(\d{1,7}), world_size=(\d{1,7})\]")
_POD: Final = re.compile(r"^Name: {3,40}([a-z0-9][\w.-]{0,252})\s{0,8}$")
_GOT_POD: Final = re.compile(r"(?<!\S)([a-z0-9][\w.-]{0,252}) {2,80}\d{1,4}/\d{1,4} {2,40}(OOMKilled|Evicted)\b")
_REASON: Final = re.compile(r"^\s{2,16}Reason: {2,40}(OOMKilled|Evicted)\s{0,8}$|^Reason: {2,40}(Evicted)\s{0,8}$")
_EVENT: Final = re.compile(
    r"\bWarning {2,40}Evicted {2,40}(?:(?!pod/)\S{1,40} {2,40})?(?:pod/([a-z0-9][\w.-]{0,252}) {1,80})?(.{0,200})"
)
_BACK_OFF: Final = re.compile(
    r"\b[Bb]ack-off (?:\d\w{0,15} )?restarting failed container[ =]([a-z0-9][a-z0-9-]{0,62})(?: in pod | pod=)"
    r"([a-z0-9][a-z0-9.-]{0,252})"
)
_COUNT: Final = re.compile(r"^\s{2,16}Restart Count: {1,40}([1-9]\d{0,5})\s{0,8}$")
_LOOPS: Final = re.compile(
    r"(?<!\S)([a-z0-9][a-z0-9.-]{0,252}) {2,80}\d{1,4}/\d{1,4} {2,40}CrashLoopBackOff {2,40}([1-9]\d{0,5})\b"
)
_DEEPSPEED: Final = re.compile(
    r"\[launch\.py:\d{1,6}:\w{1,40}\] .{0,8000}? ?exits with return code = (-?\d{1,6})\s{0,8}$"
)
_SPAWNED: Final = re.compile(
    r"\[launch\.py:\d{1,6}:\w{1,40}\] process (\d{1,10}) spawned with command: .{0,4000}?--local_rank=(\d{1,5})\b"
)
_MAPPING: Final = re.compile(r"global_rank_mapping=.{0,64}?\{(.{0,65536})\}")
_MAPPED: Final = re.compile(r"'([^']{1,255})': \[([\d, ]{0,8192})\]")
_WORLD: Final = re.compile(r"\bdist_world_size=(\d{1,7})\b")
_CALLED: Final = re.compile(
    r"^subprocess\.CalledProcessError: Command .{0,8000} (?:died with <Signals\.(\w{1,12}): \d{1,3}>|returned non-zero "
    r"exit status (\d{1,6}))\.?\s{0,8}$"
)

_OF_TORCHRUN: Final = re.compile(r"failed \(exitcode: (-?\d{1,6})\) local_rank: (\d{1,5}) \(pid: (\d{1,10})\)")
_OF_LIGHTNING: Final = re.compile(r"Child process with PID (\d{1,10}) terminated with code (-?\d{1,6})\.")
_MEMBER: Final = re.compile(r"Initializing distributed: GLOBAL_RANK: \d{1,7}, MEMBER: \d{1,7}/(\d{1,7})\b")
_SPAWNED_ENDED: Final = re.compile(
    r"\b[Pp]rocess (\d{1,5}) terminated with (?:signal (\w{1,16})|exit code (\d{1,6})|the following error:)"
)
_CANCELLED: Final = re.compile(
    r"\*\*\* (?:JOB|STEP) \S{1,64} (?:ON \S{1,255} )?CANCELLED(?: AT \S{1,32})?"
    r"(?: DUE TO ([A-Za-z ]{1,40}?)(?=,| \*\*\*|$))?"
)
_NODE_FAILED: Final = re.compile(r"srun: error: Node failure on (\S{1,255})")
_WHY: Final = {
    "TIME LIMIT": "its time limit was over", "PREEMPTION": "another job had to have its nodes",
    "NODE FAILURE": "a node had failed",
}  # fmt: skip


@dataclass(frozen=True)
class End:
    """A process, or all of a pod, that has ended.

    Attributes:
        host: Where: an address, or the name of the pod; empty: not known.
        pid: Of the process; 0: not known.
        status: As from wait(2), -1: not known.
        text: Who says so, and how.
        lacked_memory: It was ended for lack of memory.
        at_s: When that was said, see `log_time`.
    """

    host: str
    pid: int
    status: int
    text: str
    lacked_memory: bool = False
    at_s: float = UNTIMED


class Ends:
    """Such lines of a log.

    Attributes:
        ends: Of processes and pods.
        places: By rank, host and pid of its process as launchers say it.
        remarks: What names nobody, for people.
        most_rank: The highest rank that is mentioned, -1 if none is.
        world_size: Ranks of the job, as a launcher says it; 0: none does.
        was_cancelled: Slurm has ended the job, and so its tasks.
    """

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.places: dict[int, tuple[str, int]] = {}
        self.remarks: dict[str, None] = {}
        self.most_rank = -1
        self.world_size = 0
        self.was_cancelled = False
        self._pod = ""
        self._ranks_on: dict[str, list[int]] = {}

    def see(self, line: str, who: Who, at_s: float = UNTIMED) -> bool:
        """A line in which one of `HINTS` stands; whether it is one of these."""
        return (
            self._see_processes(line, at_s)
            or self._see_slurm(line)
            or self._see_ray(line, who, at_s)
            or self._see_kubernetes(line, at_s)
            or self._see_container(line)
            or self._see_deepspeed(line, who)
            or self._see_accelerate(line)
        )

    def _see_processes(self, line: str, at_s: float) -> bool:
        """One line on a process: torchrun's agent and Lightning say its pid, torch.multiprocessing its number."""
        if found := _OF_TORCHRUN.search(line):
            code, local, pid = map(int, found.groups())
            how = f"torchrun reports that its local rank {local} ended {_how(code)}"
            self._add(End("", pid, status_of_code(code), how, at_s=at_s))
        elif found := _OF_LIGHTNING.search(line):
            pid, code = map(int, found.groups())
            self._add(End("", pid, status_of_code(code), f"Lightning reports that it ended {_how(code)}", at_s=at_s))
        elif found := _MEMBER.search(line):
            self._see_world(int(found.group(1)))
        elif found := _SPAWNED_ENDED.search(line):
            number, signal, status = found.groups()
            how = f"ended by {signal}" if signal else f"ended with code {status}" if status else "raised an exception"
            self._remark(
                f"torch.multiprocessing reports that its process {number} {how}; no line says which rank that is"
            )
        else:
            return False
        return True

    def _see_slurm(self, line: str) -> bool:
        """Why Slurm has ended the job, where it says that; tasks that it has ended say so themselves."""
        if found := _NODE_FAILED.search(line):
            self._remark(f"Slurm reports that node {for_people(found.group(1), 96)} has failed")
        elif (found := _CANCELLED.search(line)) and (reason := (found.group(1) or "").upper()) != "JOB REQUEUE":
            self.was_cancelled = True
            if why := _WHY.get(reason):
                self._remark(f"Slurm ended the job since {why}")
        else:
            return False
        return True

    def _see_ray(self, line: str, who: Who, at_s: float) -> bool:
        if found := _RAYLET.search(line):
            host, pid, kind, detail = found.groups()
            code = _EXIT_CODE.search(detail)
            lacks = "OUT_OF_MEMORY" in kind or "memory usage threshold" in detail
            status = 9 if lacks else status_of_code(int(code.group(1))) if code else -1
            how = f"its worker ended (Ray: {kind}, {for_people(detail, 100)})"
            self._add(End(host, int(pid), status, how, lacks, at_s))
        elif found := _RAY_MEMORY.search(line):
            self._add(End(found.group(1), int(found.group(2)), 9, "Ray killed it for lack of memory", True, at_s))
        elif found := _RAY_RANK.search(line):
            self._place(int(found.group(3)), found.group(1), int(found.group(2)))
        elif found := _RAY_SELF.search(line):
            self._place(int(found.group(1)), who.host, who.pid)
            self._see_world(int(found.group(2)))
        else:
            return False
        return True

    def _see_kubernetes(self, line: str, at_s: float) -> bool:
        if found := _POD.match(line):
            self._pod = found.group(1)
            return True
        pod = reason = ""
        if found := _GOT_POD.search(line):
            pod, reason = found.groups()
        elif found := _REASON.match(line):
            pod, reason = self._pod, found.group(1) or found.group(2)
        elif found := _EVENT.search(line):
            pod, reason = found.group(1) or self._pod, "Evicted"
        if not pod:
            return False
        lacks = reason == "OOMKilled"
        self._add(
            End(pod, 0, 9 if lacks else -1, f"Kubernetes reports {reason} of pod {for_people(pod, 96)}", lacks, at_s)
        )
        return True

    def _see_container(self, line: str) -> bool:
        """A container that Kubernetes has started again, or is going to."""
        if found := _BACK_OFF.search(line):
            name, pod = found.groups()
            self._remark(
                f"Kubernetes starts container {name} of pod {pod} again since it ended; what it wrote before is "
                f"printed by  kubectl logs --previous {pod} -c {name}"
            )
            return True
        if found := _LOOPS.search(line):
            pod, count = found.groups()
        elif self._pod and (found := _COUNT.match(line)):
            pod, count = self._pod, found.group(1)
        else:
            return False
        often = "once" if count == "1" else f"{count} times"
        self._remark(
            f"Kubernetes has started a container of pod {pod} again, {often}; what it wrote before is printed by  "
            f"kubectl logs --previous {pod}"
        )
        return True

    def _see_deepspeed(self, line: str, who: Who) -> bool:
        if found := _MAPPING.search(line):
            for host, ranks in _MAPPED.findall(found.group(1))[:MOST]:
                self._ranks_on[host] = [int(rank) for rank in ranks.split(",") if rank.strip().isdecimal()]
        elif found := _WORLD.search(line):
            self._see_world(int(found.group(1)))
        elif found := _SPAWNED.search(line):
            pid, local = int(found.group(1)), int(found.group(2))
            host = who.host if who.host in self._ranks_on else next(iter(self._ranks_on), "")
            ranks = self._ranks_on.get(host, [])
            if local < len(ranks) and (len(self._ranks_on) == 1 or who.host == host):
                self._place(ranks[local], "" if host == "localhost" else host, pid)
        elif found := _DEEPSPEED.search(line):
            where = f" of {for_people(who.host, 96)}" if who.host else ""
            self._remark(
                f"DeepSpeed's launcher{where} reports that a process ended {_how(int(found.group(1)))}; its line "
                "has the command of the process that it started last, and not of the one that ended"
            )
        else:
            return False
        return True

    def _see_accelerate(self, line: str) -> bool:
        if not (found := _CALLED.match(line)):
            return False
        how = f"by {found.group(1)}" if found.group(1) else f"with code {found.group(2)}"
        self._remark(f"a launcher reports that what it had started ended {how}; it does not say which rank that was")
        return True

    def _add(self, end: End) -> None:
        if len(self.ends) < MOST:
            self.ends.append(end)

    def _place(self, rank: int, host: str, pid: int) -> None:
        if rank < MOST_RANK and (host or pid):
            self.places[rank] = host, pid
            self._mention(rank)

    def _see_world(self, size: int) -> None:
        if size <= MOST_RANK:
            self.world_size = max(self.world_size, size)
            self._mention(size - 1)

    def _mention(self, rank: int) -> None:
        if rank < MOST_RANK:
            self.most_rank = max(self.most_rank, rank)

    def _remark(self, text: str) -> None:
        if len(self.remarks) < MOST_REMARKS:
            self.remarks[text] = None


def _how(code: int) -> str:
    status = status_of_code(code)
    return f"by signal {status}" if 0 < status < 128 else f"with code {code}"

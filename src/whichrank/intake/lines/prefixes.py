"""What launchers and log collectors put before a line, by who writes it. A line may have several of them.

`[default5]:` of torchrun is the number on a node and no rank; `[rank5]:` of torch is the rank; `5: ` of srun is a task,
which is a rank only where nothing else starts several of them.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MOST_PREFIXES: Final = 8
MOST_RANK: Final = 1 << 20


class Prefix(NamedTuple):
    """One kind.

    Attributes:
        writer: Who puts it there.
        pattern: What it looks like at the begin of a line; groups `rank`, `task`, `host`, `pid`, `time`.
        example: One of them.
    """

    writer: str
    pattern: re.Pattern[str]
    example: str


class Who(NamedTuple):
    """Who wrote a line, as far as its prefixes say it; None: not said."""

    rank: int | None = None
    task: int | None = None
    host: str = ""
    pid: int = 0
    time: str = ""


_ISO: Final = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
PREFIXES: Final = (
    Prefix("quoting in mails and tickets", re.compile(r"(?:> ?|\| |`{1,3}|&gt; ?)"), "> "),
    Prefix("torch", re.compile(r"\[rank(?P<rank>\d{1,7})\]: ?"), "[rank3]:"),
    Prefix("torchrun --tee", re.compile(r"\[[A-Za-z_][\w-]{0,31}?\d{1,7}\]:\s?"), "[default3]:"),
    Prefix(
        "mpirun --tag-output", re.compile(r"\[\d{1,9},(?P<task>\d{1,7})\]<std(?:err|out)>: ?"), "[1,3]<stderr>:",
    ),
    Prefix(
        "prterun", re.compile(r"\[prterun-\S{1,64}@\d{1,4},(?P<task>\d{1,7})\]<std(?:err|out)>: ?"),
        "[prterun-a-1@1,3]<stderr>: ",
    ),
    Prefix("srun --label", re.compile(r"\s{0,6}(?P<task>\d{1,7}): "), "3: "),
    Prefix(
        "Ray", re.compile(r"\([A-Za-z_][\w.-]{0,64} pid=(?P<pid>\d{1,10})(?:, ip=(?P<host>[\w.:-]{1,64}))?\) ?"),
        "(RayTrainWorker pid=6003, ip=10.0.0.2) ",
    ),
    Prefix(
        "Kubernetes", re.compile(r"\[(?:pod/)?(?P<host>[a-z0-9][\w.-]{0,127})/[\w.-]{1,64}\] ?"),
        "[pod/job-worker-1/pytorch] ",
    ),
    Prefix(
        "Kubernetes, containerd", re.compile(rf"(?P<time>{_ISO}) std(?:out|err) [FP] "),
        "2026-06-01T03:00:00.000000001Z stderr F ",
    ),
    Prefix(
        "syslog, journald",
        re.compile(
            r"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<host>[\w.-]{1,64}) [\w./-]{1,32}(?:\[\d{1,10}\])?: "
        ),
        "Jun  1 03:00:00 node1 train[6003]: ",
    ),
    Prefix("log collectors", re.compile(rf"\[?(?P<time>{_ISO})\]?:?[ \t]{{0,4}}"), "2026-06-01T03:00:00.123Z "),
    Prefix(
        "pdsh, DeepSpeed", re.compile(r"(?P<host>[a-z][a-z0-9.-]{0,62}\d{1,6}): (?=\[|\d|[A-Z]|\s{2})"), "node1: ",
    ),
    Prefix(
        "stern", re.compile(r"(?P<host>[a-z][a-z0-9.-]{2,100}-\d{1,5}) [a-z][\w-]{1,40} (?=\[)"),
        "job-worker-1 pytorch ",
    ),
    Prefix(
        "Python's logging",
        re.compile(r"(?:INFO|WARNING|ERROR|CRITICAL|DEBUG)[:\s] ?[\w.]{0,80}[:\s] ?(?=\[)"), "ERROR:root:",
    ),
)  # fmt: skip
"""The table; the first that fits is taken off, again and again."""


def _as_one() -> tuple[re.Pattern[str], dict[str, tuple[tuple[str, str], ...]]]:
    """All patterns in one, and for each by the name it has there its groups: their names, and those they have there."""
    patterns, groups = [], {}
    for place, prefix in enumerate(PREFIXES):
        names = tuple(prefix.pattern.groupindex)
        groups[f"p{place}"] = tuple((name, f"{name}{place}") for name in names)
        pattern = re.sub(r"\(\?P<(\w+)>", rf"(?P<\g<1>{place}>", prefix.pattern.pattern)
        patterns.append(f"(?P<p{place}>{pattern})")
    return re.compile("|".join(patterns)), groups


_ANY, _GROUPS = _as_one()


def taken_off(line: str) -> tuple[Who, str]:
    """Who wrote a line, and the line without what was put before it."""
    at, said = 0, dict[str, str]()
    for _ in range(MOST_PREFIXES):
        found = _ANY.match(line, at)
        if found is None or found.lastgroup is None:
            break
        for name, there in _GROUPS[found.lastgroup]:
            if value := found[there]:
                said[name] = value
        at = found.end()
    if not at:
        return NOBODY, line
    rank, task = _number(said.get("rank")), _number(said.get("task"))
    return Who(rank, task, said.get("host", ""), int(said.get("pid", 0)), said.get("time", "")), line[at:]


NOBODY: Final = Who()


def beside(inner: Who, outer: Who) -> Who:
    """What the nearer prefixes say of a writer, and where they say nothing what the others do."""
    return Who(
        outer.rank if inner.rank is None else inner.rank,
        outer.task if inner.task is None else inner.task,
        inner.host or outer.host,
        inner.pid or outer.pid,
        inner.time or outer.time,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and int(text) < MOST_RANK else None

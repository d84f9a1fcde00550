"""One moment of the jobs on this node, as plain values: what `--json` prints and what `view` draws.

The format is `whichrank.watch/1`. Lists are in the order in which a reader wants them: what is blamed or waits longest
stands first.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec
from msgspec import Struct

from whichrank.model.changes import LevelChange
from whichrank.model.incident import Incident, Role
from whichrank.model.links import LinkRate
from whichrank.server.mitigations_file import MitigationNow

SCHEMA: Final = "whichrank.watch/1"

Mark = Literal["blamed", "suspected", "awaited", ""]
"""blamed: an alert names it; suspected: a notice or a list of candidates does; awaited: others are blocked on an
operation that it has not entered, and it is blocked on none."""


class Operation(Struct, frozen=True, kw_only=True):
    """What a thread is blocked on: an operation, the answer of a remote call, or a communicator that is being made."""

    kind: str
    counter: int | None = None
    """Null of what is no operation."""
    communicator: str = ""
    """Empty of what is no operation."""
    peer: int | None = None
    """Global rank at the other end of a send, a receive or a remote call."""


class RankNow(Struct, frozen=True, kw_only=True):
    """One rank of this node."""

    rank: int
    pid: int
    mark: Mark = ""
    state: str
    """In words: running, sleeping, stopped, exit 3, SIGKILL, ..."""
    main_wait: str
    """What the main thread waits for: lock, sleep, I/O, disk, on a CPU; empty if it cannot be known."""
    iteration: int | None = None
    """Counted as in a verdict; null while the iteration is not known."""
    ops: int = 0
    """Operations begun since the start."""
    operation: Operation | None = None
    """Blocked on this; null: on none."""
    entered: Operation | None = None
    """One that it has in flight and somebody else is blocked on, where it is blocked on none itself."""
    blocked_s: float | None = None
    idle_s: float | None = None
    """Seconds since its latest operation began or ended, when it is blocked on none."""
    own_s: float | None = None
    """Of an iteration, by itself; this and the next two are null while they are not known."""
    transfer_s: float | None = None
    """In operations that all had entered."""
    waiting_s: float | None = None
    """In operations, for others."""
    in_flight: int = 0
    phase: str = ""
    """The phase that the script has marked."""
    started: bool = True
    """It has made a process group."""
    ended: bool = False
    fault: str = ""
    """Why its ring is not read any more."""


class CommunicatorNow(Struct, frozen=True, kw_only=True):
    """One communicator, as far as ranks of this node are its members."""

    id: str
    name: str
    role: Role | None = None
    role_confidence: float | None = None
    """1: the description says so; less: inferred."""
    size: int = 0
    members: tuple[int, ...] = ()
    here: int = 0
    """Members on this node."""
    issued_min: int = 0
    issued_max: int = 0
    """Collectives that its members have issued, the fewest and the most."""
    p2p: int = 0
    """Sends and receives issued, of the member with the most."""
    behind: tuple[int, ...] = ()
    """Members that have issued the fewest, if not all have issued the same."""
    waiting: int = 0
    """Members that are blocked in it."""
    longest_wait_s: float = 0.0
    awaited: tuple[int, ...] = ()
    """Members that the blocked ones wait for: not in the operation yet."""


class JobNow(Struct, frozen=True, kw_only=True):
    """One job."""

    job: str
    state: Literal["running", "ended"]
    started: datetime | None = None
    output: str = ""
    """Folder of the run, where its incidents are written."""
    world_size: int = 0
    ops_per_s: float | None = None
    """Operations of all ranks here."""
    ranks: tuple[RankNow, ...] = ()
    communicators: tuple[CommunicatorNow, ...] = ()
    links: tuple[LinkRate, ...] = ()
    """Between nodes, as far as a rate is known, the slowest first."""
    changes: tuple[LevelChange, ...] = ()
    """From when on iterations took longer, or less long, than before; the latest ones, in order."""
    mitigation: MitigationNow | None = None
    """What is done about something slow; null while nothing is."""
    recorded: bool = False
    """Its incidents are written on this machine; false where another run analyzes it."""
    incidents: tuple[Incident, ...] = ()
    """Open ones first, alerts before notices, those with a culprit before the others, then the newest."""
    sensors: dict[str, dict[str, int]] = {}
    """Sensor -> state -> ranks."""
    faults: tuple[str, ...] = ()
    """What could not be read, one sentence each."""


class Frame(Struct, frozen=True, kw_only=True):
    """All jobs of this user on this node."""

    schema: Literal["whichrank.watch/1"] = SCHEMA
    at: datetime
    host: str
    jobs: tuple[JobNow, ...] = ()


def encode_frame(frame: Frame) -> bytes:
    """The frame as indented JSON, without a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(frame), indent=2)


def exit_code(frame: Frame) -> int:
    """0 no open alert, 3 a hang or failure, 4 a slowdown, 5 no alert but something could not be read."""
    alerts = {i.kind for job in frame.jobs for i in job.incidents if i.severity == "alert" and i.status != "recovered"}
    if alerts & {"hang", "failed"}:
        return 3
    if alerts:
        return 4
    return 5 if any(job.faults or any(rank.fault for rank in job.ranks) for job in frame.jobs) else 0

"""What an agent sends to the analyzer: one `Batch` per snapshot of its node, as columns.

The rows keep the ring's own dtypes where they can, so the agent copies memory and the analyzer reads it with
`numpy.frombuffer`; nobody makes an object per rank and event. A batch holds *states* (what every rank is doing now:
losing one loses nothing, the next says it again) and two things that are reported once: `records` and `events`.

Clocks: `*_ns` in rows are CLOCK_MONOTONIC of the agent's host. `read_ns` of a rank row is when its ring was read.
The analyzer turns ages (`read_ns - t`) into its own time; it never compares the clocks of two hosts.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, Literal

import msgspec
import numpy as np

from whichrank.model.rows import GATE, INFLIGHT_ROW, PLACES, RECORD, SHARES, SPLITS_ROW, WAIT
from whichrank.model.sensors import SENSORS

VERSION: Final = 2
WORD_EVERY_S: Final = 1.0
"""An agent that sleeps only says that all is well, so that a silent one is a lost one (`transport.reach`)."""
WORD_TO_NEIGHBOUR_EVERY_S: Final = 2.5
"""The same, on the machine that analyzes: that node is not lost to it."""


SHORTEST_SPACED: Final = 16
"""Members of a communicator from which on they are not listed if they are evenly spaced: fewer take no room."""


class ProcessState(IntEnum):
    """State of a rank's process, from `/proc/PID/stat`."""

    UNKNOWN = 0
    RUNNING = 1
    SLEEPING = 2
    DISK = 3
    STOPPED = 4
    TRACED = 5
    ZOMBIE = 6
    GONE = 7


class WaitChannel(IntEnum):
    """Where in the kernel a thread sleeps, as far as it says what the thread does."""

    UNKNOWN = 0
    NONE = 1  # on a CPU, or ready to run
    LOCK = 2  # futex: a condition variable, a lock, `work.wait()`
    SLEEP = 3  # nanosleep: `time.sleep`
    IO = 4  # poll, select, a pipe, a socket
    DISK = 5  # file system
    OTHER = 6


RANK_ROW = np.dtype(
    [
        ("rank", "i4"),
        ("pid", "i4"),
        ("local_rank", "i4"),
        ("world_size", "i4"),
        ("restart_count", "i4"),
        ("state", "u1"),  # ProcessState
        ("main_wait_channel", "u1"),  # WaitChannel of the thread that trains
        ("busy", "u1"),  # 1: it wrote, or its children used a CPU, since the last snapshot
        ("signalled_stop", "u1"),  # reserved for job control stops
        ("exit_status", "i4"),  # as from wait(2); -1 unknown or alive
        ("pid_start_ticks", "u8"),
        ("read_ns", "u8"),
        ("created_ns", "u8"),
        ("heartbeat_ns", "u8"),
        ("closed_ns", "u8"),
        ("init_ns", "u8"),
        ("ordinal", "u8"),
        ("head", "u8"),
        ("lost_records", "u8"),  # overwritten before they were read, and dropped in the ring
        ("dropped_rows", "u8"),  # in-flight, wait, pair and communicator rows that found no place
        ("exception_ns", "u8"),
        ("first_failure_ns", "u8"),
        ("ended_ns", "u8"),  # when the agent saw the process end; 0 alive
        ("cpu_ns", "u8"),
        ("written_bytes", "u8"),
        ("children_cpu_ns", "u8"),
        ("collected_ns", "u8"),  # in Python's garbage collector
        ("usage_ns", "u8"),  # when the fields down to `clock_mhz` were sampled; 0 never
        ("main_cpu_ns", "u8"),  # the thread that trains ran
        ("delay_ns", "u8"),  # it was ready, and waited for a CPU
        ("throttled_ns", "u8"),  # its control groups were held back
        ("limit_cores", "f4"),  # of its control groups, infinite if there is none, NaN if they cannot be read
        ("allowed_cores", "u4"),
        ("major_faults", "u8"),
        ("read_bytes", "u8"),  # from storage
        ("node_ns", "u8"),  # the node's cores worked, on average
        ("stolen_ns", "u8"),  # they would have, and the hypervisor gave them to others
        ("memory_stall_ns", "u8"),  # somebody on the node waited for memory (pressure stall information, "some")
        ("io_stall_ns", "u8"),  # the same, for storage
        ("clock_mhz", "f4"),  # of the core that its main thread ran on last; 0 unknown
        ("phase_since_ns", "u8"),
        ("sensor", "u1", (len(SENSORS),)),  # SensorState of each
        ("phase", "S32"),
        ("exception", "S192"),
        ("failure", "S192"),
    ]
)

COMM_ROW = np.dtype(
    [
        ("rank", "i4"),
        ("group_rank", "u4"),
        ("comm_id", "u8"),
        ("slot", "u2"),
        ("epoch", "u1"),
        ("state", "u1"),  # 1 live, 2 closed
        ("last_tid", "u4"),
        ("issued", "u8"),
        ("done", "u8"),
        ("completed", "u8"),
        ("failed", "u8"),
        ("last_issue_ns", "u8"),
        ("last_done_ns", "u8"),
        ("timeout_ms", "u4"),
        ("last_kind", "u4"),
    ]
)

PAIR_ROW = np.dtype(
    [
        ("rank", "i4"),
        ("peer", "i4"),  # group rank in the communicator, -1 any source
        ("comm_id", "u8"),  # of the communicator, not of the pair
        ("issued", "u8"),
        ("done", "u8"),
        ("completed", "u8"),
        ("tag", "u4"),
        ("last_tid", "u4"),
        ("kind", "u1"),
        ("pad", "V7"),
    ]
)

# In-flight, wait and record rows: the rank, the communicator (not the pair) and then the ring's own row.
INFLIGHT_REPORTED = np.dtype([("rank", "i4"), ("pad", "u4"), ("comm", "u8"), ("row", INFLIGHT_ROW)])
WAIT_REPORTED = np.dtype([("rank", "i4"), ("inferred", "u4"), ("comm", "u8"), ("row", WAIT)])
RECORD_REPORTED = np.dtype([("rank", "i4"), ("pad", "u4"), ("comm", "u8"), ("row", RECORD)])
SPLITS_REPORTED = np.dtype([("rank", "i4"), ("pad", "u4"), ("row", SPLITS_ROW)])

# How far each rank is at a gate, while one is held (`model.commands.HoldGate`). `in_flight` counts operations that are
# not complete, of those whose end is seen.
GATE_REPORTED = np.dtype([("rank", "i4"), ("in_flight", "u4"), ("ordinal", "u8"), ("gate", GATE)])

# Of a rank whose program lets its shares of the work be changed.
SHARES_REPORTED = np.dtype([("rank", "i4"), ("shares", SHARES)])
# Of a rank whose program lets ranks change their places.
PLACES_REPORTED = np.dtype([("rank", "i4"), ("places", PLACES)])

# What the frame sampler saw in its latest window (CCL-D section 4.1.2), summed over the channels of a rank.
RATE_ROW = np.dtype(
    [
        ("rank", "i4"),
        ("pad", "u4"),
        ("start_ns", "u8"),
        ("end_ns", "u8"),
        ("samples", "u8"),
        ("active_send", "u8"),  # samples in which any channel sent
        ("active_recv", "u8"),
        ("send_changes", "u8"),  # value changes of SendCount
        ("recv_changes", "u8"),
        ("send_messages", "u8"),  # by how much SendCount grew
        ("recv_messages", "u8"),
        ("send_rate", "f8"),  # CCL-D's SendRate: 1 / send_changes, 0 if nothing changed
        ("recv_rate", "f8"),
        ("op_sent", "u8"),  # SendCount of the latest operation so far
        ("op_received", "u8"),
    ]
)

# The first fields of the kernel's `struct tcp_info` (linux/tcp.h); older kernels know fewer of the last ones.
TCP_INFO = np.dtype(
    [
        *((name, "u1") for name in ("state", "ca_state", "retransmits", "probes", "backoff", "options")),
        ("scales", "u2"),
        *((name, "u4") for name in ("rto_us", "ato_us", "snd_mss", "rcv_mss")),
        *((name, "u4") for name in ("unacked", "sacked", "lost", "retrans", "fackets")),
        *((name, "u4") for name in ("last_data_sent_ms", "last_ack_sent_ms", "last_data_recv_ms", "last_ack_recv_ms")),
        *((name, "u4") for name in ("pmtu", "rcv_ssthresh", "rtt_us", "rttvar_us", "snd_ssthresh", "snd_cwnd")),
        *((name, "u4") for name in ("advmss", "reordering", "rcv_rtt_us", "rcv_space", "total_retrans")),
        *((name, "u8") for name in ("pacing_rate", "max_pacing_rate", "bytes_acked", "bytes_received")),
        *((name, "u4") for name in ("segs_out", "segs_in", "notsent_bytes", "min_rtt_us", "data_segs_in")),
        ("data_segs_out", "u4"),
        *((name, "u8") for name in ("delivery_rate", "busy_us", "rwnd_limited_us", "sndbuf_limited_us")),
    ]
)
TCP_ROW = np.dtype(
    [
        ("rank", "i4"),
        ("pad", "u4"),
        ("read_ns", "u8"),
        ("local_addr", "V16"),  # IPv6, or IPv4 mapped
        ("remote_addr", "V16"),
        ("local_port", "u2"),
        ("remote_port", "u2"),
        ("unread_bytes", "u4"),  # received, and not yet read by the program
        ("unsent_bytes", "u4"),  # written, and not yet acknowledged
        ("state", "u1"),
        ("pad2", "V3"),
        ("arrived_bytes", "u8"),  # read by the program so soon after the read before that the pace is known
        (
            "arrival_rate",
            "f8",
        ),  # bytes per second at which half of them or more came since the snapshot before; 0 unknown
        ("info", TCP_INFO),
    ]
)


class CommInfo(msgspec.Struct, frozen=True):
    """What stays the same of a communicator: reported when first seen, and again after a reconnect."""

    comm_id: int
    name: str
    desc: str
    backend: str
    size: int
    generation: int
    members: list[int]
    """Global ranks by group rank; empty when the sensor could not know them, or where they are evenly spaced."""
    spaced: tuple[int, int] | None = None
    """The first member, and by how much the next one is more, where they are sent so: of 65,536 ranks each of thousands
    of agents would list all otherwise."""

    def shortened(self) -> CommInfo:
        """The same as an agent sends it: members that are evenly spaced are not listed."""
        if len(self.members) < SHORTEST_SPACED:
            return self
        first, stride = self.members[0], self.members[1] - self.members[0]
        if stride < 1 or self.members != list(range(first, first + stride * len(self.members), stride)):
            return self
        return msgspec.structs.replace(self, members=[], spaced=(first, stride))

    def spread(self, most: int) -> CommInfo:
        """The same with its members listed; without them if what was sent makes no sense.

        Args:
            most: Ranks that a job can have.
        """
        if self.spaced is None:
            return self
        first, stride = self.spaced
        fits = not self.members and 0 < self.size <= most and first >= 0 and stride > 0
        fits = fits and first + stride * (self.size - 1) < most
        members = list(range(first, first + stride * self.size, stride)) if fits else []
        return msgspec.structs.replace(self, members=members, spaced=None)


class SourceKind(Enum):
    """What would have to write for a thread to go on."""

    CHILD = "child"
    """Its own child processes, or their end."""
    RANK = "rank"
    """One other rank, or a child of it."""
    JOB = "job"
    """A service for several, such as a store, or several ranks: who is waited for is not known."""
    ELSEWHERE = "elsewhere"
    """Somebody on another machine, or no process of the job."""


class Source(msgspec.Struct, frozen=True):
    """Another process that a thread waits for, outside of any operation."""

    kind: SourceKind
    pids: list[int] = []
    """Processes on the node that have the other end."""
    ranks: list[int] = []
    """Ranks that these are, or descend from."""
    address: str = ""
    """The other end of a TCP connection."""


class Stack(msgspec.Struct, frozen=True):
    """One thread of a rank as py-spy saw it, innermost frame first."""

    thread: str
    main: bool
    holds_gil: bool
    frames: list[str]
    """`function (file:line)`."""
    asleep: bool = False
    """It held the GIL all through a second snapshot and did not run: nobody else in its process can."""
    share: float = 0.0
    """Of the samples, where several were taken."""
    tid: int = 0
    trains: bool = False
    """It makes the optimizer's steps, or else it issued the latest operation."""
    channel: int = 0
    """WaitChannel just before the stack was taken."""
    source: Source | None = None
    """What it waited for then."""


class Probe(msgspec.Struct, frozen=True):
    """What came of probing another node."""

    target: str
    """Address."""
    sent: int
    answered: int
    took_ns: int
    """Until the first answer, -1 none."""


class Event(msgspec.Struct, frozen=True):
    """Something reported once about a rank (or the node, rank -1)."""

    kind: str
    """`exit`, `stacks`, `profile` (stacks of the thread that trains, with their shares), `probe`, `note`, `launched`
    (pids of a rank's parent, of the parent of that and so on), `signal` (the run of this node got the one of this name,
    which asks the job to end), `asked` (a process of the job sent it to this rank)."""
    rank: int
    pid: int
    at_ns: int
    """CLOCK_MONOTONIC of the agent's host."""
    text: str = ""
    status: int = -1
    """As from wait(2), for `exit`; -1 when nobody could read it."""
    stacks: list[Stack] = []
    probe: Probe | None = None


class Launch(msgspec.Struct, frozen=True):
    """What is the same on all nodes of a job, as far as an agent knows it; empty or 0 where it does not.

    Two agents that know different values of one field watch different jobs.
    """

    name: str = ""
    """The job's name, where the user gave the same one on all nodes (`whichrank agent --job`)."""
    run_id: str = ""
    """torchrun's `--rdzv-id`."""
    master_port: int = 0
    """The port at which the ranks meet (`MASTER_PORT`)."""
    world_size: int = 0


class AnotherJob(msgspec.Struct, frozen=True):
    """Why an agent is refused: it watches another job than the one that is analyzed here."""

    job: str
    """The job that is analyzed."""
    fact: Literal["name", "run_id", "master_port", "world_size", "rank", "older"]
    """What differs. `rank`: one rank is alive in two processes. `older`: the ranks had met before the job began."""
    theirs: str
    """Of the agent that is refused: the value; of `rank` its number; of `older` empty."""
    ours: str
    """The value of the job that is analyzed; empty for `rank` and `older`."""


class Batch(msgspec.Struct, frozen=True):
    """One look at a node. The byte columns are arrays of the dtypes of this module."""

    version: int
    job: str
    agent: str
    """Unique per agent process: `host:pid`."""
    host: str
    sequence: int
    sent_ns: int
    """CLOCK_MONOTONIC of the agent's host when the batch was made."""
    sent_realtime_ns: int
    delay_bound_ns: int
    """Upper bound of how long batches of this agent travel now, from its last round trip; -1 unknown."""
    node_ranks: int
    """Rings on this node, alive or not."""
    ranks: bytes = b""
    comms: bytes = b""
    pairs: bytes = b""
    inflight: bytes = b""
    waits: bytes = b""
    records: bytes = b""
    comm_info: list[CommInfo] = []
    events: list[Event] = []
    rates: bytes = b""
    connections: bytes = b""
    """Only where they were looked at anew: what was reported before stands."""
    splits: bytes = b""
    """Of ranks that have ended, or have begun no all-to-all since the snapshot before; reported once."""
    node: str = ""
    """The machine and its network, the same for all agents there; empty: as `host`."""
    beside_analyzer: bool = False
    """The agent runs on the machine that analyzes."""
    launch: Launch = Launch()
    """Of the ranks that live."""
    obeyed: tuple[int, ...] = ()
    """Numbers of the commands that have come since the batch before (`model.commands`)."""
    is_well: bool = False
    """Only a word that nothing has happened that matters: what was said before stands, and is not read again yet. It
    has no number (sequence 0) and needs no answer."""
    gates: bytes = b""
    """Of ranks whose gates are held."""
    shares: bytes = b""
    """Of ranks that let theirs be changed, where that is news."""
    places: bytes = b""
    """Of ranks that can change theirs, where that is news."""

    def rank_rows(self) -> np.ndarray:
        """Rows of RANK_ROW."""
        return np.frombuffer(self.ranks, RANK_ROW)

    def comm_rows(self) -> np.ndarray:
        """Rows of COMM_ROW."""
        return np.frombuffer(self.comms, COMM_ROW)

    def pair_rows(self) -> np.ndarray:
        """Rows of PAIR_ROW."""
        return np.frombuffer(self.pairs, PAIR_ROW)

    def inflight_rows(self) -> np.ndarray:
        """Rows of INFLIGHT_REPORTED."""
        return np.frombuffer(self.inflight, INFLIGHT_REPORTED)

    def wait_rows(self) -> np.ndarray:
        """Rows of WAIT_REPORTED."""
        return np.frombuffer(self.waits, WAIT_REPORTED)

    def record_rows(self) -> np.ndarray:
        """Rows of RECORD_REPORTED."""
        return np.frombuffer(self.records, RECORD_REPORTED)

    def rate_rows(self) -> np.ndarray:
        """Rows of RATE_ROW, of the ranks whose frames are sampled."""
        return np.frombuffer(self.rates, RATE_ROW)

    def gate_rows(self) -> np.ndarray:
        """Rows of GATE_REPORTED."""
        return np.frombuffer(self.gates, GATE_REPORTED)

    def splits_rows(self) -> np.ndarray:
        """Rows of SPLITS_REPORTED."""
        return np.frombuffer(self.splits, SPLITS_REPORTED)

    def connection_rows(self) -> np.ndarray:
        """Rows of TCP_ROW."""
        return np.frombuffer(self.connections, TCP_ROW)

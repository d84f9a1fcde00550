"""An incident: what the user is reported about one root cause.

The format is `whichrank.incident/1`, one JSON object per line in `incidents.jsonl`; an update repeats the id and
replaces the earlier line. Readers refuse another version and unknown fields, since half-understood blame is worse
than none.

Three rules are kept by the values themselves, so that no printer or exporter can break them: a cause that says
"nobody is at fault" or "not known" names no culprit; candidates stand beside `unknown`, or beside a culprit where the
telemetry of ranks was missing, which may be culprits too; a recovered incident has its end.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from whichrank.errors import IncidentFormatError
from whichrank.model.clause import Clause
from whichrank.model.evidence import Evidence
from whichrank.model.sensors import StateName

SCHEMA: Final = "whichrank.incident/1"

Severity = Literal["notice", "alert"]
Status = Literal["open", "recovered", "final"]
Kind = Literal["hang", "slow", "failed"]
FaultClass = Literal["H1", "H2", "H3", "S1", "S2", "S3"]
LinkEnd = Literal["sender", "receiver", "path"]
LinkScope = Literal["intra_node", "inter_node"]
Role = Literal["tp", "pp", "dp", "cp", "ep", "etp", "edp", "emb", "world", "ctrl"]

Rank = Annotated[int, Meta(ge=0, lt=1 << 31, description="Global rank.")]
Confidence = Annotated[float, Meta(ge=0, le=1, description="0 to 1.")]
Utc = Annotated[datetime, Meta(tz=True)]
FIRST_YEAR, LAST_YEAR = 1970, 9999
"""Of a time; at the ends of the calendar it has no UTC."""


class Cause(StrEnum):
    """What went wrong."""

    NOT_ENTERED = "not_entered"
    INCONSISTENT = "inconsistent"
    DEADLOCK = "deadlock"
    TRANSPORT = "transport"
    DEVICE = "device"
    PROCESS_EXIT = "process_exit"
    NODE_LOST = "node_lost"
    COMPUTE_SLOW = "compute_slow"
    COMMUNICATION_SLOW = "communication_slow"
    MIXED_SLOW = "mixed_slow"
    IMBALANCE = "imbalance"
    SUSPENDED = "suspended"
    UNKNOWN = "unknown"


NOBODY = frozenset({Cause.IMBALANCE, Cause.SUSPENDED, Cause.UNKNOWN})
"""Causes that name no culprit."""


class Reason(StrEnum):
    """What is behind the cause, as far as evidence goes."""

    STOPPED = "stopped"
    GIL_HELD = "gil_held"
    USER_CODE = "user_code"
    DATA_WAIT = "data_wait"
    CHECKPOINT = "checkpoint"
    CPU_CONTENTION = "cpu_contention"
    CPU_LIMIT = "cpu_limit"
    GARBAGE_COLLECTION = "garbage_collection"
    MORE_TOKENS = "more_tokens"
    DEVICE_CLOCK = "device_clock"
    MEMORY_PRESSURE = "memory_pressure"
    DEVICE_ERROR = "device_error"
    OUT_OF_MEMORY = "out_of_memory"
    EXCEPTION = "exception"
    SIGNAL = "signal"


class _Value(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the structs here: frozen, by keyword, nothing unknown."""


class Culprit(_Value, frozen=True, kw_only=True):
    """A rank where the cause is, or may be: then it is a candidate."""

    rank: Rank
    confidence: Confidence
    why: str
    """Half a sentence that goes on from "rank 5 ...": "has not entered the op; its process is suspended"."""
    clauses: tuple[Clause, ...] = ()
    """The same as values; `why` has their words in the present."""
    host: str | None = None
    pid: int | None = None
    device: str | None = None


class Link(_Value, frozen=True, kw_only=True):
    """A directed pair of ranks, and the end at fault where kernel evidence names it."""

    src: Rank
    dst: Rank
    end: LinkEnd | None = None
    scope: LinkScope | None = None
    """Whether both ranks are on one node; None where a node is not known."""


class Communicator(_Value, frozen=True, kw_only=True):
    """The communicator in which the incident shows."""

    id: str
    name: str
    role: Role | None
    members: tuple[Rank, ...]
    """By group rank; empty where a recording does not say all of them."""
    role_confidence: Confidence | None = None
    """1: its description says so; less: inferred."""


class Op(_Value, frozen=True, kw_only=True):
    """The operation in which the incident shows."""

    trace_id: str | None
    kind: str
    bytes: Annotated[int, Meta(ge=0)] | None = None
    dtype: str | None = None


class Stage(_Value, frozen=True, kw_only=True):
    """Where in the training it happened; None: not known."""

    iteration: int | None = None
    phase: str | None = None
    """forward, backward, dp_sync, optimizer, iteration start, data, checkpoint, init, or the user's own word."""
    microbatch: int | None = None
    layer: int | None = None
    op: str | None = None


class Victims(_Value, frozen=True, kw_only=True):
    """The ranks that wait. The list may be cut in very large jobs, the count is not."""

    count: Annotated[int, Meta(ge=0)] = 0
    ranks: tuple[Rank, ...] = ()

    def __post_init__(self) -> None:
        if self.count < len(self.ranks):
            raise ValueError(f"{len(self.ranks)} victims are listed but {self.count} counted")


class Spent(_Value, frozen=True, kw_only=True):
    """Where an iteration goes for one rank, seconds."""

    rank: Rank
    own_s: Annotated[float, Meta(ge=0)]
    """Computing, loading data, whatever else it does by itself."""
    transfer_s: Annotated[float, Meta(ge=0)]
    """In operations that all had entered."""
    waiting_s: Annotated[float, Meta(ge=0)]
    """In operations, for others."""


class SensorReport(_Value, frozen=True, kw_only=True):
    """A sensor that the verdict rests on, and how many ranks it reported from."""

    name: str
    state: StateName
    ranks: Annotated[int, Meta(ge=0)]


class Incident(_Value, frozen=True, kw_only=True, rename={"fault_class": "class"}):
    """What the user is reported about one root cause. Times are UTC."""

    schema: Literal["whichrank.incident/1"] = SCHEMA
    id: str
    job: str
    severity: Severity
    status: Status
    kind: Kind
    cause: Cause
    reason: Reason | None = None
    fault_class: FaultClass | None = None
    """CCL-D's class, `class` in JSON: H1 not entered, H2 inconsistent, H3 transport; S1 compute, S2 communication,
    S3 both."""
    culprits: tuple[Culprit, ...] = ()
    candidates: tuple[Culprit, ...] = ()
    """Who it may be when the cause is `unknown`; beside culprits, ranks that others wait for and of which nothing was
    read."""
    links: tuple[Link, ...] = ()
    communicator: Communicator | None = None
    op: Op | None = None
    stage: Stage | None = None
    onset: Utc | None = None
    detected: Utc
    located: Utc | None = None
    ended: Utc | None = None
    victims: Victims = Victims()
    evidence: tuple[Evidence, ...] = ()
    times: tuple[Spent, ...] = ()
    """Of a slow rank, first, and of ranks in the same position."""
    next: tuple[str, ...] = ()
    """Commands for the user to go on with."""
    sensors: tuple[SensorReport, ...] = ()
    complete: bool
    """False: the telemetry of some rank was missing."""

    def __post_init__(self) -> None:
        if self.culprits and self.cause in NOBODY:
            raise ValueError(f"cause {self.cause} names no culprit; ranks that it may be are candidates")
        if self.candidates and self.cause != Cause.UNKNOWN and (self.complete or not self.culprits):
            raise ValueError(
                f"candidates stand beside cause unknown, not {self.cause}; beside culprits, where telemetry was missing"
            )
        times = (self.onset, self.detected, self.located, self.ended)
        if any(at and not FIRST_YEAR <= at.year < LAST_YEAR for at in times):
            raise ValueError(f"its times lie outside of the years {FIRST_YEAR} to {LAST_YEAR}")
        if self.status == "recovered" and self.ended is None:
            raise ValueError("a recovered incident has the time of its end")


class _Version(Struct):
    schema: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Incident)
_version_decoder = msgspec.json.Decoder(_Version)


def encode_incident(incident: Incident) -> bytes:
    """The incident as one line of JSON, without the newline."""
    return _encoder.encode(incident)


def decode_incident(data: bytes | str) -> Incident:
    """The incident in a JSON text.

    Raises:
        IncidentFormatError: The text is of another version, or is no incident.
    """
    try:
        version = _version_decoder.decode(data).schema
        if version == SCHEMA:
            return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise IncidentFormatError(f"this is no incident of format {SCHEMA}: {error}") from error
    raise IncidentFormatError(
        f"this incident has format {version!r}, and this whichrank reads {SCHEMA!r} only",
        mend="pip install --upgrade whichrank",
    )

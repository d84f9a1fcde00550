"""Incidents that the tests of the format, the text and the commands share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from whichrank.model.clause import Clause, Says, clause
from whichrank.model.evidence import TIME_BLOCKED, Evidence
from whichrank.model.incident import (
    Cause,
    Communicator,
    Culprit,
    Incident,
    Link,
    Op,
    Reason,
    SensorReport,
    Stage,
    Victims,
)
from whichrank.verdict.words.clauses import words

ONSET = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

DP = Communicator(id="9f3a", name="dp_0", role="dp", members=(0, 2, 4, 6, 8, 10, 12, 14))
ALL_REDUCE = Op(trace_id="00ab", kind="all_reduce", bytes=64 << 20, dtype="bfloat16")
BACKWARD = Stage(iteration=1204, phase="backward", microbatch=3, layer=17, op="all-reduce of 64 MiB on tp")


def culprit(rank: int, *clauses: Clause, confidence: float = 0.9, **known: Any) -> Culprit:
    """A rank of which these clauses are said."""
    return Culprit(rank=rank, confidence=confidence, why=words(clauses, over=False), clauses=clauses, **known)


RANK_5 = culprit(5, clause(Says.SUSPENDED), confidence=0.97, host="node-a", pid=4211, device="cuda:1")


def incident(cause: Cause, **changes: Any) -> Incident:
    """A hang of rank 5 that seven ranks wait for, changed as reported."""
    fields: dict[str, Any] = {
        "id": "i-1",
        "job": "job-1",
        "severity": "alert",
        "status": "open",
        "kind": "hang",
        "cause": cause,
        "communicator": DP,
        "op": ALL_REDUCE,
        "stage": BACKWARD,
        "onset": ONSET,
        "detected": ONSET + timedelta(seconds=2.5),
        "located": ONSET + timedelta(seconds=2.52),
        "victims": Victims(count=7, ranks=(0, 1, 2, 3, 4, 6, 7)),
        "evidence": (Evidence(what=TIME_BLOCKED, value=12.345, unit="s", where="rank 3"),),
        "next": ("whichrank stacks --suspects",),
        "sensors": (SensorReport(name="c10d", state="on", ranks=8),),
        "complete": True,
    }
    return Incident(**{**fields, **changes})


def not_entered(**changes: Any) -> Incident:
    return incident(
        Cause.NOT_ENTERED, **{"reason": Reason.STOPPED, "fault_class": "H1", "culprits": (RANK_5,), **changes}
    )


KILLED = incident(
    Cause.PROCESS_EXIT,
    kind="failed",
    status="final",
    reason=Reason.SIGNAL,
    culprits=(Culprit(rank=3, host="node-b", confidence=1.0, why="it was ended by SIGKILL"),),
    evidence=(Evidence(what="exit code", value=-9, where="rank 3"),),
)
INCONSISTENT = incident(
    Cause.INCONSISTENT,
    fault_class="H2",
    culprits=(Culprit(rank=2, confidence=0.9, why="it called broadcast where 7 peers called all-reduce"),),
)
DEADLOCK = incident(
    Cause.DEADLOCK,
    culprits=(
        Culprit(rank=1, confidence=0.9, why="it entered tp_0 before dp_0"),
        Culprit(rank=2, confidence=0.9, why="it entered dp_0 before tp_0"),
    ),
)
SUSPENDED = incident(Cause.SUSPENDED, severity="notice", op=None, communicator=None, stage=None)
TRANSPORT = incident(Cause.TRANSPORT, fault_class="H3", links=(Link(src=1, dst=4, end="sender"),))
UNKNOWN = incident(
    Cause.UNKNOWN,
    complete=False,
    candidates=(
        Culprit(rank=2, confidence=0.4, why="it is one op behind"),
        Culprit(rank=6, host="node-b", confidence=0.4, why="its ring was not read"),
    ),
)
RECOVERED = not_entered(
    severity="notice", status="recovered", reason=Reason.CHECKPOINT, ended=ONSET + timedelta(seconds=200)
)
NODE_LOST = incident(
    Cause.NODE_LOST, culprits=tuple(Culprit(rank=rank, host="node-c", confidence=0.8, why="") for rank in range(8, 16))
)
SLOW = incident(Cause.COMPUTE_SLOW, kind="slow", fault_class="S1", reason=Reason.CPU_LIMIT, culprits=(RANK_5,))
IMBALANCE = incident(Cause.IMBALANCE, kind="slow", reason=Reason.MORE_TOKENS)

EVERY = {
    "not_entered": not_entered(),
    "killed": KILLED,
    "inconsistent": INCONSISTENT,
    "deadlock": DEADLOCK,
    "suspended": SUSPENDED,
    "transport": TRANSPORT,
    "unknown": UNKNOWN,
    "recovered": RECOVERED,
    "node_lost": NODE_LOST,
    "slow": SLOW,
    "imbalance": IMBALANCE,
}

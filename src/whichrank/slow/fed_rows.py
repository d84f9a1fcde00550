"""What the store has taken from a batch, as rows for those who measure iterations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import Flag
from whichrank.model.iterations import GIVEN, PASS, STEP, Ops
from whichrank.model.kinds import is_message
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed

Rows = np.ndarray[Any, Any]


def ops_of(done: Completed, comms: Communicators) -> Ops:
    """Completed operations."""
    columns = {name: done[name] for name in ("counter", "ordinal", "count", "kind")}
    columns |= {"rank": done.rank, "comm": done.comm}
    columns |= {"issue_ns": done["t_issue_ns"].view(np.int64), "end_ns": done["t_end_ns"].view(np.int64)}
    columns["blocked_ns"] = np.multiply(done["wait_us"], 1000, dtype=np.int64)
    columns["future"] = (done["flags"] & Flag.FUTURE_TAKEN) > 0
    return Ops(columns | _ends(done, comms))


def _ends(done: Completed, comms: Communicators) -> dict[str, NDArray[Any]]:
    """With whom operations were, as columns of OP; of many it is with nobody in particular."""
    ends: dict[str, NDArray[Any]] = {"peer": np.full(len(done), -1, np.int32)}
    ends |= {name: np.zeros(len(done), np.uint16) for name in ("stage", "offset")}
    messages = is_message(done["kind"])
    at = np.flatnonzero(messages | (done["peer"] >= 0))
    if not len(at):
        return ends
    comm, place, given = done.comm[at], done.place[at], done["peer"][at].astype(np.int64)
    peer, size = comms.members(comm, given), np.maximum(comms.size[comm], 1)
    stage, offset = np.where(messages[at], place + 1, 0), (given - place) % size
    ends["peer"][at], ends["stage"][at] = peer, stage
    ends["offset"][at] = np.where((stage > 0) & (peer >= 0) & (2 * offset != size), offset, 0)
    return ends


def steps_of(rows: Rows) -> Rows:
    """Optimizer steps, rows of STEP.

    Args:
        rows: Of RECORD_REPORTED.
    """
    steps = np.zeros(len(rows), STEP)
    steps["rank"], steps["at_ns"] = rows["rank"], rows["row"]["t_end_ns"]
    steps["counter"], steps["ordinal"] = rows["row"]["counter"], rows["row"]["ordinal"]
    return steps


def given_of(rows: Rows) -> Rows:
    """What ranks were given to compute, rows of GIVEN.

    Args:
        rows: Of RECORD_REPORTED.
    """
    given = np.zeros(len(rows), GIVEN)
    given["rank"], given["at_ns"] = rows["rank"], rows["row"]["t_issue_ns"]
    given["elements"], given["length"] = rows["row"]["count"], rows["row"]["counter"]
    return given


def passes_of(rows: Rows) -> Rows:
    """Backward passes that are over, rows of PASS.

    Args:
        rows: Of RECORD_REPORTED, of passes that begin too.
    """
    rows = rows[rows["row"]["t_end_ns"] > 0]
    passes = np.zeros(len(rows), PASS)
    passes["rank"], passes["begin_ns"], passes["end_ns"] = (
        rows["rank"],
        rows["row"]["t_issue_ns"],
        rows["row"]["t_end_ns"],
    )
    return passes

"""What a restart without the slow or broken part needs: which nodes to leave out and why, the newest checkpoint, how.

It is made of what a run has written, and goes into its folder: `handover.json` for programs, `handover.txt` for people.
A node is left out only for a cause that is the node's own. What a program does by itself, as a bug or a slow loader,
would do the same on every other node.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from whichrank.errors import UsageError
from whichrank.model.checkpoint import ABOUT, iterations_of
from whichrank.model.incident import Cause, Incident, Reason
from whichrank.model.plain_text import is_host_name, one_line
from whichrank.server.incidents_file import FILE_NAME, job_file, read_incidents
from whichrank.server.mitigations_file import read_now
from whichrank.server.private_file import write_private
from whichrank.verdict.words.amounts import duration, ranges
from whichrank.verdict.words.text import headline

JSON_FILE: Final = "handover.json"
TEXT_FILE: Final = "handover.txt"
OF_A_NODE: Final = frozenset({
    Cause.COMPUTE_SLOW, Cause.MIXED_SLOW, Cause.COMMUNICATION_SLOW, Cause.TRANSPORT, Cause.DEVICE, Cause.NODE_LOST,
})  # fmt: skip
OF_THE_PROGRAM: Final = frozenset({
    Reason.USER_CODE, Reason.GIL_HELD, Reason.DATA_WAIT, Reason.CHECKPOINT, Reason.GARBAGE_COLLECTION,
    Reason.MORE_TOKENS, Reason.EXCEPTION, Reason.STOPPED, Reason.SIGNAL,
})  # fmt: skip


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a restart should do without."""

    host: str
    ranks: tuple[int, ...]
    """That are named there."""
    incidents: tuple[str, ...]
    """By id."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """An open alert."""

    incident: str
    headline: str
    is_of_a_node: bool
    """Leaving a node out helps, as far as the cause says."""
    ends: tuple[int, ...] = ()
    """Ranks at the ends of slow links of which no end is named: one of their nodes, or what is between them."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The one that was written last, of those that are whole."""

    folder: str
    iterations: int
    """That are done."""
    written: datetime
    """UTC."""


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Seconds."""

    schema: Literal["whichrank.handover/1"] = "whichrank.handover/1"
    job: str
    at: datetime
    """UTC."""
    command: tuple[str, ...]
    named: tuple[Named, ...]
    leave_out: tuple[LeftOut, ...]
    checkpoint: Checkpoint | None
    """None: the program writes its own, or none."""
    lost_s: float | None = None
    """What the slowness has cost so far; None: not known."""
    now_s: float | None = None
    """What an iteration takes."""
    healthy_s: float | None = None
    """And would take if all were well."""


def handover_of(folder: Path) -> Handover:
    """What the files of a run say.

    Args:
        folder: Of the run.

    Raises:
        WhichrankError: They cannot be read.
    """
    job, now = job_file(folder), read_now(folder)
    incidents = [one for one in read_incidents(folder / FILE_NAME).incidents if _counts(one)]
    return Handover(
        job=job.job,
        at=datetime.now(UTC),
        command=job.command,
        named=tuple(
            Named(incident=one.id, headline=one_line(headline(one)), is_of_a_node=_is_of_a_node(one), ends=_ends(one))
            for one in incidents
        ),
        leave_out=_left_out([one for one in incidents if _is_of_a_node(one)]),
        checkpoint=_newest(Path(job.checkpoints)) if job.checkpoints else None,
        lost_s=now.impact_s if now else None,
        now_s=now.now_s if now else None,
        healthy_s=now.healthy_s if now else None,
    )


def write_handover(folder: Path, handover: Handover) -> Path:
    """Write both files; the path of the one for people.

    Raises:
        UsageError: They cannot be written.
    """
    path = folder / TEXT_FILE
    try:
        write_private(folder / JSON_FILE, msgspec.json.format(msgspec.json.encode(handover), indent=2) + b"\n")
        write_private(path, ("\n".join(handover_lines(handover)) + "\n").encode())
    except OSError as error:
        what = f"the hand-over cannot be written: {error.strerror or error}"
        raise UsageError(what, where=str(folder), mend="whichrank mitigate handover --json  prints it") from error
    return path


def handover_lines(handover: Handover) -> Iterator[str]:
    """For people."""
    yield f"Hand-over of job {one_line(handover.job)}, {handover.at:%Y-%m-%d %H:%M:%S} UTC"
    yield ""
    for one in handover.named:
        yield f"{one.incident}: {one.headline}"
        if not one.is_of_a_node:
            yield "  This is not known to be a fault of a node, so another node may not mend it."
        elif one.ends:
            yield (
                f"  It is the node of a rank of {ranges(one.ends)}, or what is between them: which end of it is at"
                " fault is not known."
            )
    if not handover.named:
        yield "Nothing is wrong now that names anybody: there is no reason to leave a node out."
    if handover.lost_s:
        yield (
            f"An iteration takes {duration(handover.now_s or 0.0)}, and {duration(handover.healthy_s or 0.0)} if all is"
            f" well; lost so far: {duration(handover.lost_s)}."
        )
    yield ""
    yield from _checkpoint_lines(handover.checkpoint)
    yield ""
    yield from _leave_out_lines(handover.leave_out)
    if handover.command:
        yield ""
        yield "The job was started with"
        command = shlex.join(handover.command)
        is_plain = command == one_line(command)
        yield f"  {command}" if is_plain else f"  a command that cannot be shown in one line: see {JSON_FILE}"


def _checkpoint_lines(checkpoint: Checkpoint | None) -> Iterator[str]:
    if checkpoint is None:
        yield "Checkpoint: none was written for whichrank; go on from the newest one that the program writes by itself."
        return
    yield f"Checkpoint: after iteration {checkpoint.iterations:,}, written {checkpoint.written:%Y-%m-%d %H:%M:%S} UTC"
    yield f"  {one_line(checkpoint.folder)}"
    yield "  A program that calls Reorderable.resume() goes on from it, with the same --checkpoints."


def _leave_out_lines(left_out: tuple[LeftOut, ...]) -> Iterator[str]:
    if not left_out:
        yield "Leave out: no node."
        return
    for one in left_out:
        yield f"Leave out: node {one_line(one.host)} (rank{'s' * (len(one.ranks) > 1)} {ranges(one.ranks)})"
    hosts = [one.host for one in left_out if is_host_name(one.host)]
    if hosts:
        yield f"  Slurm:      sbatch --exclude={','.join(hosts)} ..."
        yield f"  Kubernetes: kubectl cordon {' '.join(hosts)}"
        yield "  torchrun:   start it on as many other nodes, or take these out of the list of hosts"


def _counts(incident: Incident) -> bool:
    return incident.severity == "alert" and incident.status != "recovered" and bool(incident.culprits or incident.links)


def _is_of_a_node(incident: Incident) -> bool:
    return incident.cause in OF_A_NODE and incident.reason not in OF_THE_PROGRAM


def _ends(incident: Incident) -> tuple[int, ...]:
    return () if incident.culprits else tuple(sorted({end for one in incident.links for end in (one.src, one.dst)}))


def _left_out(incidents: list[Incident]) -> tuple[LeftOut, ...]:
    ranks: dict[str, set[int]] = {}
    ids: dict[str, list[str]] = {}
    for incident in incidents:
        for culprit in incident.culprits:
            if culprit.host:
                ranks.setdefault(culprit.host, set()).add(culprit.rank)
                ids.setdefault(culprit.host, []).append(incident.id)
    return tuple(
        LeftOut(host=host, ranks=tuple(sorted(ranks[host])), incidents=tuple(dict.fromkeys(ids[host])))
        for host in sorted(ranks)
    )


def _newest(folder: Path) -> Checkpoint | None:
    found: list[Checkpoint] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            iterations = iterations_of(entry.name)
            with contextlib.suppress(OSError):
                if iterations:
                    written = datetime.fromtimestamp((Path(entry) / ABOUT).stat().st_mtime, UTC)
                    found.append(Checkpoint(folder=entry.path, iterations=iterations, written=written))
    return max(found, key=lambda one: one.written, default=None)

"""Leaves names of hosts and folders out of all that a page or an export shows of a job.

It works on the values before anything is made of them, so no title, id, command or sentence can hold what was left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from whichrank.model.incident import Incident
from whichrank.model.telemetry import Stack
from whichrank.surface.hidden_hosts import HiddenHosts
from whichrank.surface.report.gather import Gathered

Redacted = Literal["hosts", "paths"]
REDACTABLE: Final[tuple[Redacted, ...]] = ("hosts", "paths")

_JOB: Final = re.compile(r"\d{8}-\d{6}-(.+)-\d+$")
"""The name that `whichrank run` gives a job: the time, the host and a pid."""
_ON: Final = re.compile(r"on (\S+): ")
"""What a command begins with that is for one host."""
_OURS: Final = frozenset(
    {"schema", "severity", "status", "kind", "cause", "reason", "class", "role", "end", "scope", "state", "dtype",
     "trace_id", "format", "says"}
)  # fmt: skip
"""Fields whose words are of our own vocabulary."""
_PATH: Final = re.compile(r"(?<![\w.])(?:/[\w.+\-@]+)+/(?=[\w.+\-@]+)")
_PLACE: Final = re.compile(r"(?<=\()(?:[^()]+/|/[^\n]*?/)(?=[^/]+?:\d+\))")
"""The folder in `function (file:line)`, whatever its name holds."""

Note = Mapping[str, Any]


def redacted(gathered: Gathered, notes: Sequence[Note], what: Iterable[Redacted]) -> tuple[Gathered, tuple[Note, ...]]:
    """What was gathered, and notes on files, without what is to be left out.

    Args:
        gathered: Of a job.
        notes: What became of each file that was read.
        what: Names of hosts, folders of files, or both.
    """
    what = set(what)
    changes: list[Callable[[str], str]] = []
    if "hosts" in what:
        changes.append(HiddenHosts(_known_hosts(gathered)).hide)
    if "paths" in what:
        changes.append(_without_folders({str(note["path"]).rpartition("/")[0] for note in notes} - {""}))
        notes = [{**note, "path": str(note["path"]).rsplit("/", 1)[-1]} for note in notes]
    for change in changes:
        gathered, notes = _changed(gathered, change), _changed(list(notes), change)
    return gathered, tuple(notes)


def _known_hosts(gathered: Gathered) -> Iterator[str]:
    """All names of hosts that the values hold as such."""
    yield from (*gathered.hosts.values(), *gathered.more_hosts)
    incidents = [*gathered.incidents, *(incident for one in gathered.earlier for incident in one.incidents)]
    for job in (gathered.job, *(incident.job for incident in incidents)):
        if found := _JOB.match(job):
            yield found[1]
    for incident in incidents:
        yield from (one.host for one in (*incident.culprits, *incident.candidates) if one.host)
        yield from (found[1] for command in incident.next if (found := _ON.match(command)))


def _without_folders(read: set[str]) -> Callable[[str], str]:
    """What leaves the folders of all paths out of a text, and of the files that were read altogether."""
    known = [re.escape(folder) for folder in sorted(read, key=len, reverse=True)]
    pattern = re.compile("|".join([*(rf"(?<![\w.]){folder}/+" for folder in known), _PLACE.pattern, _PATH.pattern]))
    return lambda text: pattern.sub("", text)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """The same value with all of its texts changed, but for words of our own vocabulary."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_changed(one, change) for one in value)
    if isinstance(value, dict):
        return {key: one if key in _OURS else _changed(one, change) for key, one in value.items()}
    if isinstance(value, Incident | Stack):
        plain = msgspec.to_builtins(value, builtin_types=(datetime,))
        return msgspec.convert(_changed(plain, change), type(value))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{name: _changed(part, change) for name, part in parts.items()})
    return value

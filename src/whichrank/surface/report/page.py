"""The page of a report: data as JSON within an HTML file, and the script and style that show it.

What varies goes into the page as JSON only, and the script puts texts in as texts, so nothing that a job calls itself
can become part of the page. Many operations travel as columns in base64.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichrank import __version__
from whichrank.model.incident import Culprit, Incident
from whichrank.model.links import rate_text
from whichrank.model.rows import Kind
from whichrank.surface.report.gather import Gathered
from whichrank.surface.text import headline, paragraph

Redacted = Literal["hosts", "paths"]
REDACTABLE: Final[tuple[Redacted, ...]] = ("hosts", "paths")
_ADDRESS: Final = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])|(?<![\w:])(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}(?![\w:])"
)
_COLUMNS: Final = frozenset({"rank", "comm", "kind", "counter", "start", "lasted", "waited", "own", "blocked"})
"""Keys of columns, and of what is no text."""
_PATH: Final = re.compile(r"(?<![\w.])(?:/[\w.+\-@]+)+/(?=[\w.+\-@]+)")
_PLACE: Final = re.compile(r"(?<=\()(?:[^()]+/|/[^\n]*?/)(?=[^/]+?:\d+\))")
"""The folder in `function (file:line)`, whatever its name holds."""
_NAME: Final = re.compile(r"(?<![\w.-])(?<!(?<!/)/)([\w-]+(?:\.[\w-]+)*)(<\d{1,5}>|:\d{1,5}\b)?")
"""A name, alone or with a port as NCCL or as others write it; in no path, but behind // of an address."""
_ENDINGS: Final = frozenset(
    {"c", "cc", "cpp", "cu", "cuh", "gz", "h", "hpp", "json", "log", "pt", "py", "so", "txt", "yaml"}
)
"""Endings of files."""
LISTED: Final = 32


def page_of(gathered: Gathered, redact: Iterable[Redacted] = (), notes: Iterable[Mapping[str, Any]] = ()) -> str:
    """The HTML of a report.

    Args:
        gathered: What it shows.
        redact: What is left out: names of hosts, folders of files.
        notes: What became of each file that it was made of.
    """
    redact = set(redact)
    if "hosts" in redact:
        hosts = _hosts(gathered)
        gathered = replace(gathered, incidents=tuple(_without_quoted(one, hosts) for one in gathered.incidents))
        data = _replaced(_data_of(gathered, list(notes)), hosts)
    else:
        data = _data_of(gathered, list(notes))
    if "paths" in redact:
        data = _without_paths(data)
    text = msgspec.json.encode(data).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028")
    parts = {
        "@@TITLE@@": html.escape(f"whichrank: {data['job']}"), "@@STYLE@@": _part("page.css"), "@@DATA@@": text,
        "@@SCRIPT@@": _part("page.js"),
    }  # fmt: skip
    return re.sub("|".join(parts), lambda found: parts[found.group()], _part("page.html"))


def _part(name: str) -> str:
    return files("whichrank.surface.report").joinpath(name).read_text(encoding="utf-8")


def _data_of(gathered: Gathered, notes: list[Mapping[str, Any]]) -> dict[str, Any]:
    spans = gathered.spans
    zero_s = float(spans["start_s"].min()) if len(spans) else 0.0
    return {
        "schema": "whichrank.report/1",
        "version": __version__,
        "job": gathered.job,
        "ranks": gathered.world_size,
        "hosts": {str(rank): host for rank, host in gathered.hosts.items()},
        "incidents": [
            _incident(one) | {"round": of} for one, of in zip(gathered.incidents, gathered.rounds, strict=True)
        ],
        "waits": [
            {
                "what": one.what, "operations": one.operations, "ranks": ranges(one.ranks), "count": len(one.ranks),
                "for": ranges(one.targets), "targets": len(one.targets), "distance": one.distance,
            }
            for one in gathered.waits[:LISTED]
        ],
        "lanes": {
            "zero_utc_s": None if gathered.utc_offset_s is None else zero_s + gathered.utc_offset_s,
            "count": len(spans),
            "comms": list(gathered.comms),
            "first_message": int(Kind.SEND),
            "kinds": {str(int(kind)): kind.name.lower() for kind in Kind},
            "rank": _packed(spans["rank"], np.uint32),
            "comm": _packed(spans["comm"], np.uint32),
            "kind": _packed(spans["kind"].astype(np.uint8) | spans["open"].astype(np.uint8) << 7, np.uint8),
            "counter": _packed(spans["counter"] & 0xFFFFFFFF, np.uint32),
            "start": _packed(spans["start_s"] - zero_s, np.float32),
            "lasted": _packed(spans["end_s"] - spans["start_s"], np.float32),
            "waited": _packed(spans["waited_s"], np.float32),
        },
        "heat": {
            "ranks": gathered.ranks.tolist(), "iterations": gathered.iterations.tolist(),
            "own": _packed(gathered.own_s.reshape(-1), np.float32),
            "blocked": _packed(gathered.blocked_s.reshape(-1), np.float32),
        },
        "times": [[one.rank, one.own_s, one.transfer_s, one.waiting_s] for one in gathered.times],
        "links": [[one.src, one.dst, one.rate, one.best, rate_text(one.rate)] for one in gathered.links],
        "operations": [
            [one.comm, one.kind, one.count, one.total_s, one.median_s, one.longest_s, one.longest_rank, one.waited_s]
            for one in gathered.operations
        ],
        "stacks": {
            str(rank): [{"thread": one.thread, "gil": one.holds_gil, "frames": one.frames} for one in of]
            for rank, of in gathered.stacks.items()
        },
        "notes": notes,
    }  # fmt: skip


def _incident(incident: Incident) -> dict[str, Any]:
    plain = msgspec.to_builtins(incident)
    assert isinstance(plain, dict)
    return {"headline": headline(incident), "paragraph": paragraph(incident), **plain}


def _packed(column: NDArray[Any], dtype: type[np.generic]) -> str:
    """A column as little-endian bytes in base64."""
    return base64.b64encode(np.ascontiguousarray(column, np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


def ranges(ranks: NDArray[np.int64]) -> str:
    """`0-3, 5`: at most so many pieces, then how many more there are."""
    if not len(ranks):
        return ""
    pieces = np.split(ranks, np.flatnonzero(np.diff(ranks) != 1) + 1)
    texts = [
        str(int(piece[0])) if len(piece) == 1 else f"{int(piece[0])}-{int(piece[-1])}" for piece in pieces[:LISTED]
    ]
    more = sum(map(len, pieces[LISTED:]))
    return ", ".join(texts) + (f" and {more} more" if more else "")


def _hosts(gathered: Gathered) -> dict[str, str]:
    """By name, what stands for it."""
    names = {
        *gathered.hosts.values(),
        *(c.host for i in gathered.incidents for c in (*i.culprits, *i.candidates) if c.host),
    }
    return {name: f"host-{number}" for number, name in enumerate(sorted(names)) if name}


def _replaced(value: Any, names: Mapping[str, str]) -> Any:
    """With these names replaced in all texts, the longest first."""
    if not names:
        return value
    some = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w-])(?:{some})(?![\w-])(?:\.[\w-]+)*")

    def changed(text: str) -> str:
        hidden = pattern.sub(lambda found: names[_longest(found.group(), names)], text)
        return _ADDRESS.sub("an address", hidden)

    return _changed(value, changed)


def _longest(text: str, names: Mapping[str, str]) -> str:
    """Which of these names it begins with."""
    return max((name for name in names if text.startswith(name)), key=len)


def _without_quoted(incident: Incident, known: Mapping[str, str]) -> Incident:
    """Without the hosts that lines of logs and exceptions name, of which nothing else may be known.

    Args:
        incident: What is told.
        known: Hosts that are known, which have names of their own afterwards.
    """

    def changed(text: str) -> str:
        return _NAME.sub(lambda found: _unnamed(found, known), text)

    def of(culprits: Iterable[Culprit]) -> tuple[Culprit, ...]:
        return tuple(msgspec.structs.replace(one, why=changed(one.why)) for one in culprits)

    evidence = tuple(
        msgspec.structs.replace(one, value=changed(one.value)) if isinstance(one.value, str) else one
        for one in incident.evidence
    )
    return msgspec.structs.replace(
        incident, evidence=evidence, culprits=of(incident.culprits), candidates=of(incident.candidates)
    )


def _unnamed(found: re.Match[str], known: Mapping[str, str]) -> str:
    """What stands for a name if it can be that of a host: not for a file, a class of errors, a number, an address."""
    name, port = found[1], found[2] or ""
    first, *others = name.split(".")
    last = others[-1] if others else ""
    if name in known or first in known or not re.search("[A-Za-z]", name):
        return found[0]
    if port.startswith("<"):
        return f"a host{port}"
    is_class = last[:1].isupper() and not last.isupper()
    is_host = len(others) > (0 if port else 1) and not first.isdecimal() and last[0].isalpha() and not is_class
    return f"a host{port}" if is_host and last not in _ENDINGS else found[0]


def _without_paths(value: Any) -> Any:
    """With the folders of all paths left out, of files that were read altogether."""
    folders = {note["path"].rpartition("/")[0] for note in value["notes"]} - {""}
    known = [re.escape(folder) for folder in sorted(folders, key=len, reverse=True)]
    pattern = re.compile("|".join([*(rf"(?<![\w.]){folder}/+" for folder in known), _PLACE.pattern, _PATH.pattern]))
    notes = [note | {"path": note["path"].rsplit("/", 1)[-1]} for note in value["notes"]]
    return _changed(value | {"notes": notes}, lambda text: pattern.sub("", text))


def _changed(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_changed(one, change) for one in value]
    if isinstance(value, dict):
        return {key: one if key in _COLUMNS else _changed(one, change) for key, one in value.items()}
    return value

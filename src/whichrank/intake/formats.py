"""The formats that are known, and how each is recognised: by its first bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from whichrank.errors import FormatError
from whichrank.intake.flight_dump import Dump, read_json, read_pickle
from whichrank.intake.inspector import Inspected, is_inspector, read_inspector
from whichrank.intake.kineto import KEY as TRACE_KEY
from whichrank.intake.kineto import Trace, read_trace
from whichrank.intake.lines.encodings import is_text
from whichrank.intake.logs import Log, read_log
from whichrank.intake.megatrace import HINT as MEGATRACE
from whichrank.intake.megatrace import Megatrace, read_megatrace
from whichrank.intake.op_spans import MAGIC as PARQUET
from whichrank.intake.op_spans import Spans, read_parquet
from whichrank.intake.pipeline_log import PipelineLog, is_pipeline_log, read_pipeline_log
from whichrank.intake.ras import Snapshots, is_ras, read_snapshots
from whichrank.intake.ras_text import is_ras_text, read_ras_text
from whichrank.intake.sources import Source
from whichrank.intake.stacks_text import MOST_BYTES as MOST_STACKS_BYTES
from whichrank.intake.stacks_text import Stacks, is_stacks, read_stacks
from whichrank.model.logged_iterations import LoggedIterations

Content = Dump | Inspected | Log | LoggedIterations | Snapshots | Megatrace | PipelineLog | Spans | Stacks | Trace
MOST_DUMP_BYTES: Final = 256 << 20
MOST_TABLE_BYTES: Final = 1 << 30
CHUNK_BYTES: Final = 1 << 20
_PICKLE: Final = b"\x80"
_NEWEST_PICKLE: Final = 5
_TRACE_KEYS: Final = (f'"{TRACE_KEY}"'.encode(), b'"distributedInfo"', b'"deviceProperties"')
_DUMP_KEYS: Final = (b'"pg_config"', b'"pg_status"', b'"entries"')


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        name: In JSON.
        title: For people, in the singular.
        is_it: Does something that begins like this look like it?
        read: The content of a source.
    """

    name: str
    title: str
    is_it: Callable[[bytes], bool]
    read: Callable[[Source], Content]


def _is_pickle(head: bytes) -> bool:
    return len(head) > 1 and head[:1] == _PICKLE and head[1] <= _NEWEST_PICKLE


def _is_json_dump(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and not _is_trace(head) and any(key in head for key in _DUMP_KEYS)


def _is_trace(head: bytes) -> bool:
    begins = head.lstrip()[:1]
    return (begins == b"{" and any(key in head for key in _TRACE_KEYS)) or (begins == b"[" and b'"ph"' in head)


def all_of(source: Source, most_bytes: int) -> bytes:
    """All bytes of a source.

    Raises:
        FormatError: They are more than that.
    """
    data = bytearray()
    while chunk := source.stream.read(CHUNK_BYTES):
        data += chunk
        if len(data) > most_bytes:
            raise FormatError(f"it is larger than {most_bytes >> 20} MiB, which none of its kind is")
    return bytes(data)


PIPELINE: Final = "pipeline_log"
FLIGHT_RECORDER: Final = "flight_recorder"
FORMATS: Final = (
    Format(
        FLIGHT_RECORDER, "dump of the Flight Recorder", _is_pickle,
        lambda source: read_pickle(all_of(source, MOST_DUMP_BYTES)),
    ),
    Format(
        FLIGHT_RECORDER, "dump of the Flight Recorder", _is_json_dump,
        lambda source: read_json(all_of(source, MOST_DUMP_BYTES)),
    ),
    Format("ras", "status of NCCL's RAS", is_ras, lambda source: read_snapshots(all_of(source, MOST_DUMP_BYTES))),
    Format(
        "ras", "status of NCCL's RAS", is_ras_text, lambda source: read_ras_text(all_of(source, MOST_DUMP_BYTES)),
    ),
    Format(
        "stacks", "stack of a process", is_stacks, lambda source: read_stacks(all_of(source, MOST_STACKS_BYTES)),
    ),
    Format("inspector", "file of NCCL's Inspector", is_inspector, lambda source: read_inspector(source.stream)),
    Format("kineto", "trace of the profiler", _is_trace, lambda source: read_trace(source.stream)),
    Format(
        "megatrace", "log of Megatrace", lambda head: MEGATRACE in head,
        lambda source: read_megatrace(source.stream),
    ),
    Format(
        PIPELINE, "log of a pipeline's computations", is_pipeline_log,
        lambda source: read_pipeline_log(source.stream),
    ),
    Format(
        "op_spans", "table of spans", lambda head: head.startswith(PARQUET),
        lambda source: read_parquet(all_of(source, MOST_TABLE_BYTES)),
    ),
)  # fmt: skip


LOG: Final = Format("log", "log", is_text, lambda source: read_log(source.stream))
"""Whatever else is text: it may say something of ranks, or nothing."""
ITERATIONS: Final = "iterations"
"""Iteration times, which may stand in any log."""
TITLES: Final = {known.name: known.title for known in (*FORMATS, LOG)} | {ITERATIONS: "log of iteration times"}
"""By name, each format for people, in the singular."""


def format_of(head: bytes) -> Format | None:
    """What something that begins like this is; None if it is nothing that is known."""
    return next((known for known in FORMATS if known.is_it(head)), None)

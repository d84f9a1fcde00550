"""Parts of one job put together, by kind: a recording of dumps, of traces, of counts, of spans, of reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar

from whichrank.intake import (
    flight_batches,
    flight_job,
    inspector_job,
    kineto_job,
    megatrace,
    nccl_log,
    op_spans,
    pipeline_log,
    ras,
    torchcomms,
    watchdog,
)
from whichrank.intake.counted import dump_of
from whichrank.intake.each_attempt import OF_LAST_ATTEMPT
from whichrank.intake.facts import joined
from whichrank.intake.flight_dump import Dump
from whichrank.intake.formats import FLIGHT_RECORDER, PIPELINE
from whichrank.intake.inspector import Inspected
from whichrank.intake.kineto import Trace
from whichrank.intake.log_job import Said
from whichrank.intake.logs import Log
from whichrank.intake.megatrace import Megatrace
from whichrank.intake.missing import LISTED, NO_OPERATION, NO_STAGES, several_jobs, unread_ranks
from whichrank.intake.old_dumps import earlier_dumps
from whichrank.intake.op_spans import Spans
from whichrank.intake.parts import Part, those
from whichrank.intake.pipeline_log import PipelineLog
from whichrank.intake.ras import Ras
from whichrank.intake.recording import Note, Recording
from whichrank.intake.span_ops import step_ops_of
from whichrank.model.picture import Recorded

T = TypeVar("T")
CALLERS: Final = 4
JUST_NOW_S: Final = 1.0
"""A dump that was written so soon after its latest operation is of a job that went on: timeouts are longer."""
CLOCKS_S: Final = 2.0
"""By how much the clock of who wrote the file may be behind."""
DUMP: Final = "dump"
_OF_EACH: Final = {
    "megatrace": "log", "watchdog": "line of torch's watchdog", "ras": "count", "nccl_log": "line of NCCL",
    "log": "word in these logs",
}  # fmt: skip
"""What there would be of each rank, where no dumps are."""
_ONLY_TIMES: Final = Recorded(shows_hangs=False)
OLDER_DUMP: Final = "its dump was made before the others stood still, perhaps in an earlier attempt of the job"


def _by_rank(found: Sequence[tuple[Note, T]]) -> tuple[dict[int, T], dict[int, str]]:
    """What was read of each rank, and its path."""
    contents: dict[int, T] = {}
    whose: dict[int, str] = {}
    for note, content in found:
        assert note.rank is not None
        if note.rank in contents:
            one, other = whose[note.rank], note.path
            raise several_jobs(f"'{one}' and '{other}' are both of rank {note.rank}", one, other)
        contents[note.rank], whose[note.rank] = content, note.path
    return contents, whose


def _world_of(sizes: dict[int, int], whose: dict[int, str]) -> int:
    """Ranks of the job, 0 if none says.

    Args:
        sizes: By rank, how many the job has, 0 if it does not say.
        whose: By rank, the path.
    """
    known = {size: rank for rank, size in sizes.items() if size}
    if len(known) > 1:
        (one, of_one), (other, of_other) = list(known.items())[:2]
        what = f"'{whose[of_one]}' is of a job of {one} ranks, and '{whose[of_other]}' of one of {other}"
        raise several_jobs(what, whose[of_one], whose[of_other])
    return max([*known, max(sizes, default=-1) + 1])


def of_dumps(
    found: Sequence[tuple[Note, Dump]], notes: Iterable[Note], name: str, logged: Said,
    written_s: Mapping[str, float] = MappingProxyType({}), what: str = DUMP,
) -> Recording:  # fmt: skip
    """The job of which these dumps are.

    Args:
        found: Each with its note.
        notes: Of all files.
        name: Of the job.
        logged: What logs say beside it.
        written_s: By path, when the file was written, unix time.
        what: What there would be of each rank; none but dumps have sends and receives.
    """
    as_read, whose = _by_rank(found)
    dumps, uncounted = torchcomms.counted_anew(as_read)
    world = _world_of({rank: flight_job.world_size(dump) for rank, dump in dumps.items()}, whose)
    world = max(world, logged.world_size if what != DUMP else 0)
    reported, unsure = flight_job.job_of(dumps)
    written = {rank: written_s.get(path, 0.0) for rank, path in whose.items()}
    unsure |= uncounted
    unsure |= dict.fromkeys(sorted(earlier_dumps(reported, written) if what == DUMP else ()), OLDER_DUMP)
    reported = [one for one in reported if one.rank not in unsure]
    unread = unread_ranks(world, as_read, notes, what) | unsure
    facts = {rank: fact for rank, fact in logged.facts.items() if rank < world and fact.world_size in (0, world)}
    batches, now_s = flight_batches.batches_of(reported, world, facts, logged.last_s)
    said = {rank: fact.words for rank, fact in facts.items() if fact.words}
    said |= {one.rank: (*said.get(one.rank, ()), _issued_at(one.dump)) for one in reported if one.dump.frames}
    if what != DUMP:
        unread = {rank: why for rank, why in unread.items() if rank not in said}  # its lines are there
    ages_s = [written_s.get(whose[one.rank], 0.0) - one.latest_ns / 1e9 for one in reported if one.latest_ns]
    is_still = 2 * sum(-CLOCKS_S < age_s < JUST_NOW_S for age_s in ages_s) <= len(ages_s)
    utc_offset_s = 0.0 if any(one.latest_ns for one in reported) else None
    hides = what != DUMP or any(one.dump.backend == "gloo" or one.dump.hides_messages for one in reported)
    is_young = what == DUMP and flight_job.is_young(reported)
    about = Recorded(
        is_still=is_still, hides_messages=hides, is_young=is_young, has_only_counts=what in _OF_EACH.values(),
        gave_up_s=now_s - (logged.last_s - logged.gave_up_s) if logged.gave_up_s >= 0 else 0.0,
        reports=tuple(one for one in logged.reports if all(rank < world for rank in one.ranks)),
    )  # fmt: skip
    most_known = world - 1 if what != DUMP and not logged.is_world_known else -1
    return Recording(
        name, FLIGHT_RECORDER, batches, now_s, utc_offset_s, dict(sorted(unread.items())), said, about,
        most_known=most_known,
    )  # fmt: skip


def _issued_at(dump: Dump) -> str:
    return f"latest operation issued in {' < '.join(dump.frames[:CALLERS])}"


def of_counts(
    parts: Sequence[Part], logs: Sequence[Log], polls: Sequence[Ras], notes: Iterable[Note], name: str, said: Said
) -> list[Recording]:  # fmt: skip
    """Where only counts of what was issued are known: of Megatrace, of a watchdog, or of several answers of RAS."""
    enqueued = [one for _, found in those(parts, Megatrace) for one in found.ranks]
    if enqueued:
        logs_of_ranks, has_earlier = megatrace.of_last_attempt(enqueued)
        dumps = megatrace.dumps_of(logs_of_ranks, max(one.rank for one in enqueued) + 1)
        issued = _of_issued(dumps, "megatrace", notes, name, said)
        remarks = (OF_LAST_ATTEMPT,) if has_earlier else ()
        return [replace(issued, remarks=remarks, left_open=megatrace.incomparable(logs_of_ranks) or megatrace.EQUAL)]
    standings = [one for log in logs for one in log.standings]
    if counted := watchdog.dumps_of(standings, said.world_size):
        return [replace(_of_issued(counted, "watchdog", notes, name, said), left_open=watchdog.NOT_HERE)]
    enqueued_by = {rank: dump for log in logs for rank, dump in log.counted.items()}
    if enqueued_by:
        return [replace(_of_issued(enqueued_by, "nccl_log", notes, name, said), left_open=nccl_log.EQUAL)]
    still = ras.standing_still(polls)
    return [_of_issued(ras.dumps_of(still), "ras", notes, name, said)] if still else []


def of_ras(still: Ras, name: str) -> Recording:
    """A job of which RAS has found more than once that ranks are behind."""
    return _of_issued(ras.dumps_of(still), "ras", (), name, Said(joined(still.facts)))


def _of_issued(dumps: dict[int, Dump], kind: str, notes: Iterable[Note], name: str, said: Said) -> Recording:
    whose = [(Note(f"rank {rank}", kind, "read", rank), dump) for rank, dump in dumps.items()]
    return of_dumps(whose, notes, name, said, what=_OF_EACH[kind])


def of_reports(said: Said, notes: Iterable[Note], name: str) -> list[Recording]:
    """Where no operation is known, but who ended, or what a library or a driver reports; or what it cannot name."""
    ended = [rank for rank, fact in said.facts.items() if fact.has_ended]
    raised = tuple(f"rank {r}: {word}" for r, fact in sorted(said.facts.items()) for word in fact.words)
    if not (ended or said.reports or said.remarks or raised):
        return []
    known = [rank for one in said.reports for rank in (*one.waiting, *one.ranks) if rank not in ended]
    dumps = {rank: dump_of("log", rank, (), (), hides_messages=True) for rank in known}
    if not dumps and not ended:
        dumps = {0: dump_of("log", 0, (), (), hides_messages=True)}
    found = _of_issued(dumps, "log", notes, name, said)
    return [replace(found, left_open=NO_OPERATION, remarks=() if ended else raised[:LISTED])]


def of_traces(found: Sequence[tuple[Note, Trace]], notes: Iterable[Note], name: str) -> Recording:
    """The job of which these traces are."""
    traces, whose = _by_rank(found)
    world = _world_of({rank: trace.world_size for rank, trace in traces.items()}, whose)
    batches, now_s = kineto_job.batches_of(traces, world)
    return Recording(
        name, "kineto", batches, now_s, None, unread_ranks(world, traces, notes, "trace"), about=_ONLY_TIMES
    )


def of_inspected(found: Sequence[tuple[Note, Inspected]], notes: Iterable[Note], name: str) -> Recording:
    """The job whose processes NCCL's Inspector has recorded."""
    processes, whose = _by_rank(found)
    world = _world_of({rank: one.world_size for rank, one in processes.items()}, whose)
    batches, now_s = inspector_job.batches_of(processes, world)
    unread = unread_ranks(world, processes, notes, "file of the Inspector")
    return Recording(name, "inspector", batches, now_s, None, unread, about=_ONLY_TIMES)


def of_pipeline(logs: Sequence[PipelineLog], name: str) -> list[Recording]:
    """The job whose stages have logged their computations."""
    spans = pipeline_log.spans_of(logs)
    if spans is None:
        about = Recorded(shows_hangs=False)
        return [Recording(name, PIPELINE, (), 0.0, None, {}, about=about, left_open=NO_STAGES)] if logs else []
    return [replace(of_spans(spans, name), format=PIPELINE)]


def of_spans(spans: Spans, name: str) -> Recording:
    """The job whose operations are in a table."""
    batches, now_s = op_spans.batches_of(spans)
    return Recording(name, "op_spans", batches, now_s, None, {}, about=_ONLY_TIMES, ops=step_ops_of(spans))

"""`whichrank analyze`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whichrank.surface.terminal import progress_bar, show, show_json, talk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whichrank.intake.recording import Intake, Note
    from whichrank.server.what_if import Bill
    from whichrank.surface.verdicts import Verdict

_LISTED = 8


@click.command(name="analyze")
@click.argument("paths", metavar="[PATH...]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print {incidents, intake, what_if, attempts} as JSON.")
def command(paths: tuple[Path, ...], as_json: bool) -> int:
    """Say what recordings of a job say: who hangs it, and why.

    PATH is a file, a folder, or an archive (.tar, .zip, .gz, .xz, .zst), whatever it is called; without one it is the
    present folder. Read are dumps of PyTorch's Flight Recorder, traces of its profiler, logs of its watchdog, of NCCL,
    launchers and the kernel, stacks, NCCL's RAS and Inspector, Megatrace, spans of pipelines, and iteration times in
    logs of Megatron-LM, NeMo and DeepSpeed. Files that are none are passed over; what of a job is missing or damaged
    is said, and the rest is used. Where they hold several attempts of a job, each has its verdict, the last one first;
    incidents and exit code are of that one.

    Exit codes: 0 nothing found, 3 a hang, 4 a slowdown, 5 nothing found but ranks or their groups are not known, or
    nothing to read.
    """
    from whichrank.errors import IncompleteDataError, WhichrankError
    from whichrank.surface.leave import leave_on_signals
    from whichrank.surface.next_time import advise

    leave_on_signals()
    notes: list[Note] = []
    try:
        verdicts, intake, is_complete = _found(paths or (Path(),), notes.append)
    except WhichrankError as error:
        if as_json:
            _print_json((), notes)
        elif isinstance(error, IncompleteDataError):
            advise(notes)
        raise
    return _print(verdicts, intake, as_json=as_json, is_complete=is_complete)


def _found(paths: tuple[Path, ...], note: Callable[[Note], None]) -> tuple[list[Verdict], Intake, bool]:
    """The verdicts, what was read, and whether nothing is missing."""
    from whichrank.surface.leave import ended_at_once

    with ended_at_once():
        from whichrank.intake.read import read
        from whichrank.intake.recording import Intake, Note
        from whichrank.server.replay import replay
        from whichrank.surface.report.make import tape_in
        from whichrank.surface.verdicts import Verdict, verdicts_of

    if tape := tape_in(paths):
        replayed = replay(tape)
        notes = (Note(str(tape), "whichrank", "read" if replayed.is_whole else "damaged"),)
        return [Verdict(1, "", replayed.incidents)], Intake((), notes), replayed.is_whole
    with progress_bar() as progress:
        bar = progress.add_task("files", total=None)
        intake = read(paths, lambda done, total: progress.update(bar, completed=done, total=total), note)
        verdicts = verdicts_of(intake)
    return verdicts, intake, not any(recording.unread for recording in intake.recordings)


def _print(verdicts: Sequence[Verdict], intake: Intake, *, as_json: bool, is_complete: bool) -> int:
    """All that is to be said; returns the exit code."""
    from whichrank.intake.recording import UNKNOWN
    from whichrank.server.what_if import bill_of
    from whichrank.surface.bill import sentences_of
    from whichrank.surface.cli.why import EXIT_INCOMPLETE, exit_code_of
    from whichrank.surface.next_time import NEXT_TIME
    from whichrank.surface.pipe import reader_may_leave
    from whichrank.surface.verdicts import of_earlier, show_verdict

    last = verdicts[0]
    bills = [bill for one in intake.recordings if (bill := bill_of(one)) is not None]
    if as_json:
        _print_json(verdicts, intake.notes, bills)
    else:
        with reader_may_leave():
            for verdict in verdicts:
                show_verdict(verdict)
            for sentence in (sentence for bill in bills for sentence in sentences_of(bill)):
                show(sentence)
    ask_for = NEXT_TIME if last.left_open else ()
    for sentence in (*_sentences(intake), *last.left_open, *of_earlier(verdicts), *ask_for):
        talk(sentence)
    of_any = last.incidents or next((one.incidents for one in verdicts if one.number == UNKNOWN), ())
    return exit_code_of(of_any) or (0 if is_complete and not last.left_open else EXIT_INCOMPLETE)


def _print_json(verdicts: Sequence[Verdict], notes: Sequence[Note], bills: Sequence[Bill] = ()) -> None:
    import msgspec

    from whichrank.surface.pipe import reader_may_leave
    from whichrank.surface.verdicts import as_json

    incidents = verdicts[0].incidents if verdicts else ()
    said: dict[str, object] = {"incidents": incidents, "intake": notes, "what_if": bills}
    if attempts := as_json(verdicts):
        said["attempts"] = attempts
    with reader_may_leave():
        show_json(msgspec.json.encode(said))


def _sentences(intake: Intake) -> list[str]:
    """What was read, what was not, and what would help."""
    from whichrank.intake.by_kind import OLDER_DUMP
    from whichrank.intake.formats import TITLES
    from whichrank.intake.parts_used import COPY

    titles = {"whichrank": "recording of whichrank"} | TITLES
    used = Counter(note.format for note in intake.notes if note.state == "read")
    sentences = [
        f"1 file read, a {titles[kind]}" if count == 1 else f"{count} files read, each a {titles[kind]}"
        for kind, count in used.items()
    ]
    bad = [note for note in intake.notes if note.state in ("empty", "damaged") or note.what.startswith(COPY)]
    sentences += [f"'{note.path}' was not used: {note.what}" for note in bad[:_LISTED]]
    if len(bad) > _LISTED:
        sentences.append(f"nor were {len(bad) - _LISTED} more")
    sentences += [f"of '{note.path}' {note.what}" for note in intake.notes if note.state == "read" and note.what]
    sentences += dict.fromkeys(text for one in intake.recordings for text in one.remarks)
    for recording in intake.recordings:
        by_reason: dict[bool, list[int]] = {}
        for rank, why in recording.unread.items():
            by_reason.setdefault(why == OLDER_DUMP, []).append(rank)
        for is_old, ranks in sorted(by_reason.items()):
            who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:_LISTED]))}"
            who += f" and {len(ranks) - _LISTED} more" if len(ranks) > _LISTED else ""
            if is_old:
                sentences.append(f"of {who} nothing was used: {OLDER_DUMP}, or of another job")
            else:
                them = "it" if len(ranks) == 1 else "they"
                sentences.append(f"there is no recording of {who}; {them} could tell more")
    return sentences

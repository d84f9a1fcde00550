"""One trial as a command: it is run, then the verdict is reported, the truth, and whether they agree."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from whichrank.errors import UsageError, WhichrankError
from whichrank.model.plain_text import one_line
from whichrank.server.times_file import read_times
from whichrank.server.validations_file import Validated
from whichrank.surface.terminal import show
from whichrank.surface.trial.words import agreement, cost_reported, truth_reported, wrapped
from whichrank.surface.validated import sentence_of
from whichrank.testbed.bench.results_file import keep_run, ready_empty_folder
from whichrank.testbed.bench.setup import Result, Setup, known_faults
from whichrank.testbed.bench.trial import Trial
from whichrank.testbed.demo.folders import keep as keep_folder
from whichrank.testbed.demo.folders import new_folder
from whichrank.verdict.words.amounts import duration
from whichrank.verdict.words.text import headline, paragraph
from whichrank.wire.tape import FILE_NAME


def run_and_show(setup: Setup, name: str, said: str, mend: str, *, as_json: bool, keep: Path | None = None) -> int:
    """Run a trial in a folder that is removed if all was right.

    Args:
        setup: What to run.
        name: Of the command, before what is told to people.
        said: What is run, for people.
        mend: A command that works, should this one have nothing to act on.
        as_json: Print the result as JSON.
        keep: Where what the run wrote is kept in any case.

    Returns:
        0 if verdict and truth agree, else 1.

    Raises:
        UsageError: The job has nothing that the fault could act on.
    """

    def say(text: str) -> None:
        if not as_json:
            show(f"{name}: {one_line(text)}", err=True)

    if keep:
        ready_empty_folder(keep)
    folder = new_folder(f"whichrank-{name}-")
    is_kept = False
    try:
        trial = _trial(setup, folder, say, mend)
        say(said)
        result = _run(trial, mend)
        is_kept = not result.agree
        log = str(keep / "job.log") if keep else "" if result.agree else result.log  # its folder is removed
        _report(trial, dataclasses.replace(result, log=log), as_json=as_json)
    except Exception as error:
        is_kept = not isinstance(error, WhichrankError)
        raise
    finally:  # also by Ctrl-C
        if keep and (folder / FILE_NAME).exists():
            try:
                keep_run(folder, keep)
            except UsageError:
                keep_folder(folder)
                show(f"{name}: what the run wrote is in {folder}", err=True)
                raise
            shutil.rmtree(folder, ignore_errors=True)
            show(f"{name}: the run is kept; go through it again with  whichrank replay {keep}", err=True)
        elif is_kept:
            keep_folder(folder)
            show(f"{name}: the job's log and incidents are kept in {folder}", err=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if is_kept else 0


def _trial(setup: Setup, folder: Path, say: Callable[[str], None], mend: str) -> Trial:
    try:
        return Trial(setup, folder, say)
    except ValueError as error:
        raise UsageError(str(error), mend=mend) from error


def _run(trial: Trial, mend: str) -> Result:
    try:
        return trial.run()
    except ValueError as error:
        if (trial.folder / "job.log").exists():
            raise
        raise UsageError(str(error), mend=mend) from error


def _report(trial: Trial, result: Result, *, as_json: bool) -> None:
    """The verdict, then the truth, then whether they agree."""
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
        return
    to_terminal = sys.stdout.isatty()
    incidents = trial.incidents()
    if trial.setup.validates:
        _show_the_way(trial, result, to_terminal=to_terminal)
    show("\nThe verdict:")
    for incident in incidents:
        title = wrapped(headline(incident), to_terminal=to_terminal)
        show(title, colour="red" if incident.severity == "alert" else "yellow")
        show(wrapped(paragraph(incident), to_terminal=to_terminal))
    if not incidents:
        show("  no incident")
    truth = f"{truth_reported(result.truth, known_faults())} {cost_reported(result)}".rstrip()
    show("\nThe truth:\n" + wrapped(truth, to_terminal=to_terminal))
    if result.error:
        show(wrapped(f"The fault could not be done: {result.error}.", to_terminal=to_terminal))
    if result.pace:
        seconds, noise, count = result.pace
        show(f"\nUndisturbed, an iteration took {seconds:.2f} s (median of {count}; half of them within ±{noise:.1%}).")
    show(f"\n{agreement(result)}")


def _show_the_way(trial: Trial, result: Result, *, to_terminal: bool) -> None:
    """How it came to the verdict: iterations became longer, who or what was named, and what was measured then."""
    fault_at = datetime.fromisoformat(str(result.truth["at_utc"])) if result.truth else None
    tracked = [
        f"an iteration took {duration(one.before_s)}, and {duration(one.after_s)} from iteration {one.iteration:,} on"
        f"{_later(None if fault_at is None else (one.at - fault_at).total_seconds())}"
        for one in read_times(trial.folder).changes
    ]
    alert = next((one for one in trial.incidents() if one.severity == "alert"), None)
    named = f"{headline(alert)}{_later(result.seconds_to_alert)}" if alert else "no alert"
    validated = "nothing was measured"
    if result.validation:
        said = sentence_of(msgspec.convert(result.validation, Validated))
        validated = f"{said}{_later(result.seconds_to_validated)}"
    for title, lines in (
        (
            "Tracked",
            tracked or ["no change is proved yet: too few iterations are known before the fault, or after it"],
        ),
        ("Suspected", [named]),
        ("Measured with the job at rest", [validated]),
    ):
        show(f"\n{title}:")
        for line in lines:
            show(wrapped(f"{line}.", to_terminal=to_terminal))


def _later(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f", {abs(seconds):.1f} s {'after' if seconds >= 0 else 'before'} the fault"

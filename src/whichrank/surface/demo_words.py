"""What `whichrank demo` says to people: the list of faults, the truth, and whether the verdict agrees with it."""

from __future__ import annotations

import difflib
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from whichrank.bench.judge import Verdict
from whichrank.bench.setup import Result
from whichrank.demo.fault import Fault
from whichrank.errors import UsageError
from whichrank.surface.amounts import duration, ranges
from whichrank.surface.lines import fitted

_HEADINGS: Final = {
    "outside": "From outside, to the process of a rank:",
    "in-program": "In the program of a rank:",
    "healthy": "Healthy jobs, for which no alert is right:",
}
_Known = TypeVar("_Known")
_SIMULATED: Final = "(simulated"
"""In the form of a fault that was done another way than the catalogue says."""
_INDENT: Final = "  "
_PAIRS: Final = 4
"""Of ranks, told of a fault between them."""
_NOT_RIGHT: Final[Mapping[Verdict, str]] = {
    "unknown": "the alert names nobody",
    "missed": "there was no alert",
    "late": "the right one was named, but too late: hard evidence has three seconds, slowness two windows",
    "several": "there were several alerts for one fault",
    "wrong_name": "a rank was named that is not at fault",
    "wrong_cause": "the right rank was named, for a wrong cause",
    "false_alarm": "there was an alert, and nothing was wrong",
    "no_fault_done": "nothing was done to the job, so there is nothing to compare",
}


def known_fault(
    name: str, faults: Mapping[str, _Known], called: str = "fault", listing: str = "whichrank demo --list"
) -> _Known:
    """The fault of this name, or the scenario.

    Args:
        name: Of it.
        faults: By name.
        called: What the command calls them.
        listing: The command that shows all.

    Raises:
        UsageError: There is none; the message has the nearest name.
    """
    if name not in faults:
        close = difflib.get_close_matches(name, faults, n=1, cutoff=0.5)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise UsageError(f"there is no {called} '{name}'", mend=f"{hint}{listing}  shows all {len(faults)}")
    return faults[name]


def listed(faults: Mapping[str, Fault]) -> str:
    """All faults by kind, each with its sentence."""
    width = max(map(len, faults))
    parts = []
    for kind, heading in _HEADINGS.items():
        names = sorted(name for name, fault in faults.items() if fault.kind == kind)
        parts.append("\n".join([heading, *(f"{_INDENT}{name:{width}}  {faults[name].description}" for name in names)]))
    return "\n\n".join(parts)


def wrapped(text: str, *, to_terminal: bool) -> str:
    """Lines, indented; on a terminal so that they fit."""
    if to_terminal:
        text = fitted(text, shutil.get_terminal_size().columns - len(_INDENT))
    return textwrap.indent(text, _INDENT)


def truth_told(truth: Mapping[str, Any] | None, faults: Mapping[str, Fault]) -> str:
    """What was done to the job."""
    if truth is None:
        return "nothing was done to the job"
    what = f"'{truth['fault']}': {faults[truth['fault']].description}"
    if _SIMULATED in truth["variant"]:
        what += f" It was {truth['variant'].partition('(')[2].removesuffix(')')}."
    if truth["kind"] == "healthy":
        return f"A healthy job, {what} Nobody is at fault. Layout {truth['layout']}."
    when = f"in iteration {truth['iteration']} of a {truth['layout']} job"
    return f"The fault {what} It was done to {_to_whom(truth)}, {when}."


def _to_whom(truth: Mapping[str, Any]) -> str:
    """Ranks, or the ways between them."""
    parts = [_ranks(truth["culprits"])] if truth["culprits"] else []
    if sources := truth.get("sources"):
        parts.append(f"what {_ranks(sources)} send{'s' * (len(sources) == 1)} to other nodes")
    if targets := truth.get("targets"):
        parts.append(f"what other nodes send to {_ranks(targets)}")
    if (pairs := truth.get("pairs")) and not sources and not targets:
        told = ", ".join(f"{a} and {b}" for a, b in pairs[:_PAIRS])
        more = f", and {len(pairs) - _PAIRS} more pairs" if len(pairs) > _PAIRS else ""
        parts.append(f"what goes between ranks {told}{more}")
    return ", and to ".join(parts) or "no rank alone"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {ranges(list(ranks))}"


def agreement(result: Result) -> str:
    """Whether verdict and truth agree, and in what not."""
    if not result.agree:
        return f"They do not agree: {_NOT_RIGHT.get(result.verdict, result.verdict)}."
    if result.seconds_to_alert is None:
        return "They agree: no alert, and nothing was wrong."
    return f"They agree. The alert came {duration(result.seconds_to_alert)} after the fault."

"""What `whichrank demo` says to people: the list of faults, the truth, and whether the verdict agrees with it."""

from __future__ import annotations

import difflib
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from whichrank.errors import UsageError
from whichrank.surface.lines import fitted
from whichrank.testbed.bench.judge import Verdict, least_cost
from whichrank.testbed.bench.setup import Result
from whichrank.testbed.demo.fault import Fault
from whichrank.testbed.demo.slow import load_of
from whichrank.verdict.words.amounts import duration, ranges

_HEADINGS: Final = {
    "outside": "From outside, to the process of a rank:",
    "in-program": "In the program of a rank:",
    "healthy": "Healthy jobs, for which no alert is right:",
}
_Known = TypeVar("_Known")
_SIMULATED: Final = "(simulated"
"""In the form of a fault that was done another way than the catalogue says."""
_TIMES_AS_LONG: Final = "{who} compute{s} {n} times as long"
_MAGNITUDE: Final = {
    "slow-compute": _TIMES_AS_LONG,
    "slow-start": _TIMES_AS_LONG,
    "slow-compute-nodes": _TIMES_AS_LONG,
    "two-slow": "the slower one of {who} computes {n} times as long",
    "slow-every-rank": "every rank computes {n} times as long",
    "slow-forward": "{who} compute{s} forward passes {n} times as long",
    "slow-backward": "{who} compute{s} backward passes {n} times as long",
    "slow-layers": "{who} compute{s} the first layer {n} times as long",
    "flap": "{who} compute{s} {n} times as long in some iterations",
    "slow-data": "{who} wait{s} {n} ms for the next batch",
    "gc-storm": "{who} make{s} {n} objects in each iteration",
    "cpu-limit": "{who} get{s} {n} of a core",
    "cpu-contention": "{who} share{s} a core with {n} other processes",
    "slow-link": "the rate is limited to {n}",
    "slow-inbound": "the rate is limited to {n}",
    "slow-link-and-compute": "the rate is limited to {n}",
    "lossy-link": "{n} of the packets are lost",
}
"""What the name of a form means, by fault."""
_INDENT: Final = "  "
_PAIRS: Final = 4
"""Of ranks, reported of a fault between them."""
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


def truth_reported(truth: Mapping[str, Any] | None, faults: Mapping[str, Fault]) -> str:
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


def cost_reported(result: Result) -> str:
    """How much was done, what it costs, and whether that is too little to report; empty where nothing became slower."""
    truth = result.truth
    if truth is None or truth["kind"] == "healthy":
        return ""
    much = _how_much(truth)
    longer, at_most = result.longer, result.longer_at_most
    if at_most is not None and (longer is None or at_most < longer):  # the rest is what else the machine did
        made = f"it makes iterations at most {_percent(at_most)} longer"
    elif longer is not None:
        made = f"it made iterations {_percent(longer)} longer" if longer > 0 else "iterations took as long as before"
    else:
        made = ""
    reported = "; ".join(part for part in (much, made) if part)
    if result.too_small and result.verdict != "right":  # what was reported all the same was not too small
        reported += f". That is too small to report: {_percent(least_cost(truth['effect']))} is the least"
    return f"{reported[0].upper()}{reported[1:]}." if reported else ""


def _how_much(truth: Mapping[str, Any]) -> str:
    """`rank 3 computes 1.1 times as long`."""
    form = truth["variant"].partition(" (")[0].removeprefix("x").replace("k", ",000")
    who, ranks = _ranks(truth["culprits"]) if truth["culprits"] else "every rank", truth["culprits"]
    if truth["fault"] == "slow-data":
        form = f"{1e3 * load_of(truth['fault'], truth['variant'])['data_s']:.0f}"
    return _MAGNITUDE.get(truth["fault"], "").format(who=who, n=form, s="s" * (len(ranks) == 1))


def _percent(share: float) -> str:
    """Below a tenth with one digit more, so that what is just below a limit does not read like the limit."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _to_whom(truth: Mapping[str, Any]) -> str:
    """Ranks, or the ways between them."""
    parts = [_ranks(truth["culprits"])] if truth["culprits"] else []
    if sources := truth.get("sources"):
        parts.append(f"what {_ranks(sources)} send{'s' * (len(sources) == 1)} to other nodes")
    if targets := truth.get("targets"):
        parts.append(f"what other nodes send to {_ranks(targets)}")
    if (pairs := truth.get("pairs")) and not sources and not targets:
        reported = ", ".join(f"{a} and {b}" for a, b in pairs[:_PAIRS])
        more = f", and {len(pairs) - _PAIRS} more pairs" if len(pairs) > _PAIRS else ""
        parts.append(f"what goes between ranks {reported}{more}")
    return ", and to ".join(parts) or "no rank alone"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {ranges(list(ranks))}"


def agreement(result: Result) -> str:
    """Whether verdict and truth agree, and in what not."""
    if not result.agree:
        return f"They do not agree: {_NOT_RIGHT.get(result.verdict, result.verdict)}."
    if result.seconds_to_alert is None:
        if result.too_small:
            return "They agree: no alert, and what was done is too small to report."
        return "They agree: no alert, and nothing was wrong."
    return f"They agree. The alert came {duration(result.seconds_to_alert)} after the fault."

"""Which rank died, and which ranks only followed.

The first to die is often a victim: a neighbour of the rank with a larger shape aborts within milliseconds, and ranks
whose operation fails raise before the launcher has noticed anything. So the order of death decides nothing here. It is
asked (DESIGN 5.2, question 1): do the last operations contradict each other; who ended without an operation of its own
having failed before; who had not entered what the others were waiting for.

A *death of its own* is a process that ended before any of its operations failed, not by the launcher's signal, and not
with an exception that only reports a lost connection.
"""

from __future__ import annotations

import re

import numpy as np

from whichrank.model.clause import Clause, Says, clause
from whichrank.model.ends import Ends
from whichrank.model.evidence import Evidence
from whichrank.model.exception_text import split_place
from whichrank.model.picture import Bools, Floats, Ints

_CONNECTION = re.compile(
    r"connection ?(closed|reset|refused|aborted)|broken ?pipe|closed by peer|peer closed|timed? ?out|socket|eoferror"
    r"|distbackenderror|distnetworkerror|diststoreerror|gloo|(?<![/.-])nccl(?![\w-]*/)|tensorpipe",
    re.IGNORECASE,
)
_TRANSPORT = re.compile(
    r"^Dist(Backend|Network|Store|QueueEmpty)?Error\b|^Rendezvous\w*Error\b|gloo|(?<![/.-])nccl(?![\w-]*/)|c10d|tensorpipe"
    r"|^RuntimeError: .*(by peer|connection (closed|reset|refused|aborted)|timed out waiting \d+ ?ms|broken pipe"
    r"|wait timeout|timeout waiting for key|operation timed out|socket timeout)",
    re.IGNORECASE,
)
"""Who reports the loss of a peer: torch itself. Any other connection or timeout is of the program's own."""
_LISTENING = re.compile(r"failed to (listen|bind)|eaddrinuse|address already in use", re.IGNORECASE)
"""What goes wrong on its own machine, before there is a peer."""
"""Where it was raised: the words of a path say nothing."""
_INTERRUPTED = re.compile(r"^(KeyboardInterrupt|SignalException)\b")
"""What Ctrl-C, or a launcher's signal, becomes in Python."""
_WORKER = re.compile(r"DataLoader worker|exited unexpectedly|killed by signal", re.IGNORECASE)
"""A child of the rank has ended, perhaps with all others."""
_TIMEOUT = re.compile(r"timed? ?out|timeout", re.IGNORECASE)
SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM", 24: "SIGXCPU", 31: "SIGSYS",
}  # fmt: skip
SIGKILL, SIGABRT = 9, 6
SEEN_LATE_S = 0.5
"""The end of a process is seen by its agent so much later, at most, than it was."""
CRASHES = frozenset({4, 7, 8, 11})
"""SIGILL, SIGBUS, SIGFPE and SIGSEGV. Not SIGABRT: so ends a library that has waited too long."""
LAUNCHER_SIGNALS = frozenset({1, 2, 15})
"""SIGHUP, SIGINT and SIGTERM: how a launcher ends its ranks."""
SIGNAL_CODE = 128
"""A program that catches a signal and ends because of it exits with this and the signal's number, as shells do."""
TOGETHER_S = 1.0
"""Ends so close to each other have one cause."""
ALONE_S = 0.05
"""A launcher ends all ranks of its node within less."""


def signal_of(status: int) -> int:
    """The signal that ended the process, 0 if none or not known."""
    return status & 0x7F if status >= 0 else 0


def exit_code_of(status: int) -> int | None:
    """The exit code, None if it was a signal or is not known."""
    return status >> 8 & 0xFF if status >= 0 and not status & 0x7F else None


def _signals(status: Ints) -> Ints:
    """As `signal_of`, of each rank."""
    return np.where(status >= 0, status & 0x7F, 0)


def _exit_codes(status: Ints) -> Ints:
    """As `exit_code_of`, of each rank, -1 for None."""
    return np.where((status >= 0) & ((status & 0x7F) == 0), status >> 8 & 0xFF, -1)


def lost_connection(text: str) -> bool:
    """Does this error only report what happened to another rank?"""
    return _is_of_a_connection(text) and bool(_TRANSPORT.search(split_place(text)[0]))


def _is_of_a_connection(text: str) -> bool:
    said, _ = split_place(text)
    return bool(_CONNECTION.search(said)) and not _LISTENING.search(said)


def _reports_a_loss(ends: Ends) -> Bools:
    """Ranks whose exception only reports what happened to another rank."""
    return ends.exception.where(lost_connection)


def gave_up_a_connection(ends: Ends) -> Bools:
    """Ranks that ended with a failure because of an exception that only reports the loss of a peer."""
    return np.asarray(_reports_a_loss(ends) & ends.gone & (ends.status != 0) & ~asked_to_end(ends))


def asked_to_end(ends: Ends) -> Bools:
    """Ranks that a launcher, a terminal or the user ended: by signal, or by the exception or exit that it becomes.

    One that was asked and has ended since, in a way that is not known, is among them.
    """
    exited = ends.gone & ((_exit_codes(ends.status) >= 0) | (ends.status < 0))
    exited &= (ends.exception_s == 0) | _after_asked(ends, ends.exception_s)
    return np.asarray(_signalled(ends) | _interrupted(ends) | (_after_asked(ends, ends.ended_s) & exited))


def _after_asked(ends: Ends, at_s: Floats) -> Bools:
    """Ranks of which this happened after a process of the job had asked them to end."""
    return np.asarray((ends.asked_s > 0) & (at_s > ends.asked_s))


def _left_out(ends: Ends) -> Bools:
    """Ranks that have ended, and that nobody asked to, though ranks of their node were asked.

    They had ended before, even if an agent that came late saw all of it at once; or they are who asked.
    """
    asked = ends.asked_s > 0
    return np.asarray(ends.gone & ~asked & np.isin(ends.node, ends.node[asked]))


def asked_to_end_s(ends: Ends) -> Floats:
    """When that was, where it was: of its exception, when it was raised, since the process may take long to end."""
    return np.where(_interrupted(ends) & (ends.exception_s > 0), ends.exception_s, ends.ended_s)


def _interrupted(ends: Ends) -> Bools:
    return ends.exception.where(_INTERRUPTED.search)


def _ended_by(ends: Ends, signals: frozenset[int]) -> Bools:
    return np.isin(_signals(ends.status), list(signals))


def _signalled(ends: Ends) -> Bools:
    caught = np.isin(_exit_codes(ends.status), [SIGNAL_CODE + signal for signal in LAUNCHER_SIGNALS])
    return np.asarray(_ended_by(ends, LAUNCHER_SIGNALS) | caught)


def ended_by_parent(ends: Ends, launched_by: Ints, in_operation: Ints) -> Bools:
    """Ranks that another rank started and has ended, and that other rank if it has ended then too.

    A trainer that launches its own ranks ends them when it is interrupted, by SIGKILL as often as not. All that it
    started end within a second, some by a signal. It is in no operation itself meanwhile, raises nothing and sees no
    operation fail. Then it exits with a code of its own.

    Args:
        ends: How ranks ended.
        launched_by: For each rank the rank whose process started it, -1 none.
        in_operation: Ranks that have an operation under way.
    """
    found, interrupted = np.zeros(len(ends.gone), np.bool_), _interrupted(ends)
    for parent in np.unique(launched_by[launched_by >= 0]).tolist():
        children = launched_by == parent
        has_raised = bool(ends.exception[parent]) and not interrupted[parent]
        is_calm = not has_raised and ends.failure_s[parent] == 0 and parent not in in_operation
        by_itself = not ends.gone[parent] or exit_code_of(int(ends.status[parent])) is not None
        some = (_signalled(ends) | killed(ends))[children].any()
        if is_calm and by_itself and some and ends.gone[children].all():
            found |= children & bool(np.ptp(ends.ended_s[children]) <= TOGETHER_S)
            found[parent] = found[children].all() and bool(ends.gone[parent])
    return found


def singled_out(ends: Ends) -> Bools:
    """A rank that SIGTERM or SIGHUP ended before all others of its node, one of which then saw an operation fail.

    Most who end a job end a node's ranks at once, and these have no time to see anything fail. But some launchers end
    them one by one, and programs may catch SIGTERM: it is a candidate, and no more. SIGINT may be Ctrl-C, of which only
    those ranks die that are not inside an operation.
    """
    signalled = _signalled(ends)
    alone = np.zeros(len(signalled), np.bool_)
    mute = signalled & ~_ended_by(ends, frozenset({2})) & (ends.exception_s == 0) & (ends.closed_s == 0)
    reported_s = np.where(asked_to_end(ends), asked_to_end_s(ends), np.inf)
    for rank in np.flatnonzero(mute & ~failed_first(ends)).tolist():
        others = ends.node == ends.node[rank]
        others[rank] = False
        later = reported_s[others].min(initial=np.inf) > ends.ended_s[rank] + ALONE_S
        saw_it = (ends.failure_s > ends.ended_s[rank] - ALONE_S) & failed_first(ends)
        alone[rank] = later and bool(saw_it[others].any())
    return alone


def failed_first(ends: Ends) -> Bools:
    """Ranks whose operation failed before they raised or began to end: the end itself makes open operations fail."""
    began = [np.where(t > 0, t, np.inf) for t in (ends.exception_s, ends.closed_s, ends.ended_s)]
    return np.asarray((ends.failure_s > 0) & (ends.failure_s <= np.minimum.reduce(began)))


def raised(ends: Ends) -> Bools:
    """Ranks that raised an exception of their own before any of their operations failed, ended or not."""
    own = ends.exception.where(lambda text: not lost_connection(text) and not _INTERRUPTED.search(text))
    return np.asarray(own & (ends.exception_s > 0) & ~failed_first(ends) & ~_after_asked(ends, ends.exception_s))


def raised_of_its_own(ends: Ends) -> Bools:
    """Of those, ranks whose exception cannot be what became of another rank's end."""
    follows = ends.exception.where(lambda text: _is_of_a_connection(text) or bool(_WORKER.search(text)))
    return np.asarray(raised(ends) & ~follows)


def raised_by_itself(ends: Ends) -> Bools:
    """Ranks that raised anything, the loss of a peer too, but not because they were asked to end."""
    said = ends.exception.where(lambda text: not _INTERRUPTED.search(text))
    return np.asarray(said & ~_after_asked(ends, ends.exception_s))


def raised_alike(ends: Ends, among: Bools) -> list[int]:
    """Those of several ranks that raised the same kind of exception at the same place, if more than one did.

    The message may differ: it often holds the number of the rank, or of a port.
    """
    places: dict[tuple[str, str], list[int]] = {}
    for rank in np.flatnonzero(among).tolist():
        text = ends.exception[rank]
        places.setdefault((text.partition(":")[0], split_place(text)[1] or text), []).append(rank)
    most = max(places.values(), key=len, default=[])
    return most if len(most) > 1 else []


def dying(ends: Ends) -> Bools:
    """Ranks that ended with a failure, and those that are about to: their own exception has reached the interpreter."""
    return np.asarray((ends.gone & (ends.status != 0)) | raised(ends))


def own_deaths(ends: Ends) -> Bools:
    """Ranks that ended on their own account, with a failure.

    One that raised is among them while it is still on its way out, and also if the launcher then ended it: shutting
    down an interpreter takes longer than its peers need to fail.
    """
    own = ends.gone & ~failed_first(ends)
    launcher = asked_to_end(ends)
    own &= ~launcher
    own &= ~_reports_a_loss(ends)
    # The launcher kills who did not obey: SIGKILL after others were terminated is no death of its own.
    if launcher.any():
        first_s = ends.ended_s[launcher & ends.gone].min(initial=np.inf)
        seen_late = _left_out(ends) & (ends.ended_s <= first_s + TOGETHER_S)
        own &= ~((killed(ends) | _crashed_in_teardown(ends)) & (ends.ended_s > first_s) & ~seen_late)
    return _without_doubtful(np.asarray(own | raised(ends)), ends)


def _crashed_in_teardown(ends: Ends) -> Bools:
    """Ranks that crashed or aborted while their interpreter was ending."""
    return _ended_by(ends, CRASHES | {SIGABRT}) & (ends.closed_s > 0)


def _without_doubtful(own: Bools, ends: Ends) -> Bools:
    """Leave out who raised over a connection of the program's own, if another rank may have been at its other end.

    That is one that raised before, or that ended without an exception, which is seen a moment later than it was.
    """
    doubtful = own & raised(ends) & ends.exception.where(_is_of_a_connection)
    sure = own & ~doubtful
    ended_s = np.where(ends.ended_s > 0, ends.ended_s - SEEN_LATE_S, -np.inf)
    first_s = np.where(ends.exception_s > 0, ends.exception_s, ended_s)[sure].min(initial=np.inf)
    return np.asarray(sure | (doubtful & (ends.exception_s <= first_s)))


def crashed(ends: Ends) -> Bools:
    """Ranks that a fault of their own ended: no wait leads to these."""
    return _ended_by(ends, CRASHES)


def ended_mutely(ends: Ends) -> Bools:
    """Ranks that a signal ended before they said anything."""
    signalled = _signals(ends.status) != 0
    return np.asarray(ends.gone & signalled & (ends.exception_s == 0) & (ends.failure_s == 0))


def killed(ends: Ends) -> Bools:
    """Ranks that somebody, or the kernel, ended by SIGKILL."""
    return _ended_by(ends, frozenset({SIGKILL}))


def in_order(ends: Ends) -> Bools:
    """Ranks that ended with exit code 0, or were on their way out in order before any of their operations failed."""
    leaving = (ends.closed_s > 0) & ~failed_first(ends) & (ends.exception_s == 0) & (~ends.gone | _signalled(ends))
    return np.asarray(ends.gone & (ends.status == 0) | leaving)


def ended_from_outside(ends: Ends) -> bool:
    """Was the job ended by a launcher's signal, and not because a rank had died before?

    A launcher that ends a job because of a dead rank comes after that death.
    """
    reported = asked_to_end(ends)
    died = ends.gone & ~reported & (ends.status != 0)
    return bool(reported.any() and asked_to_end_s(ends)[reported].min() <= ends.ended_s[died].min(initial=np.inf))


def failed_by_timeout(ends: Ends) -> Bools:
    """Ranks whose own operation ran into its timeout."""
    return ends.failure.where(_TIMEOUT.search)


def how_it_ended(ends: Ends, rank: int) -> Clause:
    """What is said of its process: by which signal it was killed, what it raised, its exit code."""
    status = int(ends.status[rank])
    number = signal_of(status)
    if raised(ends)[rank]:
        return clause(Says.RAISED, exception=ends.exception[rank])
    if in_order(ends)[rank] and status != 0:
        return clause(Says.ENDED_IN_ORDER if ends.gone[rank] else Says.IS_ENDING)
    if number:
        return clause(Says.KILLED, number=number, signal=SIGNALS.get(number, ""))
    if ends.exception[rank]:
        return clause(Says.RAISED, exception=ends.exception[rank])
    code = exit_code_of(status)
    if code is not None:
        return clause(Says.EXITED, code=code)
    return clause(Says.ENDED_IN_ORDER if ends.closed_s[rank] > 0 else Says.IS_GONE)


def fact_of_end(how: Clause, rank: int) -> Evidence:
    """The same as evidence: the signal, the exit code or the exception; else whether it ended in order."""
    where = f"rank {rank}"
    for what, name in (("signal", "signal"), ("signal", "number"), ("exit code", "code"), ("exception", "exception")):
        value = how.values.get(name, "")
        if value != "" and not isinstance(value, tuple):
            return Evidence(what=what, value=value, where=where)
    return Evidence(what="ended in order", value=how.says is not Says.IS_GONE, where=where)

"""What an incident says in words, piece by piece: who, what they do, and why.

A piece is chosen by all values that it is about. So the predicate of a slow rank depends on cause *and* reason: a rank
that waits for its data is "slow in loading data", and work that is uneven because ranks compete for the CPU is not "the
work itself". Each piece has a present and a past: what is over is reported in the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from whichrank.model.evidence import SKEWED, Evidence, is_place
from whichrank.model.exception_text import split_place
from whichrank.model.incident import Cause, Culprit, Incident, Link, Reason
from whichrank.verdict.words.amounts import MOST_LISTED, count, ranges, rest
from whichrank.verdict.words.clauses import words
from whichrank.verdict.words.raised_alike import raised_alike

MOST_CHARACTERS: Final = 120
"""Of a message of the job in a headline."""


class Tenses(NamedTuple):
    """The same in the present and in the past."""

    now: str
    then: str


class Predicate(NamedTuple):
    """What culprits do: one of them and several, in the present and in the past."""

    one: Tenses
    several: Tenses


def _both(one: str, several: str, then: str, several_then: str = "") -> Predicate:
    return Predicate(Tenses(one, then), Tenses(several, several_then or then))


_OF_ONE: Final = {
    Reason.STOPPED: Tenses("its process is suspended", "its process was suspended"),
    Reason.GIL_HELD: Tenses("one of its threads holds the GIL", "one of its threads held the GIL"),
    Reason.USER_CODE: Tenses("it is in its own code", "it was in its own code"),
    Reason.DATA_WAIT: Tenses("it waits for data", "it waited for data"),
    Reason.CHECKPOINT: Tenses("it writes a checkpoint", "it wrote a checkpoint"),
    Reason.CPU_CONTENTION: Tenses("it competes for the CPU", "it competed for the CPU"),
    Reason.CPU_LIMIT: Tenses("its CPU time is limited", "its CPU time was limited"),
    Reason.GARBAGE_COLLECTION: Tenses("garbage collection takes its time", "garbage collection took its time"),
    Reason.MORE_TOKENS: Tenses("it has more tokens than its peers", "it had more tokens than its peers"),
    Reason.DEVICE_CLOCK: Tenses("its clock rate is lower than that of its peers",
                                "its clock rate was lower than that of its peers"),
    Reason.MEMORY_PRESSURE: Tenses("its node is short of memory", "its node was short of memory"),
    Reason.DEVICE_ERROR: Tenses("its device reports an error", "its device reported an error"),
    Reason.OUT_OF_MEMORY: Tenses("it ran out of memory", "it ran out of memory"),
    Reason.EXCEPTION: Tenses("it raised an exception", "it raised an exception"),
    Reason.SIGNAL: Tenses("a signal ended it", "a signal ended it"),
}  # fmt: skip
"""The reason as a clause about one rank."""

_AS_NOUN: Final = {
    Reason.STOPPED: "a suspended process",
    Reason.GIL_HELD: "the GIL is held",
    Reason.USER_CODE: "own code",
    Reason.DATA_WAIT: "waiting for data",
    Reason.CHECKPOINT: "writing a checkpoint",
    Reason.CPU_CONTENTION: "competition for the CPU",
    Reason.CPU_LIMIT: "a limit of CPU time",
    Reason.GARBAGE_COLLECTION: "garbage collection",
    Reason.MORE_TOKENS: "more tokens than others",
    Reason.DEVICE_CLOCK: "a lower clock rate",
    Reason.MEMORY_PRESSURE: "a node short of memory",
    Reason.DEVICE_ERROR: "an error of a device",
    Reason.OUT_OF_MEMORY: "out of memory",
    Reason.EXCEPTION: "an exception",
    Reason.SIGNAL: "a signal",
}
"""The reason where it is not said of one rank."""

_PREDICATE: Final = {
    Cause.NOT_ENTERED: _both("has not entered {op}", "have not entered {op}", "had not entered {op}"),
    Cause.DEADLOCK: _both(
        "entered operations in the wrong order, so ranks wait for each other",
        "entered operations in the wrong order, so ranks wait for each other",
        "entered operations in the wrong order, so ranks waited for each other",
        "entered operations in the wrong order, so ranks waited for each other",
    ),
    Cause.TRANSPORT: _both(
        "is where communication has stopped in {op}",
        "are where communication has stopped in {op}",
        "was where communication had stopped in {op}",
        "were where communication had stopped in {op}",
    ),
    Cause.DEVICE: _both("does not complete {op}", "do not complete {op}", "did not complete {op}"),
    Cause.PROCESS_EXIT: _both("has left the job", "have left the job", "left the job"),
    Cause.NODE_LOST: _both(
        "is lost with its node", "are lost with their node", "was lost with its node", "were lost with their node"
    ),
    Cause.COMMUNICATION_SLOW: _both("communicates slowly", "communicate slowly", "communicated slowly"),
}
_CONTRADICTS: Final = _both(
    "issued an operation{place} that contradicts its peers{waits}",
    "issued operations{place} that contradict their peers{waits}",
    "issued an operation{place} that contradicted its peers{waits}",
    "issued operations{place} that contradicted their peers{waits}",
)
_SKIPPED: Final = _both(
    "{did} {what}{place}", "{did} operations{place}", "{did} {what}{place}", "{did} operations{place}"
)
"""Inconsistent in no operation of one round: in how many there are."""
_NOT_ANSWERED: Final = _both("has not answered {op}", "have not answered {op}", "had not answered {op}")
"""A send or receive is not entered by its other end, but answered."""
_NOT_REACHED: Final = _both(
    "has not reached the point where {who}", "have not reached the point where {who}",
    "had not reached the point where {who}",
)  # fmt: skip
"""Others wait, but in no operation: they are in torch's rendezvous."""

_SLOWLY: Final = {
    Reason.DATA_WAIT: ("loads its data slowly", "load their data slowly", "loaded {its} data slowly"),
    Reason.CHECKPOINT: ("writes its checkpoint slowly", "write their checkpoints slowly", "wrote checkpoints slowly"),
}
"""What a rank does slowly that is no computation."""
_HELD_UP: Final = frozenset({Reason.STOPPED, Reason.GIL_HELD, Reason.MEMORY_PRESSURE})
"""Reasons for which a rank is slow without that its computation is."""
_PARTS: Final = {
    "forward": " before {its} backward passes",
    "backward": " in {its} backward passes",
    "optimizer": " after {its} last backward pass",
}
"""Of an iteration, in which alone a rank computes slowly."""

_NO_NAME: Final = {
    Cause.NOT_ENTERED: Tenses("not all ranks have entered {op}", "not all ranks had entered {op}"),
    Cause.INCONSISTENT: Tenses(
        "ranks issued operations{place} that contradict each other",
        "ranks issued operations{place} that contradicted each other",
    ),
    Cause.DEADLOCK: Tenses(
        "ranks wait for each other in a cycle that includes {op}",
        "ranks waited for each other in a cycle that included {op}",
    ),
    Cause.DEVICE: Tenses("{op} completes on some of its ranks only", "{op} completed on some of its ranks only"),
    Cause.PROCESS_EXIT: Tenses("a process has ended", "a process ended"),
    Cause.NODE_LOST: Tenses("a node is lost", "a node was lost"),
    Cause.SUSPENDED: Tenses("all processes are suspended", "all processes were suspended"),
}
_NOT_AT_FAULT: Final = Tenses("no rank is at fault", "no rank was at fault")
_UNEVEN: Final = Tenses("the ranks take unequally long", "the ranks took unequally long")
_MORE_TOKENS: Final = Tenses("the ranks have unequal numbers of tokens", "the ranks had unequal numbers of tokens")
_HOLDING_UP: Final = frozenset({Cause.NOT_ENTERED, Cause.DEVICE})
"""Causes in which the culprits' part in the operation is what the others wait for."""
_NO_OPERATION: Final = {"remote_call": "a remote call", "outside": "a wait outside of any operation"}
"""What ranks wait in that is no operation of a communicator."""
_MESSAGES: Final = frozenset({"send", "recv", "recv_any", *_NO_OPERATION})
"""What its other end answers, and does not enter."""


def is_over(incident: Incident) -> bool:
    """The job has gone on, or has ended."""
    return incident.status != "open"


def is_silent(incident: Incident) -> bool:
    """An operation was left out, repeated or added, and the job went on with wrong data."""
    return incident.cause == Cause.INCONSISTENT and incident.op is None


def verb(incident: Incident, now: str, then: str) -> str:
    """The form of a verb that suits the incident's time."""
    return then if is_over(incident) else now


def subject(incident: Incident, *, in_full: bool) -> str:
    """The culprits: `rank 6 (node gpu07)`, in full with the process; `ranks 8-15`, with their node if it is one."""
    if len(incident.culprits) == 1:
        return rank_of(incident.culprits[0], in_full=in_full)
    hosts = {culprit.host for culprit in incident.culprits}
    node = f" (node {host})" if len(hosts) == 1 and (host := next(iter(hosts))) else ""
    return f"ranks {ranges([culprit.rank for culprit in incident.culprits])}{node}"


def rank_of(culprit: Culprit, *, in_full: bool) -> str:
    """`rank 6 (node gpu07)`; in full with what is known of its process."""
    place = [f"node {culprit.host}" if culprit.host else None]
    if in_full:
        place += [f"pid {culprit.pid}" if culprit.pid is not None else None, culprit.device]
    known = ", ".join(part for part in place if part)
    return f"rank {culprit.rank} ({known})" if known else f"rank {culprit.rank}"


def predicate(incident: Incident, op: str) -> str:
    """What the culprits do or did, in these words for the operation."""
    is_one = len(incident.culprits) == 1
    if incident.cause in (Cause.COMPUTE_SLOW, Cause.MIXED_SLOW):
        return _slow_predicate(incident, is_one=is_one)
    said = _PREDICATE.get(incident.cause, _CONTRADICTS)
    if is_silent(incident):
        said = _SKIPPED
    if incident.cause == Cause.NOT_ENTERED and incident.op and incident.op.kind in _MESSAGES:
        said = _NOT_ANSWERED
    if incident.cause == Cause.NOT_ENTERED and incident.op is None:
        said = _NOT_REACHED
    tenses = said.one if is_one else said.several
    done = next((fact for fact in incident.evidence if fact.what.startswith(SKEWED)), None)
    words = {
        "op": op,
        "place": _on(incident),
        "waits": _and_wait(incident),
        "who": _who_wait(incident),
        "did": done.what.removeprefix(SKEWED) if done else "left out or added",
        "what": "operations" if done and done.value != 1 else "an operation",
    }
    return tenses[is_over(incident)].format(**words)


def _slow_predicate(incident: Incident, *, is_one: bool) -> str:
    over = is_over(incident)
    if words := _SLOWLY.get(incident.reason) if incident.reason else None:
        said = words[2].format(its="its" if is_one else "their") if over else words[0 if is_one else 1]
    elif incident.reason in _HELD_UP:
        said = ("was" if is_one else "were") if over else ("is" if is_one else "are")
        said += " held up in each iteration"
    else:
        said = "computed slowly" if over else f"compute{'s' * is_one} slowly"
        if incident.stage and incident.stage.phase in _PARTS:
            said += _PARTS[incident.stage.phase].format(its="its" if is_one else "their")
    if incident.cause == Cause.MIXED_SLOW:
        said += f", and communication {'was' if over else 'is'} slow besides"
    return said


def _on(incident: Incident) -> str:
    return f" on {_group(incident)}" if incident.communicator else ""


def _group(incident: Incident) -> str:
    """The communicator in short: its role, or its name where the role says no more than that it is of all ranks."""
    role = incident.communicator.role if incident.communicator else None
    return communicator_name(incident) if role in (None, "world", "ctrl") else role


def _and_wait(incident: Incident) -> str:
    return f", and {_who_wait(incident)}" if incident.victims.count and incident.kind == "hang" else ""


def _who_wait(incident: Incident) -> str:
    """`3 ranks wait`; of no number `others wait`."""
    total = incident.victims.count
    who = count(total, "rank") if total else "others"
    return f"{who} {verb(incident, 'waits' if total == 1 else 'wait', 'waited')}"


def communicator_name(incident: Incident) -> str:
    """As the analyzer says it in stages and evidence; empty if there is none."""
    return incident.communicator.name.removeprefix("mesh_") if incident.communicator else ""


def kind_in_words(kind: str) -> str:
    """`all-reduce`; of a kind that is not known `operation`."""
    if kind in _NO_OPERATION:
        return _NO_OPERATION[kind].removeprefix("a ") + " (RPC)" * (kind == "remote_call")
    return "operation" if kind == "other" else kind.replace("_", "-")


def op_of(incident: Incident) -> str:
    """`the all-reduce on dp`, by the role of its communicator, else its name."""
    kind = incident.op.kind if incident.op else ""
    name = _NO_OPERATION.get(kind) or (f"the {kind_in_words(kind)}" if kind else "an operation")
    if incident.communicator is None:
        return name
    return f"{name} on {_group(incident)}"


def op_in_question(incident: Incident) -> str:
    """The operation as the predicate of its cause needs it."""
    return waited_in(incident) if incident.cause in _HOLDING_UP else op_of(incident)


def waited_in(incident: Incident) -> str:
    """The operation, and how many ranks wait in it, or are held up by it where some wait elsewhere."""
    op, total = op_of(incident), incident.victims.count
    if not total or incident.kind != "hang" or not incident.op:
        return op
    ranks = incident.victims.ranks
    members = set(incident.communicator.members) if incident.communicator else set()
    if incident.op.kind == "remote_call":
        return f"remote calls, and {_who_wait(incident)}"
    is_message = incident.op.kind in _MESSAGES
    everywhere_else = len(ranks) < total or not members.issuperset(ranks)
    if (is_message and total > 1) or everywhere_else:
        return f"{op} that {verb(incident, 'holds', 'held')} up {count(total, 'rank')}"
    who = f"rank {ranks[0]}" if total == 1 and ranks else count(total, "rank")
    waits = verb(incident, "waits" if total == 1 else "wait", "waited")
    return f"{op} that {who} {waits} in"


def without_a_name(incident: Incident) -> str:
    """What is said where no culprit is named; who is not at fault or may be stands in it."""
    cause, over = incident.cause, is_over(incident)
    if cause == Cause.UNKNOWN:
        return _unknown(incident)
    if cause == Cause.IMBALANCE:
        return f"{_imbalance(incident)}; {_NOT_AT_FAULT[over]}"
    if cause == Cause.SUSPENDED:
        return f"{_NO_NAME[cause][over]}; {_NOT_AT_FAULT[over]}"
    if cause in (Cause.COMPUTE_SLOW, Cause.MIXED_SLOW):
        return f"all ranks {_slow_predicate(incident, is_one=False)}{_reason_as_noun(incident)}; no rank is named"
    if cause == Cause.COMMUNICATION_SLOW:
        if incident.links:
            return _slow_links(incident) + _reason_as_noun(incident)
        return f"communication {verb(incident, 'is', 'was')} slow{_reason_as_noun(incident)}; no rank is named"
    if cause == Cause.TRANSPORT:
        return _nothing_comes_through(incident) + _reason_as_noun(incident)
    said = _NO_NAME[cause][over].format(op=op_of(incident), place=_on(incident))
    return f"{said}{_reason_as_noun(incident)}; no rank is named"


def _imbalance(incident: Incident) -> str:
    """That the ranks differ, and why: not that their work does, unless that is the reason."""
    over = is_over(incident)
    if incident.reason == Reason.MORE_TOKENS:
        return _MORE_TOKENS[over]
    return f"{_UNEVEN[over]}{_reason_as_noun(incident)}"


def _unknown(incident: Incident) -> str:
    over = is_over(incident)
    total = incident.victims.count
    if raised := raised_alike(incident):
        return raised
    if incident.kind == "failed":
        what = "the job failed" if over else "the job fails"
    elif incident.kind == "slow":
        what = "iterations took too long" if over else "iterations take too long"
    elif total:
        members = set(incident.communicator.members) if incident.communicator and incident.op else set()
        ranks = incident.victims.ranks
        inside = f" in {op_of(incident)}" if len(ranks) == total and members.issuperset(ranks) else ""
        what = f"{count(total, 'rank')} {'waited' if over else 'waits' if total == 1 else 'wait'}{inside}"
    else:
        what = "the job stood still" if over else "the job stands still"
    return f"{what}{_reason_as_noun(incident)}; {may_be(incident)}"


def may_be(incident: Incident) -> str:
    """Who the culprit of what is unknown may be."""
    ranks = [candidate.rank for candidate in incident.candidates]
    culprit = f"the culprit {verb(incident, 'may be', 'may have been')}"
    if not ranks:
        return "the evidence names no rank"
    if len(ranks) == 1:
        return f"{culprit} rank {ranks[0]}, but that is not proved"
    if len(ranks) <= 3:
        listed = ", ".join(f"rank {rank}" for rank in ranks[:-1])
        return f"{culprit} {listed} or rank {ranks[-1]}"
    return f"{culprit} one of ranks {ranges(ranks)}"


def _reason_as_noun(incident: Incident) -> str:
    return f" ({_AS_NOUN[incident.reason]})" if incident.reason else ""


def _slow_links(incident: Incident) -> str:
    paths = list(dict.fromkeys(map(slow_path, incident.links)))
    if len(paths) == 1:
        between = "from" if incident.links[0].end else "between"
        return f"the link {between} {paths[0]} {verb(incident, 'is', 'was')} slow"
    listed = ", ".join(paths[:MOST_LISTED]) + rest(len(paths))
    return f"{len(paths)} links {verb(incident, 'are', 'were')} slow: {listed}"


def slow_path(link: Link) -> str:
    """Without an end it is not known which of the two directions is slow."""
    if link.end:
        return f"rank {link.src} to rank {link.dst}"
    return f"ranks {min(link.src, link.dst)} and {max(link.src, link.dst)}"


def _nothing_comes_through(incident: Incident) -> str:
    op = op_of(incident)
    if not incident.links:
        return f"communication {verb(incident, 'has', 'had')} stopped in {op}; no rank is named"
    paths = list(dict.fromkeys(f"rank {link.src} to rank {link.dst}" for link in incident.links))
    comes = verb(incident, "nothing comes through", "nothing came through")
    if len(paths) == 1:
        return f"{comes} from {paths[0]} in {op}"
    return f"{comes} on {len(paths)} paths in {op}: {', '.join(paths[:MOST_LISTED])}{rest(len(paths))}"


def because(incident: Incident) -> str:
    """The reason as a clause for the headline; empty if there is none, or what is said already has it."""
    culprits, reason = incident.culprits, incident.reason
    if not culprits:
        return ""
    is_one = len(culprits) == 1
    if is_one and incident.cause in (Cause.PROCESS_EXIT, Cause.COMMUNICATION_SLOW) and culprits[0].why:
        return cut(why_of(incident, culprits[0]))
    place = place_of(incident.evidence, culprits[0].rank) if is_one else ""
    if place and incident.cause in (Cause.INCONSISTENT, Cause.DEADLOCK) and _is_shared(incident.evidence, place):
        place = ""  # both sides are at this line: it separates nothing
    if place and (reason == Reason.USER_CODE or incident.cause in (Cause.INCONSISTENT, Cause.DEADLOCK)):
        who = f"rank {culprits[0].rank}" if incident.cause == Cause.DEADLOCK else "it"
        return f"{who} {verb(incident, 'is', 'was')} in {place}"
    if reason is None:
        return ""
    if incident.cause in (Cause.COMPUTE_SLOW, Cause.MIXED_SLOW) and reason in _SLOWLY:
        return ""
    if not is_one:
        return f"reason: {_AS_NOUN[reason]}"
    return _OF_ONE[reason][is_over(incident)]


def place_of(evidence: Sequence[Evidence], rank: int) -> str:
    """Where in its code a rank is, as far as the evidence has its stack."""
    wheres = (f"rank {rank}", f"rank {rank},")
    for fact in evidence:
        at_rank = fact.where is not None and (fact.where == wheres[0] or fact.where.startswith(wheres[1]))
        if at_rank and is_place(fact) and isinstance(fact.value, str):
            return short_place(fact.value)
    return ""


def _is_shared(evidence: Sequence[Evidence], place: str) -> bool:
    """Are several ranks at this place?"""
    return sum(is_place(fact) and short_place(str(fact.value)) == place for fact in evidence) > 1


def short_place(place: str) -> str:
    """`f (train.py:16)` of `f (/home/me/train.py:16)`."""
    function, bracket, file = place.rpartition(" (")
    return f"{function}{bracket}{file.rpartition('/')[2]}" if bracket else place


def why_of(incident: Incident, culprit: Culprit) -> str:
    """What the analyzer says of a rank, in the past once all is over."""
    if not (is_over(incident) and culprit.clauses):
        return culprit.why
    try:
        return words(culprit.clauses, over=True)
    except (LookupError, TypeError, ValueError):  # values that another program wrote
        return culprit.why


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """A text in short: cut between two words, with a sign of it, and without the folder of the place that ends it."""
    what, place = split_place(text)
    return f"{_cut(what, most)} at {place.rpartition('/')[2]}" if place else _cut(what, most)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    words = text[: most + 1].rpartition(" ")[0]
    return f"{words or text[:most]} …"

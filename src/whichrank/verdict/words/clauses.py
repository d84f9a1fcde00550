"""The sentence of each kind of clause, in the present and in the past.

`[is|was]` is the verb in both tenses. `{waiting:wait}` is a value, written as `_FORMATS` has it. Clauses of one rank
are joined in their order, by "and" or by the sign that the later one has in `_JOINED_BY`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any, Final

from whichrank.model.clause import Clause, Says, Value, Witness
from whichrank.model.exception_text import place_apart
from whichrank.model.links import rate_text
from whichrank.verdict.words.amounts import count, duration, ranges

_OF_A_RANK: Final[Mapping[Says, str]] = {
    Says.NOT_ENTERED: "it [has|had] not entered {op}",
    Says.NOT_ENQUEUED: "its call of {op} [has|had] not returned, or was never made",
    Says.REPORTED_ABSENT: "{by} [reports|reported] that it [has|had] not come",
    Says.NO_ANSWER_TO_RAS: "its process [gives|gave] NCCL's RAS no answer, in {looks:looks}",
    Says.DEVICE_REPORTS: "its device [reports|reported] {error}",
    Says.NODE_REPORTS: "the kernel of its node [reports|reported] {error}",
    Says.REQUESTS_SLOW: "network requests of it took long ({text})",
    Says.STANDS_ELSEWHERE: "its main thread [is|was] in {place} while {others:others} [are|were] in {usual}",
    Says.REQUESTS_LATE: "network requests of it [have|had] no completion ({text})",
    Says.MAY_BE_CONSEQUENCE: "what ended it may be the consequence of another rank's failure",
    Says.ENTERED: "it entered {op}",
    Says.NOT_ANSWERED: "it [has|had] not answered the {op} in which {waiting:wait} on {group}",
    Says.TAKEN_PART: "it [has|had] taken part in the {op} in which {waiting:wait} on {group}",
    Says.IN_NO_OPERATION: "it [is|was] in no operation while others [wait|waited]",
    Says.AHEAD: "it [waits|waited] in {op} ahead of {others:others}, and may have issued one operation too many",
    Says.LEFT_ALONE: "it [waits|waited] in {op} for ranks that [have|had] ended in order",
    Says.ENDED_AND_AWAITED: "it [has|had] ended in order, and {waiting:wait} for it in {op}",
    Says.AWAITED_UNREAD: "others [wait|waited] for it, and nothing was read of it after they began to",
    Says.AWAITED_NO_RECORD: "others [wait|waited] for it, and there is no recording of it",
    Says.AWAITED: "others waited for it",
    Says.AWAITED_ENDED_RANKS: "it waited for ranks that had ended in order, or had ended so while it waited",
    Says.TIMED_OUT_WITHOUT_IT: "it had not entered the operation that timed out",
    Says.NOT_COMPLETED: "it [does|did] not complete {op}, although it [has|had] entered it, and its peers [have|had] "
                        "completed it{later:later}",
    Says.COMPLETED_BY_OTHERS: "the others [have|had] completed {op}",
    Says.NOT_ANSWERED_CALL: "it [has|had] not answered a remote call for which {waiting:wait}",
    Says.NOT_ANSWERED_CALLS: "it [has|had] not answered remote calls for which {waiting:wait}",
    Says.NOT_ANSWERED_MESSAGE: "it [has|had] not answered a message outside of any operation for which {waiting:wait}",
    Says.ONLY_STOPPED_ONE: "others [wait|waited] outside of any operation, and it [is|was] the only rank that "
                           "[is|was] stopped",
    Says.NOTHING_COMPLETES: "nothing [completes|completed] since",
    Says.AWAITS_UNKNOWN_RANK: "it [waits|waited] for another rank, and which one is not known",
    Says.NOT_REACHED: "it [has|had] not reached the point where {waiting:wait}",
    Says.NOT_IN_RENDEZVOUS: "it [is|was] not in the rendezvous where others [wait|waited]",
    Says.OTHERS_IN_RENDEZVOUS: "the others [wait|waited] in the rendezvous",
    Says.NEVER_SEEN: "no process of this rank was ever seen",
    Says.BLOCKED_NOWHERE: "it [is|was] blocked in no operation",
    Says.ISSUED: "it issued {op}",
    Says.ISSUED_UNLIKE: "it issued {op} while {peer:peer} issued {usual}; it [differs|differed] from "
                        "{witnesses:witnesses}",
    Says.SIZES_DIFFER: "it issued an all-to-all whose sizes do not match those of its peers, and theirs match each "
                       "other",
    Says.SENT_UNEXPECTED: "it sent {sent} elements to rank {dst}, which expected {expected}",
    Says.EXPECTED_UNSENT: "it expected {expected} elements from rank {src}, which sent {sent}",
    Says.SKEWED: "it {did} {operations:operations} on {group}; {witness:witness} did not",
    Says.WRONG_ORDER: "it [has|had] entered {entered}, but not yet {owed}, in which {waiting:wait}; this order "
                      "[differs|differed] from {order:order}",
    Says.WRONG_ORDER_TO_PEERS: "it [has|had] entered {entered}, but not yet what its peers [wait|waited] in; this "
                               "order [differs|differed] from {order:order}",
    Says.BLOCKED_ON: "it [is|was] blocked on {op}",
    Says.KILLED: "its process was killed by signal {number}{signal:signal}",
    Says.RAISED: "its process raised {exception:exception}",
    Says.EXITED: "its process exited with code {code}",
    Says.ENDED_IN_ORDER: "its process ended in order",
    Says.IS_ENDING: "its process [is|was] ending, its interpreter [has|had] finished",
    Says.IS_GONE: "its process is gone, its exit code is not known",
    Says.OUT_OF_MEMORY: "the kernel ended it for lack of memory",
    Says.ABORTED_WITH_IT: "rank {other} aborted in an operation with it, and what it issued there is not known",
    Says.SIGNAL_OF_LAUNCHERS: "a signal that launchers use ended it before all others of its node",
    Says.NO_COMMUNICATOR_YET: "it had made no communicator when another rank gave up a connection",
    Says.GAVE_UP_CONNECTION: "it gave up a connection, and it is not known whose fault that was",
    Says.ENDED_BEFORE_GIVING_UP: "it had ended in order before another rank gave up a connection",
    Says.NODE_SILENT: "its node [is|was] silent for {silent_s:whole_s}",
    Says.NO_ANSWER: "{connections:connections} to it got no answer",
    Says.OUT_OF_REACH: "it [is|was] out of reach for all others",
    Says.SUSPENDED: "its process [is|was] suspended",
    Says.ASLEEP_WITH_GIL: "its {thread} [sleeps|slept] in the kernel while it [holds|held] the GIL",
    Says.HOLDS_GIL_IN: "its {thread} [holds|held] the GIL in {place}",
    Says.WRITES: "its process [writes|wrote]",
    Says.WAITS_FOR_DATA: "it [waits|waited] for data",
    Says.BUSY: "it [writes|wrote] files, or its child processes [work|worked]",
    Says.IN_PHASE: "it [is|was] in the phase '{phase}' that the script marked",
    Says.WAITS_FOR_CHILD: "it [waits|waited] for its child process{pid:pid}",
    Says.WAITS_FOR_ADDRESS: "it [waits|waited] for an answer from {address}",
    Says.WAITS_FOR_RANK: "it [waits|waited] for a message from rank {rank}",
    Says.WAITS_FOR_JOB: "it [waits|waited] for another process of the job",
    Says.WAITS_FOR_PROCESS: "it [waits|waited] for another process",
    Says.WAITS_FOR_SOMETHING: "it [waits|waited] for something that [is|was] no operation",
    Says.OWN_CODE: "it [is|was] in its own code",
    Says.OWN_CODE_IN: "it [is|was] in its own code, in {place}",
    Says.IS_IN: "it [is|was] in {place}",
    Says.SERVES_IN: "its function for it [is|was] in {place}",
    Says.RUNS_IN: "its code [is|was] in {place}",
    Says.NOTHING_AFTER: "it [has|had] issued nothing after the {in_flight} that it [has|had] in flight",
    Says.NOTHING_IN_FLIGHT: "it [has|had] nothing in flight, so it [is|was] held up on the CPU and not on the device",
    Says.LAST_ISSUED_IN: "the last one was issued in {place}",
    Says.OWN_TIME: "it [takes|took] {own_s:s} of own time per iteration",
    Says.OWN_TIME_OF_PEERS: "it [takes|took] {own_s:s} of own time per iteration, {times} times {peers:peers} in its "
                            "position",
    Says.OWN_TIME_OF_PAST: "it [takes|took] {own_s:s} of own time per iteration, {times} times that of before",
    Says.OWN_TIME_OF_RING: "it [takes|took] {own_s:s} of own time per iteration, {times} times that of the others "
                           "round its ring",
    Says.COMES_AND_GOES: "in {share:percent} of the iterations it [takes|took] much longer than its peers, in the "
                         "others it [does|did] not; that [costs|cost] {cost_s:s} an iteration",
    Says.COST: "it [makes|made] an iteration take {now_s:s} instead of {best_s:s}",
    Says.COST_TOGETHER: "it and {others:ranks} [make|made] an iteration take {now_s:s} instead of {best_s:s}",
    Says.IS_ROOT: "it [is|was] the root of an operation, so it may be that the program [gives|gave] it more to do",
    Says.SLOW_TOGETHER: "{ranks:ranks} [are|were] slow in the same iterations, so it may only wait for "
                        "{ranks:another}",
    Says.SENDS_AT: "it [sends|sent] to other nodes at {rate:rate} instead of the usual {usual:rate}",
    Says.RECEIVES_AT: "it [receives|received] from other nodes at {rate:rate} instead of the usual {usual:rate}",
    Says.SLOW_AT_REST: "with the job at rest it [takes|took] {times:g} times as long as the others for the same "
                       "computation",
    Says.STOPPED_AGAIN_AND_AGAIN: "its process [is|was] suspended and continued again and again",
    Says.COLLECTS_GARBAGE: "its garbage collector [takes|took] {share:percent} of its time",
    Says.LIMITED_BY_GROUP: "its control group [limits|limited] it to {cores:cores} while its peers "
                           "[have|had] {usual:g}",
    Says.LIMITED_BY_AFFINITY: "its affinity [limits|limited] it to {cores:cores} while its peers [have|had] {usual:g}",
    Says.WITHOUT_CPU: "it [is|was] ready and without a CPU for {share:percent} of the time",
    Says.LIMIT_UNREADABLE: "whether its control group limits it cannot be read from where the agent is",
    Says.TAKEN_BY_HYPERVISOR: "its hypervisor [takes|took] {share:percent} of its time",
    Says.SLOW_CLOCK: "its core [runs|ran] at {ghz:.1f} GHz while those of its peers [run|ran] at {usual_ghz:.1f}",
    Says.MEMORY_READ_BACK: "its memory [is|was] pushed out and read back, {pages:.0f} pages a second",
    Says.SLOW_STORAGE: "it [reads|read] {megabytes:.0f} MB/s from storage that [is|was] slow to answer",
}  # fmt: skip
"""Half a sentence that goes on from "rank 5: ..."."""

_ADVICE: Final[Mapping[Says, str]] = {
    Says.STACKS_OF_SUSPECTS: "see which of the named ranks waits for another: whichrank stacks --suspects",
    Says.STACKS_OF_ALL: "see whether the others wait for it: whichrank stacks",
    Says.STACKS_OF_RANK: "see where rank {rank} is: whichrank stacks --rank {rank}",
    Says.STACKS_OF_BUSY_RANK: "see what rank {rank} does besides: whichrank stacks --rank {rank}",
    Says.COUNT_OPERATIONS: "compare how many operations each rank issues: whichrank stacks --suspects",
    Says.COMPARE_CODE: "compare the code paths of the named ranks: whichrank stacks --suspects",
    Says.COMPARE_SPLITS: "compare what rank {src} gives to this all-to-all for rank {dst} (input_split_sizes) with "
                         "what rank {dst} gives for rank {src} (output_split_sizes)",
    Says.SEE_EARLIER_LINES: "find out what the named ranks wrote before they ended: their own logs, dmesg of their "
                            "nodes",
    Says.NO_CHECKPOINT: "use no checkpoint that was written since: from then on results on {group} are wrong",
    Says.NO_CHECKPOINT_FROM: "use no checkpoint of iteration {iteration} or later: from then on results on {group} are "
                             "wrong",
    Says.SEE_BYTES: "see whether bytes are under way to the named ranks: ss -tin",
    Says.SEE_LAUNCHER: "see what ended the whole job: the launcher's log, the scheduler, dmesg",
    Says.PING: "see from a third machine which side of these paths is out of reach: ping",
    Says.RECORD_AGAIN: "record it again while it stands still",
    Says.MEASURE_AT_REST: "pause training for some seconds and measure all ranks and links: whichrank validate",
}  # fmt: skip
"""What to do next."""

_WORDS: Final = {**_OF_A_RANK, **_ADVICE}
_AND: Final = ", and "
_JOINED_BY: Final = {
    **dict.fromkeys((Says.SENT_UNEXPECTED, Says.EXPECTED_UNSENT), ": "),
    **dict.fromkeys((Says.DEVICE_REPORTS, Says.NODE_REPORTS, Says.MAY_BE_CONSEQUENCE), "; "),
    **dict.fromkeys((Says.IS_IN, Says.LAST_ISSUED_IN, Says.OUT_OF_MEMORY, Says.COST, Says.COST_TOGETHER), "; "),
    **dict.fromkeys((Says.OWN_TIME, Says.OWN_TIME_OF_PEERS, Says.OWN_TIME_OF_PAST, Says.OWN_TIME_OF_RING), "; "),
    **dict.fromkeys((Says.COMES_AND_GOES, Says.IS_ROOT, Says.SLOW_TOGETHER, Says.LIMIT_UNREADABLE), "; "),
}
"""What stands between a clause and the one before it, where that is not "and"."""

_WITNESSES: Final[Mapping[Witness, str]] = {
    Witness.OWN_PAST: "its own earlier iterations",
    Witness.SAME_ROLE: "communicators of the same role",
    Witness.MAJORITY: "the majority",
    Witness.SAME_POSITION: "the other ranks in its position",
    Witness.MEMBERS_AND_PAST: "the other members, and it itself in earlier iterations,",
    Witness.MEMBERS: "the other members",
    Witness.EARLIER_OPERATIONS: "what its peers had issued before",
    Witness.ALL_OTHERS: "what all others did after the same operations",
    Witness.SIZES_BETWEEN_PEERS: "the sizes that its peers send to each other",
}
_IN_ITSELF: Final = frozenset({Witness.EARLIER_OPERATIONS, Witness.ALL_OTHERS})
"""Witnesses that are what was done, and not who did it."""
_TENSES: Final = re.compile(r"\[([^|\]]*)\|([^\]]*)\]")


def words(clauses: Sequence[Clause], *, over: bool) -> str:
    """All clauses of one rank as half a sentence.

    Args:
        clauses: In their order.
        over: What they say is over: in the past.
    """
    text = ""
    for one in clauses:
        text += (_JOINED_BY.get(one.says, _AND) if text else "") + sentence(one, over=over)
    return text


def sentence(one: Clause, *, over: bool = False) -> str:
    """One clause in words."""
    template = _TENSES.sub(lambda found: found[1 + over], _WORDS[one.says])
    return _Writer(over).vformat(template, (), one.values)


class _Writer(Formatter):
    """Writes values as their format says."""

    def __init__(self, over: bool) -> None:
        self._over = over

    def format_field(self, value: Any, format_spec: str) -> str:
        if write := _FORMATS.get(format_spec):
            return write(value, self._over)
        return f"{value:{format_spec}}" if format_spec or not isinstance(value, int) else f"{value:,}"


def _wait(waiting: Value, over: bool) -> str:
    """`rank 3 waits`, `5 ranks wait`, `others wait`; of ranks, or of how many there are."""
    total = len(waiting) if isinstance(waiting, tuple) else int(waiting)
    if not total:
        return f"others {'waited' if over else 'wait'}"
    who = f"rank {waiting[0]}" if isinstance(waiting, tuple) and total == 1 else count(total, "rank")
    return f"{who} {'waited' if over else 'waits' if total == 1 else 'wait'}"


def _ranks(ranks: tuple[int, ...], _: bool) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}"


def _order(order: tuple[str, int], _: bool) -> str:
    """The order in which a witness has the operations of a rank."""
    witness, rank = order
    if witness == Witness.OWN_PAST:
        return f"that of earlier iterations of rank {rank}"
    said = _WITNESSES[Witness(witness)]
    return said if witness in _IN_ITSELF else f"that of {said}"


_FORMATS: Final[Mapping[str, Callable[[Any, bool], str]]] = {
    "s": lambda seconds, _: duration(seconds),
    "whole_s": lambda seconds, _: f"{seconds:.0f} s",
    "percent": lambda share, _: f"{share:.0%}",
    "rate": lambda rate, _: rate_text(rate),
    "wait": _wait,
    "ranks": _ranks,
    "another": lambda ranks, _: "the other one" if len(ranks) == 2 else "another one",
    "others": lambda others, _: f"{others:,} others" if others > 1 else "the other one",
    "peer": lambda rank, _: f"rank {rank}" if rank >= 0 else "its peers",
    "peers": lambda peers, _: f"the median of the {peers:,} other ranks" if peers > 1 else "that of the other rank",
    "later": lambda later, _: f" and {later:,} after it" if later else "",
    "operations": lambda number, _: "an operation" if number == 1 else count(number, "operation"),
    "connections": lambda number, _: count(number, "connection"),
    "cores": lambda cores, _: f"{cores:g} core{'s' * (cores != 1)}",
    "looks": lambda number, _: "one look" if number == 1 else f"{number:,} looks",
    "signal": lambda name, _: f" ({name})" if name else "",
    "pid": lambda pid, _: f" {pid}" if pid else "",
    "exception": lambda text, _: place_apart(text),
    "witness": lambda witness, _: _WITNESSES[Witness(witness)],
    "witnesses": lambda witnesses, _: " and from ".join(_WITNESSES[Witness(one)] for one in witnesses),
    "order": _order,
}

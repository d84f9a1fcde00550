"""A method's words against the truth of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from whichrank.testbed.bench.methods.c4d import C4d
from whichrank.testbed.bench.methods.ccl_d import CclD
from whichrank.testbed.bench.methods.claims import Due
from whichrank.testbed.bench.methods.flight_recorder import FlightRecorder
from whichrank.testbed.bench.methods.greyhound import Greyhound
from whichrank.testbed.bench.methods.megatrace import MegaTrace
from whichrank.testbed.bench.methods.method import Limits, Method, Said
from whichrank.testbed.bench.methods.ras import Ras
from whichrank.testbed.bench.methods.stacks import Stacks
from whichrank.testbed.bench.methods.telemetry import Telemetry
from whichrank.testbed.bench.methods.word import Word
from whichrank.testbed.bench.trial import STACKS_NAME
from whichrank.testbed.demo.plan import Truth
from whichrank.wire.tape import Tape

METHODS: Final[dict[str, Callable[[Limits], Method]]] = {
    "ras": Ras,
    "flight-recorder": FlightRecorder,
    "stacks": Stacks,
    "c4d": C4d,
    "greyhound": Greyhound,
    "megatrace": MegaTrace,
    "ccl-d": CclD,
}
POLL_EVERY_S: Final = 0.25
BEFORE_S: Final = 0.2
"""Clocks may differ by so much."""
_SLOW: Final = ("slow", "slow-all", "slow-link")
Verdict = Literal["right", "unknown", "missed", "wrong_name", "false_alarm"]


class Outcome(msgspec.Struct, frozen=True):
    """What came of a method in a run.

    Attributes:
        detected_s: From the fault to its first word of a right kind, or of any.
        is_class_right: Of the class that it gave; None if it gave none, or there is none to give.
    """

    verdict: Verdict
    detected_s: float | None = None
    located_ms: float | None = None
    is_class_right: bool | None = None
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class Expected:
    """What is right to say of a run.

    Attributes:
        is_healthy: Nothing.
        kinds: What may be detected.
        must: Ranks that are to be named.
        may: Ranks that may be named.
        links: Pairs of ranks that may be named, the lower one first.
        names_somebody: A rank or a link is to be named.
        fault_class: Of the scenario.
    """

    is_healthy: bool
    kinds: frozenset[str]
    must: frozenset[int]
    may: frozenset[int]
    links: frozenset[tuple[int, int]]
    names_somebody: bool
    fault_class: str | None


def expected_of(
    truth: Truth, ranks: int, fault_class: str | None, other_ends: frozenset[int] = frozenset()
) -> Expected:
    """What is right to say of a run.

    Args:
        truth: What was done.
        ranks: World size.
        fault_class: Of the scenario.
        other_ends: Ranks at the other ends of links that are slow at one node, which may be named too; see `flows`.
    """
    ends = {rank for pair in truth.pairs for rank in pair}
    at_links = {*truth.sources, *truth.targets, *other_ends}
    beside = {*truth.sources, *truth.targets}
    for both_ends in (ends, at_links):  # of more than half of the ranks it says nothing to name one
        beside |= both_ends if 2 * len(both_ends) <= ranks else set()
    crossing = {
        (min(a, b), max(a, b))
        for a in range(ranks)
        for b in range(ranks)
        if a != b and (a in truth.sources or b in truth.targets)
    }
    kinds = {"slow"} if truth.effect in _SLOW else {"hang"}
    if truth.effect == "slow-then-hang":
        kinds = {"slow", "hang"}
    return Expected(
        is_healthy=truth.kind == "healthy",
        kinds=frozenset(kinds),
        must=frozenset(truth.culprits),
        may=frozenset({*truth.culprits, *truth.candidates, *beside}),
        links=frozenset({*truth.pairs, *crossing}),
        names_somebody=bool(truth.culprits or truth.pairs or truth.sources or truth.targets),
        fault_class=fault_class,
    )


def judge(expected: Expected, words: Sequence[Word], fault_s: float, due: Due = "name") -> Outcome:
    """Every word counts: a wrong name that is followed by the right one was said all the same.

    Args:
        expected: What is right.
        words: In order.
        fault_s: When it was done, on the clock of the words.
        due: What is owed. Who owes that a fault is detected may name nobody.
    """
    named = {rank for word in words for rank in word.ranks}
    paths = {(min(link), max(link)) for word in words for link in word.links}
    first = next((word for word in words if word.kind in expected.kinds), words[0] if words else None)
    detected_s = round(first.at_s - fault_s, 3) if first else None
    reported = next((word for word in words if word.ranks or word.links), first)
    located_ms = reported.took_ms if reported else None
    given = {word.fault_class for word in words if word.fault_class}
    is_class_right = expected.fault_class in given if given and expected.fault_class else None

    def outcome(verdict: Verdict) -> Outcome:
        return Outcome(verdict, detected_s, located_ms, is_class_right, tuple(words))

    if expected.is_healthy:
        return outcome("right" if not words else "wrong_name" if named or paths else "false_alarm")
    if not named <= expected.may or not paths <= expected.links:
        return outcome("wrong_name")
    if any(word.at_s < fault_s - BEFORE_S for word in words):
        return outcome("false_alarm")
    if first is None or first.kind not in expected.kinds:
        return outcome("missed")
    if due == "detect":
        return outcome("right")
    if expected.names_somebody and not (named or paths):
        return outcome("unknown")
    if not expected.names_somebody and named:
        return outcome("wrong_name")
    return outcome("right" if expected.must <= named else "missed" if named else "unknown")


def listen(
    tape: Path, names: Sequence[str], limits: Limits, watch: Callable[[Telemetry], None] | None = None
) -> dict[str, list[Word]]:
    """Let methods go through a tape.

    Args:
        tape: Of a run, with its stacks beside it.
        names: Of `METHODS`.
        limits: Their patience.
        watch: Called at each snapshot, for what the scorer itself wants to know of the job.

    Raises:
        IncompleteDataError: It cannot be read.
        FormatError: It is no tape.
    """
    stacks = tape.parent / STACKS_NAME
    known = msgspec.json.decode(stacks.read_bytes(), type=dict[int, list[str]]) if stacks.exists() else None
    seen, said = Telemetry(known), {name: list[Word]() for name in names}
    methods = {name: METHODS[name](limits) for name in names}
    next_s = 0.0
    for entry in Tape(tape):
        if entry.batch is not None:
            seen.feed(entry.batch, entry.now_s)
        if entry.now_s < next_s or not seen.store.ranks.size:
            continue
        next_s = entry.now_s + POLL_EVERY_S
        seen.at(entry.now_s)
        _ = seen.picture  # made once for all
        if watch:
            watch(seen)
        for name, method in methods.items():
            begun_s = time.perf_counter()
            found = method.examine(seen)
            took_ms = 1e3 * (time.perf_counter() - begun_s)
            said[name] += [_word(one, entry.now_s, took_ms) for one in found]
    return said


def _word(said: Said, at_s: float, took_ms: float) -> Word:
    return Word(
        round(at_s, 3), round(took_ms, 3), said.kind, tuple(sorted(said.ranks)), tuple(sorted(said.links)),
        said.fault_class,
    )  # fmt: skip

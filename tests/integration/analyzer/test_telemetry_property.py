"""Whatever happens to telemetry on its way: the clean verdict, or none; never another rank.

Each recording of a real job is replayed as reported by one to four agents with clocks that differ by up to ten seconds,
delays of up to seven (and a bound reported for it, or not), lost states, resent batches, overwritten rings, deaths of
agents, and deliveries that come twice. `WHICHRANK_PROPERTY_EXAMPLES` sets how many worlds each recording is put into.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings import CASES, Recording
from replay import Effect, Outcome, World, one_agent, play

from whichrank.model.incident import Cause

pytestmark = pytest.mark.integration

EXAMPLES = int(os.environ.get("WHICHRANK_PROPERTY_EXAMPLES", "6"))
FOREVER = float("inf")
SILENT_ANSWERS = {"skip-op"}
"""Even untouched, their answer may be `unknown`: where the rank departed lies further back than what contradicts."""


def seconds(least: float, most: float) -> st.SearchStrategy[float]:
    return st.floats(least, most, allow_nan=False, allow_infinity=False, width=32)


effects = st.builds(
    Effect,
    delay_s=st.just(0.0) | seconds(0, 5),
    jitter_s=st.just(0.0) | seconds(0, 2),
    honest=st.booleans(),
    clock_s=seconds(-5, 5),
    dies_s=st.just(FOREVER) | seconds(0, 8),
    loses_states=st.sampled_from((0.0, 0.5)),
    resends=st.sampled_from((0.0, 0.2)),
    overwritten=st.just((0.0, 0.0)) | st.builds(lambda a, b: (a, a + b), seconds(0, 5), seconds(0, 3)),
    twice=st.sampled_from((0.0, 0.3)),
)


@st.composite
def worlds(draw: st.DrawFn, ranks: int = 4) -> World:
    agents = draw(st.integers(1, ranks))
    return World(
        tuple(draw(st.integers(0, agents - 1)) for _ in range(ranks)),
        tuple(draw(effects) for _ in range(agents)),
        draw(st.integers(0, 1000)),
    )


def causes_of(recording: Recording) -> set[str]:
    """A stopped rank may stand inside an asynchronous operation that it has entered: that is the device, and right."""
    assert recording.truth
    return {*recording.truth["causes"], *(["device"] if recording.case.startswith("stop") else [])}


def story(outcome: Outcome) -> str:
    return "\n".join(
        f"{at_s:9.2f} {i.id} {i.severity} {i.status} {i.cause} culprits {[(c.rank, c.why) for c in i.culprits]}"
        for at_s, i in outcome.words
    )


@pytest.mark.parametrize("name", [n for n in CASES if n != "none"])
def test_the_clean_verdict_is_the_truth(name: str, recorded: Callable[[str], Recording]) -> None:
    # GIVEN a recording of a job with a fault WHEN it is replayed as it was
    recording = recorded(name)
    outcome = play(recording, one_agent(recording))
    # THEN the alert names the rank that was struck, for the right cause, and nobody else was ever named
    assert outcome.named() <= recording.culprits, story(outcome)
    verdict = outcome.verdict
    assert verdict is not None
    assert recording.truth
    if name not in SILENT_ANSWERS or verdict.culprits:
        assert {c.rank for c in verdict.culprits} == recording.culprits, story(outcome)
        assert verdict.cause in causes_of(recording), story(outcome)


@pytest.mark.parametrize("name", [n for n in CASES if n != "none"])
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(world=worlds())
def test_the_clean_verdict_or_none(name: str, recorded: Callable[[str], Recording], world: World) -> None:
    # GIVEN a recording of a job with a fault WHEN its telemetry comes through such a world
    recording = recorded(name)
    outcome = play(recording, world)
    # THEN no line, notice or alert, first or last word, names another rank
    assert outcome.named() <= recording.culprits, story(outcome)
    # AND what is named in the end has a right cause; "nobody can say" is right too
    assert recording.truth
    if outcome.verdict is not None:
        assert outcome.verdict.cause in causes_of(recording) | {Cause.UNKNOWN}, story(outcome)


@settings(max_examples=2 * EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(world=worlds())
def test_a_healthy_job_is_no_alarm(recorded: Callable[[str], Recording], world: World) -> None:
    # GIVEN a recording of an undisturbed job WHEN its telemetry comes through such a world
    outcome = play(recorded("none"), world)
    # THEN there is no alert, and nobody is named even in a notice
    assert not outcome.alerts, story(outcome)
    assert not outcome.named(), story(outcome)

"""Jobs that are played through, and what whichrank finds in their dumps."""

from __future__ import annotations

import pickle

import pytest

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.intake import flight_batches, flight_job
from whichrank.intake.flight_dump import Dump, read_pickle
from whichrank.model.incident import Incident
from whichrank.model.picture import Recorded
from whichrank.testbed.bench.dumps.cases import Case, Layout, cases, programs_of
from whichrank.testbed.bench.dumps.played import Fault, Style, dump_of, play

CASES = {case.name: case for case in cases()}
UNDECIDED = {
    f"device stopped, dp2-pp4, {style}" for style in ("wrapped", "only active", "wrapped, no status")
}  # fmt: skip
"""Nothing but messages was under way, and of a group of four no ring that is not whole says which of them meet."""


def dumps_of(case: Case) -> dict[int, Dump]:
    """As they would be read from files."""
    played = play(case.programs, case.fault)
    raw = {r: dump_of(played, r, case.groups, case.style) for r in range(len(case.programs))}
    return {r: read_pickle(pickle.dumps(dump, 2)) for r, dump in raw.items() if r not in case.fault.unsent}


def found_in(dumps: dict[int, Dump], world: int) -> list[Incident]:
    reported, older = flight_job.job_of(dumps)
    assert not older
    batches, now_s = flight_batches.batches_of(reported, world)
    analyzer = Analyzer(AnalyzerConfig(), "dumps", 0.0)
    for batch in batches:
        analyzer.feed(batch, now_s)
    about = Recorded(is_young=flight_job.is_young(reported))
    return list({incident.id: incident for incident in analyzer.at_rest(now_s, about)}.values())


@pytest.mark.parametrize("name", CASES)
def test_exactly_the_culprits_are_named(name: str) -> None:
    # GIVEN the dumps of a job with a known culprit, or none
    case = CASES[name]
    # WHEN they are analyzed
    incidents = found_in(dumps_of(case), len(case.programs))
    # THEN it is named, and nobody else, or is a candidate where no dump of it is there
    named = tuple(sorted(c.rank for i in incidents for c in i.culprits))
    candidates = {c.rank for i in incidents for c in i.candidates}
    if name in UNDECIDED:
        assert named == ()
        return
    assert named == case.culprits
    assert len(incidents) == (1 if case.candidates or case.culprits else 0)
    assert candidates == (set() if case.culprits else set(case.candidates))


def test_the_cases_are_many_and_of_all_kinds() -> None:
    assert len(CASES) >= 30
    words = " ".join(CASES)
    for kind in ("wrapped", "only active", "no dump", "equal names", "batches", "another size", "finished"):
        assert kind in words


def test_a_played_job_stands_still_at_its_culprit() -> None:
    # GIVEN a data-parallel job in which the host of rank 2 stops after 7 operations
    layout = Layout(dp=4)
    case = next(case for case in cases() if case.name.startswith("finished"))
    groups = layout.groups()
    programs = programs_of(layout, groups, 5)
    # WHEN it is played THEN nobody gets further, but hosts issue ahead
    played = play(programs, Fault({2: 7}), ahead=3)
    assert played.done == [7, 7, 7, 7]
    assert played.issued == [10, 10, 7, 10]
    # AND a whole job gets to its end
    assert (whole := play(case.programs, Fault())).done == whole.issued == [len(p) for p in case.programs]


def test_a_device_that_stops_has_done_its_part_for_a_while() -> None:
    layout = Layout(dp=4)
    groups = layout.groups()
    played = play(programs_of(layout, groups, 8), Fault(device_stops={1: 6}, works_on=4), ahead=9)
    assert played.done == [10, 6, 10, 10]
    dump = dump_of(played, 1, groups, Style("whole"))
    assert [entry["state"] for entry in dump["entries"]].count("completed") == 6

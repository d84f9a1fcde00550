"""Every verdict that the values allow can be reported on every screen: no error, no empty place, no word too many."""

from __future__ import annotations

import io
import itertools
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from incident_cases import DP, ONSET, incident
from rich.console import Console

from whichrank.model.incident import (
    NOBODY,
    Cause,
    Culprit,
    Incident,
    Link,
    Op,
    Reason,
    Stage,
    Victims,
    decode_incident,
    encode_incident,
)
from whichrank.surface.cli import main
from whichrank.surface.export.perfetto import trace_of
from whichrank.surface.export.tables import csv_of, json_of
from whichrank.surface.report.gather import Gathered
from whichrank.surface.report.make import gather
from whichrank.surface.report.page import page_of
from whichrank.surface.watch.frame import Frame, JobNow, encode_frame
from whichrank.surface.watch.view import page, screen
from whichrank.testbed.bench.dumps.cases import cases
from whichrank.testbed.bench.dumps.compare import write_case
from whichrank.verdict.words.text import headline, paragraph

NAMED = (
    Culprit(
        rank=41,
        host="gpu07",
        pid=12,
        confidence=0.9,
        why="it has not entered recv #7 on pp, and its process is suspended",
    ),
    Culprit(rank=43, confidence=0.5, why=""),
)
ODD = re.compile(r"None|[{}]|\(\)|\( |[^ \n] {2,}|\s[,.;:](?:\s|$)|\.\.|;;|,,|: *;|;\s*\.|:\s*(?:\.|$)", re.MULTILINE)
"""What an empty place in a sentence leaves behind. Spaces after a label are none."""


def verdicts(cause: Cause, reason: Reason | None) -> list[Incident]:
    """All that may be said with these two."""
    found = []
    for kind, status, severity in itertools.product(
        ("hang", "slow", "failed"), ("open", "recovered", "final"), ("notice", "alert")
    ):
        for names, links, is_bare in itertools.product((0, 1, 2), (0, 1, 2), (False, True)):
            who = NAMED[:names]
            changes = {
                "kind": kind, "status": status, "severity": severity, "reason": reason,
                "ended": ONSET + timedelta(seconds=40) if status == "recovered" else None,
                "culprits": who if cause not in NOBODY else (), "candidates": who if cause == Cause.UNKNOWN else (),
                "links": (Link(src=1, dst=4, end="path"), Link(src=4, dst=1, scope="inter_node"))[:links],
                "complete": not is_bare,
                "id": f"job-{cause}-{reason}-{kind}-{status}-{severity}-{names}-{links}-{is_bare}",
            }  # fmt: skip
            if is_bare:
                changes |= {"op": None, "communicator": None, "stage": None, "onset": None, "victims": Victims(),
                            "evidence": (), "next": ()}  # fmt: skip
            elif links == 1:
                changes |= {"op": Op(trace_id=None, kind="send"), "communicator": DP, "stage": Stage(phase="data"),
                            "victims": Victims(count=1, ranks=(3,))}  # fmt: skip
            found.append(incident(cause, **changes))
    return found


STEP = 5
"""Of the verdicts of a cause and a reason; where they begin moves with both, so each verdict meets each of either."""
EVERY = [
    pytest.param(cause, reason, (row + column) % STEP, id=f"{cause}-{reason}")
    for (row, cause), (column, reason) in itertools.product(enumerate(Cause), enumerate((None, *Reason)))
]


@pytest.mark.parametrize(("cause", "reason", "first"), EVERY)
def test_every_verdict_reads(cause: Cause, reason: Reason | None, first: int) -> None:
    for case in verdicts(cause, reason)[first::STEP]:
        # GIVEN any cause with any reason, kind, status, severity and number of names THEN it can be said
        title, text = headline(case), paragraph(case)
        sentences, *lines = text.split("\n")
        assert "\n" not in title
        assert len(title) < 250
        # AND no place in a sentence is empty
        for said in (title, sentences, *(line[14:] for line in lines)):
            assert not ODD.search(said), said
            assert said == said.strip()
        assert sentences[0].isupper() or sentences[0].isdigit()
        assert sentences.endswith(".")
        # AND it names exactly those that the fields name
        for who in NAMED:
            is_named = who in case.culprits or who in case.candidates
            assert (str(who.rank) in title) == (str(who.rank) in text) == is_named
        assert "no rank is at fault" not in title or not case.culprits


@cache
def some() -> tuple[Incident, ...]:
    """Each cause, reason, kind, status and severity with each other, and names, links and what is left out by turns.

    There are 18 ways to name, link and leave out, so a step of 17 meets each of the others at least once. They are
    made when they are needed, since each process that runs tests loads this module.
    """
    every = (case for cause in Cause for reason in (None, *Reason) for case in verdicts(cause, reason))
    return tuple(itertools.islice(every, 0, None, 17))


def test_some_leave_no_cause_reason_kind_status_and_severity_out() -> None:
    met = {(case.cause, case.reason, case.kind, case.status, case.severity) for case in some()}
    assert len(met) == len(Cause) * (1 + len(Reason)) * 3 * 3 * 2


def test_every_verdict_is_an_incident_of_the_documented_format() -> None:
    assert [decode_incident(encode_incident(case)) for case in some()] == list(some())


def test_every_word_is_in_the_schema() -> None:
    schema = (Path(__file__).parents[4] / "docs" / "reference" / "incident.schema.json").read_text()
    assert all(f'"{word}"' in schema for word in (*Cause, *Reason))


def test_every_verdict_is_printed_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "incidents.jsonl").write_bytes(b"".join(encode_incident(case) + b"\n" for case in some()))
    assert main(["why", str(tmp_path / "incidents.jsonl")]) == 3
    reported = capfd.readouterr().out
    assert all(f"[{case.id}]\n" in reported for case in some())


def test_every_verdict_is_shown_live() -> None:
    for start in range(0, len(some()), 50):
        reported = some()[start : start + 50]
        frame = Frame(
            at=datetime.now(UTC), host="gpu07", jobs=(JobNow(job="job", state="running", incidents=reported),)
        )
        console = Console(file=io.StringIO(), width=200, height=500)
        console.print(page(frame, 200))
        console.print(screen(frame, 80, 24))
        assert isinstance(console.file, io.StringIO)
        assert console.file.getvalue().count("ALERT") + console.file.getvalue().count("NOTICE") >= len(reported)
        assert json.loads(encode_frame(frame))["schema"] == "whichrank.watch/1"


@pytest.fixture(name="gathered", scope="module")
def _gathered(tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    folder = tmp_path_factory.mktemp("dumps")
    write_case(next(case for case in cases() if case.name == "host stopped, dp8, whole"), folder)
    return replace(gather([folder]).gathered, incidents=some(), scenes=(None,) * len(some()), job_scene=None)


def test_every_verdict_is_on_the_page_of_a_report(gathered: Gathered) -> None:
    text = page_of(gathered)
    assert all(case.id in text for case in some())


def test_every_verdict_is_exported(gathered: Gathered) -> None:
    marks = [event["name"] for event in json.loads(b"".join(trace_of(gathered)))["traceEvents"] if event["ph"] == "i"]
    assert marks
    assert len(json.loads(b"".join(json_of(gathered)))["incidents"]) == len(some())
    assert len(b"".join(csv_of(gathered)).splitlines()) == len(gathered.spans) + 1
    assert np.isfinite(gathered.spans["start_s"]).all()

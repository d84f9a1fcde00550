"""What a server makes of shares of the work, of incidents and of iterations."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from whichrank.model.commands import PlaceOut
from whichrank.model.incident import Cause, Culprit, Incident, Link
from whichrank.model.job_now import JobNow, Lately
from whichrank.model.telemetry import PLACES_REPORTED, SHARES_REPORTED, VERSION, Batch
from whichrank.server.checkpointing import AGAIN_S, BEGIN_S
from whichrank.server.mitigations import ANSWER_S, EVERY_S, Decided, Mitigations
from whichrank.server.mitigations_file import MitigateAsked, Mode

RANKS = 4
JOB = JobNow(tuple(range(RANKS)), dict(enumerate("aabb")), (), 0.0, None)
AT = datetime(2026, 11, 28, tzinfo=UTC)
NAMED = Incident(
    id="job-1",
    job="job",
    severity="alert",
    status="open",
    kind="slow",
    cause=Cause.COMPUTE_SLOW,
    culprits=(Culprit(rank=1, confidence=0.9, why=""),),
    onset=AT,
    detected=AT,
    complete=True,
)
MICROBATCH_S = np.array([0.1, 0.2, 0.1, 0.1])


def offered_rows() -> np.ndarray:
    rows = np.zeros(RANKS, SHARES_REPORTED)
    rows["rank"] = rows["shares"]["replica"] = range(RANKS)
    for name, value in (("microbatches", 16), ("multiple", 1), ("replicas", RANKS)):
        rows["shares"][name] = value
    return rows


def batch_of(rows: np.ndarray) -> Batch:
    return Batch(VERSION, "j", "a:1", "a", 1, 0, 0, -1, RANKS, shares=rows.tobytes())


def offered(mode: Mode, incident: Incident = NAMED) -> Mitigations:
    """Four ranks offer four microbatches each, and one of them is named."""
    mitigations = Mitigations(mode)
    mitigations.feed([batch_of(offered_rows())])
    mitigations.note([incident])
    return mitigations


def watched(lately: Lately | None, ended: tuple[int, ...] = ()) -> Any:
    """A job as an analyzer knows it."""
    return SimpleNamespace(lately=lambda: lately, job_now=lambda: JOB, ended_ranks=list(ended), links=())


class Looks:
    """A hundred looks and more at a job that goes on as it is.

    Args:
        mitigations: That looks.
        ended: Ranks that have.
    """

    def __init__(self, mitigations: Mitigations, ended: tuple[int, ...] = ()) -> None:
        self.mitigations, self.ended = mitigations, ended
        self.at, self.counts = 0, np.full(RANKS, 4)

    def look(self, looks: int = 100) -> list[Decided]:
        """Whatever is decided in so many."""
        found = []
        for _ in range(looks):
            self.at += 1
            own_s = np.tile((MICROBATCH_S * self.counts)[:, None], 20)
            lately = Lately(np.arange(RANKS), np.arange(20) + self.at, own_s, np.tile(own_s.max(axis=0) + 0.1, (4, 1)))
            decided = self.mitigations.advance(watched(lately, self.ended), self.now_s, AT)
            if decided.lines:
                found.append(decided)
        return found

    @property
    def now_s(self) -> float:
        return self.at * EVERY_S

    def use(self, version: int, counts: tuple[int, ...]) -> None:
        """All ranks use what they were told."""
        self.counts = np.array(counts)
        rows = offered_rows()
        shares = rows["shares"]
        shares["used"] = shares["newest"] = version
        shares["told"]["first"][:, version % 2] = np.cumsum(counts) - counts
        shares["told"]["count"][:, version % 2] = counts
        self.mitigations.feed([batch_of(rows)])

    def want(self, what: str, step: int) -> Decided:
        """What comes of it."""
        self.mitigations.ask(MitigateAsked(id="me", what=what, step=step), self.now_s)  # type: ignore[arg-type]
        return self.look()[0]


def test_agents_are_told_what_is_for_their_ranks() -> None:
    (decided,) = Looks(offered("auto")).look()
    (line,) = decided.lines
    assert (line.what, line.step, line.why, line.before, line.after) == ("made", 1, "impact", (4,) * 4, (5, 2, 5, 4))
    told = {agent: [share.rank for share in order.shares] for agent, order in decided.orders}
    assert told == {"a": [0, 1], "b": [2, 3]}
    # AND the incident says so
    (incident,) = decided.incidents
    assert [(one.value, one.where) for one in incident.evidence][:2] == [
        ("5 instead of 4", "replica 0, mitigation 1"), ("2 instead of 4", "replica 1, mitigation 1"),
    ]  # fmt: skip


def test_nobody_is_told_without_auto_nor_where_it_is_not_sure() -> None:
    unsure = msgspec.structs.replace(NAMED, culprits=(Culprit(rank=1, confidence=0.5, why=""),))
    for mitigations, what, waits in (
        (offered("advise"), "advised", False),
        (offered("ask"), "asked", True),
        (offered("auto", unsure), "asked", True),
    ):
        (decided,) = Looks(mitigations).look()
        assert (decided.lines[0].what, decided.lines[0].step, decided.orders) == (what, 1, ())
        assert mitigations.now is not None
        assert mitigations.now.plan is not None
        assert (mitigations.now.plan.step, mitigations.now.plan.waits) == (1, waits)


@pytest.mark.parametrize("mode", ["advise", "ask"])
def test_it_is_done_when_somebody_says_yes_and_taken_back_when_somebody_wants_that(mode: Mode) -> None:
    looks = Looks(offered(mode))
    looks.look()
    decided = looks.want("apply", 1)
    assert (decided.lines[0].what, decided.lines[0].request, decided.lines[0].why) == ("made", "me", "by_hand")
    assert decided.orders
    looks.use(1, (5, 2, 5, 4))
    looks.look(30)
    # WHEN somebody wants it back
    decided = looks.want("revert", 1)
    assert (decided.lines[0].what, decided.lines[0].level, decided.lines[0].after) == ("made", 1, (4,) * 4)
    # THEN it is not done or asked again while nothing else is slow
    looks.use(2, (4,) * 4)
    assert looks.look() == []


def test_it_can_be_had_before_it_is_due() -> None:
    looks = Looks(offered("auto"))
    looks.mitigations.ask(MitigateAsked(id="me", what="apply", step=1), 0.0)
    decided = looks.look(3)
    assert [one.lines[0].what for one in decided] == ["refused"]  # nothing is planned yet
    looks = Looks(offered("ask"))
    looks.look(1)
    assert looks.want("apply", 1).lines[0].impact_s < 1.0


@pytest.mark.parametrize(
    ("what", "step", "problem"),
    [
        ("apply", 7, "it is step 1 that is planned now"),
        ("revert", 1, "nothing is changed that could be taken back"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(what: str, step: int, problem: str) -> None:
    looks = Looks(offered("ask"))
    looks.look()
    decided = looks.want(what, step)
    assert (decided.lines[0].what, decided.lines[0].problem, decided.lines[0].request) == ("refused", problem, "me")
    assert looks.look() == []


def test_request_is_answered_also_where_nothing_is_known_and_where_nothing_is_offered() -> None:
    looks = Looks(offered("ask"))
    looks.look()
    looks.mitigations.ask(MitigateAsked(id="me", what="apply", step=1), looks.now_s)
    decided = [
        looks.mitigations.advance(watched(None), looks.now_s + after_s, AT)
        for after_s in (1.0, ANSWER_S - 1.0, ANSWER_S + 1.0)
    ]
    assert [[line.what for line in one.lines] for one in decided] == [[], [], ["refused"]]
    looks = Looks(Mitigations("auto"))
    assert "no rank of this job lets its share" in looks.want("apply", 1).lines[0].problem


def test_what_it_has_gained_stands_in_the_incident_also_when_that_is_over() -> None:
    looks = Looks(offered("auto"))
    looks.look()
    looks.use(1, (5, 2, 5, 4))
    (recovered,) = looks.mitigations.note([msgspec.structs.replace(NAMED, status="recovered", ended=AT)])
    looks.look(30)
    decided = looks.mitigations.take_news(AT)
    assert (decided.lines[0].what, decided.lines[0].step, decided.lines[0].measured_s) == ("measured", 1, 0.6)
    (incident,) = decided.incidents
    assert incident.status == "recovered"
    assert incident.evidence[:-1] == recovered.evidence
    assert (incident.evidence[-1].what, incident.evidence[-1].value) == ("iteration since then", 0.6)
    assert looks.mitigations.take_news(AT) == Decided()


def test_what_is_in_force_no_more_is_said_and_cannot_be_taken_back() -> None:
    looks = Looks(offered("auto"))
    looks.look()
    looks.use(1, (5, 2, 5, 4))
    looks.look(3)
    assert looks.mitigations.is_in_force
    # WHEN a rank is replaced, and all share evenly again
    looks.ended = (2,)
    looks.look(1)
    assert not looks.mitigations.is_in_force
    (line,) = (said := looks.mitigations.take_news(AT)).lines
    assert (line.what, line.step, line.problem) == (
        "undone",
        1,
        "in force no more, since processes of ranks have ended",
    )
    assert said.incidents[0].evidence[-1].value == "as before"
    assert looks.mitigations.take_news(AT) == Decided()
    looks.ended, looks.counts = (), np.full(RANKS, 4)
    looks.mitigations.feed([batch_of(offered_rows())])
    assert looks.want("revert", 1).lines[0].problem == "nothing is changed that could be taken back"
    # AND the same when the program begins anew
    looks.look()
    looks.use(1, (5, 2, 5, 4))
    looks.look(3)
    looks.counts = np.full(RANKS, 4)
    looks.mitigations.feed([batch_of(offered_rows())])
    looks.look(1)
    assert [line.problem for line in looks.mitigations.take_news(AT).lines] == [
        "in force no more, since the program has begun anew"
    ]


def place_rows(*, saves: int, used: int = 0, failed: int = 0) -> bytes:
    rows = np.zeros(RANKS, PLACES_REPORTED)
    rows["rank"] = rows["places"]["place"] = range(RANKS)
    offered = {"ranks": RANKS, "stages": 2, "stage_stride": 2, "replicas": 2, "replica_stride": 1, "microbatches": 4}
    for name, value in (offered | {"saves": saves, "used": used, "failed": failed}).items():
        rows["places"][name] = value
    return rows.tobytes()


def placed(**said: int) -> Batch:
    return msgspec.structs.replace(batch_of(offered_rows()[:0]), places=place_rows(**said))


def wanted(
    mitigations: Mitigations, batch: Batch | None = None, ended: tuple[int, ...] = (), now_s: float = 1.0
) -> Decided:
    """What comes of a checkpoint that somebody wants."""
    if batch:
        mitigations.feed([batch])
    mitigations.ask(MitigateAsked(id="me", what="checkpoint"), now_s)
    return mitigations.advance(watched(None, ended), now_s, AT)


def test_checkpoint_is_written_when_somebody_wants_that() -> None:
    mitigations = Mitigations("advise")
    assert wanted(mitigations) == Decided()  # nothing is known of ranks yet
    # GIVEN ranks that can write theirs THEN each agent is told, once
    decided = wanted(mitigations, placed(saves=1), now_s=2.0)
    orders = [order for _, order in decided.orders if isinstance(order, PlaceOut)]
    assert [(order.saves, len(order.places)) for order in orders] == [(True, 2), (True, 2)]
    assert mitigations.is_in_force  # agents report at once
    assert wanted(mitigations, now_s=3.0) == Decided()
    # AND again, in case an agent has ended before it was obeyed
    assert wanted(mitigations, now_s=2.0 + AGAIN_S).orders == decided.orders
    # WHEN all have
    (line,) = wanted(mitigations, placed(saves=1, used=1), now_s=12.0).lines
    assert (line.what, line.request, line.overhead_s) == ("saved", "me", 10.0)
    assert not mitigations.is_in_force


def test_checkpoint_that_cannot_be_is_refused_with_the_reason() -> None:
    mitigations = Mitigations("advise")
    assert wanted(mitigations, placed(saves=0)) == Decided()
    (line,) = wanted(mitigations, now_s=2.0 + BEGIN_S).lines
    assert "this program cannot write its state" in line.problem
    mitigations = Mitigations("advise")
    wanted(mitigations, placed(saves=1))
    (line,) = wanted(mitigations, placed(saves=1, used=1, failed=1), now_s=2.0).lines
    assert "not all ranks could write their state" in line.problem
    wanted(mitigations, now_s=3.0)
    (line,) = wanted(mitigations, ended=(1,), now_s=4.0).lines
    assert "processes of ranks have ended meanwhile" in line.problem


def test_step_that_nobody_wants_any_more_is_not_made_when_a_checkpoint_is_wanted() -> None:
    looks = Looks(offered("ask"))
    looks.look()
    looks.mitigations.ask(MitigateAsked(id="a", what="apply", step=1), looks.now_s)
    looks.mitigations.ask(MitigateAsked(id="b", what="checkpoint"), looks.now_s)
    (decided,) = looks.look()
    assert (decided.lines[0].what, decided.lines[0].request) == ("refused", "b")
    # AND a checkpoint that was taken back before ranks were told is none
    mitigations = Mitigations("advise")
    wanted(mitigations)
    mitigations.ask(None, 2.0)
    mitigations.feed([placed(saves=1)])
    assert mitigations.advance(watched(None), 3.0, AT) == Decided()


def test_imbalance_that_other_shares_make_is_said_to_be_that() -> None:
    looks = Looks(offered("auto"))
    looks.look()
    imbalance = msgspec.structs.replace(NAMED, id="job-2", severity="notice", cause=Cause.IMBALANCE, culprits=())
    (noted,) = looks.mitigations.note([imbalance])
    assert noted.evidence[0].value == "5 instead of 4"


@pytest.mark.parametrize(
    "changes",
    [
        {"severity": "notice"},
        {"status": "recovered", "ended": AT},
        {"kind": "hang"},
        {"cause": Cause.COMMUNICATION_SLOW, "links": (Link(src=1, dst=2),), "culprits": ()},
        {"culprits": ()},
    ],
)
def test_nothing_is_decided_without_an_alert_that_names_who_computes_slowly(changes: dict[str, object]) -> None:
    looks = Looks(offered("auto", incident=msgspec.structs.replace(NAMED, **changes)))
    assert looks.look() == []
    assert looks.mitigations.now is None


def test_incident_that_is_over_names_nobody_any_more() -> None:
    mitigations = offered("auto")
    mitigations.note([msgspec.structs.replace(NAMED, status="recovered", ended=AT)])
    assert Looks(mitigations).look() == []


def test_job_of_which_a_rank_has_ended_is_left_alone() -> None:
    assert Looks(offered("auto"), ended=(3,)).look() == []

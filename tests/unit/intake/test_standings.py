"""Lines on how far ranks are: what is kept of millions of them decides as all of them do."""

from __future__ import annotations

from random import Random

import pytest

from whichrank.errors import FormatError
from whichrank.intake import standings as module
from whichrank.intake.attempts import told_apart
from whichrank.intake.logs import Log
from whichrank.intake.standings import Standing, Standings, TimedOut
from whichrank.intake.watchdog import dumps_of

PLACE = 3, "0", 3


def test_a_line_that_comes_again_is_kept_twice() -> None:
    # GIVEN a rank that says the same thing a thousand times, and then another one
    found = Standings()
    for at_s in range(1000):
        found.add(PLACE, "", 9, 8, None, float(at_s))
    found.add(PLACE, "", 10, 8, None, 1000.0)
    # THEN its first and its latest time are known, and nothing is lost
    assert [(one.enqueued, one.at_s) for one in found] == [(9, 0.0), (9, 999.0), (10, 1000.0)]
    assert (found.seen, found.left_out) == (1001, 0)


def test_lines_stay_in_the_order_of_their_latest_time() -> None:
    found = Standings()
    for rank in (0, 1, 0, 0):
        found.add((rank, "0", rank), "", 9, 8, None, -1.0)
    assert [one.rank for one in found] == [0, 1, 0]


def lines_of(rng: Random) -> list[Standing]:
    """Lines of three attempts of eight ranks with growing counters, each with its timeouts."""
    found, at_s = [], 0.0
    for _ in range(3):
        counts = [rng.randrange(5) for _ in range(8)]
        for _ in range(400):
            rank = rng.randrange(8)
            counts[rank] += 1
            at_s += 0.1
            op = TimedOut(counts[rank], "allreduce", 4, 4, at_s, 300.0) if rng.random() < 0.3 else None
            found.append(Standing(rank, "0", "", rank, counts[rank], counts[rank] - 1, op, at_s))
        at_s += 1000.0
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("has_times", [True, False])
def test_what_is_left_out_changes_nothing(seed: int, has_times: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN many more lines than are kept
    monkeypatch.setattr(module, "MOST_LINES", 64)
    all_lines = lines_of(Random(seed))
    found = Standings()
    for one in all_lines:
        at_s = one.at_s if has_times else -1.0
        place = one.rank, one.group, one.group_rank
        found.add(place, one.desc, one.enqueued, one.completed, one.timed_out if has_times else None, at_s)
    if not has_times:
        all_lines = [Standing(o.rank, "0", "", o.rank, o.enqueued, o.completed) for o in all_lines]
    assert found.left_out > len(all_lines) // 2
    # THEN the last attempt is the same one, with the same ranks at the same places
    told = [told_apart([("log", Log(standings=of))]).contents for of in (all_lines, list(found))]
    assert len(told[0]) == len(told[1])
    whole, kept = (contents[-1][0] for contents in told)
    assert isinstance(whole, Log)
    assert isinstance(kept, Log)
    of_all, of_kept = dumps_of(whole.standings), dumps_of(kept.standings)
    assert of_all.keys() == of_kept.keys()
    for rank, dump in of_all.items():
        assert dump.groups == of_kept[rank].groups
        assert dump.entries["seq"].max() == of_kept[rank].entries["seq"].max()
        assert dump.entries["state"].tolist() == of_kept[rank].entries["state"].tolist()


def test_more_ranks_and_groups_than_a_job_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 10)
    monkeypatch.setattr(module, "MOST_KEPT", 20)
    found = Standings()
    for rank in range(22):  # it is looked at again when they have doubled
        found.add((rank, "0", rank), "", 1, 0, None, -1.0)
    with pytest.raises(FormatError, match="too much of ranks"):
        found.add((22, "0", 22), "", 1, 0, None, -1.0)

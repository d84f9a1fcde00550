"""Operations wait for the rest of their batch, but neither for ever nor without end, and none is lost."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from batches import CONFIG, Node, comm_info, records

from whichrank.analyzer import Analyzer, portions
from whichrank.analyzer.portions import LONGEST_S, Portions
from whichrank.model.telemetry import Batch

MEMBERS = [0, 1]


def node(agent: str = "a:1") -> Node:
    return Node(agent, MEMBERS, 2).comm(comm_info(7, MEMBERS))


def portion(of: Node, first: int, count: int = 5) -> Batch:
    rows = np.concatenate([records(rank, 7, first, count) for rank in MEMBERS])
    return msgspec.structs.replace(of.batch(0.0, rows), ranks=b"", comms=b"", comm_info=[])


def test_a_portion_is_taken_with_what_follows_it_from_its_agent() -> None:
    waiting, one, other = Portions(), node(), node("b:1")
    first, second, of_other = portion(one, 1), portion(one, 6), portion(other, 1)
    assert waiting.with_rest([first, of_other], 10.0) == []
    assert waiting.with_rest([second], 11.0) == []
    word = msgspec.structs.replace(one.batch(0.0), ranks=b"", comms=b"", comm_info=[], is_well=True)
    assert waiting.with_rest([word], 12.0) == [word]
    rest = one.batch(0.0)
    assert waiting.with_rest([rest], 12.5) == [first, second, rest]
    assert waiting.with_rest([rest], 12.5) == [rest]
    assert waiting.all() == [of_other]
    assert waiting.all() == []


def test_what_has_waited_for_too_long_or_is_too_much_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, one, other = Portions(), node(), node("b:1")
    first, of_other = portion(one, 1), portion(other, 1)
    waiting.with_rest([first], 10.0)
    waiting.with_rest([of_other], 10.0 + LONGEST_S)
    assert waiting.due(10.0 + LONGEST_S) == []
    assert waiting.due(10.1 + LONGEST_S) == [first, of_other]
    monkeypatch.setattr(portions, "MOST_WAITING", len(first.records))
    assert waiting.with_rest([first], 20.0) == []
    assert waiting.with_rest([of_other], 20.0) == [first, of_other]
    assert waiting.with_rest([first], 20.0) == []


@pytest.mark.parametrize("end", ["tick", "finish"])
def test_nothing_is_lost_of_an_agent_that_says_no_more(end: str) -> None:
    # GIVEN an agent that goes silent after a portion
    watch, one = Analyzer(CONFIG, "job", 0.0), node()
    watch.feed(one.batch(0.0), 10.0)
    watch.feed(portion(one, 1), 10.1)
    watch.tick(10.2)
    assert not watch.store.kinds.of(0)
    # THEN it is taken after a while, or in the end
    if end == "tick":
        watch.tick(10.2 + LONGEST_S)
    else:
        watch.finish(10.3)
    assert sum(watch.store.kinds.of(0).values()) == 10

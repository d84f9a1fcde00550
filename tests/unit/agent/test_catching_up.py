"""An analyzer that has come back hears what it missed before it hears what is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rank_process import RankProcess

from whichrank.agent import agent as agent_module
from whichrank.agent.agent import Agent
from whichrank.agent.outbox import PUT_BY_AT_ONCE
from whichrank.model.commands import Reply
from whichrank.model.telemetry import RECORD_REPORTED, Batch
from whichrank.ring.folder import JobFolder
from whichrank.wire.inprocess import InProcessAnalyzerEnd

CHUNKS = 9


class Behind:
    """An agent of one rank, with records that were put by while nobody heard."""

    def __init__(self, base: Path) -> None:
        folder = JobFolder.create("job", owner_pid=os.getpid(), base=base)
        self.rank = RankProcess(folder.path, 0, 1)
        self.end = InProcessAnalyzerEnd()
        self.agent = Agent(folder, self.end.connect(), stay=True)
        for at in range(CHUNKS):
            rows = np.zeros(PUT_BY_AT_ONCE, RECORD_REPORTED)
            rows["row"]["counter"] = np.arange(at * PUT_BY_AT_ONCE, (at + 1) * PUT_BY_AT_ONCE)
            self.agent._outbox.add_records(rows)
            self.agent._outbox.put_by()

    def answered(self, credit: int) -> list[Batch]:
        """What has come now; all of it is answered, and the answers are heard."""
        found = [arrival.batch for arrival in self.end.receive()]
        for batch in found:
            self.end.reply(batch.agent, Reply(credit, batch.sequence))
        self.agent._hear()
        return found

    def close(self) -> None:
        self.agent.close()
        self.rank.__exit__(None, None, None)


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    found = Behind(tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("credit", [1, 4])
def test_states_follow_the_records_that_lead_to_them(behind: Behind, credit: int) -> None:
    # GIVEN an agent that is behind, and an analyzer that answers
    reported: list[Batch] = []
    polls = 0
    while not behind.agent.poll_and_report():
        polls += 1
        reported += behind.answered(credit)
        behind.agent._catch_up()
        reported += behind.answered(credit)
    reported += behind.answered(credit)
    # THEN all records come once and in order, in less looks than batches if there is credit, and states come last
    counters = [int(counter) for batch in reported for counter in batch.record_rows()["row"]["counter"]]
    assert counters == list(range(CHUNKS * PUT_BY_AT_ONCE))
    assert [bool(batch.ranks) for batch in reported] == [False] * CHUNKS + [True]
    assert polls == (CHUNKS if credit == 1 else -(-CHUNKS // 4))


def test_one_that_never_catches_up_says_states_all_the_same(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "CATCH_UP_S", 0.0)
    assert not behind.agent.poll_and_report()
    assert behind.agent.poll_and_report()
    assert [bool(batch.ranks) for batch in behind.answered(1)] == [False, True]

"""What the frames say when all have entered and nothing moves: evidence, never a name."""

from __future__ import annotations

import numpy as np

from whichrank.hang.case import Case
from whichrank.hang.stuck import messages
from whichrank.model.telemetry import RANK_ROW, RATE_ROW, Batch
from whichrank.store.store import Store


def fed(sent: list[int], sequence: int = 1, store: Store | None = None) -> Store:
    """A job whose ranks have sent so many messages of their operation; -1: not sampled."""
    ranks, rates = np.zeros(len(sent), RANK_ROW), np.zeros(len(sent), RATE_ROW)
    ranks["rank"] = rates["rank"] = range(len(sent))
    rates["samples"], rates["end_ns"], rates["op_sent"] = 40, 100_000_000, np.maximum(sent, 0)
    batch = Batch(1, "job", "host:1", "host", sequence, 1, 1, -1, len(sent), ranks.tobytes())
    store = store or Store()
    store.feed(type(batch)(**{**{f: getattr(batch, f) for f in batch.__struct_fields__},
                              "rates": rates[np.array(sent) >= 0].tobytes()}), 1.0)  # fmt: skip
    return store


def said(store: Store, ranks: list[int]) -> list[tuple[str, object, str | None]]:
    facts = messages(Case(store), np.array(ranks))
    return [(fact.what, fact.value, fact.where) for fact in facts]


def test_fewest_messages_are_reported_with_the_rank() -> None:
    assert said(fed([9, 9, 4, 9]), [0, 1, 2, 3]) == [
        ("messages in the last 100 ms", 0, "4 ranks"),
        ("fewest messages sent in the operation", 4, "rank 2; the others 9 in the median"),
    ]


def test_equal_counts_name_nobody() -> None:
    assert said(fed([9, 9]), [0, 1]) == [("messages in the last 100 ms", 0, "2 ranks")]


def test_without_the_sampler_nothing_is_said_and_old_windows_are_forgotten() -> None:
    store = fed([9, 4])
    fed([-1, -1], 2, store)
    assert said(store, [0, 1]) == []

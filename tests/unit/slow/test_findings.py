"""Slow links in words: a cell is a link, a row a source, a column a destination."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_traffic import RING, transfers

from whichrank.detect.slow import Suspect
from whichrank.locate.slow_links import LinkPast, slow_links
from whichrank.model.clause import Says, clause
from whichrank.model.finding import Finding
from whichrank.model.incident import Cause, Reason
from whichrank.model.iterations import Window
from whichrank.slow.cost import Cost
from whichrank.slow.findings import of_links, of_rank
from whichrank.slow.reasons import Why
from whichrank.store.store import Store
from whichrank.verdict.words.clauses import words

NODE = np.array([0, 0, 1, 1, 2, 2])


def job() -> tuple[Store, Window]:
    """Six ranks, and some iterations of theirs."""
    n, ranks = 3, np.arange(6)
    window = Window(
        ranks=ranks, iteration=np.arange(5, 5 + n), end_ns=np.zeros((6, n), np.int64), total_s=np.ones((6, n)),
        own_s=np.ones((6, n)), position=np.zeros(6, np.int64),
        in_pipeline=np.zeros(6, np.bool_), roots=np.zeros(6, np.uint64), lasted_s=3.0, ring=np.full(6, -1),
    )  # fmt: skip
    store = Store()
    store.ranks.grow(6)
    return store, window


def reported(slow: dict[tuple[int, int], float]) -> Finding:
    """What is said of a ring with more links, some of which are slow."""
    links = transfers(RING | {(2, 0): 50.0, (4, 2): 50.0} | slow, unsent_bytes=dict.fromkeys(slow, 9000.0))
    store, window = job()
    return of_links(store, window, links, slow_links(links, NODE, LinkPast()), NODE).finding


@pytest.mark.parametrize(
    ("total_s", "iteration"), [([1, 1, 1, 1, 1, 2, 1, 2, 2, 2], 10), ([1, 1.1, 0.9, 1, 1.05], None)]
)
def test_it_began_where_iterations_became_longer(total_s: list[float], iteration: int | None) -> None:
    # GIVEN iterations that take twice as long from the sixth on but for one, or as long all the time
    store, window = job()
    longer = replace(
        window, iteration=np.arange(5, 5 + len(total_s)), end_ns=np.zeros((6, len(total_s)), np.int64),
        total_s=np.tile(total_s, (6, 1)), own_s=np.tile(total_s, (6, 1)),
    )  # fmt: skip
    links = transfers(RING | {(2, 4): 5.0}, unsent_bytes={(2, 4): 9000.0})
    # THEN that is when the slow link is said to have begun; where it was so all the time, nobody knows when
    assert of_links(store, longer, links, slow_links(links, NODE, LinkPast()), NODE).finding.iteration == iteration


def test_a_cell_is_a_link_and_names_no_rank() -> None:
    finding = reported({(2, 4): 5.0})
    assert [(link.src, link.dst, link.end) for link in finding.links] == [(2, 4, "path")]
    assert finding.culprits == ()


@pytest.mark.parametrize(
    ("slow", "rank", "said"),
    [
        ({(2, 4): 5.0, (2, 0): 5.0}, 2, "it sends to other nodes at 40 Mbit/s instead of the usual 400 Mbit/s"),
        ({(0, 2): 5.0, (4, 2): 5.0}, 2, "it receives from other nodes at 40 Mbit/s instead of the usual 400"),
    ],
)
def test_a_row_is_a_source_and_a_column_a_destination(slow: dict[tuple[int, int], float], rank: int, said: str) -> None:
    finding = reported(slow)
    assert [blame.rank for blame in finding.culprits] == [rank]
    assert said in words(finding.culprits[0].why, over=False)


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        ({(2, 4): 5.0, (3, 5): 5.0}, {"one node sends on all of them": "ranks 2 and 3",
                                      "one node receives on all of them": "ranks 4 and 5"}),
        ({(0, 2): 5.0, (5, 3): 5.0}, {"one node receives on all of them": "ranks 2 and 3"}),
        ({(0, 2): 5.0, (4, 0): 5.0}, {}),
        ({(2, 4): 5.0}, {}),
    ],
)  # fmt: skip
def test_what_the_links_share_is_said(slow: dict[tuple[int, int], float], said: dict[str, str]) -> None:
    # GIVEN slow links of several ranks THEN the node that all of them have is reported, since that is where to look
    assert {e.what: e.value for e in reported(slow).evidence if e.what.startswith("one node")} == said


def test_the_numbers_are_in_the_evidence() -> None:
    evidence = {e.what: e.value for e in reported({(2, 4): 5.0}).evidence}
    assert evidence["rate while data are under way"] == 5_000_000
    assert evidence["usual rate"] == 50_000_000
    assert evidence["most data waiting to be sent"] == 9000


@pytest.mark.parametrize(
    ("reason", "cause", "fault_class"),
    [
        (None, Cause.MIXED_SLOW, "S3"),
        (Reason.DATA_WAIT, Cause.MIXED_SLOW, "S3"),
        (Reason.CPU_LIMIT, Cause.COMPUTE_SLOW, "S1"),
    ],
)
def test_longer_transfers_of_a_rank_without_cpu_are_no_slow_communication(
    reason: Reason | None, cause: Cause, fault_class: str
) -> None:
    # GIVEN a rank that is slow, in a job whose transfers have grown as well
    store, window = job()
    suspect = Suspect(2, 0.5, 0.5, "peers", 1.0, 0)
    why = Why(reason, (clause(Says.WAITS_FOR_DATA),) if reason else (), ())
    cost = Cost(now_s=1.0, best_s=0.5, alone_s=1.0, has_others=False)
    finding = of_rank(
        store, window, suspect, why, cost, np.ones((6, 3)), (0.5, "S3"), None, slow=[2], meant=False
    ).finding
    # THEN both are slow, unless it gets too little CPU for either
    assert (finding.cause, finding.fault_class) == (cause, fault_class)


@pytest.mark.parametrize("peers", [1, 2, 5, 20])
@pytest.mark.parametrize("comes_and_goes", [False, True])
def test_a_verdict_has_one_number_for_each_quantity(peers: int, comes_and_goes: bool) -> None:
    # GIVEN a rank that takes longer from the fourth of eight iterations on, and peers that are not quite alike
    ranks, n = np.arange(peers + 1), 8
    noise = np.random.default_rng(peers).uniform(0.0, 0.03, (peers + 1, n))
    own_s = 0.3 + noise
    own_s[0, 3:] += 0.7 + 10 * noise[0, 3:]
    window = Window(
        ranks=ranks, iteration=np.arange(15, 15 + n), end_ns=np.zeros((peers + 1, n), np.int64),
        total_s=np.full((peers + 1, n), 1.2), own_s=own_s, position=np.zeros(peers + 1, np.int64),
        in_pipeline=np.zeros(peers + 1, np.bool_), roots=np.zeros(peers + 1, np.uint64), lasted_s=9.6,
        ring=np.full(peers + 1, -1),
    )  # fmt: skip
    store = Store()
    store.ranks.grow(peers + 1)
    suspect = Suspect(0, 0.7, 0.3, "peers", 1.0, 3, comes_and_goes)
    spent = np.tile([0.8, 0.1, 0.3], (peers + 1, 1))  # another window's own time
    cost = Cost(now_s=1.2, best_s=0.5, alone_s=1.2, has_others=False)
    finding = of_rank(
        store, window, suspect, Why(), cost, spent, None, None, slow=[int(window.ranks[suspect.index])], meant=False
    ).finding
    # THEN own times are the same in evidence and times, for the rank and for its peers, and add up to the iteration
    evidence = {fact.what: fact.value for fact in finding.evidence}
    usual_s = evidence.get("own time of its peers") or evidence["own time of its peer"]
    mine, *others = finding.times
    assert mine.own_s == evidence["own time per iteration"]
    assert np.median([one.own_s for one in others]) == pytest.approx(usual_s, abs=1e-4)
    assert mine.own_s + mine.transfer_s + mine.waiting_s == pytest.approx(1.2, abs=2e-4)
    usual = np.mean if comes_and_goes else np.median
    assert np.median(usual(own_s[1:, 3:], axis=1)) == pytest.approx(usual_s, abs=1e-4)
    # AND the sentence has them too, and the iteration in which it began
    if not comes_and_goes:
        ratio = float(f"{mine.own_s * 1e3:.3g}") / float(f"{usual_s * 1e3:.3g}")
        assert f"{ratio:.2f} times th" in words(finding.culprits[0].why, over=False)
    assert finding.iteration == 18


def test_a_rank_that_was_slow_in_all_that_is_known_began_nobody_knows_when() -> None:
    store, window = job()
    window.own_s[2] += 1.0
    suspect = Suspect(2, 1.0, 1.0, "peers", 1.0, 0)
    cost = Cost(now_s=2.0, best_s=1.0, alone_s=2.0, has_others=False)
    finding = of_rank(
        store,
        window,
        suspect,
        Why(),
        cost,
        np.ones((6, 3)),
        None,
        None,
        slow=[int(window.ranks[suspect.index])],
        meant=False,
    ).finding
    assert finding.iteration is None


def test_of_two_slow_ranks_none_is_slowed_down_by_the_other() -> None:
    # GIVEN a rank that is slow, and another one that is slow too
    store, window = job()
    suspect = Suspect(2, 1.0, 1.0, "peers", 1.0, 0)
    cost = Cost(now_s=0.416, best_s=0.306, alone_s=0.413, has_others=True)
    finding = of_rank(
        store, window, suspect, Why(), cost, np.ones((6, 3)), None, None, slow=[2, 3], meant=False
    ).finding
    # THEN the other one is no victim, and what it would be like with one of them or none is said as that
    assert finding.victims == (0, 1, 4, 5)
    said = "it and rank 3 make an iteration take 416 ms instead of 306 ms"
    assert said in words(finding.culprits[0].why, over=False)

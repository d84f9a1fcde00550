"""Where a link is slow is reported by a kernel, or asked for more closely, though not for ever."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from test_traffic import MB, NODE, RING, transfers

from whichrank.model.iterations import Window
from whichrank.model.links import SlowLink
from whichrank.model.telemetry import VERSION, Batch
from whichrank.slow.link_cost import LinkCost
from whichrank.slow.link_watch import LinkWatch
from whichrank.store.store import Store

WINDOW_S = 10.0
SLOW = RING | {(2, 4): 5.0}
NOBODY = np.zeros(0, np.int64)


def job() -> tuple[Store, Window]:
    """Six ranks on three nodes, and some iterations of theirs."""
    n = 3
    window = Window(
        ranks=np.arange(6), iteration=np.arange(n), end_ns=np.zeros((6, n), np.int64), total_s=np.ones((6, n)),
        own_s=np.ones((6, n)), position=np.zeros(6, np.int64),
        in_pipeline=np.zeros(6, np.bool_), roots=np.zeros(6, np.uint64), lasted_s=3.0, ring=np.full(6, -1),
    )  # fmt: skip
    store = Store()
    store.ranks.grow(6)
    store.ranks.agent[:6] = NODE
    for node in range(3):
        reported = Batch(
            version=VERSION, job="j", agent=f"a{node}", host=f"h{node}", sequence=1, sent_ns=0, sent_realtime_ns=0,
            delay_bound_ns=0, node_ranks=2,
        )  # fmt: skip
        store.paths.take(reported, node, 0.0)
    return store, window


class Waits(LinkCost):
    """Ranks wait for what goes over these links, all if there are none; what that costs is not known."""

    def __init__(self, *links: tuple[int, int]) -> None:
        super().__init__(job()[1], lambda: None)
        self._links = links

    def is_waited_for(self, src: int, dst: int) -> bool:
        return not self._links or (src, dst) in self._links


def test_a_slow_link_of_which_no_kernel_knows_is_polled_more_closely_and_not_reported() -> None:
    # GIVEN a link that is slow by its rate alone WHEN it is looked at for three windows
    watch, (store, window) = LinkWatch(WINDOW_S), job()
    doubts = []
    for now_s in range(int(3 * WINDOW_S)):
        assert watch.examine(store, window, transfers(SLOW), NOBODY, float(now_s), Waits()) == []
        doubts.append(watch.in_doubt)

    # THEN closer snapshots are asked for in the first half of each
    assert doubts == [now_s % WINDOW_S < WINDOW_S / 2 for now_s in range(int(3 * WINDOW_S))]


def test_a_doubt_does_not_outlast_its_time_where_nothing_new_is_known() -> None:
    # GIVEN a link in doubt
    watch, (store, window) = LinkWatch(WINDOW_S), job()
    watch.examine(store, window, transfers(SLOW), NOBODY, 0.0, Waits())
    # WHEN no iteration ends any more THEN it is over after half a window
    for now_s, in_doubt in ((1.0, True), (4.9, True), (5.0, False), (WINDOW_S + 1, False)):
        watch.let_time_pass(now_s)
        assert watch.in_doubt == in_doubt
    # and at once where the job begins anew
    watch.examine(store, window, transfers(SLOW), NOBODY, 30.0, Waits())
    assert watch.in_doubt
    watch.begin_anew()
    assert not watch.in_doubt
    watch.let_time_pass(30.5)
    assert not watch.in_doubt


def test_what_a_kernel_says_ends_the_doubt() -> None:
    watch, (store, window) = LinkWatch(WINDOW_S), job()
    watch.examine(store, window, transfers(SLOW), NOBODY, 0.0, Waits())
    (reported,) = watch.examine(store, window, transfers(SLOW, delivery={(2, 4): 6.0 * MB}), NOBODY, 1.0, Waits())
    assert [(link.src, link.dst) for link in reported.finding.links] == [(2, 4)]
    assert not watch.in_doubt


def test_a_link_that_begins_to_lose_data_is_polled_more_closely() -> None:
    store, window = job()
    path, within = (2, 4), (2, 3)
    for lately, before, where, is_polled in (
        (0.01, 0.0, path, True), (0.001, 0.0, path, False), (0.01, 0.0, within, False), (0.06, 0.05, path, False)
    ):  # fmt: skip
        watch = LinkWatch(WINDOW_S)
        seen = transfers(RING | {(2, 3): 50.0}, resent_lately={where: lately}, resent={where: before})
        assert watch.examine(store, window, seen, NOBODY, 0.0, Waits()) == []
        assert watch.in_doubt == is_polled


def test_what_a_link_loses_for_good_is_doubted_once_and_more_than_that_again() -> None:
    # GIVEN a link that loses data now and then WHEN it is looked at for three windows
    watch, (store, window) = LinkWatch(WINDOW_S), job()

    def is_doubted(lately: float, now_s: float) -> bool:
        seen = transfers(RING, resent_lately={(2, 4): lately}, resent={(2, 4): 0.0})
        assert watch.examine(store, window, seen, NOBODY, now_s, Waits()) == []
        return watch.in_doubt

    doubts = [is_doubted(0.05, float(now_s)) for now_s in range(int(3 * WINDOW_S))]

    # THEN nothing has come of the first doubt, so there is no other, until it loses far more
    assert doubts == [now_s < WINDOW_S / 2 for now_s in range(int(3 * WINDOW_S))]
    assert not is_doubted(0.09, 40.0)
    assert is_doubted(0.2, 41.0)


def test_a_loss_of_which_something_came_is_not_what_is_usual() -> None:
    # GIVEN a doubt that ends with a kernel's word
    watch, (store, window) = LinkWatch(WINDOW_S), job()
    loses = {"resent_lately": {(2, 4): 0.05}, "resent": {(2, 4): 0.0}}
    watch.examine(store, window, transfers(RING, **loses), NOBODY, 0.0, Waits())
    assert watch.examine(store, window, transfers(SLOW, delivery={(2, 4): 6.0 * MB}, **loses), NOBODY, 1.0, Waits())
    assert not watch.in_doubt
    # WHEN the link begins to lose data again THEN it is doubted again
    watch.examine(store, window, transfers(RING), NOBODY, 5.0, Waits())
    watch.examine(store, window, transfers(RING, **loses), NOBODY, WINDOW_S + 1, Waits())
    assert watch.in_doubt


def test_nothing_slow_is_no_doubt() -> None:
    watch, (store, window) = LinkWatch(WINDOW_S), job()
    assert watch.examine(store, window, transfers(RING), NOBODY, 0.0, Waits()) == []
    assert not watch.in_doubt


def test_a_slow_link_for_which_nobody_waits_is_not_reported() -> None:
    watch, (store, window) = LinkWatch(WINDOW_S), job()
    slow = transfers(SLOW, delivery={(2, 4): 6.0 * MB})
    assert watch.examine(store, window, slow, NOBODY, 0.0, Waits((0, 2))) == []
    assert not watch.in_doubt
    assert watch.examine(store, window, slow, NOBODY, 1.0, Waits((2, 4)))


def test_a_reader_without_cpu_has_no_slow_link_and_no_cell() -> None:
    watch, (store, window) = LinkWatch(WINDOW_S), job()
    slow = transfers(SLOW, delivery={(2, 4): 6.0 * MB})
    assert watch.examine(store, window, slow, np.array([4]), 0.0, Waits()) == []
    assert (2, 4) not in {(cell.src, cell.dst) for cell in watch.matrix}
    assert watch.matrix


def test_what_slow_links_cost_is_in_the_evidence() -> None:
    # GIVEN a slow link whose cost is known
    class Costs(Waits):
        def seconds(self, links: Sequence[SlowLink]) -> tuple[float, float]:
            return 1.5, 1.5 - 0.25 * len(links)

    watch, (store, window) = LinkWatch(WINDOW_S), job()
    slow = transfers(SLOW, delivery={(2, 4): 6.0 * MB})
    (reported,) = watch.examine(store, window, slow, NOBODY, 0.0, Costs())
    facts = {fact.what: fact.value for fact in reported.finding.evidence}
    assert facts["iteration time"] == 1.5
    assert facts["iteration time if this link were as quick as usual"] == 1.25


def test_of_a_rank_that_the_window_has_not_nothing_is_known() -> None:
    cost = LinkCost(job()[1], lambda: None)
    link = SlowLink(0, 9, 1.0, 4.0, "path", 1.0, 0)
    assert cost.is_waited_for(0, 9)
    assert cost.seconds([link]) is None
    assert cost.repaired is None


@pytest.mark.parametrize(("before_s", "usual_s"), [(np.inf, 0.6), (0.7, 0.7), (0.5, 0.6), (1.2, 0.6)])
def test_without_slow_links_iterations_are_no_shorter_than_they_were(
    monkeypatch: pytest.MonkeyPatch, before_s: float, usual_s: float
) -> None:
    # GIVEN iterations of 1 s that would take 0.6 s by the usual rate of a link
    class Iterations:
        recorded_s = 1.0

        def __init__(self, replayed_s: float) -> None:
            self.replay = lambda: replayed_s

    both = Iterations(0.9), Iterations(0.5)
    monkeypatch.setattr("whichrank.slow.link_cost.with_links_that_fit", lambda _course, _links: both)
    cost = LinkCost(job()[1], lambda: both[0], before_s)  # type: ignore[arg-type, return-value]
    # THEN what they took before is said where that was longer than that, and shorter than now
    assert cost.seconds([SlowLink(2, 4, 1.0, 4.0, "path", 1.0, 0)]) == pytest.approx((1.0, usual_s))

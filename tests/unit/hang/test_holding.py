"""For how long a rank has held others up."""

from __future__ import annotations

import numpy as np

from whichrank.hang.holding import Holding

IDLE = np.zeros(4, np.bool_)
SINCE_S = np.array([1.0])


def test_whoever_is_waited_for_at_first_has_the_whole_wait() -> None:
    h = Holding()
    h.note([2], IDLE, IDLE, 7, SINCE_S, 5.0)
    h.note([2], IDLE, IDLE, 7, SINCE_S, 6.0)
    assert h.own_s([2]) == 5.0
    assert h.own_s([1]) == 0.0
    assert h.own_s([99]) == 0.0


def test_the_next_link_begins_anew_and_goes_on_where_it_was() -> None:
    h = Holding()
    h.note([0], IDLE, IDLE, 7, SINCE_S, 5.0)
    h.note([1], IDLE, IDLE, 8, SINCE_S, 6.0)
    h.note([1], IDLE, IDLE, 8, SINCE_S, 8.0)
    assert h.own_s([1]) == 2.0
    # WHEN it waits itself in between THEN that does not count
    h.note([0], IDLE, IDLE, 9, SINCE_S, 9.0)
    h.note([1], IDLE, IDLE, 8, SINCE_S, 20.0)
    h.note([1], IDLE, IDLE, 8, SINCE_S, 21.0)
    assert h.own_s([1]) == 3.0
    # BUT in another operation it starts again
    h.note([0], IDLE, IDLE, 9, SINCE_S, 22.0)
    h.note([1], IDLE, IDLE, 10, SINCE_S, 23.0)
    assert h.own_s([1]) == 0.0


def test_busy_time_is_that_while_others_wait() -> None:
    h, busy = Holding(), np.array([False, True, True, False])
    h.note([1, 2], busy, IDLE, 7, SINCE_S, 2.0)
    h.note([1, 2], busy, IDLE, 7, SINCE_S, 5.0)
    h.note([1, 2], IDLE, IDLE, 7, SINCE_S, 6.0)
    assert h.busy_s([1, 2]) == 3.0
    assert h.busy_s([1, 3]) == 0.0
    h.nobody()
    assert h.busy_s([1]) == h.own_s([1]) == 0.0


def test_time_in_a_phase_is_that_while_others_wait_and_is_no_busy_time() -> None:
    # GIVEN ranks that are in a phase when they are waited for first, for two seconds more, and then work
    h, all_of_them = Holding(), np.ones(4, np.bool_)
    h.note([1], all_of_them, all_of_them, 7, SINCE_S, 3.0)
    h.note([1], all_of_them, all_of_them, 7, SINCE_S, 5.0)
    h.note([1], all_of_them, IDLE, 7, SINCE_S, 6.0)
    # THEN the phase counts from the beginning, and the work since its end
    assert (h.phase_s([1]), h.busy_s([1]), h.own_s([1])) == (4.0, 1.0, 5.0)
    assert h.phase_s([2]) == h.phase_s([]) == 0.0
    h.nobody()
    assert h.phase_s([1]) == 0.0


def test_the_job_may_grow() -> None:
    h = Holding()
    h.note([1], IDLE, IDLE, 7, SINCE_S, 2.0)
    h.note([1, 5], np.zeros(6, np.bool_), np.zeros(6, np.bool_), 7, SINCE_S, 3.0)
    assert (h.own_s([1]), h.own_s([5])) == (2.0, 0.0)


def test_who_was_in_an_operation_itself_until_lately_has_not_the_whole_wait() -> None:
    h = Holding()
    h.note([1, 2], IDLE, IDLE, 7, np.array([1.0, 4.0]), 5.0)
    assert (h.own_s([1]), h.own_s([2])) == (4.0, 1.0)

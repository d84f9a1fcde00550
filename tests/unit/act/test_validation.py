"""A pause and what is measured in it, on ranks that do as their gates are told, or do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from ranks_at_gates import TICK_S, Rank, rows_of

from whichrank.act.judgement import Judgement, judge
from whichrank.act.pause import Pause, Phase
from whichrank.act.validation import Measured, Validation, at_one_time, links_of
from whichrank.model.job_now import Beginnings, Group, Stepped

SIZES = (1 << 20, 1 << 22)
NODES = dict.fromkeys(range(64), "a")


def run(ranks: list[Rank], validation: Validation, seconds: float = 30.0, hurt=lambda now_s: None) -> list[Phase]:
    """Let all go on until it is over; the phases that were gone through."""
    phases: list[Phase] = []
    now_s, order = 0.0, None
    while now_s < seconds and not validation.is_over:
        hurt(now_s)
        for rank in ranks:
            rank.go_on(order, now_s)
        validation.feed(rows_of([rank for rank in ranks if not rank.is_dead]), now_s)
        order = validation.orders({"a": [rank.rank for rank in ranks]})["a"]
        now_s += TICK_S
        if not phases or phases[-1] is not validation.pause.phase:
            phases.append(validation.pause.phase)
    return phases


def validation_of(ranks: list[Rank], *, beginnings: Beginnings | None = None, longest_s: float = 10.0) -> Validation:
    pause = Pause(
        7,
        [rank.rank for rank in ranks],
        0.0,
        iteration_s=ranks[0].iteration_s,
        longest_s=longest_s,
        beginnings=beginnings,
    )
    group = Group(99, "world", tuple(rank.rank for rank in ranks))
    return Validation(pause, [rank.rank for rank in ranks], links_of([group], {}), SIZES)


def judged(ranks: list[Rank]) -> Judgement:
    validation = validation_of(ranks)
    run(ranks, validation)
    assert validation.pause.problem == ""
    return judge(validation.measured, NODES)


def test_all_ranks_are_measured_at_the_same_step_and_go_on() -> None:
    ranks = [Rank(rank, steps=10 + rank % 2) for rank in range(8)]
    validation = validation_of(ranks)
    phases = run(ranks, validation)
    assert phases[-4:] == [Phase.CLOSING, Phase.CLOSED, Phase.OPENING, Phase.OVER]
    assert len({int(rank.row["gate"]["arrived_ordinal"]) for rank in ranks}) == 1
    assert validation.pause.problem == ""
    assert 0 < validation.pause.paused_s < 2
    assert np.isfinite(validation.measured.compute_s).all()
    assert sorted((src, dst) for src, dst, size, _ in validation.measured.links if size == SIZES[0]) == sorted(
        (rank, (rank + 1) % 8) for rank in range(8)
    )
    assert judge(validation.measured, NODES).is_healthy


@pytest.mark.parametrize(("test_s", "turns", "of_memory"), [(0.1, 3, 3), (0.5, 2, 2), (1.5, 1, 0)])
def test_what_takes_long_is_not_measured_again(test_s: float, turns: int, of_memory: int) -> None:
    # GIVEN a rank that is slow, and takes long to measure it
    ranks = [
        Rank(rank, compute_s=0.008 if rank == 5 else 0.002, test_s=test_s if rank == 5 else 0.0) for rank in range(8)
    ]
    validation = validation_of(ranks)
    run(ranks, validation)
    # THEN it is found all the same, with fewer repeats
    assert (validation.measured.compute_s.shape[2], validation.measured.memory_s.shape[1]) == (turns, of_memory)
    found = judge(validation.measured, NODES)
    assert [(one.rank, one.what) for one in found.ranks] == [(5, "compute")]
    assert found.links == ()


def test_ranks_without_steps_wait_at_the_same_iteration() -> None:
    # GIVEN ranks that issue other numbers of operations in an iteration
    ranks = [Rank(rank, makes_steps=False, each=3 + rank) for rank in range(4)]
    validation = validation_of(ranks, beginnings=known_of(ranks))
    phases = run(ranks, validation)
    assert Phase.CLOSED in phases
    assert validation.pause.problem == ""
    assert len({int(rank.row["gate"]["arrived_ordinal"]) // rank.each for rank in ranks}) == 1


def known_of(ranks: list[Rank]) -> Beginnings:
    count = len(ranks)
    return Beginnings(np.full(count, 5), np.array([5 * rank.each for rank in ranks]), np.array([r.each for r in ranks]))


def test_without_steps_nothing_is_measured_while_an_operation_is_in_flight() -> None:
    # GIVEN a rank that has begun an operation which no other has
    ranks = [Rank(rank, makes_steps=False, in_flight=int(rank == 2)) for rank in range(4)]
    validation = validation_of(ranks, beginnings=known_of(ranks))
    phases = run(ranks, validation)
    assert Phase.CLOSED not in phases
    assert validation.pause.problem == "rank 2 has an operation in flight that does not complete"
    # AND where optimizer steps say that all are as far, it is one that others have begun as well
    ranks = [Rank(rank, in_flight=int(rank == 2)) for rank in range(4)]
    validation = validation_of(ranks)
    assert Phase.CLOSED in run(ranks, validation)


def test_job_whose_iterations_are_not_known_is_not_paused() -> None:
    ranks = [Rank(rank, makes_steps=False) for rank in range(4)]
    validation = validation_of(ranks)
    phases = run(ranks, validation)
    assert Phase.CLOSING not in phases
    assert "not known" in validation.pause.problem


def test_rank_that_does_not_come_ends_the_pause() -> None:
    ranks = [Rank(rank, ignores=rank == 2) for rank in range(4)]
    validation = validation_of(ranks)
    run(ranks, validation)
    assert validation.is_over
    assert validation.pause.problem == "rank 2 did not come so far"


def test_rank_that_ends_or_is_silent_is_not_waited_for() -> None:
    for ends in (True, False):
        ranks = [Rank(rank) for rank in range(4)]
        validation = validation_of(ranks)

        def hurt(
            now_s: float, ranks: list[Rank] = ranks, validation: Validation = validation, ends: bool = ends
        ) -> None:
            if validation.pause.phase is Phase.CLOSED:
                ranks[1].is_dead = True
                if ends:
                    validation.pause.lose(1, "has ended", now_s)

        run(ranks, validation, hurt=hurt)
        assert validation.is_over
        assert validation.pause.problem == ("rank 1 has ended" if ends else "nothing was heard of rank 1")


def test_rank_that_goes_on_by_itself_ends_the_pause() -> None:
    ranks = [Rank(rank) for rank in range(4)]
    validation = validation_of(ranks)

    def hurt(now_s: float) -> None:
        if validation.pause.phase is Phase.CLOSED:
            ranks[3].row["gate"]["opened"] = 7

    run(ranks, validation, hurt=hurt)
    assert validation.pause.problem == "rank 3 went on by itself"


def test_what_was_measured_until_it_was_given_up_counts() -> None:
    # GIVEN a rank that ends while links are tested, and one that is slow
    ranks = [Rank(rank, compute_s=0.005 if rank == 5 else 0.002) for rank in range(8)]
    validation = validation_of(ranks)

    def hurt(now_s: float) -> None:
        if np.isfinite(validation.measured.memory_s).all() and not ranks[1].is_dead:
            ranks[1].is_dead = True
            for rank in ranks[2:]:
                rank.is_stuck = True
        elif ranks[1].is_dead:
            validation.pause.lose(1, "has ended", now_s)

    run(ranks, validation, hurt=hurt)
    assert validation.pause.problem == "rank 1 has ended"
    said = judge(validation.measured, NODES)
    assert [(one.rank, one.what) for one in said.ranks] == [(5, "compute")]
    assert (said.measured_ranks, said.measured_links, said.problems) == (8, 1, {})


def test_links_for_which_no_time_is_left_are_left_out() -> None:
    ranks = [Rank(rank) for rank in range(8)]
    validation = validation_of(ranks, longest_s=1.6)
    run(ranks, validation)
    assert validation.pause.problem == ""
    assert validation.measured.left_out_links == 8
    assert np.isfinite(validation.measured.compute_s).all()


def test_groups_that_share_no_rank_are_tested_at_one_time() -> None:
    # GIVEN four groups of rows and four of columns
    rows = [Group(at, "tp", tuple(range(4 * at, 4 * at + 4))) for at in range(4)]
    columns = [Group(10 + at, "dp", tuple(range(at, 16, 4))) for at in range(4)]
    together = at_one_time(links_of([*rows, *columns], {}))
    assert [{one.group.name for one in groups} for groups in together] == [{"tp"}, {"dp"}]
    assert [len(groups) for groups in together] == [4, 4]
    # WHEN they are tested
    ranks = [Rank(rank) for rank in range(16)]
    pause = Pause(7, range(16), 0.0, iteration_s=0.1, longest_s=10.0)
    validation = Validation(pause, range(16), links_of([*rows, *columns], {}), SIZES)
    run(ranks, validation)
    # THEN each rank has made one test of each kind of group, and all links are measured
    measured = {(src, dst) for src, dst, *_ in validation.measured.links}
    assert len(measured) == 2 * 16
    assert {rank.tests for rank in ranks} == {3 + 3 + 2}


def test_pair_is_tested_in_the_smallest_group_that_has_it() -> None:
    half, world = Group(1, "tp", (0, 1)), Group(2, "world", (0, 1, 2, 3))
    links = links_of([world, half], {})
    assert [(one.group.name, sorted(pair for each in one.passes for pair in each)) for one in links] == [
        ("tp", [(0, 1), (1, 0)]),
        ("world", [(1, 2), (2, 3), (3, 0)]),
    ]


def test_agent_is_told_only_what_its_own_ranks_do() -> None:
    ranks = [Rank(rank, makes_steps=False) for rank in range(4)]
    validation = validation_of(ranks, beginnings=known_of(ranks))
    agents = {"a": [0, 1], "b": [2, 3]}
    orders = validation.orders(agents)
    now_s = 0.0
    while not orders["b"].tests:
        for rank in ranks:
            rank.go_on(orders["a" if rank.rank < 2 else "b"], now_s)
        validation.feed(rows_of(ranks), now_s)
        orders, now_s = validation.orders(agents), now_s + TICK_S
    for agent, own in agents.items():
        assert [test.rank for test in orders[agent].tests] == own
        assert [rank for rank, _ in orders[agent].at_ordinals] == own


def test_slow_rank_and_slow_link_are_found() -> None:
    ranks = [
        Rank(rank, compute_s=0.005 if rank == 5 else 0.002, link_s=0.1 if rank == 3 else 0.01) for rank in range(8)
    ]
    said = judged(ranks)
    assert [(one.rank, one.what) for one in said.ranks] == [(5, "compute")]
    assert said.ranks[0].factor == pytest.approx(2.5)
    assert [(one.src, one.dst) for one in said.links] == [(2, 3)]
    assert said.links[0].bytes_per_s == pytest.approx(SIZES[-1] / 0.1)
    assert not said.is_healthy


def measured(compute_s: np.ndarray) -> Measured:
    count = len(compute_s)
    return Measured(np.arange(count), compute_s, np.full((count, 3), 0.02))


@pytest.mark.parametrize("seed", range(20))
def test_chance_names_nobody(seed: int) -> None:
    # GIVEN eight ranks that share two cores: repeats differ by a half
    rng = np.random.default_rng(seed)
    noise = rng.uniform(1.0, 1.6, (8, 3, 3))
    assert judge(measured(0.002 * noise), NODES).ranks == ()


@pytest.mark.parametrize("seed", range(20))
def test_rank_that_gets_a_third_is_found_in_the_same_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise = rng.uniform(1.0, 1.6, (8, 3, 3))
    noise[4] *= 3
    noise[:, 2] = np.nan  # no such numbers on this device
    assert [(one.rank, one.what) for one in judge(measured(0.002 * noise), NODES).ranks] == [(4, "compute")]


def test_too_few_to_compare_say_nothing() -> None:
    said = judge(measured(np.array([np.full((3, 3), 0.002), np.full((3, 3), 0.02)])), NODES)
    assert said.ranks == ()
    assert not said.is_healthy


def test_rank_that_could_not_measure_is_no_healthy_one() -> None:
    some = measured(np.full((4, 3, 3), 0.002))
    some.compute_s[1] = np.nan
    some.problems[1] = "RuntimeError: a CUDA graph is being recorded"
    said = judge(some, NODES)
    assert (said.measured_ranks, said.ranks, said.is_healthy) == (3, (), False)


def links(rates: dict[tuple[int, int], float]) -> Measured:
    some = measured(np.full((16, 3, 3), 0.002))
    some.links += [(src, dst, 1 << 22, [(1 << 22) / rate] * 3) for (src, dst), rate in rates.items()]
    return some


def test_links_between_nodes_are_not_held_against_those_within() -> None:
    # GIVEN a ring of two nodes with eight ranks each, all well
    rates = {(rank, (rank + 1) % 16): 1e8 if rank in (7, 15) else 1e10 for rank in range(16)}
    node_of = {rank: "a" if rank < 8 else "b" for rank in range(16)}
    assert judge(links(rates), node_of).links == ()
    # AND one within a node that is slow
    rates[3, 4] = 1e9
    assert [(one.src, one.dst) for one in judge(links(rates), node_of).links] == [(3, 4)]


def congested(slow: list[float], others: Sequence[float] = (22.6, 21.9, 19.3)) -> Measured:
    """Four links between nodes, two of which share a cable with flows of others; megabytes per second, by repeat."""
    some = measured(np.full((8, 3, 3), 0.002))
    rates = {(0, 7): [20.2, 20.4, 16.6], (2, 1): others, (4, 3): [4.3, 3.9, 3.9], (6, 5): slow}
    some.links += [(*pair, 1 << 20, [(1 << 20) / (rate * 1e6) for rate in each]) for pair, each in rates.items()]
    return some


def test_link_that_the_job_found_slow_is_held_against_the_quicker_half() -> None:
    # GIVEN half of the links between nodes, which are slow
    node_of = {rank: str(rank // 2) for rank in range(8)}
    # WHEN the incident names none THEN they may be of another sort
    assert judge(congested([4.0, 3.5, 3.0]), node_of).links == ()
    # WHEN it names one of them, by whichever end THEN that one is slow
    (found,) = judge(congested([4.0, 3.5, 3.0]), node_of, {frozenset((5, 6))}).links
    assert (found.src, found.dst) == (6, 5)
    assert found.bytes_per_s == pytest.approx(3.5e6, rel=0.05)
    assert found.usual_bytes_per_s == pytest.approx(20e6, rel=0.05)
    # WHEN it was slow for a moment THEN it is not, and the other one stands out by itself
    (one,) = judge(congested([20.0, 9.0, 22.0]), node_of, {frozenset((6, 5))}).links
    assert (one.src, one.dst) == (4, 3)
    # WHEN most are slower than the quickest one THEN nothing shows which are slow, and it is not said that all is well
    said = judge(congested([8.0, 9.0, 8.0], others=[9.0, 8.0, 10.0]), node_of, {frozenset((6, 5))})
    assert (said.links, said.is_healthy) == ((), False)
    assert [(one.src, one.dst) for one in said.unclear_links] == [(6, 5)]
    # WHEN it names a sound one THEN that is not slow
    assert judge(congested([4.0, 3.5, 3.0]), node_of, {frozenset((0, 7))}).links == ()
    # AND what was measured of a sound one is kept
    said = judge(congested([4.0, 3.5, 3.0]), node_of, {frozenset((0, 7)), frozenset((5, 6))})
    assert [(one.src, one.dst) for one in said.sound_links] == [(0, 7)]
    # WHEN it names one that was not measured THEN nothing is said of it, nor that all is well
    said = judge(congested([20.0] * 3), node_of, {frozenset((1, 6))})
    assert (said.missed_links, said.is_healthy) == (1, False)


def test_link_on_which_data_come_in_slowly_is_slow_though_it_has_most_of_the_way_at_times() -> None:
    # GIVEN flows of others that give way for a moment, so that what goes over differs by less than half
    node_of = {rank: str(rank // 2) for rank in range(8)}
    paces = {(0, 7): 25.4e6, (2, 1): 26e6, (4, 3): 11e6, (6, 5): 11.6e6}

    def is_slow(slow: float, paces: dict[tuple[int, int], float]) -> bool:
        some = congested([slow] * 3, others=[14.5] * 3)
        some.arrivals |= paces
        said = judge(some, node_of, {frozenset((6, 5))})
        return (6, 5) in {(one.src, one.dst) for one in said.links}

    # THEN the pace at which data came in says that the link is shared
    assert is_slow(11.0, paces)
    # BUT not if it is not known of all, or is that of others, or if more went over, or as much as over others
    assert not is_slow(11.0, {pair: pace for pair, pace in paces.items() if pair != (2, 1)})
    assert not is_slow(11.0, paces | {(6, 5): 20e6})
    assert not is_slow(12.0, paces)
    assert not is_slow(15.0, paces | {(6, 5): 16e6})


def test_named_link_that_is_as_quick_as_the_others_of_its_sort_is_sound() -> None:
    node_of = {rank: str(rank // 2) for rank in range(16)}
    rates = {(rank, (rank + 1) % 16): 2e7 for rank in range(1, 16, 2)}
    rates[3, 4] = 3.1e7
    said = judge(links(rates), node_of, {frozenset((5, 6))})
    assert (said.links, said.unclear_links, said.is_healthy) == ((), (), True)


def test_too_few_links_of_a_sort_are_not_compared() -> None:
    said = judge(links({(0, 1): 2e8, (1, 0): 2e6}), NODES)
    assert (said.measured_links, said.compared_links, said.is_healthy) == (2, 0, False)


def test_rank_that_had_no_time_for_all_types_of_numbers_is_slow_and_its_links_are_not_tested() -> None:
    # GIVEN a rank that is twenty times as slow, of which one type was not measured
    some = measured(np.full((8, 3, 3), 0.002))
    some.compute_s[5] *= 20
    some.compute_s[5, 2] = np.nan
    assert some.computing_slowly(2.0) == {5}
    assert [one.rank for one in judge(some, NODES).ranks] == [5]
    # WHEN no rank has this type THEN it is the same
    some.compute_s[:, 2] = np.nan
    assert some.computing_slowly(2.0) == {5}
    # WHEN three of eight are as slow THEN they are another sort
    some.compute_s[:3] *= 20
    assert some.computing_slowly(2.0) == set()


def test_links_of_a_rank_that_computes_slowly_are_not_tested() -> None:
    ranks = [Rank(rank, compute_s=0.02 if rank == 5 else 0.002) for rank in range(8)]
    validation = validation_of(ranks)
    run(ranks, validation)
    tested = {pair[:2] for pair in validation.measured.links}
    assert len(tested) == 6
    assert not any(5 in pair for pair in tested)


def test_devices_of_two_sorts_are_not_slow() -> None:
    times = np.full((8, 3, 3), 0.002)
    times[4:] *= 1.4
    assert judge(measured(times), NODES).ranks == ()


@pytest.mark.parametrize("seed", range(20))
def test_memory_that_is_a_quarter_slower_names_nobody(seed: int) -> None:
    rng = np.random.default_rng(seed)
    some = measured(0.002 * rng.uniform(1.0, 1.02, (16, 3, 3)))
    some.memory_s[:] = 0.02 * np.where(rng.random(16) < 0.15, 1.25, 1.0)[:, None]
    assert judge(some, NODES).ranks == ()


def at_which_step(now_s: float, **stepped: object) -> int:
    """The step behind which four ranks are kept that take two seconds for one, and all of which have made ten."""
    known = Stepped(np.full(4, 10), np.full(4, 0.0), 2.0)
    ranks = [Rank(rank, iteration_s=2.0) for rank in range(4)]
    pause = Pause(7, range(4), now_s, iteration_s=0.5, longest_s=10.0, stepped=dataclasses.replace(known, **stepped))
    for rank in ranks:
        rank.go_on(None, 0.0)
    pause.feed(rows_of(ranks), now_s)
    assert pause.phase is Phase.CLOSING
    return pause.order([0]).at_step


def test_ranks_wait_behind_the_iteration_in_which_they_are_where_enough_of_it_is_left() -> None:
    assert at_which_step(now_s=1.4) == 11
    # else behind the next one: they might have ended this one before they hear of it
    assert at_which_step(now_s=1.6) == 12
    assert at_which_step(now_s=1.0, number=np.array([10, 10, 10, 9])) == 12
    assert at_which_step(now_s=1.0, at_s=np.array([0.0, 0.0, 0.0, -0.6])) == 12
    # and how long iterations take now counts, not what they took before
    assert at_which_step(now_s=1.9, lasted_s=0.2) == 14


def test_ranks_that_are_steps_apart_are_not_paused() -> None:
    ranks = [Rank(rank, steps=10 if rank else 5000) for rank in range(4)]
    validation = validation_of(ranks)
    phases = run(ranks, validation)
    assert Phase.CLOSING not in phases
    assert "different numbers" in validation.pause.problem


def test_iterations_of_minutes_are_not_waited_for() -> None:
    ranks = [Rank(rank, iteration_s=60.0) for rank in range(4)]
    validation = validation_of(ranks)
    phases = run(ranks, validation)
    assert Phase.CLOSING not in phases
    assert "too long" in validation.pause.problem

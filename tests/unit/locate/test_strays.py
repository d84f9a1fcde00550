"""The rank that leaves what its peers go on to do alike."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whichrank.locate.strays import LEAST_ALIKE, lone, stray
from whichrank.model.sequence import Tokens

PROGRAM = [1, 1, 1, 2, 1, 1, 3]


def tokens(values: list[int]) -> Tokens:
    return np.array(values, np.uint32)


def job(values: list[int], others: int = 3) -> dict[int, Tokens]:
    """Rank 0 did `values`; the others go on with the program."""
    return {0: tokens(values)} | {rank: tokens(PROGRAM * 40) for rank in range(1, 1 + others)}


@given(
    st.integers(LEAST_ALIKE + 3, 200),
    st.integers(-3, 3).filter(bool),
    st.sampled_from([[1], [1, 1, 2], [1, 2, 3, 3, 1]]),
)
def test_an_operation_left_out_or_repeated_is_found_in_any_program(at: int, shift: int, program: list[int]) -> None:
    # GIVEN four peers with a rare operation that keeps programs of one token from looking alike at every shift
    usual = [t if i % 50 else 9 for i, t in enumerate(program * 300)]
    odd = usual[:at] + usual[at - shift :] if shift < 0 else usual[:at] + usual[at - shift : at] + usual[at:]
    if odd[: len(usual)] == usual[: len(odd)]:
        return
    # WHEN one of them has left out or repeated operations
    found = stray(0, {0: tokens(odd), 1: tokens(usual), 2: tokens(usual), 3: tokens(usual)})
    # THEN it is found, shifted so far; its peers are not
    assert found is not None
    assert found.shift == shift
    assert found.lasted >= 50
    for rank in (1, 2, 3):
        assert stray(rank, {0: tokens(odd), 1: tokens(usual), 2: tokens(usual), 3: tokens(usual)}) is None


def test_nobody_is_named_while_all_are_alike_or_some_are_behind() -> None:
    assert stray(0, job(PROGRAM * 40)) is None
    assert stray(0, job(PROGRAM * 20)) is None
    assert stray(1, job(PROGRAM * 20)) is None


@given(st.integers(LEAST_ALIKE, 60), st.integers(1, 3), st.sampled_from([[1], [1, 2], [1, 2, 3], PROGRAM]))
def test_operations_that_were_others_once_are_no_stray(at: int, changed: int, program: list[int]) -> None:
    # GIVEN a rank that issued as many operations as its peers, a few of them with another shape
    usual = program * 100
    odd = usual[:at] + [7] * changed + usual[at + changed :]
    # THEN it has left nothing out and added nothing
    assert stray(0, {0: tokens(odd), 1: tokens(usual), 2: tokens(usual), 3: tokens(usual)}) is None


def test_two_ranks_alone_are_no_majority() -> None:
    odd = PROGRAM * 10 + PROGRAM[1:] + PROGRAM * 10
    assert stray(0, job(odd, others=1)) is None
    assert stray(1, job(odd, others=1)) is None
    assert stray(0, job(odd, others=2)) is not None


def test_two_that_leave_together_do_what_the_program_says() -> None:
    odd = PROGRAM * 10 + PROGRAM[1:] + PROGRAM * 10
    ranks = job(odd) | {4: tokens(odd)}
    assert stray(0, ranks) is None
    assert stray(4, ranks) is None


def test_operations_in_another_order_do_not_last() -> None:
    swapped = PROGRAM * 10 + [1, 1, 2, 1, 1, 1, 3] + PROGRAM * 10
    found = stray(0, job(swapped))
    assert found is None or found.lasted < LEAST_ALIKE


def test_another_position_is_no_peer() -> None:
    # GIVEN a rank of another stage, that begins as the others do
    other_stage = PROGRAM * 4 + [5, 5, 6] * 40
    found = stray(0, job(other_stage))
    assert found is None or found.lasted < LEAST_ALIKE


def test_what_one_does_where_all_others_did_something_else() -> None:
    usual = PROGRAM * 5
    mine = tokens([*usual, 7])
    others = [tokens([*usual, 1, 1]), tokens([*usual, 1]), tokens([*usual, 1, 1, 1])]
    assert lone(mine, others) == 1
    # BUT not if others do it too, differ, have not come so far, or were never alike
    assert lone(mine, [*others, mine]) is None
    assert lone(mine, [*others[:2], tokens([*usual, 2])]) is None
    assert lone(mine, [*others[:2], tokens(usual)]) is None
    assert lone(mine, [*others, *(tokens([5, *usual, 1]) for _ in range(3))]) is None
    assert lone(tokens([1, 7]), [tokens([1, 1])] * 3) is None

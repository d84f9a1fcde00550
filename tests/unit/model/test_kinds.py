"""Each kind of operation has its traits, and lists of kinds are read from them."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.model.kinds import BARRIERS, FROM_ROOT, ROOTED, SYNCHRONISING, TO_ROOT, TRAITS, Kind, is_collective
from whichrank.model.kinds import is_message as is_message_


def test_every_operation_has_traits_and_nothing_else_has() -> None:
    assert set(TRAITS) == {kind for kind in Kind if Kind.NONE < kind < Kind.REMOTE_CALL}


@pytest.mark.parametrize("kind", list(Kind))
def test_it_is_a_collective_or_a_message(kind: Kind) -> None:
    assert is_collective(kind) != is_message_(kind)


def test_an_array_is_judged_element_by_element() -> None:
    kinds = np.array([Kind.ALL_REDUCE, Kind.RECV], np.uint8)
    assert is_collective(kinds).tolist() == [True, False]
    assert is_message_(kinds).tolist() == [False, True]


def test_a_root_sends_or_receives() -> None:
    assert {Kind.BROADCAST, Kind.SCATTER} == FROM_ROOT
    assert {Kind.REDUCE, Kind.GATHER, Kind.MONITORED_BARRIER} == TO_ROOT
    assert not ROOTED & SYNCHRONISING
    assert {Kind.BARRIER, Kind.MONITORED_BARRIER} == BARRIERS

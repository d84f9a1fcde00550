"""P and the class of a slowdown."""

from __future__ import annotations

import pytest

from whichrank.detect.slow import Past, class_of


def past(transfer_s: float) -> Past:
    made = Past()
    made.transfer_s, made.iteration_s = transfer_s, 0.25
    return made


@pytest.mark.parametrize(
    ("waiting_s", "transfer_s", "share", "fault_class"),
    [
        (0.1, 0.02, 1.0, "S1"),
        (0.1, 0.03, 1.0, "S1"),
        (0.1, 0.12, 0.5, "S3"),
        (0.02, 0.12, 1 / 6, "S2"),
        (0.0, 0.12, 0.0, "S2"),
    ],
)
def test_the_class_goes_by_what_collectives_lose(
    waiting_s: float, transfer_s: float, share: float, fault_class: str
) -> None:
    # GIVEN a baseline of 20 ms of transfers in an iteration of 250 ms
    assert class_of(waiting_s, transfer_s, past(0.02)) == (pytest.approx(share), fault_class)


def test_without_a_past_or_a_loss_transfers_say_nothing() -> None:
    assert class_of(0.1, 0.5, Past()) == (1.0, "S1")
    assert class_of(0.0, 0.02, past(0.02)) is None
    assert class_of(0.0, 0.5, Past()) is None

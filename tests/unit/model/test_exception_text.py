"""The text of an exception, and the place that ends it."""

from __future__ import annotations

import pytest

from whichrank.model.exception_text import place_apart, split_place


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("ValueError: loss is nan at /home/me/train.py:41", "ValueError: loss is nan", "/home/me/train.py:41"),
        ("ValueError: x at /home/me/my project/train.py:41", "ValueError: x", "/home/me/my project/train.py:41"),
        ("ValueError: looked at it at a.py:1", "ValueError: looked at it", "a.py:1"),
        ("RuntimeError: met at the gate", "RuntimeError: met at the gate", ""),
        ("", "", ""),
    ],
)
def test_split_place(text: str, said: str, place: str) -> None:
    assert split_place(text) == (said, place)
    assert place_apart(text) == (f"{said}, at {place}" if place else said)

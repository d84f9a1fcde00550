"""A long list in a JSON text, piece by piece."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest

from whichrank.errors import FormatError
from whichrank.intake import json_list
from whichrank.intake.json_list import JsonList


def taken(text: str) -> tuple[list[Any], dict[str, Any]]:
    listed = JsonList(io.BytesIO(text.encode()), "events")
    found = [one for piece in listed.pieces() for one in json.loads(piece)]
    return found, listed.around


EVENTS = [
    {"a": 1}, {"name": 'a "quoted" {[ text', "b": [1, [2, {"c": "}"}]]}, {"path": "back\\slash\\\\", "q": "\\\""}, {},
    {"x": "ünïcode ]}"}, {"deep": [[[[{"y": []}]]]]},
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 3, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_elements_are_whole_wherever_pieces_end(size: int, indent: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a list within an object that is read in pieces of a few bytes
    monkeypatch.setattr(json_list, "PIECE_BYTES", size)
    whole = {"before": {"events": 3}, "events": EVENTS * 3, "behind": [1, "]"]}
    found, around = taken(json.dumps(whole, indent=indent))
    # THEN all elements come out as they are, and so does what stands around
    assert found == EVENTS * 3
    assert around == whole | {"events": []}


def test_a_list_that_stands_alone() -> None:
    assert taken(json.dumps(EVENTS)) == (EVENTS, {})
    assert taken("[]") == ([], {})


def test_an_empty_list_and_values_that_are_no_objects() -> None:
    assert taken('{"events": [], "x": 1}') == ([], {"events": [], "x": 1})
    assert taken('{"events": [1, 2.5, "a,b", null]}')[0] == [1, 2.5, "a,b", None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"events": [{"a": 1}, {"b"', "cut within 'events'"),
        ('{"other": []}', "no list 'events'"),
        ('{"events": [{"a": 1}], nonsense}', "around 'events' cannot be read"),
        ("", "no list 'events'"),
    ],
)
def test_damage_is_said(text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        taken(text)


def test_random_texts_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)

    def value(depth: int) -> Any:
        kind = rng.randrange(6 if depth else 4)
        if kind == 4:
            return [value(depth - 1) for _ in range(rng.randrange(4))]
        if kind == 5:
            return {text(): value(depth - 1) for _ in range(rng.randrange(4))}
        return (rng.random(), text(), None, rng.randrange(1000))[kind]

    def text() -> str:
        return "".join(rng.choice('ab"\\{}[],: ü\n') for _ in range(rng.randrange(9)))

    for _ in range(200):
        monkeypatch.setattr(json_list, "PIECE_BYTES", rng.randint(1, 40))
        events = [{"k": value(3)} for _ in range(rng.randrange(6))]
        assert taken(json.dumps({text(): value(2), "events": events, "z": value(2)}))[0] == events

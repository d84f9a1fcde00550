"""Lines with words, held against a plain search for one word after another."""

from __future__ import annotations

from random import Random

import pytest

from whichrank.columns import words as module
from whichrank.columns.words import Words

CLOSES = b"0123456789, "


def plainly(text: bytes, words: dict[bytes, int]) -> list[tuple[int, int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for word, after in words.items():
        at = text.find(word)
        while at >= 0:
            if word[:1] != b"]" or (at and text[at - 1] in CLOSES):
                start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
                found[start] = (end if end >= 0 else len(text), max(after, found.get(start, (0, 0))[1]))
            at = text.find(word, at + 1)
    return [(start, *found[start]) for start in sorted(found)]


def found_in(text: bytes, words: dict[bytes, int]) -> list[tuple[int, int, int]]:
    return [row for lines in Words(words).lines_in(text) for row in zip(*lines, strict=True)]


def test_lines_are_those_of_a_plain_search() -> None:
    for seed in range(400):
        random = Random(seed)
        letters = random.choice((b"ab\n", b"ab]1 \n", bytes(range(256)), b"\x00\xff\n"))
        size = random.choice((0, 1, 2, 7, 60, 2_000))
        text = bytes(random.choice(letters) for _ in range(size))
        words = {}
        for _ in range(random.randrange(1, 30)):
            word = bytes(random.choice(letters) for _ in range(random.randrange(2, random.choice((3, 5, 12)))))
            words[word.replace(b"\n", b"a")] = random.choice((0, 0, 0, 1, 60))
        assert found_in(text, words) == plainly(text, words), seed


def test_lines_are_found_over_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"no\nword here\n\nword and word\nno\nword" * 50
    expected = plainly(text, {b"word": 0, b"and": 2})
    for most in (1, 2, 7, len(expected)):
        monkeypatch.setattr(module, "MOST_LINES", most)
        assert found_in(text, {b"word": 0, b"and": 2}) == expected


def test_a_word_of_one_window_longer_than_a_byte_can_count() -> None:
    word = b"a" * 700
    assert found_in(b"x" + word + b"\n" + word[1:], {word: 3}) == [(0, 701, 3)]


@pytest.mark.parametrize("words", [{}, {b"a": 0}, {b"%d!" % number: 0 for number in range(100, 355)}])
def test_words_that_cannot_be_searched_for_are_refused(words: dict[bytes, int]) -> None:
    with pytest.raises(ValueError, match="two bytes, or there are too many"):
        Words(words)

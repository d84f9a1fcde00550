"""Work in processes that end, take too much, or are given up."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from whichrank.errors import FormatError
from whichrank.intake.workers import each

ENDS = "__import__('os')._exit(1)"


def children() -> set[str]:
    """Processes that this thread has started."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_results_come_in_the_order_of_the_items() -> None:
    assert list(each(abs, range(-50, 0), 3)) == list(range(50, 0, -1))
    assert list(each(abs, [])) == []


def test_what_ends_its_process_costs_nothing_else() -> None:
    # GIVEN work of which every third item ends the process that does it
    found = list(each(eval, [ENDS if number % 3 == 0 else str(number) for number in range(12)], 2))
    # THEN the others have their results
    assert [number for number, one in enumerate(found) if one == number] == [1, 2, 4, 5, 7, 8, 10, 11]
    assert [str(one) for one in found[::3]] == ["what it holds ended the process that read it"] * 4


def test_what_takes_too_long_ends_and_costs_nothing_else() -> None:
    found = list(each(eval, ["1", "sum(iter(int, 1))", "2"], 1, cpu_s=lambda _: 1))
    assert (found[0], str(found[1]), found[2]) == (1, "what it holds ended the process that read it", 2)


@pytest.mark.parametrize(
    ("item", "words"), [("int('x')", "it cannot be read: ValueError"), ("bytes(1 << 40)", "asks for more memory")]
)
def test_what_cannot_be_done_is_a_sentence(item: str, words: str) -> None:
    (found,) = each(eval, [item])
    assert isinstance(found, FormatError)
    assert words in str(found)


def test_processes_say_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(each(eval, ["__import__('os').write(1, b'out')", "__import__('os').write(2, b'err')"])) == [3, 3]
    assert capfd.readouterr() == ("", "")


def test_who_leaves_early_leaves_no_process() -> None:
    # GIVEN processes of which one has answered and one will not for an hour
    before = children()
    with closing(each(eval, ["1", "__import__('time').sleep(3600)"], 2)) as found:
        assert next(found) == 1
        assert len(children() - before) == 2
    # WHEN the loop is left THEN both are gone
    assert children() == before


def test_what_is_under_way_is_reported() -> None:
    # GIVEN work that says how far it is, and takes longer than two reports are apart
    say = "__import__('whichrank.intake.workers', fromlist=['x']).report_progress"
    item = f"[({say}(done), __import__('time').sleep(0.25)) for done in (7, 8)] and 'done'"
    shown: list[tuple[int, int]] = []
    # THEN it is heard before the result comes, with the number of the item
    assert list(each(eval, ["1", item], 1, show=lambda *both: shown.append(both))) == [1, "done"]
    assert shown == [(1, 7), (1, 8)]

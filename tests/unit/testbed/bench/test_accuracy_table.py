"""The tables of accuracy: what was right is counted apart from what was late, missed or wrong, by what it cost."""

from __future__ import annotations

from typing import Any

from whichrank.testbed.bench.tables import NO_STEPS, accuracy_table


def result(verdict: str, longer: float | None = None, kind: str = "slow") -> dict[str, Any]:
    setup = {
        "variant": "x2", "launcher": "preloaded", "job_args": [], "hang_timeout_s": 8.0, "notice_min_s": 4.0,
        "slow_window_s": 10.0,
    }  # fmt: skip
    return {
        "fault": "slow-compute", "setup": setup, "truth": {"kind": kind}, "verdict": verdict, "longer": longer,
        "reason_agrees": None, "seconds_to_alert": None,
    }  # fmt: skip


def test_slowdowns_are_counted_by_what_they_cost_too() -> None:
    # GIVEN runs that cost so much, one of which nobody knows, and a healthy one that took longer
    results = [
        result("missed", -0.1), result("right", 0.19), result("late", 0.2), result("right", 0.49),
        result("wrong_name", 0.5), result("right", 3.0), result("right", None), result("missed", 0.6, "healthy"),
    ]  # fmt: skip
    # THEN each is in the row of its cost
    lines = accuracy_table(results).splitlines()
    first = lines.index("| iterations longer | n | right | late | missed | wrong name |") + 2
    assert lines[first : first + 4] == [
        "| below 10% | 1 | 0 | 0 | 1 | 0 |",
        "| 10% to 20% | 1 | 1 | 0 | 0 | 0 |",
        "| 20% to 50% | 2 | 1 | 1 | 0 | 0 |",
        "| from 50% | 2 | 1 | 0 | 0 | 1 |",
    ]


def test_runs_without_steps_have_a_table_of_their_own() -> None:
    # GIVEN runs with steps, one of them of a file that does not say so, and runs without
    usual, before, without = result("right"), result("right"), result("missed")
    usual["setup"]["has_steps"], without["setup"]["has_steps"] = True, False
    # THEN no row counts both
    table, other = accuracy_table([usual, without, before]).split(f" {NO_STEPS}")[0].split("s).\n\n")
    assert "| **all** | 2 | 0 | 2 |" in table
    assert "| **all** | 1 | 0 | 0 | 0 | 1 |" in other
    # AND one table alone says what it is of
    assert accuracy_table([without]).endswith(NO_STEPS)
    assert NO_STEPS not in accuracy_table([usual])


def test_where_nothing_is_known_of_the_cost_there_is_no_such_table() -> None:
    assert "longer" not in accuracy_table([result("right"), result("missed")])

"""Rows of the overhead table: what they are held against, how they are written, what is left out and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from whichrank.errors import SensorError
from whichrank.testbed.bench import overhead
from whichrank.testbed.bench.overhead import Part, Row, Verdict, against, from_cost, from_paired, located, measure
from whichrank.testbed.bench.overhead_ops import cost_of
from whichrank.testbed.bench.paired import Paired
from whichrank.testbed.bench.tables import amount, overhead_table

MACHINE = {
    "cpu": "A CPU", "cores": 2, "kernel": "6.1", "python": "3.11.7", "torch": "2.13.0+cpu",
    "load_before": [0.1, 0.2, 0.3], "load_after": [1.0, 0.5, 0.25],
}  # fmt: skip
STEP = Paired(150, 0.1, 0.0005, 0.0008, -0.01, 0.0004, 0.011, 0.002, 0.0003)


def results(*rows: Row, skipped: dict[str, str] | None = None, quick: bool = False, **machine: Any) -> dict[str, Any]:
    plain = [msgspec.to_builtins(row) | {"verdict": row.verdict} for row in rows]
    return {"machine": MACHINE | machine, "rows": plain, "skipped": skipped or {}, "quick": quick}


def ring_push(samples: list[float]) -> Row:
    return against(from_cost("ring", cost_of("ring push", samples)), "", "≤ 50 ns", 50.0)


def test_table() -> None:
    # GIVEN a row of each kind
    op = from_cost("sensor", cost_of("C++ sensor, one op on fake", [250, 260, 270], base_ns=2860), "pairs of blocks")
    step = against(
        from_paired("step", "observer on and off", STEP, "pairs of 20 steps", "it was quiet"), "MegaTrace 0.16 %",
        "≤ 0.1 %", 0.1,
    )  # fmt: skip
    size = Row(part="ring", what="frame", unit="B", n=1, median=1184, low=1184, high=1184)
    rate = Row(
        part="analyzer", what="ingest", unit="records/s", n=9, median=2.1e6, low=3e5, high=3e6, spread="range"
    )  # fmt: skip
    # WHEN they are written
    table = overhead_table(results(ring_push([7, 8, 9]), op, size, rate, step))
    # THEN every figure has its unit, its spread and its n, and the machine is named
    assert table == "\n".join(
        [
            "| what | theirs | target | measured, median [quartiles], n |",
            "|---|---|---|---|",
            "| ring push | - | ≤ 50 ns | 8.00 ns [7.50 ns, 8.50 ns], n 3 |",
            "| C++ sensor, one op on fake | - | - | "
            "+260 ns [+255 ns, +265 ns] on 2.86 µs (+9.1 %), n 3 pairs of blocks |",
            "| frame | - | - | 1,184 B, n 1 |",
            "| ingest | - | - | 2.10 M records/s [0.30 M records/s to 3.00 M records/s, all runs], n 9 |",
            "| observer on and off | MegaTrace 0.16 % | ≤ 0.1 % | +0.040 % [-1.00 %, +1.10 %]; mean +0.050 %, "
            "upper 95 % bound +0.080 %, noise ±0.030 %, n 150 pairs of 20 steps |",
            "",
            "A CPU, 2 cores, Linux 6.1, Python 3.11.7, torch 2.13.0+cpu; load average (1, 5, 15 min) "
            "0.10 0.20 0.30 before, 1.00 0.50 0.25 after.",
            "",
            "observer on and off: it was quiet.",
        ]
    )


def test_missed_target_is_said() -> None:
    assert "≤ 50 ns (**missed**)" in overhead_table(results(ring_push([70, 80, 90])))


@pytest.mark.parametrize(
    ("mean", "upper", "verdict"),
    [(0.0002, 0.0009, "met"), (0.0002, 0.0011, "undecided"), (0.003, 0.0035, "missed"), (0.0012, 0.0017, "undecided")],
)
def test_verdict_on_a_mean_is_that_of_its_bound(mean: float, upper: float, verdict: Verdict) -> None:
    # GIVEN a target of 0.1 % and noise of 0.05 %
    paired = Paired(10, 0.1, mean, upper, 0.0, mean, 0.0, 0.001, 0.0005)
    row = against(from_paired("step", "a step", paired, "pairs"), "", "≤ 0.1 %", 0.1)
    # THEN it is met only if the bound is below, and missed only if the mean is clearly above
    assert row.verdict == verdict
    assert ("too noisy" in overhead_table(results(row))) == (verdict == "undecided")


def test_rate_is_to_be_at_least_its_target() -> None:
    row = Row(part="analyzer", what="ingest", unit="records/s", n=1, median=3e6, low=3e6, high=3e6)
    assert against(row, "", "≥ 2 M", 2e6).verdict == "met"
    assert against(row, "", "≥ 4 M", 4e6).verdict == "missed"


def test_busy_machine_and_quick_run_are_said() -> None:
    assert "no figures for the docs" not in overhead_table(results(ring_push([7, 8])))
    assert "busy before it began (load 3.0 on 2 cores)" in overhead_table(
        results(ring_push([7, 8]), load_before=[3.0, 1.0, 1.0])
    )
    assert "A quick run" in overhead_table(results(ring_push([7, 8]), quick=True))


def test_table_of_one_part() -> None:
    other = Row(part="agent", what="memory", unit="MiB", n=1, median=30, low=30, high=30)
    table = overhead_table(results(ring_push([7, 8]), other, skipped={"step": "no torch"}), parts=("agent",))
    assert "memory" in table
    assert "ring push" not in table
    assert "no torch" not in table


def test_part_that_cannot_be_measured_is_left_out_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a part that fails after its first row, and one that does not
    def failing(quick: bool, show_progress: overhead.Say) -> Any:
        yield ring_push([7, 8])
        raise SensorError("no C compiler was found", mend="apt-get install gcc")

    parts = {"ring": Part("ring", failing), "agent": Part("agent", lambda quick, show_progress: [ring_push([1, 2])])}
    monkeypatch.setattr(overhead, "PARTS", parts)
    # WHEN both are measured
    reported: list[tuple[str, float]] = []
    found = measure(["ring", "agent"], quick=True, show_progress=lambda *progress: reported.append(progress))
    # THEN what was measured is kept, the reason is reported, and the progress reaches its end
    assert [row["median"] for row in found["rows"]] == [7.5, 1.5]
    assert found["skipped"] == {"ring": "no C compiler was found"}
    assert reported == [("ring", 0.0), ("ring", 1.0), ("agent", 0.0), ("agent", 1.0)]
    assert "Not measured: ring (no C compiler was found)." in overhead_table(found)


@pytest.mark.parametrize(
    ("figure", "unit", "text"),
    [
        (7.374, "ns", "7.37 ns"), (2860, "ns", "2.86 µs"), (45.67, "ms", "45.7 ms"), (0.5, "ms", "500 µs"),
        (1184, "B", "1,184 B"), (0.0123, "%", "0.012 %"), (36.14, "MiB", "36.1 MiB"), (0, "%", "0.000 %"),
    ],
)  # fmt: skip
def test_amount(figure: float, unit: str, text: str) -> None:
    assert amount(figure, unit) == text


def test_location_is_held_against_its_size() -> None:
    assert located("one location, tp", 4096)[2] == 20.0
    assert located("one location, world", 65536)[2] == 300.0
    assert located("one location, tp", 64)[2] is None
    assert located("one tick, tp", 4096) == ("", "", None)


def test_cpu_model(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel name\t: A CPU\n")
    assert overhead.cpu_model(path) == "A CPU"
    assert overhead.cpu_model(tmp_path / "none") == overhead.platform.machine()

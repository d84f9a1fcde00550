"""The iteration time that whichrank finds, beside that of the ranks themselves (Greyhound, section 7.2 and Fig. 13).

Each workload runs healthy under `whichrank run`, on this machine. Its ranks report over the demo's control channel when
each of their iterations begins; nothing that whichrank reads carries that. The telemetry is recorded, and gone through
again by an analyzer of this process. Its window of iterations is that by which slowness is judged. From the first one
to the last the ranks have gone through so many iterations of theirs; the time in between is divided by either number.
So what else the machine does is in both. Beside it stand medians: of the window, which a verdict gives and from which
iterations with a log are left out, and of the true iterations in that span. These differ on a busy machine, since an
iteration of whichrank begins elsewhere than the true one: at an optimizer step, or at an operation.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.errors import SensorError
from whichrank.model.iterations import Window
from whichrank.slow.slowness import BACK
from whichrank.testbed.bench.launch import Launch, end
from whichrank.testbed.bench.nursery import Nursery
from whichrank.testbed.bench.setup import SLOW_WINDOW_S, Setup
from whichrank.testbed.demo.folders import new_folder
from whichrank.testbed.demo.hub import Hub
from whichrank.testbed.lab.programs import PROGRAMS
from whichrank.wire.tape import FILE_NAME, Tape

Ints = NDArray[np.int64]
MOST_OFF: Final = 0.01
"""Share by which an iteration time may differ from the true one: what Greyhound reaches in Fig. 13."""
RUN_S: Final = 30.0
"""Seconds for which a workload trains: a period is learnt in the first ones, and a window is as long as two thirds."""
WARM: Final = 3
"""Iterations of each rank that it must have begun before that time counts: the first ones compile, connect and wait."""
RANKS: Final = 4
RANKS_OF_DEMO: Final = 8
"""Ranks of workloads that are arranged in several dimensions."""
STEPS: Final = 1_000_000
"""More than any script comes to; and no other range of a script has so many numbers, see `clocked`."""
_BEGIN_WITHIN_S: Final = 120.0
_END_WITHIN_S: Final = 30.0
_SCRIPTS: Final = "whichrank.testbed.demo.workloads"
_LAYOUTS: Final = ("dp8", "tp8", "pp4-dp2", "tp2-pp2-dp2")
_DEVICE: Final = ("--device-ms", "6")
"""So that computation, and not two cores for eight ranks, decides what an iteration takes."""


@dataclass(frozen=True)
class Workload:
    """A job that reports its iterations.

    Attributes:
        job: Arguments of its launcher.
        ranks: World size.
    """

    job: tuple[str, ...]
    ranks: int = RANKS


def _script(name: str, *more: str) -> Workload:
    return Workload(("-m", "whichrank.testbed.demo.clocked", f"{_SCRIPTS}.{name}", "--steps", str(STEPS), *more))


def _of_lab(name: str) -> Workload:
    program = PROGRAMS[name]
    ranks = RANKS_OF_DEMO if program.has_layout else RANKS
    return Workload(
        ("-m", program.module, *program.args, *(("--layout", program.layout(ranks).name) * program.has_layout)), ranks
    )


WORKLOADS: Final[Mapping[str, Workload]] = {
    **{name: _script(name) for name in ("ddp", "fsdp2", "functional", "groups", "in_flight", "p2p", "pipeline")},
    "pipeline gpipe": _script("pipeline", "--schedule", "gpipe"),
    **{
        f"demo {layout}": Workload(("-m", "whichrank.testbed.demo.job", "--layout", layout, *_DEVICE), RANKS_OF_DEMO)
        for layout in _LAYOUTS
    },
    **{f"lab {name}": _of_lab(name) for name in PROGRAMS},
}
"""Scripts as users write them, layouts of the demo's job, and the lab's workloads; all on this machine."""


@dataclass(frozen=True)
class Compared:
    """What came of a workload.

    Attributes:
        workload: Name.
        ranks: World size.
        has_steps: Its ranks were to note optimizer steps.
        found_by: What iterations were found by; "nothing": none were found.
        true_s: Mean of the true iterations in the span, of all if none were found; seconds.
        ours_s: Mean of those that were found there, None if none were.
        off: Share by which ours is longer than the true one.
        median_off: The same of medians.
        iterations: True ones in the span, of all ranks.
        expected_s: What `Store.iteration_s` says, by which notices are put off; 0 if it is not known.
    """

    workload: str
    ranks: int
    has_steps: bool
    found_by: str
    true_s: float
    ours_s: float | None
    off: float | None
    median_off: float | None
    iterations: int
    expected_s: float

    @property
    def is_right(self) -> bool:
        """Within the share that is allowed."""
        return self.off is not None and abs(self.off) <= MOST_OFF


def compare_all(
    names: Iterable[str], *, has_steps: bool = True, run_s: float = RUN_S,
    show_progress: Callable[[Compared], None] = lambda _: None,
) -> list[Compared]:  # fmt: skip
    """Run workloads one after the other.

    Args:
        names: Of `WORKLOADS`.
        has_steps: Their ranks note optimizer steps.
        run_s: Seconds for which each trains.
        show_progress: Called after each.

    Raises:
        SensorError: A job did not begin, or has failed.
    """
    found = []
    with Nursery() as nursery:
        for name in names:
            found.append(compare(name, nursery.path, has_steps=has_steps, run_s=run_s))
            show_progress(found[-1])
    return found


def compare(name: str, nursery: Path, *, has_steps: bool = True, run_s: float = RUN_S) -> Compared:
    """Run one workload.

    Args:
        name: Of `WORKLOADS`.
        nursery: Socket of one for its launcher.
        has_steps: Its ranks note optimizer steps.
        run_s: Seconds for which it trains.

    Raises:
        SensorError: It did not begin, or has failed.
    """
    workload = WORKLOADS[name]
    folder = new_folder("whichrank-iterations-")
    try:
        began = _run(workload, folder, nursery, has_steps=has_steps, run_s=run_s)
        analyzer = _gone_through(Tape(folder / FILE_NAME))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    window = analyzer.slowness.iterations.window(np.arange(workload.ranks), BACK * SLOW_WINDOW_S)
    return _compared(name, workload.ranks, began, analyzer, window, has_steps=has_steps)


def _compared(
    name: str, ranks: int, began: Mapping[int, Ints], analyzer: Analyzer, window: Window | None, *, has_steps: bool
) -> Compared:
    truth_s, expected_s = true_iterations_s(began, window), analyzer.store.iteration_s()
    if window is None:
        mean_s = float(truth_s.mean()) if len(truth_s) else 0.0
        return Compared(name, ranks, has_steps, "nothing", mean_s, None, None, None, len(truth_s), expected_s)
    spans = spans_of(began, window)
    by_steps = analyzer.store.sequences.steps.count(int(window.ranks[0])) > 0
    true_s, ours_s = spans.lasted_s / max(spans.true, 1.0), spans.lasted_s / spans.found
    median_s = float(np.median(truth_s)) if len(truth_s) else np.inf
    return Compared(
        workload=name,
        ranks=ranks,
        has_steps=has_steps,
        found_by="steps" if by_steps else "operations",
        true_s=true_s,
        ours_s=ours_s,
        off=ours_s / true_s - 1.0,
        median_off=window.iteration_s / median_s - 1.0,
        iterations=round(spans.true),
        expected_s=expected_s,
    )


def _gone_through(tape: Tape) -> Analyzer:
    """An analyzer that has been reported what is on a tape, when the job still ran."""
    analyzer = Analyzer(AnalyzerConfig(slow_window_s=SLOW_WINDOW_S), tape.head.job, tape.head.utc_offset_s)
    for entry in tape:
        if entry.batch is not None:
            analyzer.feed(entry.batch, entry.now_s)
        elif entry.kind == "tick":
            analyzer.tick(entry.now_s)
    return analyzer


@dataclass(frozen=True)
class Spans:
    """The same span of time of each rank, divided into iterations by whichrank and by the ranks; all ranks added up.

    Attributes:
        lasted_s: Seconds.
        found: Iterations that whichrank has counted in them.
        true: Iterations that the ranks have gone through; parts count as parts.
    """

    lasted_s: float
    found: int
    true: float


def spans_of(began: Mapping[int, Ints], window: Window) -> Spans:
    """From the first iteration of a window to its last one.

    Args:
        began: By rank, when each iteration began, nanoseconds on its clock.
        window: What was found.
    """
    first_ns = window.end_ns[:, 0] - (window.total_s[:, 0] * 1e9).astype(np.int64)
    last_ns = window.end_ns[:, -1]
    true = 0.0
    for rank, *ends_ns in zip(window.ranks.tolist(), first_ns.tolist(), last_ns.tolist(), strict=True):
        first, last = np.interp(ends_ns, began[rank], np.arange(len(began[rank])))
        true += float(last - first)
    found = int(window.iteration[-1] - window.iteration[0]) + 1
    return Spans(float((last_ns - first_ns).sum()) / 1e9, found * len(window.ranks), true)


def true_iterations_s(began: Mapping[int, Ints], window: Window | None) -> NDArray[np.float64]:
    """How long the true iterations took that lie in the span of a window by most of their time, of all its ranks.

    Args:
        began: By rank, when each iteration began, nanoseconds on its clock.
        window: What was found; None: nothing, and all true iterations are meant.
    """
    found = [np.zeros(0)]
    for index, rank in enumerate(window.ranks.tolist() if window else sorted(began)):
        took_ns, middle_ns = np.diff(began[rank]), (began[rank][1:] + began[rank][:-1]) // 2
        if window:
            first_ns = window.end_ns[index, 0] - window.total_s[index, 0] * 1e9
            took_ns = took_ns[(middle_ns >= first_ns) & (middle_ns <= window.end_ns[index, -1])]
        found.append(took_ns / 1e9)
    return np.concatenate(found)


def _run(workload: Workload, folder: Path, nursery: Path, *, has_steps: bool, run_s: float) -> dict[int, Ints]:
    """Run it for so long; when each rank began its iterations, nanoseconds of CLOCK_MONOTONIC.

    Raises:
        SensorError: It did not begin, or has failed.
    """
    setup = Setup("none", workload.ranks, has_steps=has_steps)
    options = ["--record", "--slow-window", str(SLOW_WINDOW_S)]
    launch = Launch(workload.job, workload.ranks, folder, options=options, nursery=nursery)
    with contextlib.ExitStack() as stack:
        hub = Hub(lambda _: {})
        stack.callback(hub.close)
        hub.start()
        log = stack.enter_context((folder / "job.log").open("wb"))
        command = subprocess.Popen(
            launch.command(0), env=launch.environment({**hub.env(), **setup.environment()}),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        stack.callback(end, [command], _END_WITHIN_S)

        def is_under_way() -> bool:
            began = [iteration >= WARM for iteration in hub.iterations.values()]
            return (len(began) == workload.ranks and all(began)) or command.poll() is not None

        is_there = hub.wait_for(is_under_way, _BEGIN_WITHIN_S)
        if is_there and command.poll() is None:
            hub.sleep(run_s)
        if not is_there or command.poll() is not None:
            what = "the measured job has failed" if is_there else "the measured job did not begin"
            said = (folder / "job.log").read_text(errors="replace").strip()[-2000:]
            raise SensorError(f"{what}: {said or 'it says nothing'}", mend="whichrank doctor")
    return {rank: np.array(sorted(of.values()), np.int64) for rank, of in hub.began_of.items()}


def iterations_table(results: Sequence[Compared]) -> str:
    """Markdown: a row for each workload."""
    lines = [
        "| workload | ranks | found by | true, ms | whichrank, ms | off | median off | iterations | expected, ms |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for one in results:
        mark = "" if one.is_right else " (**too much**)"
        lines.append(
            f"| {one.workload} | {one.ranks} | {one.found_by} | {_ms(one.true_s)} | {_ms(one.ours_s)} "
            f"| {_share(one.off)}{mark} | {_share(one.median_off)} | {one.iterations:,} | {_ms(one.expected_s)} |"
        )
    return "\n".join(lines)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.2f}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:+.2%}"

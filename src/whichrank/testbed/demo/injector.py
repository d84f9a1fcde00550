"""Breaks one rank of a running job, from outside, and keeps the truth to itself.

It runs in the process of whoever started the job, as two threads: the hub, to which ranks connect, and the recipe
of the fault. The truth stays in memory until it is asked for. Ranks are reported at most their own part.
"""

from __future__ import annotations

import math
import random
import statistics
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from whichrank.testbed.demo.fault import Fault
from whichrank.testbed.demo.faults import CATALOGUE
from whichrank.testbed.demo.hub import Hub
from whichrank.testbed.demo.layout import Layout
from whichrank.testbed.demo.plan import Truth, draw
from whichrank.testbed.demo.recipes import RECIPES
from whichrank.testbed.demo.scene import Nodes, Scene, Strike
from whichrank.testbed.demo.slow import added_s_at_most, settings_of

_FOREVER_S = 3600.0
_WARM_UP = 3
"""First iterations, left out of what is usual."""
_LEAST_TIMED = 3
"""Iterations on each side of the fault that say something."""


class Pace(NamedTuple):
    """How long iterations take.

    Attributes:
        seconds: The median.
        noise: Half of them lie within this share of it, to both sides.
        iterations: How many there were.
    """

    seconds: float
    noise: float
    iterations: int


class Injector:
    """Applies one fault to one run of a job.

    Args:
        fault: name in the catalogue, or an entry of it or of a matrix.
        ranks: world size.
        seed: decides victim, moment, variant and operation.
        layout: of the job; None for jobs that have none.
        variant: fixes the variant instead of drawing it.
        hold_s: how long a late checkpoint lasts.
        nodes: that the job runs on, if they are network namespaces.
        quiet_s: that the job runs before anything is done to it.
    """

    def __init__(
        self,
        fault: str | Fault,
        ranks: int,
        seed: int,
        layout: Layout | str | None = None,
        variant: str | None = None,
        hold_s: float = 10.0,
        nodes: Nodes | None = None,
        quiet_s: float = 0.0,
    ) -> None:
        self.fault = CATALOGUE[fault] if isinstance(fault, str) else fault
        self.layout = Layout.parse(layout) if isinstance(layout, str) else layout or Layout(dp=ranks)
        self.plan = draw(self.fault, ranks, seed, self.layout.name, variant)
        self.error: Exception | None = None
        self._seed = seed
        self._hub = Hub(self._settings)
        self._scene = Scene(self.fault, self.plan, self._hub, self.layout, hold_s, nodes, quiet_s)
        self._strike: Strike | None = None
        self._truth: Truth | None = None
        self._thread = threading.Thread(target=self._work, name="demo-injector", daemon=True)

    def start(self) -> None:
        """Wait for the job from now on."""
        self._hub.start()
        self._thread.start()

    def env(self) -> dict[str, str]:
        """What the job needs in its environment."""
        return self._hub.env()

    def job_command(self) -> list[str]:
        """The program that this fault is for, as arguments of the launcher or of torchrun."""
        host = ["--host-ms", str(self.fault.host_ms)] if self.fault.host_ms else []
        return ["-m", self.fault.module, *self.fault.job_args, *host]

    def truth(self) -> Truth | None:
        """What was done; None as long as nothing was."""
        return self._truth

    @property
    def has_given_up(self) -> bool:
        """Nothing was done, and nothing will be: it could not be, or there was nothing to do it to."""
        return self._thread.ident is not None and not self._thread.is_alive() and self._truth is None

    def pids(self) -> dict[int, int]:
        """Pids of the ranks that are connected, by rank."""
        return self._hub.connected()

    def progress(self) -> dict[int, int]:
        """Iteration that each rank has begun, by rank."""
        return dict(self._hub.iterations)

    def longer(self) -> float | None:
        """By which share iterations have taken longer since the fault than before; None if that was not seen."""
        truth, began_ns = self._truth, dict(self._hub.began_ns)
        if truth is None or truth.ended_monotonic_ns is not None:
            return None
        before: list[int] = []
        since: list[int] = []
        for iteration, at_ns in began_ns.items():
            took_ns = began_ns.get(iteration + 1, at_ns) - at_ns
            if took_ns > 0 and iteration >= _WARM_UP:
                (before if at_ns + took_ns <= truth.at_monotonic_ns else since).append(took_ns)
        enough = min(len(before), len(since)) >= _LEAST_TIMED
        return statistics.fmean(since) / statistics.fmean(before) - 1.0 if enough else None

    def longer_at_most(self) -> float | None:
        """By which share what was done makes iterations longer at the most; None if that is not known.

        It needs no clock before the fault, and nothing else that the machine does is in it.
        """
        truth = self._truth
        if truth is None:
            return None
        device_s = max((float(facts.get("device_s", 0.0)) for facts in dict(self._hub.facts).values()), default=0.0)
        added_s = added_s_at_most(self.fault.name, self.plan.variant.name, device_s)
        usual_s = truth.iteration_s or self._iteration_s(time.monotonic_ns()) - (added_s or 0.0)
        return added_s / usual_s if added_s is not None and usual_s > 0 else None

    def pace(self) -> Pace | None:
        """Of iterations before the fault, of all if nothing was done; None if there were too few."""
        until_ns = math.inf if self.fault.healthy or self._truth is None else self._truth.at_monotonic_ns
        took_s = _took_s(at_ns for at_ns in dict(self._hub.began_ns).values() if at_ns <= until_ns)
        if len(took_s) < _LEAST_TIMED:
            return None
        low, middle, high = statistics.quantiles(took_s, n=4)
        return Pace(middle, (high - low) / 2 / middle, len(took_s))

    def went_on(self, after_s: float) -> bool:
        """Whether a rank has begun an iteration so long after the fault."""
        truth = self._truth
        return truth is not None and any(
            at_ns - truth.at_monotonic_ns > after_s * 1e9 for at_ns in list(self._hub.began_ns.values())
        )

    def close(self) -> None:
        """Undo what lasts (stopped ranks, cgroups), stop, and remove the control folder."""
        self._hub.close()
        if self._thread.is_alive():
            self._thread.join()
        for lasting in self._strike.keep if self._strike is not None else ():
            lasting.close()

    def _work(self) -> None:
        try:
            strike = RECIPES[self.fault.where](self._scene)
        except Exception as error:  # it is to be reported, not to end in a thread
            self.error = error
            return
        self._strike = strike
        if strike is None:
            return
        self._truth = self._report(strike)
        if strike.undo is not None:
            delay_s, undo = strike.undo
            self._hub.sleep(delay_s)
            undo()
            self._truth = replace(self._truth, ended_monotonic_ns=time.monotonic_ns())

    def _report(self, strike: Strike) -> Truth:
        variant = self.plan.variant
        causes = variant.causes or self.fault.causes
        reasons = strike.reasons or variant.reasons or self.fault.reasons
        at_utc = datetime.now(UTC) - timedelta(microseconds=(time.monotonic_ns() - strike.at_ns) / 1e3)
        return Truth(
            fault=self.fault.name,
            variant=f"{variant.name} ({strike.note})" if strike.note else variant.name,
            kind=self.fault.kind,
            effect=variant.effect,
            culprits=strike.victims,
            candidates=tuple(sorted({*strike.victims, *strike.candidates, *strike.sources, *strike.targets})),
            cause=causes[0],
            causes=causes,
            reason=reasons[0] if reasons else "",
            reasons=reasons,
            hard=self.fault.hard if variant.hard is None else variant.hard,
            layout=self.layout.name,
            iteration=strike.iteration,
            at_utc=at_utc.isoformat(),
            at_monotonic_ns=strike.at_ns,
            iteration_s=self._iteration_s(strike.at_ns),
            sources=strike.sources,
            targets=strike.targets,
            pairs=strike.pairs,
            phase=self.fault.phase,
        )

    def _iteration_s(self, before_ns: int) -> float:
        took_s = _took_s(at_ns for at_ns in self._hub.began_ns.values() if at_ns <= before_ns)
        return statistics.median(took_s) if took_s else 0.0

    def _settings(self, rank: int) -> dict[str, Any]:
        settings = dict(self.fault.settings)
        name, variant = self.fault.name, self.plan.variant.name
        if variant.endswith("peers-exit"):
            settings["on_error"] = "exit"
        if name == "never-init" and rank == self.plan.victims[0]:
            settings["prepare_s"] = _FOREVER_S
        if name == "first-compile":
            settings["compile_s"] = random.Random(f"{self._seed}/{rank}").uniform(2, 6)
        return settings | settings_of(name, variant, rank, self.plan.victims[0], self.layout)


def _took_s(began_ns: Iterable[int]) -> list[float]:
    return [(after - at) / 1e9 for at, after in pairwise(sorted(began_ns)[_WARM_UP:])]

"""The death matrix and the async matrix: entries like those of the catalogue, whose form is fixed by their name.

Death matrix: {raise, kill, exit, larger, smaller, own-timeout} x {reraise, exit}. Whoever dies first is often a
victim; the culprit is the rank that was struck. Async matrix: something is in flight that blocks nobody, and a rank
gets stuck beside it.
"""

from __future__ import annotations

from typing import Any

from whichrank.testbed.demo.fault import EXITED, INCONSISTENT, NOT_ENTERED, STOPPED_INSIDE, Fault, Variant

_SCENARIOS = "whichrank.testbed.demo.scenarios"
_IN_USER_CODE = ("in user code",)
_PEERS: dict[str, dict[str, Any]] = {"reraise": {}, "exit": {"on_error": "exit"}}
_GROUP_TIMEOUT_S = "8"

_STUCK = (
    Variant("sleep", "hang", ""),
    Variant("spin", "hang", ""),
    Variant("sleep-gil", "hang", "", reasons=("GIL held",)),
)


def _deaths(peers: str) -> list[Fault]:
    settings = _PEERS[peers]
    then = "re-raise" if peers == "reraise" else "end themselves with os._exit(1)"
    return [
        Fault(f"death-raise-{peers}", f"The rank raises; its peers {then}.", "in-program", "op",
              (Variant("value-error", "death", ""),), do="raise", causes=EXITED, reasons=("exception",), hard=True,
              settings=settings),
        Fault(f"death-kill-{peers}", f"SIGKILL from outside; its peers {then}.", "outside", "signal",
              (Variant("sigkill", "death", ""),), causes=EXITED, reasons=("signal",), hard=True, settings=settings),
        Fault(f"death-exit-{peers}", f"The rank ends itself; its peers {then}.", "in-program", "op",
              (Variant("os-exit-3", "death", ""), Variant("sys-exit-0", "death", "")),
              do="exit", causes=EXITED, hard=True, settings=settings),
        Fault(f"death-larger-{peers}", f"A larger shape makes Gloo abort a healthy neighbour; the others {then}.",
              "in-program", "op", (Variant("larger", "abort", "", sites="all_reduce"),),
              do="wrong-shape", causes=INCONSISTENT, hard=True, settings=settings),
        Fault(f"death-smaller-{peers}", f"A smaller shape makes Gloo abort the rank itself; the others {then}.",
              "in-program", "op", (Variant("smaller", "abort", "", sites="all_reduce"),),
              do="wrong-shape", causes=INCONSISTENT, hard=True, settings=settings),
        Fault(f"death-own-timeout-{peers}", f"The rank sleeps past its groups' timeout; its peers {then} first.",
              "in-program", "op", (Variant("python", "death", ""),), do="sleep", causes=NOT_ENTERED,
              reasons=_IN_USER_CODE, settings=settings, job_args=("--group-timeout-s", _GROUP_TIMEOUT_S)),
    ]  # fmt: skip


def _stuck(name: str, module: str, description: str) -> Fault:
    return Fault(f"async-{name}", description, "in-program", "place", _STUCK,
                 causes=NOT_ENTERED, reasons=_IN_USER_CODE, module=f"{_SCENARIOS}.{module}")  # fmt: skip


DEATH: dict[str, Fault] = {fault.name: fault for peers in _PEERS for fault in _deaths(peers)}

ASYNC: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        _stuck("posted-irecv", "posted_irecv", "A posted receive, and stuck in compute."),
        _stuck("fsdp2-prefetch", "fsdp2_prefetch", "FSDP2 has the next layer's gather out; stuck in this one."),
        _stuck("ddp-overlap", "ddp_overlap", "DDP's reducer has buckets out; stuck in the backward pass."),
        _stuck("finished-send", "finished_send", "The rank's send is complete, then it is stuck."),
        Fault("async-then-stop", "An asynchronous all-reduce, then SIGSTOP.", "in-program", "place",
              (Variant("stop", "hang", ""),), causes=STOPPED_INSIDE, reasons=("stopped",), hard=True,
              module=f"{_SCENARIOS}.async_then_stop"),
        _stuck("many-in-flight", "many_in_flight", "More than 64 operations in flight, and stuck among them."),
    )
}  # fmt: skip

MATRIX: dict[str, Fault] = {**DEATH, **ASYNC}

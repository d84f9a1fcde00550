"""What of a fault can be done on a network: a fault that would change nothing there is refused before a job runs."""

from __future__ import annotations

from dataclasses import replace

from whichrank.errors import UsageError
from whichrank.testbed.demo.fault import Fault, Variant
from whichrank.testbed.lab.network import bits_of
from whichrank.testbed.lab.topology import Topology

_OF_A_RATE = "bit"
"""What names of forms end with that are rates of cables."""


def possible(fault: Fault, topology: Topology | None, rate: str, variant: str = "", command: str = "") -> Fault:
    """The fault, with the forms only that change something on this network.

    Args:
        fault: From the catalogue.
        topology: Of the network; None: this machine as it is.
        rate: Of its cables; empty: as fast as this machine can.
        variant: The form that is asked for; empty: any.
        command: That makes such a network, if it is not this one.

    Raises:
        UsageError: It has none, or needs more nodes or switches than there are.
    """
    for name in ("nodes", "leaves", "spines"):
        needed, there = getattr(fault, name), getattr(topology, name) if topology else 1
        if there < needed:
            are = f"are {there}" if there != 1 else "is 1"
            what = f"the fault '{fault.name}' needs {needed} {name}, and there {are}"
            raise UsageError(what, mend=f"{command} --{name} {needed}".strip())
    forms = tuple(form for form in fault.variants if _is_slower(form, rate))
    if not any(variant in ("", form.name) for form in forms):
        slowest = variant or fault.variants[-1].name
        what = f"the fault '{fault.name}' limits a cable to {slowest}, and all cables have {rate}"
        raise UsageError(what, mend=f"{command} --rate 200mbit".strip())
    return replace(fault, variants=forms)


def _is_slower(form: Variant, rate: str) -> bool:
    """Whether it is no rate, or less than that of the cables."""
    return not rate or not form.name.endswith(_OF_A_RATE) or bits_of(form.name) < bits_of(rate)

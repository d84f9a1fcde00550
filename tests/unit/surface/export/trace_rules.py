"""The documented rules of Chrome's trace events, as viewers rely on them.

Source: "Trace Event Format" (Google), and how Perfetto imports it: `X` and `B`/`E` make a stack on each thread, so
slices nest or follow each other; flows bind to the slice that is open on their thread; names come in metadata.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Event = dict[str, Any]


def broken_rules(trace: dict[str, Any]) -> list[str]:
    """Sentences, none of a trace that viewers show as it is meant."""
    events: list[Event] = trace["traceEvents"]
    found = []
    for event in events:
        if event["ph"] not in ("X", "B", "E", "i", "M", "s", "t", "f"):
            found.append(f"phase {event['ph']} is not known")
        if event["ph"] != "M" and not (type(event["ts"]) is int and event["ts"] >= 0):
            found.append(f"{event['name']} has time {event['ts']}")
        if event["ph"] == "X" and not (type(event["dur"]) is int and event["dur"] >= 0):
            found.append(f"{event['name']} has length {event['dur']}")
    return [*found, *_names(events), *_nesting(events), *_flows(events)]


def _names(events: list[Event]) -> list[str]:
    """Every thread and process has one name, given before it is used."""
    found, known = [], set()
    for event in events:
        if event["ph"] == "M" and event["name"] in ("process_name", "thread_name"):
            key = (event["name"], event["pid"], event.get("tid"))
            found += [f"{key} is named twice"] * (key in known)
            known.add(key)
        elif event["ph"] != "M":
            for key in (("process_name", event["pid"], None), ("thread_name", event["pid"], event["tid"])):
                found += [f"{event['name']} is on {key}, which has no name"] * (key not in known)
    return found


def _slices(events: list[Event]) -> dict[tuple[int, int], list[tuple[int, float, str]]]:
    """Of each thread, by begin: begin, end (inf if it has none) and name."""
    found: dict[tuple[int, int], list[tuple[int, float, str]]] = defaultdict(list)
    for event in events:
        if event["ph"] in ("X", "B"):
            end = event["ts"] + event["dur"] if event["ph"] == "X" else float("inf")
            found[event["pid"], event["tid"]].append((event["ts"], end, event["name"]))
    return {thread: sorted(of, key=lambda one: (one[0], -one[1])) for thread, of in found.items()}


def _nesting(events: list[Event]) -> list[str]:
    """A slice ends before the one in which it began."""
    found = []
    for thread, slices in _slices(events).items():
        stack: list[tuple[float, str]] = []
        for begin, end, name in slices:
            while stack and stack[-1][0] <= begin:
                stack.pop()
            if stack and end > stack[-1][0]:
                found.append(f"{name} at {begin} crosses the end of {stack[-1][1]} on {thread}")
            stack.append((end, name))
    return found


def _flows(events: list[Event]) -> list[str]:
    """A flow begins once, ends once, its steps are in order of time, and each is within a slice of its thread."""
    found = []
    slices = _slices(events)
    flows: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            flows[event["id"]].append(event)
            at = event["ts"]
            if not any(begin <= at <= end for begin, end, _ in slices.get((event["pid"], event["tid"]), [])):
                found.append(f"flow {event['id']} at {at} is in no slice")
    for number, steps in flows.items():
        phases = "".join(step["ph"] for step in steps)
        if phases[0] != "s" or phases[-1] != "f" or set(phases[1:-1]) - {"t"}:
            found.append(f"flow {number} has phases {phases}")
        if [step["ts"] for step in steps] != sorted(step["ts"] for step in steps):
            found.append(f"flow {number} goes back in time")
    return found

"""Whose ends those are that launchers report of a process or of a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from whichrank.intake.ends import End
from whichrank.intake.facts import Fact
from whichrank.intake.node_errors import ranks_on
from whichrank.intake.plain_text import for_people


def with_ends(
    ends: Iterable[End], facts: Mapping[int, Fact], places: Mapping[int, tuple[str, int]]
) -> tuple[dict[int, Fact], list[str]]:
    """The facts of ranks whose process or pod has ended, and what cannot be said of a rank, for people.

    How a process ended is said of its rank. That a pod was ended is said of its rank if it has one; of several it is
    only said beside them, since any of them may have been it.

    Args:
        ends: Of processes and pods.
        facts: What is known of ranks.
        places: By rank, host and pid.
    """
    known = {rank: (fact.host, fact.pid) for rank, fact in facts.items() if fact.host or fact.pid}
    known = {**places, **known}
    hosts = {rank: host for rank, (host, _) in known.items() if host}
    found: dict[int, Fact] = {}
    unknown: list[str] = []
    for end in ends:
        ranks = _of_process(end, known) if end.pid else ranks_on(end.host, hosts)
        for rank in ranks:
            fact = found.get(rank) or facts.get(rank) or Fact(rank, *known[rank])
            if fact.status == end.status >= 0 and not end.lacked_memory:
                continue  # another launcher has said so
            is_one = len(ranks) == 1 and not fact.has_ended and end.status >= 0
            found[rank] = replace(
                fact, words=tuple(dict.fromkeys((*fact.words, end.text))),
                status=end.status if is_one else fact.status,
                lacked_memory=fact.lacked_memory or (len(ranks) == 1 and end.lacked_memory),
                at_s=end.at_s if is_one else fact.at_s,
            )  # fmt: skip
        if not ranks:
            of_host = f" of {for_people(end.host, 96)}" if end.host else ""
            whose = f"process {end.pid}{of_host}: " if end.pid else ""
            unknown.append(f"{whose}{end.text}; no line says which rank that is")
    return found, unknown


def _of_process(end: End, places: Mapping[int, tuple[str, int]]) -> list[int]:
    """The rank whose process it is; none if that fits several."""
    mine = [
        rank for rank, (host, pid) in places.items() if pid == end.pid and (host == end.host or not (host and end.host))
    ]
    return mine if len(mine) == 1 else []

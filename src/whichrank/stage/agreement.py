"""Whether the configuration of a job and its communicators say the same of its layout.

A configuration may be of another job, or be changed on the command line, so what the communicators say counts. Each
degree on which the two differ is a `Conflict`: which key says what, and what the communicators say. What communicators
leave open is taken from the configuration if all communicators agree with it.

Example: the configuration says --tensor-model-parallel-size 8, and groups described as tp have four ranks: a conflict
of tp, 8 against 4. Had these groups no description, the layout would be that of the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from whichrank.errors import UsageError
from whichrank.stage.boxes import not_alike
from whichrank.stage.config_file import Configured
from whichrank.stage.groups import Groups
from whichrank.stage.layout import DIMENSIONS, Layout
from whichrank.stage.learned import MOST_MEMBERS, Learned, learn


class Source(Enum):
    """Where a layout is from."""

    COMMUNICATORS = "communicators"
    CONFIGURATION = "configuration"


@dataclass(frozen=True)
class Conflict:
    """A degree on which configuration and communicators differ.

    Attributes:
        role: Of ROLES; empty: the number of ranks of the job, or the order of dimensions.
        key: That says it in the configuration; empty if none does.
        configured: What it says there: a degree, the order, or the ranks of a group.
        learned: What the communicators say of the same.
    """

    role: str
    key: str
    configured: str
    learned: str


@dataclass(frozen=True)
class Agreed:
    """The layout of a job by both.

    Attributes:
        layout: None where it is not known, or there is no single one.
        source: Where it is from; None without one.
        conflicts: Where the two differ.
    """

    layout: Layout | None
    source: Source | None
    conflicts: tuple[Conflict, ...]


def agreed(groups: Groups, configured: Configured) -> Agreed:
    """Hold a configuration against the communicators of a job."""
    learned = learn(groups)
    conflicts = _conflicts(learned, configured, groups.ranks)
    if learned.layout is not None:
        return Agreed(learned.layout, Source.COMMUNICATORS, tuple(conflicts))
    if conflicts or learned.misfits:
        return Agreed(None, None, tuple(conflicts))
    layout = configured.layout(groups.ranks)
    conflicts = _other_groups(groups, layout, configured)
    if conflicts:
        return Agreed(None, None, tuple(conflicts))
    return Agreed(layout, Source.CONFIGURATION, ())


def _conflicts(learned: Learned, configured: Configured, ranks: int) -> list[Conflict]:
    found = [
        Conflict(role, configured.keys[role], str(said), str(learned.degrees[role]))
        for role, said in configured.degrees.items()
        if learned.degrees.get(role, said) != said and not _is_context_too(role, learned, configured)
    ]
    try:
        layout = configured.layout(ranks)
    except UsageError:
        said = " x ".join(f"{role}{many}" for role, many in configured.degrees.items() if role in DIMENSIONS)
        return found or [Conflict("", "", said, f"{ranks} ranks")]
    if learned.layout is not None and not found and configured.order is not None:
        mine, theirs = (_order(one) for one in (layout, learned.layout))
        if mine != theirs:
            found.append(Conflict("", "", "-".join(mine), "-".join(theirs)))
    return found


def _other_groups(groups: Groups, layout: Layout, configured: Configured) -> list[Conflict]:
    """Groups of one role that are as large as a layout has them, and lie elsewhere."""
    found = []
    known = groups.complete & (groups.size > 1)
    for number, family in enumerate(groups.families):
        comms = np.flatnonzero(known & (groups.family == number))
        if len(family.dimensions) != 1 or not len(comms):
            continue
        (role,) = family.dimensions
        expected = [(layout.group(role), layout.degree(role))]
        if role == "dp":
            expected.append((layout.group("dp") - layout.place("cp") * layout.stride("cp"), layout.dp * layout.cp))
        if family.part or any(not len(not_alike(groups, comms, group, size)) for group, size in expected):
            continue
        at = int(groups.at[comms[0]])
        theirs = sorted(groups.member[at : at + int(groups.size[comms[0]])].tolist())
        mine = np.flatnonzero(expected[0][0] == expected[0][0][theirs[0]]).tolist()
        key = configured.keys.get(role, "")
        found.append(Conflict(role, key, _shown(mine), _shown(theirs)))
    return found


def _shown(ranks: list[int]) -> str:
    more = "-..." if len(ranks) > MOST_MEMBERS else ""
    return "-".join(map(str, ranks[:MOST_MEMBERS])) + more


def _is_context_too(role: str, learned: Learned, configured: Configured) -> bool:
    """Data is what data and context are together: gradients are reduced over both, and no context group is known."""
    data, context = (configured.degrees.get(name, 1) for name in ("dp", "cp"))
    if learned.degrees.get("cp", 1) != 1 or learned.degrees.get("dp", data * context) != data * context:
        return False
    return role == "dp" or (role == "cp" and "dp" in configured.degrees)


def _order(layout: Layout) -> tuple[str, ...]:
    """Of the dimensions that have more than one rank."""
    return tuple(name for name in layout.order if layout.degree(name) > 1)

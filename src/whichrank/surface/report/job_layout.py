"""How the ranks of a job are arranged, in words for the head of a page."""

from __future__ import annotations

from typing import Final

from whichrank.stage.layout import DIMENSIONS, ROLES, Layout
from whichrank.stage.learned import Learned, Misfit, Reason
from whichrank.verdict.words.amounts import ranges

_WHY: Final = {
    Reason.UNEVEN: "{group} is not evenly spaced",
    Reason.CROSSES: "{group} cuts across groups of another role",
    Reason.CONTRADICTS: "{group} contradicts other groups of that role",
    Reason.SHARES: "{group} has ranks in common that another role claims",
    Reason.EXPERTS: "{group} does not lie among neighbours in data and context",
}


def is_sure(learned: Learned) -> bool:
    """All of the layout is known, and from descriptions: operations may look like those of another role."""
    return learned.layout is not None and learned.confidence == 1.0


def layout_name(layout: Layout) -> str:
    """Such as ``tp2-dp4-pp2``, with the order of dimensions where it is not the usual one."""
    order = "-".join(name for name in layout.order if layout.degree(name) > 1)
    usual = "-".join(name for name in DIMENSIONS if layout.degree(name) > 1)
    return layout.name if order == usual else f"{layout.name} in the order {order}"


def why_no_layout(learned: Learned) -> str:
    """Why there is no single layout, or what is known of it; empty if nothing is known, or all is."""
    if learned.layout is not None:
        return "" if is_sure(learned) else f"by its operations the layout may be {layout_name(learned.layout)}"
    if learned.misfits:
        return f"no single layout: {_why(learned.misfits[0])}"
    known = "-".join(f"{role}{learned.degrees[role]}" for role in ROLES if role in learned.degrees)
    return f"of the layout only {known} is known" if known else ""


def _why(misfit: Misfit) -> str:
    kind = "-".join(misfit.dimensions)
    more = "..." if misfit.size > len(misfit.members) else ""
    members = ranges(misfit.members) + more
    if misfit.reason is not Reason.DIFFERS:
        return _WHY[misfit.reason].format(group=f"the {kind} group of ranks {members}")
    if misfit.size != misfit.usual_size:
        return f"ranks {members} are a {kind} group, and others have {misfit.usual_size} ranks"
    return f"the {kind} group of ranks {members} lies otherwise than the others"

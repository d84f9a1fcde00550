"""How the ranks of a job are arranged, in words for the head of a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from whichrank.stage.agreement import Conflict, Source, agreed
from whichrank.stage.config_file import Configured
from whichrank.stage.groups import Groups
from whichrank.stage.layout import DIMENSIONS, ROLES, Layout
from whichrank.stage.learned import Learned, Misfit, Reason, learn
from whichrank.verdict.words.amounts import ranges

_WHY: Final = {
    Reason.UNEVEN: "{group} is not evenly spaced",
    Reason.CROSSES: "{group} cuts across groups of another role",
    Reason.CONTRADICTS: "{group} contradicts other groups of that role",
    Reason.SHARES: "{group} has ranks in common that another role claims",
    Reason.EXPERTS: "{group} does not lie among neighbours in data and context",
}


@dataclass(frozen=True)
class LayoutWords:
    """What is said of a job's layout.

    Attributes:
        name: Of the layout, as `layout_name` has it; empty where it is not sure.
        known: The layout and where it is from; or why it is not known; empty if nothing is.
        conflicts: A sentence for each point on which the communicators and a configuration differ.
    """

    name: str = ""
    known: str = ""
    conflicts: tuple[str, ...] = ()


NO_LAYOUT: Final = LayoutWords()


def layout_words(groups: Groups, configured: Configured | None) -> LayoutWords:
    """What a page says of the layout.

    Args:
        groups: The communicators of a job.
        configured: What a configuration says of it; None where there is none.
    """
    learned = learn(groups)
    name = layout_name(learned.layout) if learned.layout is not None and is_sure(learned) else ""
    known = f"layout {name}, learned from communicators" if name else why_no_layout(learned)
    if configured is None:
        return LayoutWords(name, known)
    both = agreed(groups, configured)
    conflicts = tuple(_conflict(one) for one in both.conflicts)
    if both.layout is None or conflicts:
        return LayoutWords(name, known, conflicts)
    name = layout_name(both.layout)
    is_configured = both.source is Source.CONFIGURATION
    source = "the configuration; no communicator contradicts it" if is_configured else "communicators and configuration"
    return LayoutWords(name, f"layout {name}, by {source}")


def _conflict(one: Conflict) -> str:
    key = f" ({one.key})" if one.key else ""
    what = f"{one.role} is" if one.role else "the job is"
    return f"By the configuration{key} {what} {one.configured}, by the communicators {one.learned}."


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

"""Attempts of a job: a list of all of them, and a short part for each one before the last."""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.model.incident import Incident
from whichrank.surface.report.gather import EarlierAttempt, Gathered
from whichrank.surface.report.html import Html, el, join, section
from whichrank.surface.report.verdict import short_article
from whichrank.verdict.words.text import headline


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{_capital(text)}."


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def index_of_attempts(gathered: Gathered) -> Html:
    """The attempts, the last one first, each with its incidents and their places in the page."""
    attempts = [(gathered.attempt, gathered.incidents, bool(gathered.left_open))]
    attempts += [(one.title, one.incidents, bool(one.left_open)) for one in gathered.earlier]
    lines = (
        el("li", f"{_capital(title)}: ", _said_of(incidents, place, is_open=is_open))
        for place, (title, incidents, is_open) in enumerate(attempts)
    )
    return el("nav", el("h2", "Attempts"), el("ul", *lines))


def _said_of(incidents: Sequence[Incident], place: int, *, is_open: bool) -> Html:
    """The incidents of an attempt as links to their places, or that there are none.

    Args:
        incidents: Of the attempt.
        place: Of the attempt in the page, from 0, the last attempt.
        is_open: Its recording does not show which rank waits for which.
    """
    if not incidents:
        return join(("not decided" if is_open else "no incident",))
    links = [
        el("a", headline(one), href=f"#{_anchor(place, number)}", class_=one.severity)
        for number, one in enumerate(incidents, 1)
    ]
    return join(part for at, link in enumerate(links) for part in (("; ", link) if at else (link,)))


def _anchor(place: int, number: int) -> str:
    return f"incident-{number}" if not place else f"earlier-{place}-incident-{number}"


def earlier_attempt(gathered: Gathered, attempt: EarlierAttempt, place: int) -> Html:
    """An attempt before the last one: its verdict and the evidence for it.

    Args:
        gathered: The job.
        attempt: One of its earlier attempts.
        place: Of the attempt in the page, from 1, the latest first.
    """
    said: list[Html] = [
        short_article(gathered, incident, _anchor(place, number))
        for number, incident in enumerate(attempt.incidents, 1)
    ]
    if attempt.left_open:
        why = f"Its recording does not show which rank waits for which: {attempt.left_open}."
        said.append(el("p", why, class_="missing"))
    elif not said:
        said.append(el("p", "No incident.", class_="nothing"))
    said += [el("p", sentence(text), class_="soft") for text in attempt.remarks]
    return section(_capital(attempt.title), *said)

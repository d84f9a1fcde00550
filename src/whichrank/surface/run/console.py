"""What a run says on stderr: one sentence where something of ours fails, a notice in a line, an alert in full."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

import click

from whichrank.model.incident import Incident
from whichrank.model.plain_text import one_line
from whichrank.server.mitigations_file import Mitigated
from whichrank.server.validations_file import Validated
from whichrank.surface.lines import for_stream
from whichrank.surface.mitigated import sentence_of as sentence_of_mitigated
from whichrank.surface.validated import sentence_of
from whichrank.verdict.words.text import headline, paragraph

_COLOUR = {"alert": "red", "notice": "yellow"}


class Console:
    """Prints to a stream that the job writes to as well; a stream that is gone is no error.

    Args:
        quiet: Print alerts only.
        stream: stderr by default.
    """

    def __init__(self, *, quiet: bool, stream: TextIO | None = None) -> None:
        self._quiet = quiet
        self._stream: TextIO | None = stream or sys.stderr  # None: closed by whoever started us
        self._colour = bool(self._stream and self._stream.isatty()) and not os.environ.get("NO_COLOR")
        self._said: dict[str, tuple[object, ...]] = {}

    def say(self, sentence: str) -> None:
        """Talk of ours; not when quiet. What is told to a rank's stderr as well brings the name along."""
        if not self._quiet:
            self._print(f"whichrank: {one_line(sentence.removeprefix('whichrank: '))}")

    def incident(self, incident: Incident) -> None:
        """An incident that is new or changed; what a reader knows already is not said again."""
        named = tuple(culprit.rank for culprit in incident.culprits)
        now = (incident.severity, incident.status, incident.cause, named)
        before = self._said.get(incident.id)
        if before == now or (before and incident.status == "final" and (before[0], *before[2:]) == (now[0], *now[2:])):
            return  # the end of the job is no news
        self._said[incident.id] = now
        is_alert = incident.severity == "alert"
        if self._quiet and not is_alert:
            return
        title = for_stream(f"whichrank: {headline(incident)}  [{one_line(incident.id)}]", self._stream)
        if self._colour:
            title = click.style(title, fg=_COLOUR[incident.severity], bold=is_alert)
        self._print(f"{title}\n{for_stream(paragraph(incident), self._stream)}" if is_alert else title)

    def validated(self, result: Validated) -> None:
        """What a validation says."""
        self.say(sentence_of(result))

    def mitigated(self, line: Mitigated) -> None:
        """What is done about something slow."""
        self.say(sentence_of_mitigated(line))

    def _print(self, text: str) -> None:
        if self._stream is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text + "\n")
            self._stream.flush()

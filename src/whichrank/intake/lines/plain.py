"""What wraps a line, taken off: colours, JSON of log collectors, escapes of HTML, progress bars."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from whichrank.intake.lines.hints import has_any

_ANSI: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_])|\x9b[0-?]{0,32}[@-~]"
)
_FIELDS: Final = ("log", "message", "msg", "textPayload", "MESSAGE", "line", "text", "body", "@message", "_raw")
"""Of a JSON record, in which the line stands: docker and fluentd, CloudWatch, GCP, journald, Loki."""
_TIMES: Final = ("time", "timestamp", "@timestamp", "ts")
_FIELD: Final = re.compile(
    r'^\s{0,64}"(?:' + "|".join(map(re.escape, _FIELDS)) + r')"\s{0,4}:\s{0,4}("(?:.*)")\s{0,4},?\s{0,4}$'
)
_MOST_NESTED: Final = 3
_ESCAPES: Final = ("&lt;", "&gt;", "&amp;", "&quot;", "&#")


def plain_lines(line: str) -> Iterable[str]:
    """The lines that stand in a line."""
    line = line.removesuffix("\r")
    if is_plain_line(line):
        return (line,) if line else ()
    return _unwrapped(line)


def _unwrapped(line: str) -> Iterator[str]:
    if "\x1b" in line or "\x9b" in line:
        line = _ANSI.sub("", line)
    if "&quot;" in line:
        line = html.unescape(line)  # of a record that was put into a page
    for text in _within_json(line, _MOST_NESTED):
        for _ in range(2):
            if "&" in text and has_any(text, _ESCAPES):
                text = html.unescape(text)
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        if "\\n" in text:
            text = text.replace("\\n", "\n").replace("\\t", "\t")
        if "\r" in text or "\n" in text:
            yield from (part for part in re.split(r"[\r\n]", text) if part)
        elif text:
            yield text


def is_plain_line(line: str) -> bool:
    """Is a line wrapped in nothing, so that it is the one line that stands in it?"""
    return not (
        '"' in line or "\\" in line or "&" in line or "\r" in line or "\n" in line or "\x1b" in line or "\x9b" in line
    )


def _within_json(line: str, depth: int) -> Sequence[str]:
    """The text in a record, or the line itself; a time beside it is put before it."""
    start = line.find("{")
    if not depth or start < 0 or '":' not in line:
        return _field_of(line) if '":' in line or '" :' in line else (line,)
    record = _decoded(line[start:].rstrip().rstrip(","))
    if not isinstance(record, dict):
        return _field_of(line)
    text = _first_text(record, _FIELDS)
    if text is not None:
        at = _first_text(record, _TIMES) or ""
        parts = text.splitlines()
        if "{" in text:
            parts = [inner for part in parts for inner in _within_json(part, depth - 1)]
        return [f"{at} {part}" for part in parts] if at else parts
    for value in record.values():
        if isinstance(value, list) and value:
            events = [_first_text(event, _FIELDS) or "" for event in value if isinstance(event, dict)]
            return [part for text in events for part in text.splitlines()]
    return _field_of(line)


def _field_of(line: str) -> Sequence[str]:
    """The text in a line of a record that stands over several, or the line itself."""
    found = _FIELD.match(line)
    text = _decoded(found.group(1)) if found else None
    return text.splitlines() if isinstance(text, str) else (line,)


def _first_text(record: dict[str, Any], names: Iterable[str]) -> str | None:
    """The first of these fields that is a text."""
    for name in names:
        if isinstance(text := record.get(name), str):
            return text
    return None


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None

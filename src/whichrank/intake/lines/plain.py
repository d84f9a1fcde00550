"""What wraps a line, taken off: colours, JSON of log collectors, escapes of HTML, progress bars."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

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


def plain_lines(line: str) -> Iterator[str]:
    """The lines that stand in a line."""
    line = line.removesuffix("\r")
    if is_plain_line(line):
        if line:
            yield line
        return
    if "\x1b" in line or "\x9b" in line:
        line = _ANSI.sub("", line)
    if "&quot;" in line:
        line = html.unescape(line)  # of a record that was put into a page
    for text in _within_json(line, _MOST_NESTED):
        for _ in range(2):
            if any(escape in text for escape in _ESCAPES):
                text = html.unescape(text)
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        if "\\n" in text:
            text = text.replace("\\n", "\n").replace("\\t", "\t")
        yield from (part for part in re.split(r"[\r\n]", text) if part)


def is_plain_line(line: str) -> bool:
    """Is a line wrapped in nothing, so that it is the one line that stands in it?"""
    return not (
        '"' in line or "\\" in line or "&" in line or "\r" in line or "\n" in line or "\x1b" in line or "\x9b" in line
    )


def _within_json(line: str, depth: int) -> Iterator[str]:
    """The text in a record, or the line itself; a time beside it is put before it."""
    start = line.find("{")
    if not depth or start < 0 or '":' not in line:
        found = _FIELD.match(line) if '":' in line or '" :' in line else None
        if found and (text := _decoded(found.group(1))) is not None and isinstance(text, str):
            yield from text.splitlines()
        else:
            yield line
        return
    record = _decoded(line[start:].rstrip().rstrip(","))
    if isinstance(record, dict):
        text = next((record[name] for name in _FIELDS if isinstance(record.get(name), str)), None)
        if text is not None:
            at = next((str(record[name]) for name in _TIMES if isinstance(record.get(name), str)), "")
            for part in text.splitlines():
                for inner in _within_json(part, depth - 1):
                    yield f"{at} {inner}" if at else inner
            return
        events = next((value for value in record.values() if isinstance(value, list)), None)
        if events:
            for event in events:
                if isinstance(event, dict):
                    text = next((event[name] for name in _FIELDS if isinstance(event.get(name), str)), "")
                    yield from str(text).splitlines()
            return
    found = _FIELD.match(line)
    text = _decoded(found.group(1)) if found else None
    yield from text.splitlines() if isinstance(text, str) else (line,)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None

"""Text as people have it, taken apart into pieces that one writer wrote.

In this order: encodings (`encodings`), lines that a terminal or a mail program has wrapped (`wrapped`), lines in which
something of interest stands (`hints`), what wraps a line as JSON, HTML or colours (`plain`), prefixes of launchers and
log collectors (`prefixes`), and lines in which several have written (`torn`). `pieces` is all of it in one call.
May be imported from here by `intake`. Patterns here are linear: bounded, and without nested repetition.
"""

from __future__ import annotations

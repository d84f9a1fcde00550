"""Half a sentence of a verdict, put into the past once what it tells of is over.

`why` of a culprit is written by the analyzer while the job hangs: "it has not entered all_reduce #7, and its process
12 is stopped". Read an hour later that is wrong, and the incident keeps its words. The analyzer's clauses are few and
begin with a subject of a closed list, so the verb behind such a subject is put into the past, and nothing else is
touched: neither the names of functions, groups and phases nor the message of an exception, which ends the half
sentence. A clause that is not known here stays as it was written.
"""

from __future__ import annotations

import re
from typing import Final

_PAST: Final = {
    "has": "had", "have": "had", "is": "was", "are": "were", "wait": "waited", "waits": "waited", "sleeps": "slept",
    "holds": "held", "writes": "wrote", "work": "worked", "runs": "ran", "run": "ran", "get": "got", "does": "did",
    "lacks": "lacked", "takes": "took", "makes": "made", "make": "made", "costs": "cost", "limits": "limited",
    "sends": "sent", "receives": "received", "reads": "read", "differs": "differed",
}  # fmt: skip
_SUBJECT: Final = (
    r"it(?: alone)?|it and (?:rank \d+|\d+ other ranks)|an iteration|its process(?: \d+)?|its main thread"
    r"|(?:those of )?its peers|its (?:node|control group|affinity|core|memory|hypervisor)"
    r"|its (?:child processes|garbage collector)|(?:the )?others|ranks|\d+(?: rank)?|that|this(?: order)?"
)
_CLAUSE: Final = re.compile(rf"(?<![\w.:/'-])({_SUBJECT}) ({'|'.join(_PAST)})\b(?![\w.:/(-])", re.IGNORECASE)
_MESSAGE: Final = " raised "


def past(why: str) -> str:
    """The half sentence as it reads when all is over."""
    clauses, raised, message = why.partition(_MESSAGE)
    return _CLAUSE.sub(lambda found: f"{found[1]} {_PAST[found[2].lower()]}", clauses) + raised + message

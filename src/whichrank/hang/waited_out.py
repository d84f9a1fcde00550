"""Waits for the same ranks, for the same reason, that have ended by themselves: the next one is no news.

Rank 0 evaluates every thousand iterations, and all others wait for it for a minute each time. The first of these is
worth a notice; the next ones are how the program is, unless one lasts much longer. Alerts are not held back.
"""

from __future__ import annotations

from typing import Final

from whichrank.model.finding import Finding

LONGER: Final = 2.0
"""Times the longest that has ended, from which a wait is news again."""
MOST_KEPT: Final = 1024
"""Waits that have ended by themselves, remembered."""

_Key = tuple[object, ...]


class WaitedOut:
    """How long waits lasted that have ended by themselves, by what was said of them."""

    def __init__(self) -> None:
        self._longest_s: dict[_Key, float] = {}

    def learn(self, finding: Finding, lasted_s: float) -> None:
        """A wait has ended, and the job has gone on.

        Args:
            finding: What was last said of it.
            lasted_s: Seconds from its onset to its end.
        """
        key = _key(finding)
        longest_s = max(lasted_s, self._longest_s.pop(key, 0.0))
        self._longest_s[key] = longest_s
        while len(self._longest_s) > MOST_KEPT:
            del self._longest_s[next(iter(self._longest_s))]

    def is_usual(self, finding: Finding, waited_s: float) -> bool:
        """Has the job waited out nearly as long a wait of this sort before?

        Args:
            finding: What is said of the wait.
            waited_s: Seconds that it has lasted.
        """
        return waited_s < LONGER * self._longest_s.get(_key(finding), 0.0)


def _key(finding: Finding) -> _Key:
    ranks = finding.names or frozenset(blame.rank for blame in finding.candidates)
    kind = (finding.op or {}).get("kind")
    return finding.cause, finding.reason, ranks, finding.comm, kind

"""Feeds `detect` and `locate`, keeps the state of a job, and merges findings into incidents.

`state` holds the columns, `history` what every rank issued, `diagnosis` asks the questions in their order,
`incidents` keeps one incident per root cause, `slow` is what takes longer than it should, `analyzer` is the front:
`feed(batch, now)`, `tick(now)`, `finish(now)`. Sans-I/O: time is an argument. Architecture of CCL-D section 4.2, rules
of DESIGN 5.
"""

from whichrank.analyzer.analyzer import Analyzer

__all__ = ["Analyzer"]

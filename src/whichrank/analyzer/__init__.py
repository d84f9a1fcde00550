"""The front of the analyzer: `feed(batch, now)`, `tick(now)`, `finish(now)`, `at_rest(now, recorded)`.

It feeds the store, asks `hang` and `slow`, and lets `verdict` report. Sans-I/O: time is an argument, so the same code
runs live, in replay and in tests. Architecture of CCL-D section 4.2, rules of DESIGN 5. May be imported from here
by `surface` and `testbed`.
"""

from whichrank.analyzer.analyzer import Analyzer

__all__ = ["Analyzer"]

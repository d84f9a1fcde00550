"""The front of the analyzer: `feed(batch, now)`, `tick(now)`, `finish(now)`, `at_rest(now, recorded)`.

It feeds the `store`, asks `hang` and `slow`, and lets `verdict` report: `hangs` and `slowdowns` say what is found of a
job that goes on or waits, and withdraw what is over, `endings` of one that ends; `asked` is what agents are asked for.
Sans-I/O: time is an argument, so the same code runs live, in replay and in tests. Architecture of CCL-D section 4.2,
rules of DESIGN 5. May be imported from here by `server`, `testbed` and `surface`.
"""

from whichrank.analyzer.analyzer import Analyzer

__all__ = ["Analyzer"]

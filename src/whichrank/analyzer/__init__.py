"""The front of the analyzer: `feed(batch, now)`, `tick(now)`, `finish(now)`, `at_rest(now, recorded)`.

It feeds the `store`, asks `hang` and `slow`, and lets `verdict` report: `hangs` and `slowdowns` say what is found of a
job that goes on or waits, and withdraw what is over, `endings` of one that ends; `asked` is what agents are asked for,
`logged_slowdowns` what a training log says of iterations.
Sans-I/O: time is an argument, so the same code runs live, in replay and in tests. Architecture of CCL-D section 4.2,
rules of DESIGN 5. May be imported from here by `server`, `testbed` and `surface`.
"""

from whichrank.analyzer.analyzer import Analyzer
from whichrank.analyzer.logged_slowdowns import slowdowns_in

__all__ = ["Analyzer", "slowdowns_in"]

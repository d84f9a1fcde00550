"""What the analyzer is made of: each part once, shared by those that ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from whichrank.analyzer.asked import Asked
from whichrank.config import AnalyzerConfig
from whichrank.detect.usual import UsualWaits
from whichrank.hang.case import Case
from whichrank.hang.holding import Holding
from whichrank.hang.waited_out import WaitedOut
from whichrank.store.state import JobState
from whichrank.verdict.ledger import Ledger
from whichrank.verdict.policy import Policy


@dataclass
class Parts:
    """Of one analyzer.

    Attributes:
        config: Thresholds.
        state: What was received.
        case: Who is at fault, by what was received.
        ledger: What was reported.
        iteration_s: Seconds that an iteration takes, 0 while that is not known.
        policy: What is remembered from snapshot to snapshot.
        asked: What agents are asked.
        holding: Who holds others up, and for how long.
        usual: How long waits usually are.
        waited_out: Waits that have ended by themselves.
    """

    config: AnalyzerConfig
    state: JobState
    case: Case
    ledger: Ledger
    iteration_s: Callable[[], float]
    policy: Policy = field(default_factory=Policy)
    asked: Asked = field(default_factory=Asked)
    holding: Holding = field(default_factory=Holding)
    usual: UsualWaits = field(default_factory=UsualWaits)
    waited_out: WaitedOut = field(default_factory=WaitedOut)

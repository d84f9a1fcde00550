"""What the analyzer is made of: each part once, shared by those that ask."""

from __future__ import annotations

from dataclasses import dataclass, field

from whichrank.analyzer.asked import Asked
from whichrank.config import AnalyzerConfig
from whichrank.hang.case import Case
from whichrank.hang.holding import Holding
from whichrank.hang.waited_out import WaitedOut
from whichrank.store.store import Store
from whichrank.verdict.ledger import Ledger
from whichrank.verdict.policy import Policy


@dataclass
class Parts:
    """Of one analyzer.

    Attributes:
        config: Thresholds.
        store: What was received.
        case: Who is at fault, by what was received.
        ledger: What was reported.
        policy: What is remembered from snapshot to snapshot.
        asked: What agents are asked.
        holding: Who holds others up, and for how long.
        waited_out: Waits that have ended by themselves.
    """

    config: AnalyzerConfig
    store: Store
    case: Case
    ledger: Ledger
    policy: Policy = field(default_factory=Policy)
    asked: Asked = field(default_factory=Asked)
    holding: Holding = field(default_factory=Holding)
    waited_out: WaitedOut = field(default_factory=WaitedOut)

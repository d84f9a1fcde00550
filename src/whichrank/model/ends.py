"""How the ranks of a job ended, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whichrank.model.picture import Bools, Floats, Ints
from whichrank.model.texts import Texts


@dataclass(frozen=True)
class Ends:
    """How ranks ended, one entry per rank. Times are seconds on the analyzer's clock, 0: did not happen."""

    gone: Bools
    ended_s: Floats
    status: Ints
    """As from wait(2), -1 unknown."""
    failure_s: Floats
    failure: Texts
    exception_s: Floats
    exception: Texts
    closed_s: Floats
    """The interpreter began to end in order."""
    node: Ints
    """The node that the rank runs on, a number."""
    asked_s: Floats
    """A process of the job sent it a signal to end, and it has not gone on after that."""

    def but_for(self, ended: Bools, raised: Bools, failed: Bools, again_s: Floats) -> Ends:
        """As if these ends, exceptions and failures had not been.

        Args:
            ended: Ranks whose end is left out.
            raised: Ranks whose exception is.
            failed: Ranks whose first failure is.
            again_s: When an operation of theirs failed later, 0 if none did.
        """
        return Ends(
            gone=self.gone & ~ended,
            ended_s=np.where(ended, 0.0, self.ended_s),
            status=np.where(ended, -1, self.status),
            failure_s=np.where(failed, again_s, self.failure_s),
            failure=self.failure.but_for(failed),
            exception_s=np.where(raised, 0.0, self.exception_s),
            exception=self.exception.but_for(raised),
            closed_s=np.where(ended, 0.0, self.closed_s),
            node=self.node,
            asked_s=np.where(ended, 0.0, self.asked_s),
        )

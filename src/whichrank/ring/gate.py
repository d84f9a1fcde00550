"""Writes the gate of one rank's ring from outside: close, renew, ask for a test, open (`wr_gate` in `ring.h`).

What is told comes first and the word that an operation reads comes last, each by a `pwrite` of its own. Nothing in the
rank depends on whether one of these is atomic: it acts on a word that is zero or is not, on a number that has changed
or has not.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from whichrank.model.codes import Flag
from whichrank.model.rows import GATE, HEADER, INFLIGHT_ROW, PASSES, SIZES
from whichrank.ring.layout import INFLIGHT
from whichrank.ring.outside import RingFromOutside
from whichrank.ring.tables import offset

_GATE_AT: Final = offset("gate")
_CLOSED_AT: Final = offset("gate_closed")
_INFLIGHT_AT: Final = offset("inflight")
_ORDINAL_AT: Final = offset("ordinal", HEADER)


class RingGate(RingFromOutside):
    """The gate of a ring. One that is closed when the file is let go is not renewed any more, and opens by itself."""

    def read(self) -> Any:
        """One row of GATE.

        Raises:
            RingFormatError: The file was cut short.
        """
        return np.frombuffer(self._pread(GATE.itemsize, _GATE_AT), GATE)[0]

    def is_closed(self) -> bool:
        """Whether operations are kept back, or will be."""
        return any(self._pread(4, _CLOSED_AT))

    def ordinal(self) -> int:
        """Operations that the rank has begun."""
        return int.from_bytes(self._pread(8, _ORDINAL_AT), "little")

    def in_flight(self) -> int:
        """Operations that are not complete, of those whose end is seen."""
        rows = np.frombuffer(self._pread(INFLIGHT * INFLIGHT_ROW.itemsize, _INFLIGHT_AT), INFLIGHT_ROW)
        return int(((rows["state"] != 0) & (rows["flags"] & Flag.END_INFERRED == 0)).sum())

    def shut(self, pause: int, *, longest_s: float, at_step: int = 0, at_ordinal: int = 0) -> None:
        """Keep the rank from what comes after an optimizer step, or after an operation.

        Args:
            pause: A number that is not the latest one's, from 1.
            longest_s: It opens after so long in any case.
            at_step: The last step that it may make before it waits.
            at_ordinal: The last operation, where there are no steps.
        """
        self._pwrite(_CLOSED_AT, 0, 4)
        self._set("test", 0)
        self._set("at_step", at_step)
        self._set("at_ordinal", at_ordinal)
        self._set("longest_ms", round(longest_s * 1000))
        self._set("pause", pause)
        self._pwrite(_CLOSED_AT, 1, 4)

    def renew(self, count: int) -> None:
        """It is still wanted; `count` is another one each time."""
        self._set("renewals", count & 0xFFFFFFFF)

    def ask(self, number: int, test: Any) -> None:
        """Ask the rank to make a test while it waits.

        Args:
            number: A number that is not the latest one's, from 1.
            test: A row of GATE, of which the fields that describe a test are taken.
        """
        for name in ("test_kind", "test_slot", "test_repeats"):
            self._set(name, int(test[name]))
        self._set("test_passes", min(int(test["test_passes"]), PASSES))
        self._set("test_sizes", min(int(test["test_sizes"]), SIZES))
        for name in ("test_bytes", "test_pass"):
            os.pwrite(self._fd, np.ascontiguousarray(test[name]).tobytes(), _GATE_AT + offset(name, GATE))
        self._set("test", number)

    def open(self) -> None:
        """Let the rank go on."""
        self._pwrite(_CLOSED_AT, 0, 4)

    def _set(self, field: str, value: int) -> None:
        self._pwrite(_GATE_AT + offset(field, GATE), value, GATE[field].itemsize)

"""Writes the gate of one rank's ring from outside: close, renew, ask for a test, open (`wr_gate` in `ring.h`).

What is told comes first and the word that an operation reads comes last, each by a `pwrite` of its own. Nothing in the
rank depends on whether one of these is atomic: it acts on a word that is zero or is not, on a number that has changed
or has not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from whichrank.errors import RingFormatError
from whichrank.model.codes import Flag
from whichrank.model.rows import GATE, HEADER, INFLIGHT_ROW, PASSES, SIZES
from whichrank.ring.layout import INFLIGHT, MAGIC, RING, VERSION
from whichrank.ring.tables import offset

_GATE_AT: Final = offset("gate")
_CLOSED_AT: Final = offset("gate_closed")
_INFLIGHT_AT: Final = offset("inflight")
_ORDINAL_AT: Final = offset("ordinal", HEADER)


class RingGate:
    """The gate of the ring at `path`; close the file with `let_go`.

    Args:
        path: The file `<pid>.ring`.

    Raises:
        RingFormatError: It is no ring, or one of another version.
        OSError: It cannot be opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        header = np.frombuffer(os.pread(self._fd, HEADER.itemsize, 0).ljust(HEADER.itemsize, b"\0"), HEADER)[0]
        if header["magic"] != MAGIC or header["version"] != VERSION or os.fstat(self._fd).st_size != RING.itemsize:
            self.let_go()
            raise RingFormatError("this ring has no gate that is known here", where=str(path), mend="whichrank doctor")

    def let_go(self) -> None:
        """Close the file; a gate that is still closed is not renewed any more, and opens by itself."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

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

    def _pwrite(self, at: int, value: int, size: int) -> None:
        os.pwrite(self._fd, value.to_bytes(size, "little"), at)

    def _pread(self, size: int, at: int) -> bytes:
        data = os.pread(self._fd, size, at)
        if len(data) < size:
            raise RingFormatError("the ring was cut short", mend="whichrank doctor")
        return data

"""What went from rank to rank in the latest window, as the senders' kernels counted it.

The counters of a connection only grow, so two looks say what happened in between, however far apart they are. A
connection is known by both of its ends, and by the rank that told it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np

from whichrank.locate.links import Ends
from whichrank.model.links import Transfers

SAMPLES: Final = 16
_SAMPLE: Final = np.dtype(
    [
        ("src", "i4"),
        ("dst", "i4"),
        ("ports", "u4"),
        ("pad", "u4"),
        ("read_ns", "u8"),
        ("bytes", "u8"),
        ("busy_us", "u8"),
        ("receiver_us", "u8"),
        ("sender_us", "u8"),
        ("retransmits", "u8"),
        ("unsent", "u8"),
        ("delivery", "u8"),
    ]
)


class Traffic:
    """Samples of the connections of a job."""

    def __init__(self) -> None:
        self._samples: deque[np.ndarray[Any, Any]] = deque(maxlen=SAMPLES)

    def sample(self, ends: Ends, rows: np.ndarray[Any, Any]) -> None:
        """Keep what is known now.

        Args:
            ends: The connections, joined.
            rows: The same as rows of TCP_ROW.
        """
        known = (ends.peer >= 0) & (ends.peer != ends.rank)
        rows, info = rows[known], rows["info"][known]
        sample = np.zeros(len(rows), _SAMPLE)
        sample["src"], sample["dst"] = ends.rank[known], ends.peer[known]
        sample["ports"] = rows["local_port"].astype(np.uint32) << 16 | rows["remote_port"]
        sample["read_ns"] = rows["read_ns"]
        sample["bytes"], sample["busy_us"] = info["bytes_acked"], info["busy_us"]
        sample["receiver_us"], sample["sender_us"] = info["rwnd_limited_us"], info["sndbuf_limited_us"]
        sample["retransmits"], sample["unsent"] = info["total_retrans"], info["notsent_bytes"]
        sample["delivery"] = info["delivery_rate"]
        if not self._samples or not np.array_equal(sample, self._samples[-1]):
            self._samples.append(sample)

    def transfers(self, window_s: float) -> Transfers:
        """Sums over the connections from each rank to each other one.

        Args:
            window_s: How far to look back, by each sender's clock.
        """
        latest = self._samples[-1] if self._samples else np.zeros(0, _SAMPLE)
        then, most_unsent = latest.copy(), latest["unsent"].copy()
        for sample in reversed(self._samples):
            at = _find(sample, latest)
            known = at >= 0
            of = sample[at[known]]
            recent = latest["read_ns"][known].astype(np.int64) - of["read_ns"] <= window_s * 1e9
            place = np.flatnonzero(known)[recent]
            then[place] = of[recent]
            most_unsent[place] = np.maximum(most_unsent[place], of["unsent"][recent])
        pair = latest["src"].astype(np.int64) << 32 | latest["dst"]
        pairs, at = np.unique(pair, return_inverse=True)

        def total(name: str, scale: float) -> np.ndarray[Any, Any]:
            grown = np.maximum(latest[name].astype(np.int64) - then[name].astype(np.int64), 0)
            return np.bincount(at.reshape(-1), grown * scale, len(pairs))

        delivery = np.zeros(len(pairs))
        np.maximum.at(delivery, at.reshape(-1), latest["delivery"].astype(np.float64))
        seconds = (latest["read_ns"].astype(np.int64) - then["read_ns"].astype(np.int64)) / 1e9
        return Transfers(
            src=pairs >> 32,
            dst=pairs & 0xFFFFFFFF,
            bytes_acked=total("bytes", 1.0),
            busy_s=total("busy_us", 1e-6),
            receiver_s=total("receiver_us", 1e-6),
            sender_s=total("sender_us", 1e-6),
            retransmits=total("retransmits", 1.0),
            unsent_bytes=np.bincount(at.reshape(-1), most_unsent.astype(np.float64), len(pairs)).astype(np.float64),
            delivery=np.where(delivery > 0, delivery, np.inf),
            lasted_s=float(seconds.max(initial=0.0)),
        )


def _find(sample: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where each wanted connection stands in a sample, -1 nowhere."""
    mine = _key(sample)
    if not len(mine):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(mine, kind="stable")
    at = np.minimum(np.searchsorted(mine[order], key := _key(wanted)), len(mine) - 1)
    return np.where(mine[order][at] == key, order[at], -1)


def _key(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Ranks are below 2^20, so sender and ports fit beside a hash of the receiver."""
    pair = rows["src"].astype(np.uint64) << np.uint64(44) | rows["ports"].astype(np.uint64) << np.uint64(12)
    return np.asarray(pair | (rows["dst"].astype(np.uint64) & np.uint64(0xFFF)))

"""TCP connections between the nodes of a simulated job, as their kernels report them.

Each rank has one connection to the rank at its place on the next node, all nodes in a ring: two ends, so two rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.telemetry import TCP_ROW
from whichrank.testbed.sim.clocks import BEGIN_S, NS

Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]
ESTABLISHED: Final = 1
BYTES_PER_S: Final = 10_000_000
"""That go over a connection."""
SEGMENT: Final = 1448
"""Bytes of one."""
RTT_US: Final = 100
LEAST_RTO_S: Final = 0.2
"""After which Linux sends again what was not acknowledged; after twice the time the next time, and so on."""
_LISTENS, _CONNECTS = 20_000, 40_000
"""Ports of the first rank of a node: where others connect to it, and from where it connects."""


class Connections:
    """Of one job.

    Args:
        ranks: How many.
        per_node: Consecutive ranks that share a node.
    """

    def __init__(self, ranks: int, per_node: int) -> None:
        rank = np.arange(ranks)
        self._nodes, node, place = -(-ranks // per_node), rank // per_node, rank % per_node
        rows = np.zeros((ranks, 2), TCP_ROW)
        after, before = (node + 1) % self._nodes, (node - 1) % self._nodes
        self._peer = np.stack((after, before), axis=1)
        rows["rank"], rows["local_addr"] = rank[:, None], _addresses(node)[:, None]
        rows["remote_addr"] = np.stack((_addresses(after), _addresses(before)), axis=1)
        ports = np.stack((_CONNECTS + place, _LISTENS + place), axis=1)
        rows["local_port"], rows["remote_port"] = ports, ports[:, ::-1]
        rows["state"] = rows["info"]["state"] = ESTABLISHED
        info = rows["info"]
        info["rto_us"], info["ato_us"], info["rtt_us"], info["rttvar_us"] = 201_000, 40_000, RTT_US, RTT_US // 4
        info["min_rtt_us"], info["rcv_rtt_us"], info["reordering"], info["snd_cwnd"] = RTT_US // 2, RTT_US, 3, 10
        info["snd_mss"] = info["rcv_mss"] = info["advmss"] = SEGMENT
        info["pmtu"], info["options"], info["scales"] = 1500, 7, 0x77
        info["rcv_space"] = info["rcv_ssthresh"] = info["snd_ssthresh"] = 65_535
        info["pacing_rate"] = info["delivery_rate"] = info["max_pacing_rate"] = 10 * BYTES_PER_S
        info["last_data_sent_ms"] = info["last_data_recv_ms"] = info["last_ack_recv_ms"] = 1
        rows["arrival_rate"] = BYTES_PER_S
        self._rows = rows if self._nodes > 1 else rows[:0]

    def rows(self, at_ns: int, lost_s: dict[int, float]) -> Rows:
        """TCP_ROW of all ranks, two of each, sorted by rank, by the true clock.

        Args:
            at_ns: Now.
            lost_s: Since when some nodes do not answer.
        """
        rows, info = self._rows, self._rows["info"]
        rows["read_ns"] = at_ns
        carried = int((at_ns / NS - BEGIN_S) * BYTES_PER_S)
        info["bytes_acked"] = info["bytes_received"] = rows["arrived_bytes"] = carried
        info["segs_out"] = info["segs_in"] = info["data_segs_out"] = info["data_segs_in"] = carried // SEGMENT
        info["busy_us"] = max(0, at_ns // 1000 - int(BEGIN_S * 1e6)) // 10
        for node, since_s in lost_s.items():
            silent_s = at_ns / NS - since_s
            to_it = self._peer[: len(rows)] == node
            tries = int(np.log2(1 + max(silent_s, 0.0) / LEAST_RTO_S))
            info["retransmits"][to_it] = info["backoff"][to_it] = tries
            info["unacked"][to_it], rows["unsent_bytes"][to_it] = 1, SEGMENT
            info["last_ack_recv_ms"][to_it] = int(1000 * max(silent_s, 0.0))
            info["total_retrans"][to_it] = tries
        return rows.reshape(-1)


def address(node: int) -> str:
    """The address of a node."""
    return f"10.{node >> 16 & 255}.{node >> 8 & 255}.{node & 255}"


def _addresses(node: Ints) -> NDArray[Any]:
    """Addresses of nodes, mapped into IPv6, (n,) of V16."""
    raw = np.zeros((len(node), 16), np.uint8)
    raw[:, 10:12], raw[:, 12] = 255, 10
    for place, shift in ((13, 16), (14, 8), (15, 0)):
        raw[:, place] = node >> shift & 255
    return raw.view("V16").reshape(-1)

"""Rows of TCP_ROW as a kernel would say them."""

from __future__ import annotations

import ipaddress
from typing import Any

import numpy as np

from whichrank.model.telemetry import TCP_ROW


def address(text: str) -> bytes:
    """IPv6, or IPv4 mapped."""
    parsed = ipaddress.ip_address(text)
    return parsed.packed if parsed.version == 6 else bytes(10) + b"\xff\xff" + parsed.packed


def end(rank: int, local: str, remote: str, **info: Any) -> np.ndarray[Any, Any]:
    """One end of a connection; `local` and `remote` as ADDRESS/PORT."""
    rows = np.zeros(1, TCP_ROW)
    rows["rank"] = rank
    for side, text in (("local", local), ("remote", remote)):
        host, port = text.split("/")
        rows[f"{side}_addr"], rows[f"{side}_port"] = np.void(address(host)), int(port)
    for name, value in info.items():
        if name in TCP_ROW.names:
            rows[name] = value
        else:
            rows["info"][name] = value
    return rows


def dead_end(rank: int, local: str, remote: str) -> np.ndarray[Any, Any]:
    """Of a connection that sends the same again and gets no answer."""
    return end(rank, local, remote, retransmits=4, unacked=2, last_ack_recv_ms=6000)

"""One clock for all ranks: an operation that no member can leave before the last has entered ends for all at once.

Traces have a clock each, of hosts that may be hours apart. By how much the ends of a member are later than those of
members whose clock is known is the same for all operations of a communicator but for noise, so it is their median;
ranks are reached communicator by communicator. Drift is left out: a trace lasts for seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.kinds import SYNCHRONISING


def on_one_clock(records: Mapping[int, NDArray[Any]]) -> dict[int, int]:
    """Put the times of all ranks on the clock that is furthest ahead, in place; by how much each was moved.

    Args:
        records: By rank, rows of RECORD_REPORTED.
    """
    moved = behind_ns(records)
    for rank, mine in records.items():
        for name in ("t_issue_ns", "t_end_ns"):
            mine["row"][name] += np.uint64(moved[rank])
    return moved


def behind_ns(records: Mapping[int, NDArray[Any]]) -> dict[int, int]:
    """By how much each rank's clock is behind the one that is furthest ahead, nanoseconds; 0 where nothing says it.

    Args:
        records: By rank, rows of RECORD_REPORTED.
    """
    ranks = np.array(sorted(records), np.int64)
    ahead = np.full(len(ranks), np.nan)
    left = sorted(_tables(records, ranks), key=lambda table: -len(table[0]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN", RuntimeWarning)
        while left:
            # One of which a member's clock is known goes first; if there is none, the largest begins anew.
            who, ends = left.pop(next((n for n, (who, _) in enumerate(left) if not np.isnan(ahead[who]).all()), 0))
            if np.isnan(ahead[who]).all():
                ahead[who[0]] = 0.0
            known = ~np.isnan(ahead[who])
            if not known.all():
                usual = np.nanmedian(ends[known] - ahead[who[known], None], axis=0)
                ahead[who[~known]] = np.nanmedian(ends[~known] - usual, axis=1)
    behind = np.zeros(len(ranks)) if np.isnan(ahead).all() else np.nan_to_num(np.nanmax(ahead) - ahead)
    return dict(zip(ranks.tolist(), np.rint(behind).astype(np.int64).tolist(), strict=True))


def _tables(
    records: Mapping[int, NDArray[Any]], ranks: NDArray[np.int64]
) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Of each communicator the places of its members in `ranks`, and when each operation ended, (M, N); NaN unknown."""
    rows = [mine[np.isin(mine["row"]["kind"], list(SYNCHRONISING))] for _, mine in sorted(records.items())]
    place = np.repeat(np.arange(len(ranks)), [len(mine) for mine in rows])
    if not rows:
        return []
    every = np.concatenate(rows)
    found = []
    for comm in np.unique(every["comm"]).tolist():
        mine = every["comm"] == comm
        who, member = np.unique(place[mine], return_inverse=True)
        counters, op = np.unique(every["row"]["counter"][mine], return_inverse=True)
        ends = np.full((len(who), len(counters)), np.nan)
        ends[member.reshape(-1), op.reshape(-1)] = every["row"]["t_end_ns"][mine]
        if len(who) > 1:
            found.append((who, ends))
    return found

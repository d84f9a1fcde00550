"""The ring's layout in Python is that of the C header: every value that the compiler says, and no gaps."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ring_writer import Op, core

from whichrank.model import rows
from whichrank.ring import layout

REPORTED: dict[str, int] = json.loads(core().wr_layout_json())

STRUCTS = {
    "wr_header": rows.HEADER,
    "wr_frame": rows.FRAME,
    "wr_block": rows.BLOCK,
    "wr_channel": rows.CHANNEL,
    "wr_inflight": rows.INFLIGHT_ROW,
    "wr_wait": rows.WAIT,
    "wr_pair": rows.PAIR,
    "wr_connection": rows.CONNECTION,
    "wr_pace": rows.PACE,
    "wr_comm": rows.COMM,
    "wr_record": rows.RECORD,
    "wr_splits": rows.SPLITS_ROW,
    "wr_sensor_status": rows.SENSOR,
    "wr_gate": rows.GATE,
    "wr_pass": rows.PASS,
    "wr_share": rows.SHARE,
    "wr_shares": rows.SHARES,
    "wr_places": rows.PLACES,
    "wr_ring": layout.RING,
}
# Fields that the header names as one and Python as its parts.
INNER = {("wr_inflight", "trace_id"): "comm_id"}


def constant(name: str) -> int:
    short = name.removeprefix("WR_")
    return int(getattr(layout, short, None) or getattr(rows, short))


@pytest.mark.parametrize("name", sorted(REPORTED))
def test_value_is_the_compilers(name: str) -> None:
    kind, _, field = name.partition(".")
    if name.startswith("WR_"):
        assert constant(name) == REPORTED[name]
    elif name == "sizeof.wr_op":
        assert core() is not None
        assert __import__("ctypes").sizeof(Op) == REPORTED[name]
    elif kind == "sizeof":
        assert STRUCTS[field].itemsize == REPORTED[name]
    else:
        fields = STRUCTS[kind].fields
        assert fields is not None
        assert fields[INNER.get((kind, field), field)][1] == REPORTED[name]


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_fields_follow_each_other(name: str) -> None:
    # GIVEN a struct whose fields are all told to NumPy, without padding that could hide a missing one
    dtype = STRUCTS[name]
    assert dtype.fields is not None
    places = sorted((place[1], place[1] + place[0].itemsize) for place in dtype.fields.values())
    # THEN each begins where the one before ends
    assert [start for start, _ in places] == [0, *(end for _, end in places[:-1])]
    assert places[-1][1] == dtype.itemsize


def test_magic_spells_the_name() -> None:
    assert np.uint64(layout.MAGIC).tobytes() == b"WRHRING1"

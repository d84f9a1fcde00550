"""The ring file as one structured dtype: `wr_ring` of `native/include/whichrank/ring.h`, byte for byte.

The rows themselves are in `whichrank.model.rows`, since they travel further than the ring. A test holds sizes, offsets
and constants against what the compiler says (`wr_layout_json`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from whichrank.model.rows import (
    COMM,
    CONNECTION,
    FRAME,
    FRAME_BLOCKS,
    FRAME_CHANNELS,
    GATE,
    HEADER,
    INFLIGHT_ROW,
    PAIR,
    PLACES,
    RECORD,
    SHARES,
    SPLITS_ROW,
    WAIT,
)

MAGIC: Final = 0x31474E4952485257
VERSION: Final = 5
COMMS: Final = 256
INFLIGHT: Final = 64
WAITS: Final = 32
PAIRS: Final = 512
CONNECTIONS: Final = 256
MEMBERS: Final = 65536
RECORDS: Final = 8192
SPLIT_ROWS: Final = 16

RING: Final = np.dtype(
    [
        ("header", HEADER),
        ("frame", FRAME),
        ("frame_peer", "u2", (FRAME_BLOCKS, FRAME_CHANNELS)),
        ("inflight_used", "u8"),
        ("waits_used", "u4"),
        ("splits_head", "u4"),
        ("step_tid", "u4"),  # thread that made the latest optimizer step, 0 none
        ("gate_closed", "u4"),  # 0: open
        ("inflight", INFLIGHT_ROW, (INFLIGHT,)),
        ("wait", WAIT, (WAITS,)),
        ("pair", PAIR, (PAIRS,)),
        ("connection", CONNECTION, (CONNECTIONS,)),
        ("comm", COMM, (COMMS,)),
        ("splits", SPLITS_ROW, (SPLIT_ROWS,)),
        ("members", "i4", (MEMBERS,)),
        ("record", RECORD, (RECORDS,)),
        ("gate", GATE),
        ("shares", SHARES),
        ("places", PLACES),
    ]
)

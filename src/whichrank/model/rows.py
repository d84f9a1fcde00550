"""Rows of the ring as NumPy dtypes: the same bytes as the structs of `native/include/whichrank/ring.h`.

Columns that leave the node keep these dtypes, so the agent copies memory and parses nothing. Units are in the names
(`*_ns`: nanoseconds of CLOCK_MONOTONIC on the rank's host).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from whichrank.model.codes import SPLITS
from whichrank.model.sensors import SENSORS

FRAME_BLOCKS, FRAME_CHANNELS, COMM_WINDOW, PAIR_WINDOW, PACES = 8, 8, 1024, 256, 8

SENSOR = np.dtype([("state", "u4"), ("message", "S60")])
CHANNEL = np.dtype([("send_count", "u8"), ("recv_count", "u8")])
BLOCK = np.dtype([("comm_id", "u8"), ("counter", "u4"), ("extension", "u4"), ("channel", CHANNEL, (FRAME_CHANNELS,))])
FRAME = np.dtype(
    [
        ("op_counter", "u8"),
        ("kernel_index", "u8"),
        ("mode", "u4"),
        ("channels", "u4"),
        ("reserved", "u8"),
        ("block", BLOCK, (FRAME_BLOCKS,)),
    ]
)
HEADER = np.dtype(
    [
        ("magic", "u8"),
        ("version", "u4"),
        ("header_bytes", "u4"),
        ("total_bytes", "u8"),
        ("pid", "i4"),
        ("rank", "i4"),
        ("local_rank", "i4"),
        ("world_size", "i4"),
        ("local_world_size", "i4"),
        ("restart_count", "i4"),
        ("pid_start_ticks", "u8"),
        ("created_monotonic_ns", "u8"),
        ("created_realtime_ns", "u8"),
        ("heartbeat_ns", "u8"),
        ("closed_ns", "u8"),
        ("head", "u8"),
        ("ordinal", "u8"),
        ("dropped_records", "u8"),
        ("dropped_comms", "u8"),
        ("dropped_inflight", "u8"),
        ("dropped_waits", "u8"),
        ("dropped_pairs", "u8"),
        ("dropped_connections", "u8"),
        ("exception_ns", "u8"),
        ("first_failure_ns", "u8"),
        ("phase_since_ns", "u8"),
        ("members_used", "u4"),
        ("group_generation", "u4"),
        ("init_ns", "u8"),
        ("collected_ns", "u8"),
        ("host", "S64"),
        ("job", "S64"),
        ("phase", "S32"),
        ("exception", "S192"),
        ("failure", "S192"),
        ("sensor", SENSOR, (len(SENSORS),)),
    ]
)
COMM = np.dtype(
    [
        ("version", "u4"),
        ("state", "u4"),
        ("comm_id", "u8"),
        ("epoch", "u4"),
        ("generation", "u4"),
        ("size", "u4"),
        ("group_rank", "u4"),
        ("first", "i4"),
        ("stride", "i4"),
        ("members_at", "i4"),
        ("last_tid", "u4"),
        ("issued", "u8"),
        ("done", "u8"),
        ("completed", "u8"),
        ("last_issue_ns", "u8"),
        ("last_done_ns", "u8"),
        ("opened_ns", "u8"),
        ("failed", "u8"),
        ("timeout_ms", "u4"),
        ("last_kind", "u4"),
        ("backend", "S16"),
        ("name", "S64"),
        ("desc", "S64"),
        ("done_bits", "u8", (COMM_WINDOW // 64,)),
        ("reserved", "V128"),
    ]
)
INFLIGHT_ROW = np.dtype(
    [
        ("version", "u4"),
        ("state", "u4"),
        ("comm_id", "u8"),
        ("counter", "u4"),
        ("extension", "u4"),
        ("t_issue_ns", "u8"),
        ("t_start_ns", "u8"),
        ("t_return_ns", "u8"),
        ("wait_since_ns", "u8"),
        ("count", "u8"),
        ("signature", "u8"),
        ("issue_tid", "u4"),
        ("wait_tid", "u4"),
        ("peer", "i4"),
        ("tag", "u4"),
        ("ordinal", "u4"),
        ("timeout_ms", "u4"),
        ("comm_slot", "u2"),
        ("epoch", "u1"),
        ("kind", "u1"),
        ("dtype", "u1"),
        ("reduce_op", "u1"),
        ("flags", "u2"),
        ("polled_ns", "u8"),
        ("out_count", "u8"),
        ("reserved", "u8"),
    ]
)
SPLITS_ROW = np.dtype(
    [
        ("seq", "u8"),
        ("comm_id", "u8"),
        ("counter", "u4"),
        ("ordinal", "u4"),
        ("splits", "u4"),
        ("reserved", "u4"),
        ("count", "u8"),
        ("out_count", "u8"),
        ("split_in", "u4", (SPLITS,)),
        ("split_out", "u4", (SPLITS,)),
    ]
)
"""What an all-to-all sends to each member and expects of it, in elements; without splits it is the same for all."""
WAIT = np.dtype(
    [
        ("version", "u4"),
        ("tid", "u4"),
        ("since_ns", "u8"),
        ("comm_id", "u8"),
        ("counter", "u4"),
        ("peer", "i4"),
        ("comm_slot", "u2"),
        ("epoch", "u1"),
        ("kind", "u1"),
        ("how", "u1"),
        ("dtype", "u1"),
        ("reduce_op", "u1"),
        ("inflight", "u1"),
        ("count", "u8"),
        ("timeout_ms", "u4"),
        ("tag", "u4"),
        ("t_issue_ns", "u8"),
    ]
)
PAIR = np.dtype(
    [
        ("key", "u8"),
        ("issued", "u8"),
        ("done", "u8"),
        ("completed", "u8"),
        ("last_issue_ns", "u8"),
        ("last_done_ns", "u8"),
        ("comm_slot", "u2"),
        ("epoch", "u1"),
        ("kind", "u1"),
        ("peer", "i4"),
        ("tag", "u4"),
        ("last_tid", "u4"),
        ("done_bits", "u8", (PAIR_WINDOW // 64,)),
    ]
)
PACE = np.dtype([("bytes", "u8"), ("ns", "u8")])
CONNECTION = np.dtype(
    [
        ("version", "u4"),
        ("state", "u4"),
        ("local_addr", "V16"),
        ("remote_addr", "V16"),
        ("local_port", "u2"),
        ("remote_port", "u2"),
        ("fd", "i4"),
        ("messages_sent", "u8"),
        ("bytes_sent", "u8"),
        ("messages_received", "u8"),
        ("bytes_received", "u8"),
        ("last_send_ns", "u8"),
        ("last_receive_ns", "u8"),
        ("pace", PACE, (PACES,)),  # reads by the pace at which data came, slow ones first
    ]
)
RECORD = np.dtype(
    [
        ("seq", "u8"),
        ("t_issue_ns", "u8"),
        ("t_start_ns", "u8"),
        ("t_end_ns", "u8"),
        ("count", "u8"),
        ("counter", "u4"),
        ("ordinal", "u4"),
        ("wait_us", "u4"),
        ("peer", "i4"),
        ("comm_slot", "u2"),
        ("epoch", "u1"),
        ("kind", "u1"),
        ("dtype", "u1"),
        ("reduce_op", "u1"),
        ("flags", "u1"),
        ("status", "u1"),
    ]
)
PASSES, SIZES, RESULTS = 8, 4, 96
PASS = np.dtype([("peer", "i4"), ("sends", "u4")])
GATE = np.dtype(
    [
        # by the agent
        ("pause", "u4"),
        ("renewals", "u4"),
        ("at_ordinal", "u8"),
        ("at_step", "u4"),
        ("longest_ms", "u4"),
        ("test", "u4"),
        ("test_kind", "u4"),
        ("test_slot", "u4"),
        ("test_repeats", "u4"),
        ("test_passes", "u4"),
        ("test_sizes", "u4"),
        ("test_bytes", "u8", (SIZES,)),
        ("test_pass", PASS, (PASSES,)),
        # by the process
        ("arrived_ns", "u8"),
        ("arrived_ordinal", "u8"),
        ("opened_ns", "u8"),
        ("steps", "u4"),
        ("claimed", "u4"),
        ("arrived", "u4"),
        ("opened_by", "u4"),
        ("opened", "u4"),
        ("tested", "u4"),
        ("results", "u4"),
        ("result_s", "f4", (RESULTS,)),
        ("problem", "S100"),
    ]
)

SHARE = np.dtype([("first", "u4"), ("count", "u4")])
SHARES = np.dtype(
    [
        # by the agent
        ("told", SHARE, (2,)),  # of version v: told[v % 2]
        ("newest", "u4"),
        # by the process
        ("used", "u4"),  # version; 0: all replicas have as much
        ("microbatches", "u4"),  # of an iteration, of all replicas; 0: shares cannot be changed
        ("multiple", "u4"),
        ("replica", "u4"),
        ("replicas", "u4"),
    ]
)

PLACE_SAVE: Final = 1 << 30
"""WR_PLACE_SAVE."""

PLACES = np.dtype(
    [
        # by the agent
        ("told", "u4", (2,)),  # of version v: told[v % 2]; PLACE_SAVE: stay, and write the state to disk
        ("newest", "u4"),
        # by the process
        ("used", "u4"),  # version; 0: each rank is where it was at the start
        ("failed", "u4"),  # the same version if it was given up
        ("place", "u4"),
        ("took_ms", "u4"),
        ("ranks", "u4"),  # of the job; 0: places cannot be changed
        ("stages", "u4"),  # a place p is of stage p // stage_stride % stages
        ("stage_stride", "u4"),
        ("replicas", "u4"),
        ("replica_stride", "u4"),
        ("microbatches", "u4"),  # that a replica computes in an iteration
        ("saves", "u4"),  # whether it can write its state to disk
        ("bytes", "u8"),  # that this process would hand over
    ]
)

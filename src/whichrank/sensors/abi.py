"""The core library as Python sees it: `wr_op`, and the calls that the Python sensor makes.

The hot calls go through `ctypes.PyDLL`: they never block, so letting go of the GIL around each would only cost. The
gate is none of them: while it is closed, the call waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whichrank.model.codes import SensorState, Status, WaitHow
from whichrank.native import CORE, native_path

if TYPE_CHECKING:
    from whichrank.sensors.identity import Identity


DONE, FAILED, DROPPED = int(Status.DONE), int(Status.FAILED), int(Status.DROPPED)
WAIT_CALL, WAIT_ENTRY = int(WaitHow.CALL), int(WaitHow.ENTRY)
SENSOR_FALLBACK, SENSOR_FAILED = int(SensorState.FALLBACK), int(SensorState.FAILED)
"""Plain numbers: members of an enum are looked up anew each time, at a microsecond."""


class Op(ctypes.Structure):
    """`wr_op`: what a sensor knows of one operation, in the sensor's own memory."""

    _fields_ = (
        ("comm_slot", ctypes.c_uint16),
        ("kind", ctypes.c_uint8),
        ("dtype", ctypes.c_uint8),
        ("reduce_op", ctypes.c_uint8),
        ("flags", ctypes.c_uint16),
        ("peer", ctypes.c_int32),
        ("tag", ctypes.c_uint32),
        ("timeout_ms", ctypes.c_uint32),
        ("count", ctypes.c_uint64),
        ("out_count", ctypes.c_uint64),
        ("signature", ctypes.c_uint64),
        ("splits", ctypes.c_uint32),
        ("split_in", ctypes.c_void_p),
        ("split_out", ctypes.c_void_p),
        ("epoch", ctypes.c_uint8),
        ("row", ctypes.c_int16),
        ("pair", ctypes.c_int16),
        ("counter", ctypes.c_uint32),
        ("ordinal", ctypes.c_uint32),
        ("tid", ctypes.c_uint32),
        ("comm_id", ctypes.c_uint64),
        ("t_issue_ns", ctypes.c_uint64),
        ("t_start_ns", ctypes.c_uint64),
        ("wait_ns", ctypes.c_uint64),
        ("wait_since_ns", ctypes.c_uint64),
        ("ended", ctypes.c_uint32),
        ("holders", ctypes.c_uint32),
    )


class Core:
    """The calls of the core library, with their signatures. `ring` is an address; 0 means that there is none."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(str(native_path(CORE)))
        ring, op, text = ctypes.c_void_p, ctypes.POINTER(Op), ctypes.c_char_p
        number, unsigned = ctypes.c_int, ctypes.c_uint32

        def call(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            function = library[name]
            function.restype, function.argtypes = result, arguments
            return function

        self.open_process_ring = call("wr_open_process_ring", ring, text, ctypes.c_void_p, ctypes.c_void_p)
        self.process_ring = call("wr_process_ring", ring)
        self.set_rank = call("wr_ring_set_rank", None, ring, ctypes.c_int32, ctypes.c_int32)
        self.sensor_set = call("wr_sensor_set", None, ring, number, number, text)
        self.note_failure = call("wr_note_failure", None, ring, text)
        self.comm_open = call(
            "wr_comm_open", number, ring, text, text, text, unsigned, unsigned, ctypes.c_void_p, unsigned
        )
        self.comm_close = call("wr_comm_close", None, ring, number)
        self.comm_set_timeout = call("wr_comm_set_timeout", None, ring, number, unsigned)
        self.op_begin = call("wr_op_begin", None, ring, op)
        self.op_issued = call("wr_op_issued", None, ring, op)
        self.op_flag = call("wr_op_flag", None, ring, op, ctypes.c_uint16)
        self.op_polled = call("wr_op_polled", None, ring, op)
        self.op_end = call("wr_op_end", None, ring, op, number)
        self.wait_begin = call("wr_wait_begin", number, ring, op, number)
        self.wait_end = call("wr_wait_end", None, ring, op, number)
        self.gate_is_closed = call("wr_gate_is_closed", number, ring)
        self.gate_pass = ctypes.CDLL(str(native_path(CORE)))["wr_gate_pass"]  # it may wait: without the GIL
        self.gate_pass.restype, self.gate_pass.argtypes = None, (ring,)

    def open_ring(self, directory: bytes, identity: Identity) -> int:
        """The ring of this process, made on first call; 0 if it cannot be made."""
        return self.open_process_ring(directory, ctypes.addressof(identity), None) or 0

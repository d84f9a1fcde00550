"""What a rank measures while it waits at the gate: its own speed, and the links of its process groups.

Asked from outside through the ring (`wr_gate`), made with the device and the process groups that training uses. The
core makes each test in a thread of its own, in which Python runs no handlers of signals and none of the program's modes
(autocast, inference, functions that are replaced) holds. Nothing of training is touched: no random number is drawn, no
operation is counted, memory is given back. Messages are as large as told; how speed is measured says `speeds`.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, Final

from whichrank.model.codes import MIB, MULTIPLIED, GateTest, link_s
from whichrank.native import load_core
from whichrank.sensors.speeds import copied, multiplied, receive_for_a_while, send_as_told, usual_pace

PASSES, SIZES, RESULTS, PACES = 8, 4, 96, 8
COMPUTE, MEMORY, LINKS = int(GateTest.COMPUTE), int(GateTest.MEMORY), int(GateTest.LINKS)
MEET_WITHIN_S: Final = 1.0
"""In which all members of a group must be ready for its test: agents hear of it within a tenth of a second."""
MEET_EVERY_S: Final = 0.02
"""Between two looks whether they are: a thousand ranks ask the store 50,000 times a second, for a moment."""


class Pass(ctypes.Structure):
    """`wr_pass`."""

    _fields_ = (("peer", ctypes.c_int32), ("sends", ctypes.c_uint32))


class Gate(ctypes.Structure):
    """`wr_gate`."""

    _fields_ = (
        ("pause", ctypes.c_uint32),
        ("renewals", ctypes.c_uint32),
        ("at_ordinal", ctypes.c_uint64),
        ("at_step", ctypes.c_uint32),
        ("longest_ms", ctypes.c_uint32),
        ("test", ctypes.c_uint32),
        ("test_kind", ctypes.c_uint32),
        ("test_slot", ctypes.c_uint32),
        ("test_repeats", ctypes.c_uint32),
        ("test_passes", ctypes.c_uint32),
        ("test_sizes", ctypes.c_uint32),
        ("test_bytes", ctypes.c_uint64 * SIZES),
        ("test_pass", Pass * PASSES),
        ("arrived_ns", ctypes.c_uint64),
        ("arrived_ordinal", ctypes.c_uint64),
        ("opened_ns", ctypes.c_uint64),
        ("steps", ctypes.c_uint32),
        ("claimed", ctypes.c_uint32),
        ("arrived", ctypes.c_uint32),
        ("opened_by", ctypes.c_uint32),
        ("opened", ctypes.c_uint32),
        ("tested", ctypes.c_uint32),
        ("results", ctypes.c_uint32),
        ("result_s", ctypes.c_float * RESULTS),
        ("problem", ctypes.c_char * 100),
    )


_CALL = ctypes.CFUNCTYPE(None, ctypes.POINTER(Gate))
_QUESTION = ctypes.CFUNCTYPE(ctypes.c_int)
_call: Any = None  # must live as long as the process, as must these
_questions: dict[Any, Any] = {}


def watch() -> None:
    """Make the tests that are asked for at the gate, from now on.

    Raises:
        NativeLibraryError: The core library is not there.
    """
    global _call
    core = load_core()
    core.wr_gate_set_tester.argtypes, core.wr_gate_set_tester.restype = (_CALL,), None
    core.wr_gate_ask.argtypes, core.wr_gate_ask.restype = (_QUESTION,), ctypes.c_int
    core.wr_gate_is_opening.argtypes, core.wr_gate_is_opening.restype = (ctypes.c_void_p,), ctypes.c_int
    core.wr_arrivals.argtypes, core.wr_arrivals.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    core.wr_comm_name.argtypes, core.wr_comm_name.restype = (ctypes.c_void_p, ctypes.c_int), ctypes.c_char_p
    if _call is None:
        _call = _CALL(_answer)
    core.wr_gate_set_tester(_call)


def _answer(pointer: Any) -> None:
    """Make the test that stands in the gate, and write down what it took, or why there is nothing."""
    gate = pointer.contents
    times: list[float] = []
    gate.results, gate.problem = 0, b""
    try:
        _measure(gate, times)
    except BaseException as error:  # never break training
        gate.problem = f"{type(error).__name__}: {error}".encode(errors="replace")[:99]
    gate.result_s[: len(times)] = times
    gate.results = len(times)


def _measure(gate: Gate, times: list[float]) -> None:
    """Make the test that stands in the gate.

    Args:
        gate: With the test.
        times: What it took is put here, as far as it goes if the test fails.

    Raises:
        Exception: Why there is nothing, or no more.
    """
    import torch
    from torch.distributed import distributed_c10d

    torch.get_num_threads()  # so that this thread gets as many of OpenMP as training has
    if getattr(distributed_c10d._world, "pg_coalesce_state", None):
        raise RuntimeError("the rank waits inside of a batch of operations")
    device = _device(torch)
    repeats = max(1, int(gate.test_repeats))
    with torch.no_grad():
        if gate.test_kind == COMPUTE:
            times += multiplied(torch, device, min(repeats, RESULTS // len(MULTIPLIED)), _refuse_if_opening)
        elif gate.test_kind == MEMORY:
            times += copied(torch, device, min(repeats, RESULTS), _refuse_if_opening)
        elif gate.test_kind == LINKS:
            _link(torch, device, gate, repeats, times)
        else:
            raise ValueError(f"test {gate.test_kind} is not known here")


def _device(torch: Any) -> Any:
    """The device that this process trains on, as far as it is known: CUDA once it is in use, else the CPU.

    Raises:
        RuntimeError: A CUDA graph is being recorded: nothing may be measured meanwhile. Or training goes on.
    """
    if not torch.cuda.is_initialized():
        return torch.device("cpu")
    if _asked_of_training(torch._C._cuda_isCurrentStreamCapturing):
        raise RuntimeError("a CUDA graph is being recorded")
    return torch.device("cuda", _asked_of_training(torch._C._cuda_getDevice))


def _asked_of_training(builtin: Any) -> int:
    """What a function of C returns in the thread that trains: device and stream are each thread's own.

    A function of C, since for one of Python the interpreter would run handlers of signals there.

    Raises:
        InterruptedError: Training goes on.
    """
    if builtin not in _questions:
        _questions[builtin] = _QUESTION(builtin)
    said: int = load_core().wr_gate_ask(_questions[builtin])
    if said < 0:
        raise InterruptedError("training was to go on")
    return said


def _is_opening() -> bool:
    """Whether the gate opens: training goes on."""
    core = load_core()
    return bool(core.wr_gate_is_opening(core.wr_process_ring()))


def _refuse_if_opening() -> None:
    """Raise if the gate opens: training goes on.

    Raises:
        InterruptedError: It does.
    """
    if _is_opening():
        raise InterruptedError("training was to go on")


def _link(torch: Any, device: Any, gate: Gate, repeats: int, times: list[float]) -> None:
    """Of each pass the pace at which messages came in, in seconds per MiB; then what they took, in seconds.

    The latter of each pass, size and repeat. 0 where there was none, or where the pace is not known.

    Raises:
        ValueError: The communicator is gone.
        TimeoutError: Not all of its members are here.
    """
    core = load_core()
    name = core.wr_comm_name(core.wr_process_ring(), int(gate.test_slot))
    if not name:
        raise ValueError("the communicator is gone")
    from torch._C._distributed_c10d import _resolve_process_group

    group = _resolve_process_group(name.decode())
    sizes = [int(gate.test_bytes[i]) for i in range(min(int(gate.test_sizes), SIZES))]
    passes = [gate.test_pass[i] for i in range(min(int(gate.test_passes), PASSES))]
    repeats = min(repeats, (RESULTS - len(passes)) // max(1, len(sizes) * len(passes)))
    backend: Any = group._get_backend(device)  # below the dispatcher: no sensor counts these messages
    if backend.name() != "gloo" or not sizes:
        raise RuntimeError(f"links of {backend.name()} are not measured yet")
    word = torch.ones(1, dtype=torch.uint8)
    room = torch.zeros(max(sizes), dtype=torch.uint8)
    _meet(group.size(), f"whichrank/{gate.pause}/{gate.test}/{name.decode()}")
    times += [0.0] * (len(passes) * (1 + len(sizes) * repeats))
    for number, one in enumerate(passes):
        has_peer = 0 <= one.peer < group.size() and one.peer != group.rank()
        if has_peer and one.sends:
            send_as_told(backend, one.peer, word, room, sizes, repeats)
        elif has_peer:
            before = _arrivals()
            took = receive_for_a_while(backend, one.peer, word, room, sizes, repeats, link_s(len(passes)))
            rate = usual_pace(before, _arrivals())
            times[number] = MIB / rate if rate else 0.0
            at = len(passes) + number * len(sizes) * repeats
            times[at : at + len(took)] = took


def _arrivals() -> list[tuple[int, int]]:
    """What has come in on all connections of this process: bytes and nanoseconds, by the class of its pace."""
    core, paces = load_core(), (ctypes.c_uint64 * (2 * PACES))()
    core.wr_arrivals(core.wr_process_ring(), paces)
    return list(zip(paces[::2], paces[1::2], strict=True))


def _meet(size: int, key: str) -> None:
    """Wait until all members are here, or none of them goes on: who sends to one that does not receive waits for ever.

    They decide it in the store of the job, by one key that is written once. The last to come decides for it, and who
    has waited for long enough decides against it; whoever comes too late, or lets nobody wait, finds that decided.

    Args:
        size: Members.
        key: Of their own in the store.

    Raises:
        TimeoutError: Not all have come: nobody begins.
    """
    from torch.distributed.distributed_c10d import _get_default_store

    store: Any = _get_default_store()
    decision = f"{key}/decision"
    if store.add(f"{key}/here", 1) == size:
        store.compare_set(decision, "", "go")
    deadline = time.monotonic() + MEET_WITHIN_S
    while not store.check([decision]):
        if time.monotonic() > deadline or _is_opening():
            store.compare_set(decision, "", "no")
        time.sleep(MEET_EVERY_S)
    if store.get(decision) != b"go":
        raise TimeoutError("the other ranks of the group were not there in time")

"""What a rank measures at the gate: of itself, and nothing that training would notice."""

from __future__ import annotations

import ctypes
import json
import threading
import time
from types import SimpleNamespace

import pytest
from ring_writer import core

from whichrank.model import rows
from whichrank.model.codes import MULTIPLIED
from whichrank.sensors import speeds, tester

torch = pytest.importorskip("torch")


def asked(kind: int, **fields: int) -> tester.Gate:
    gate = tester.Gate(test_kind=kind, test_repeats=2)
    for name, value in fields.items():
        setattr(gate, name, value)
    tester._answer(ctypes.pointer(gate))
    return gate


def test_gate_is_the_compilers() -> None:
    reported: dict[str, int] = json.loads(core().wr_layout_json())
    assert ctypes.sizeof(tester.Gate) == reported["sizeof.wr_gate"]
    assert rows.GATE.fields is not None
    for name, *_ in tester.Gate._fields_:
        assert getattr(tester.Gate, name).offset == rows.GATE.fields[name][1]
    assert (tester.PASSES, tester.SIZES) == (rows.PASSES, rows.SIZES)
    assert (tester.RESULTS, tester.PACES) == (rows.RESULTS, rows.PACES)


def test_speed_is_measured_and_training_does_not_notice() -> None:
    before = torch.get_rng_state()
    gate = asked(tester.COMPUTE)
    assert gate.problem == b""
    assert gate.results == 2 * len(MULTIPLIED)
    assert 0 < gate.result_s[0] < 10
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()


def test_precision_of_training_does_not_change_what_is_measured() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        factor = torch.ones(8, 8)
        tester._answer(ctypes.pointer(tester.Gate(test_kind=tester.COMPUTE, test_repeats=1)))
        assert torch.mm(factor, factor).dtype == torch.bfloat16  # as before


@pytest.mark.parametrize("is_busy", [False, True])
def test_rank_that_is_kept_from_its_cpu_is_slow_and_lacks_no_type(is_busy: bool) -> None:
    # GIVEN a product that takes long, since its thread must wait for a CPU or has much to do
    def multiply(*_: object, **__: object) -> None:
        began = time.thread_time()
        while is_busy and time.thread_time() - began < speeds.WHILE_S:
            pass
        time.sleep(speeds.WHILE_S)

    slow = SimpleNamespace(**{name: getattr(torch, name) for name in ("full", "empty_like", *MULTIPLIED)}, mm=multiply)
    times = speeds.multiplied(slow, torch.device("cpu"), 1, lambda: None)
    # THEN it counts in the one case, and is a type that the CPU only emulates in the other
    assert [took > 0 for took in times] == [not is_busy] * len(MULTIPLIED)


def test_messages_are_timed_once_the_peer_is_there() -> None:
    # GIVEN a peer that still has to do elsewhere, and sends at 1 GB/s then
    class Backend:
        def __init__(self) -> None:
            self.received: list[int] = []

        def send(self, *_: object) -> SimpleNamespace:
            return SimpleNamespace(wait=lambda: None)

        def recv(self, tensors: list[torch.Tensor], *_: object) -> SimpleNamespace:
            self.received.append(tensors[0].numel())
            seconds = 0.3 if len(self.received) == 1 else tensors[0].numel() / 1e9
            return SimpleNamespace(wait=lambda: time.sleep(seconds))

    backend, word, room = Backend(), torch.ones(1, dtype=torch.uint8), torch.zeros(8 << 20, dtype=torch.uint8)
    times = speeds.receive_for_a_while(backend, 1, word, room, [1 << 20, 8 << 20], 2, 0.4)
    # THEN that is not taken for a slow link
    assert backend.received[1:] == [1 << 20, 1 << 20, 8 << 20, 8 << 20]
    assert len(times) == 4
    # AND of a slow one no message is asked for that would take too long
    tester_room = torch.zeros(1 << 29, dtype=torch.uint8)
    assert len(speeds.receive_for_a_while(Backend(), 1, word, tester_room, [1 << 20, 1 << 29], 2, 0.4)) == 2


def test_pace_is_that_of_the_middle_byte() -> None:
    before = [(1000, 10), (0, 0), (0, 0)]
    after = [(2000, 1_000_010), (90_000, 9_000_000), (40_000, 4_000)]
    assert speeds.usual_pace(before, after) == pytest.approx(1e7)
    # BUT few bytes say nothing, nor a row that was given to another connection meanwhile
    assert speeds.usual_pace(before, before) == 0.0
    assert speeds.usual_pace(after, before) == 0.0


def test_memory_is_measured() -> None:
    gate = asked(tester.MEMORY)
    assert (gate.results, gate.problem) == (2, b"")
    assert gate.result_s[1] > 0


@pytest.mark.parametrize(("kind", "why"), [(77, b"test 77"), (tester.LINKS, b"")])
def test_what_cannot_be_measured_is_said(kind: int, why: bytes) -> None:
    gate = asked(kind, test_slot=999)
    assert gate.results == 0
    assert gate.problem
    assert why in gate.problem


@pytest.mark.parametrize("late_s", [0.0, 0.15, 0.2, 0.21, 0.25, 0.6])
def test_all_members_begin_or_none(late_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN four members of a group, one of them late, perhaps too late
    from torch.distributed import HashStore, distributed_c10d

    store = HashStore()
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(tester, "MEET_WITHIN_S", 0.2)
    said: dict[int, bool] = {}

    def come(member: int) -> None:
        time.sleep(late_s if member == 2 else 0.0)
        try:
            tester._meet(4, "whichrank/1/1/world")
            said[member] = True
        except TimeoutError:
            said[member] = False

    members = [threading.Thread(target=come, args=(member,)) for member in range(4)]
    for member in members:
        member.start()
    for member in members:
        member.join()
    # THEN they agree
    assert len(said) == 4
    assert len(set(said.values())) == 1

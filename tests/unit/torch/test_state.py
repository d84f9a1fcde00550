"""A state is taken apart for another process, and put together there."""

from __future__ import annotations

from typing import Any

import pytest

from whichrank.errors import UsageError
from whichrank.torch.state import State, tensors_in

torch = pytest.importorskip("torch")


def state() -> dict[str, Any]:
    return {
        "model": {"weight": torch.randn(3, 4), "empty": torch.zeros(0), "flag": torch.tensor([True, False])},
        "optimizer": {"state": {0: {"step": torch.tensor(3.0), "half": torch.ones(2, dtype=torch.bfloat16)}}},
        "groups": [{"lr": 0.1, "betas": (0.9, 0.99)}],
        "across": torch.arange(6).reshape(2, 3).t(),
        "done": 5,
    }


def test_it_comes_as_it_was() -> None:
    own = State.of(given := state())
    other = State.awaited(own.head())
    assert other.checksum() != own.checksum()
    for part, sent in zip(other.parts(), own.parts(), strict=True):
        part.copy_(sent)
    assert (other.checksum(), other.size) == (own.checksum(), own.size)
    came = other.state_dict()
    assert came["groups"] == given["groups"]
    assert came["done"] == 5
    for one, wanted in zip(tensors_in(came), tensors_in(given), strict=True):
        assert one.dtype == wanted.dtype
        assert torch.equal(one, wanted)


def test_one_changed_bit_changes_the_checksum() -> None:
    own = State.of({"a": torch.zeros(1000)})
    before = own.checksum()
    own.tensors[0][500] = 1e-30
    assert own.checksum() != before


def test_what_is_spread_over_processes_is_refused() -> None:
    class Spread(torch.Tensor):
        def to_local(self) -> None: ...

    with pytest.raises(UsageError, match="DTensors"):
        State.of({"a": torch.zeros(2).as_subclass(Spread)})


def test_head_with_code_in_it_is_refused() -> None:
    import io

    buffer = io.BytesIO()
    torch.save({"a": print}, buffer)
    with pytest.raises(Exception, match=r"[Ww]eights"):
        State.awaited(buffer.getvalue())

"""Groups are announced when torch makes or shuts them down; a watcher that fails is left alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from whichrank.sensors import groups


class Owner:
    """Has a method as torch's `ProcessGroup` has."""

    def shutdown(self, grace: int = 1) -> int:
        return grace


def test_call_passes_through_with_its_result() -> None:
    order: list[Any] = []
    owner = SimpleNamespace(make=lambda name, size=2: (order.append("made"), name, size)[1:])
    groups._wrap(owner, "make", after=order.append)
    assert owner.make("a", size=3) == ("a", 3)
    assert order == ["made", ("a", 3)]


def test_method_is_reported_before_it_runs() -> None:
    class Group(Owner):
        pass

    reported: list[Any] = []
    groups._wrap(Group, "shutdown", before=reported.append)
    group = Group()
    assert group.shutdown(grace=5) == 5
    assert reported == [group]


def test_wrapping_twice_says_once() -> None:
    class Group(Owner):
        pass

    reported: list[Any] = []
    groups._wrap(Group, "shutdown", before=reported.append)
    groups._wrap(Group, "shutdown", before=reported.append)
    Group().shutdown()
    assert len(reported) == 1


def test_function_that_torch_lacks_is_skipped() -> None:
    owner = SimpleNamespace()
    groups._wrap(owner, "split_group", after=lambda _: None)
    assert not hasattr(owner, "split_group")


def test_failing_watcher_is_said_once_and_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Any] = []

    def broken(group: Any) -> None:
        calls.append(group)
        raise RuntimeError("no room")

    reported = groups._harmless(broken)
    reported(1)
    reported(2)
    assert calls == [1]
    assert capsys.readouterr().err == "whichrank: process groups are no longer followed: no room\n"


def test_every_way_to_set_a_timeout_is_known() -> None:
    from torch._C._distributed_c10d import Backend, ProcessGroup, ProcessGroupGloo
    from torch.distributed import distributed_c10d

    setters = set(groups._setters_of_timeouts())
    assert {(distributed_c10d, "_set_pg_timeout"), (ProcessGroup, "set_timeout")} <= setters
    assert {(Backend, "set_timeout"), (ProcessGroupGloo, "_set_default_timeout")} <= setters

"""Without root a lab is refused in a sentence where it cannot be."""

from __future__ import annotations

import pytest

from whichrank.testbed.lab import userspace
from whichrank.testbed.lab.network import NoLabError


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(userspace.os, "geteuid", lambda: 1000)


@pytest.mark.usefixtures("somebody")
def test_a_kernel_without_user_namespaces_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(userspace, "_UNSHARE", ("false",))
    with pytest.raises(NoLabError) as caught:
        userspace.become_root_of_a_namespace(["lab", "run"])
    assert caught.value.what == "a lab needs root here: this kernel gives no user namespace to this user"


@pytest.mark.usefixtures("somebody")
def test_a_lab_that_stays_is_for_root() -> None:
    with pytest.raises(NoLabError, match="a lab that stays needs root; one for a single run does not"):
        userspace.refuse_without_root()


def test_root_goes_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(userspace.os, "geteuid", lambda: 0)
    userspace.become_root_of_a_namespace(["lab", "run"])
    userspace.refuse_without_root()

"""Knocking at addresses: the kernel answers, or nobody does; nothing listens for it."""

from __future__ import annotations

import errno
import socket
import threading

import pytest
from rank_process import eventually

from whichrank.agent import probe
from whichrank.agent.probe import FLOWS, Prober
from whichrank.model.telemetry import Event, Probe

NOBODY = "224.0.0.1"
"""A multicast address: no connection can lead there."""


def test_a_machine_that_is_there_answers_all_flows() -> None:
    (here,) = probe.probe(["127.0.0.1"])
    assert (here.target, here.sent, here.answered) == ("127.0.0.1", FLOWS, FLOWS)
    assert 0 < here.took_ns < 1_000_000_000


def test_one_that_is_not_does_not() -> None:
    assert probe.probe([NOBODY, "127.0.0.1"])[0] == Probe(NOBODY, FLOWS, 0, -1)


def test_what_could_not_be_sent_is_not_counted_as_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an address of a device that is not here
    (there,) = probe.probe(["fe80::1%nosuch"])
    assert (there.sent, there.answered) == (0, 0)

    # GIVEN a process that has all the files open that it may have
    def full(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", full)
    assert probe.probe(["127.0.0.1"]) == [Probe("127.0.0.1", 0, 0, -1)]


def test_what_is_no_address_is_left_out() -> None:
    prober = Prober(lambda: None)
    prober.ask(["example.org", "127.0.0.1; rm", ""])
    assert prober._thread is None


def test_answers_come_as_events_and_the_same_is_not_asked_again_at_once() -> None:
    prober, reported = Prober(lambda: None), list[Event]()

    def heard() -> bool:
        reported.extend(prober.events())
        return bool(reported)

    prober.ask(["127.0.0.1"])
    eventually(heard)
    prober.ask(["127.0.0.1"])
    assert [(event.kind, event.rank, event.probe and event.probe.answered) for event in reported] == [
        ("probe", -1, FLOWS)
    ]
    assert not any(thread.name == "whichrank-probe" and thread.is_alive() for thread in threading.enumerate())

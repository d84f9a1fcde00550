"""Asks the kernels of other nodes for a sign of life, over the network of the job (DESIGN 5.2, active probe).

A connection to a port on which nobody listens is refused at once by the kernel at its other end: an echo that needs no
server there and touches nothing of the job. Several go out at a time, each from a port of its own, so that they spread
over the paths that the network has. An answer shows that there is a way, forth and back; none shows little by itself,
since firewalls swallow packets too: it counts beside the answers that others get.
"""

from __future__ import annotations

import errno
import ipaddress
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Final

from whichrank.agent.stacks import drained
from whichrank.model.telemetry import Event, Probe

PORT: Final = 1
"""Of a service that nobody runs (tcpmux)."""
FLOWS: Final = 16
TIMEOUT_S: Final = 0.6
"""Before the kernel sends a lost one again."""
MOST_TARGETS: Final = 16
AGAIN_AFTER_S: Final = 1.5
"""A target is not asked more often."""
_ANSWERS: Final = frozenset((0, errno.ECONNREFUSED))
_NOT_SENT: Final = frozenset((errno.EADDRNOTAVAIL, errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM))
"""This node has run out of something: that nobody answers says nothing of the path."""


class Prober:
    """Probes in a thread of its own; one round at a time.

    Args:
        wake: Called by that thread when answers are there.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake: Callable[[], None] | None = wake
        self._lock = threading.Lock()
        self._done: SimpleQueue[Event] = SimpleQueue()
        self._asked_s: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def ask(self, targets: Iterable[str]) -> None:
        """Probe these addresses soon; what is no address, or was probed just now, is left out."""
        if self._thread and self._thread.is_alive():
            return
        now_s = time.monotonic()
        self._asked_s = {a: at_s for a, at_s in self._asked_s.items() if now_s - at_s < AGAIN_AFTER_S}
        due = [target for target in targets if target not in self._asked_s and _is_address(target)][:MOST_TARGETS]
        if due:
            self._asked_s |= dict.fromkeys(due, now_s)
            self._thread = threading.Thread(target=self._probe, args=(due,), name="whichrank-probe", daemon=True)
            self._thread.start()

    def events(self) -> list[Event]:
        """What has come of it since this was last asked."""
        return drained(self._done)

    def close(self) -> None:
        """Nobody is woken any more."""
        with self._lock:
            self._wake = None

    def _probe(self, targets: list[str]) -> None:
        for result in probe(targets):
            self._done.put(Event("probe", -1, 0, time.monotonic_ns(), probe=result))
        with self._lock:
            if self._wake:
                self._wake()


def probe(targets: list[str]) -> list[Probe]:
    """Knock at these addresses, and wait for answers.

    Args:
        targets: IPv4 or IPv6 addresses.
    """
    answers: dict[str, list[int]] = {target: [] for target in targets}
    sent = dict.fromkeys(targets, 0)
    with selectors.DefaultSelector() as selector:
        started_ns = time.monotonic_ns()
        for target in targets:
            for _ in range(FLOWS):
                sent[target] += _probe(selector, target, answers[target])
        deadline_s = started_ns / 1e9 + TIMEOUT_S
        while selector.get_map() and (left_s := deadline_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                selector.unregister(key.fileobj)
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in _ANSWERS:
                    answers[key.data].append(time.monotonic_ns() - started_ns)
                key.fileobj.close()
        for key in list(selector.get_map().values()):
            selector.unregister(key.fileobj)
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
    return [Probe(t, sent[t], len(took_ns), min(took_ns, default=-1)) for t, took_ns in answers.items()]


def _probe(selector: selectors.BaseSelector, target: str, took_ns: list[int]) -> bool:
    """Knock once; whether that could be done."""
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    try:
        probing = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    except OSError:
        return False
    begun_ns = time.monotonic_ns()
    try:
        error = probing.connect_ex((target, PORT))
    except OSError:  # an address of a device that is not here
        error = errno.EADDRNOTAVAIL
    if error == errno.EINPROGRESS:
        selector.register(probing, selectors.EVENT_WRITE, target)
        return True
    if error in _ANSWERS:  # this node itself
        took_ns.append(time.monotonic_ns() - begun_ns)
    probing.close()
    return error not in _NOT_SENT


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

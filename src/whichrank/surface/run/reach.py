"""Whether an analyzer that takes our key listens where `--join` points, for a sentence to the user.

The agent connects in silence, and again and again; so this connects beside it and watches how far it comes, in a
thread, since the resolution of a name may take half a minute.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from whichrank.server.address import Endpoint
from whichrank.surface.run.sender import kept_from_new_threads
from whichrank.wire.zmq_transport import show_key

PATIENCE_S: Final = 5.0
_RETRY_MS: Final = 500
_REFUSED: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
)


class Reach:
    """Tries to connect until an analyzer lets us in, or patience ends.

    Args:
        endpoint: Where, and with which key.
        patience_s: Seconds.
        say: Told who has not let us in when patience ends; None: `failed` is asked.
    """

    def __init__(
        self, endpoint: Endpoint, patience_s: float = PATIENCE_S, say: Callable[[str], None] | None = None
    ) -> None:
        self._say = say
        self._endpoint = endpoint
        self._deadline_s = time.monotonic() + patience_s
        self._is_in = threading.Event()
        self._is_refused = threading.Event()
        with kept_from_new_threads():
            threading.Thread(target=self._try, name="whichrank-reach", daemon=True).start()

    def failed(self) -> str:
        """A sentence on who has not let us in in time; else empty."""
        if time.monotonic() <= self._deadline_s or self._is_in.is_set():
            return ""
        address = self._endpoint.address
        if not self._is_refused.is_set():
            return f"no analyzer answers at {address}; still trying"
        ours = "has another key than this one" if self._endpoint.key else "asks for the key of the job"
        return f"what listens at {address} is no analyzer of this job, or {ours}; still trying"

    def _try(self) -> None:
        with contextlib.suppress(zmq.ZMQError), zmq.Context() as context:
            socket = context.socket(zmq.DEALER)
            socket.linger = 0
            socket.setsockopt(zmq.IPV6, 1)
            socket.setsockopt(zmq.RECONNECT_IVL, _RETRY_MS)
            if self._endpoint.key:
                show_key(socket, self._endpoint.key)
            with socket, socket.get_monitor_socket() as monitor:
                socket.connect(self._endpoint.address)
                self._watch(monitor)
        if self._say and (why := self.failed()):
            self._say(why)

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        """Until we are let in or patience ends. A refusal may come as an end of the connection with no other word."""
        is_connected = False
        while (left_s := self._deadline_s - time.monotonic()) > 0:
            if not monitor.poll(int(left_s * 1000) + 1):
                return
            event = recv_monitor_message(monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_in.set()
                return
            if event in _REFUSED or (event == zmq.EVENT_DISCONNECTED and is_connected):
                self._is_refused.set()
            is_connected = event == zmq.EVENT_CONNECTED

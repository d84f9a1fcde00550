"""Who may connect to an analyzer over TCP: those who have the key of the job.

CURVE lets in whoever knows the analyzer's public key, and asks a ZAP handler about the public key of the one who
comes; ours knows one. Those who fail are counted by a monitor, since ZeroMQ drops them without a word.
"""

from __future__ import annotations

import hmac
import signal
from typing import Final

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from whichrank.wire.keys import agent_pair, analyzer_pair

_DOMAIN: Final = "whichrank"
_FAILED: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_DENIED: Final = zmq.EVENT_HANDSHAKE_FAILED_AUTH
_MOST_AT_ONCE: Final = 4096


class Gate:
    """Guards one socket that is not bound yet. Close it after the socket.

    Args:
        socket: Alone in its context, since a context has one ZAP handler; the context ends with the gate.
        key: Of the job.

    Attributes:
        refused: How many connections were, as far as `count` has seen.
    """

    def __init__(self, socket: zmq.Socket[bytes], key: str) -> None:
        self.refused = 0
        self._expected = agent_pair(key).public
        self._context = socket.context
        self._authenticator = ThreadAuthenticator(socket.context)
        self._authenticator.configure_curve_callback(_DOMAIN, self)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # its thread is to take none
        try:
            self._authenticator.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        socket.curve_server = True
        socket.curve_secretkey = analyzer_pair(key).secret
        socket.zap_domain = _DOMAIN.encode()
        self._monitor = socket.get_monitor_socket(_FAILED | _DENIED)

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether this public key is that of the job's agents. The name and the arguments are pyzmq's."""
        return hmac.compare_digest(key, self._expected)

    def count(self) -> None:
        """Take note of who was refused since."""
        for _ in range(_MOST_AT_ONCE):
            try:
                recv_monitor_message(self._monitor, zmq.NOBLOCK)
            except zmq.Again:
                return
            self.refused += 1

    def close(self) -> None:
        """Let nobody in any more, and wait until what was sent has gone, or its linger is over."""
        self._monitor.close(linger=0)
        self._authenticator.stop()
        self._context.term()

"""What a supervisor such as systemd hears of a server process: that it is ready, reads anew, stops (sd_notify(3)).

Rules of this file
1. A message is one datagram of `NAME=value` lines to the Unix socket that NOTIFY_SOCKET names; a name that begins with `@` is an
   abstract one. Without the variable nobody is told anything.
2. A supervisor that hears nothing holds nobody up: what cannot be sent at once is a warning in the log, and the server goes on.
3. Ready is said after the start alone, and nothing but the end after a stop has begun.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import MutableMapping
from typing import Final

from orbitmq.clock import Clock

logger = logging.getLogger("orbitmq.server")

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"


class Supervisor:
    """Whoever started the process, if it wants to be told."""

    def __init__(self, environment: MutableMapping[str, str], clock: Clock) -> None:
        """Takes the address out of `environment`, so that processes started by this one do not speak in its place."""
        self._address: Final = environment.pop(NOTIFY_SOCKET, "")
        self._clock = clock
        self._serves = False

    def ready(self, summary: str) -> None:
        """The start is done: ports are open, the broker is registered. `summary` is what `systemctl status` shows."""
        self._serves = True
        self._tell("READY=1", f"STATUS={summary}")

    def reloading(self) -> None:
        """Files are read anew, until `reloaded`."""
        if self._serves:
            self._tell("RELOADING=1", f"MONOTONIC_USEC={self._clock.monotonic_ns() // 1_000}")

    def reloaded(self) -> None:
        if self._serves:
            self._tell("READY=1")

    def stopping(self, reason: str) -> None:
        """The process is about to end."""
        self._serves = False
        self._tell("STOPPING=1", f"STATUS=stopping: {reason}")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            ) as sender:
                sender.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            logger.warning("%s = %s does not hear %s: %s", NOTIFY_SOCKET, self._address, lines[0], error)

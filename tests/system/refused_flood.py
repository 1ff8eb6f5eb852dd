"""A flood of requests that nobody has signed right: every connection offers as much as its socket takes, until standard input ends.

Rules of this file
1. One process per flood (`python refused_flood.py PORT`), so that it does not share a core's interpreter with the test.
2. Every other connection sends oneway requests, which are refused as well and have no answer that could wait.
3. Connections are replaced all the time: a new one has not been refused yet.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from server_process import send_fields

from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import encode, request
from orbitmq.protocol.signing import Credentials

CONNECTIONS = 50
FRAMES = 1_000
LASTS_S = 2.0
"""How long a connection is used, about."""


class Flood:
    def __init__(self, port: int, access_key: str) -> None:
        fields = Credentials(access_key, "a-secret-that-is-wrong").signed(send_fields("flooded"))
        self._port = port
        self._frames = [
            encode(request(RequestCode.SEND_MESSAGE_V2, fields, b"", opaque=1, oneway=oneway)) * FRAMES
            for oneway in (False, True)
        ]
        self.opened_count = self.sent_bytes = self.answered_bytes = 0
        self._open: list[socket.socket] = []
        self._offered: dict[socket.socket, tuple[bytes, int]] = {}
        """The frames of a connection, which are sent over and over, and how far the last round has come."""

    def connect(self) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.setblocking(False)
        self._open.append(connection)
        self.opened_count += 1
        self._offered[connection] = (self._frames[self.opened_count % 2], 0)

    def run(self) -> None:
        began = time.monotonic()
        while True:
            if (time.monotonic() - began) * CONNECTIONS / LASTS_S > self.opened_count - CONNECTIONS:
                if len(self._open) >= CONNECTIONS:
                    self._drop(self._open[0])
                self.connect()
            readable, writable, _ = select.select([sys.stdin, *self._open], self._open, [], 0.1)
            for connection in writable:
                self._send(connection)
            for ready in readable:
                if ready is sys.stdin:
                    return
                if ready in self._offered:
                    self._receive(ready)

    def _send(self, connection: socket.socket) -> None:
        frames, at = self._offered[connection]
        try:
            count = connection.send(frames[at:])
        except BlockingIOError:
            return
        except ConnectionError:
            self._drop(connection)
            return
        self.sent_bytes += count
        self._offered[connection] = (frames, (at + count) % len(frames))

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 18)
        except ConnectionError:
            data = b""
        self.answered_bytes += len(data)
        if not data:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        connection.close()
        self._open.remove(connection)
        del self._offered[connection]


if __name__ == "__main__":
    flood = Flood(int(sys.argv[1]), sys.argv[2])
    flood.run()
    json.dump({name: getattr(flood, name) for name in ("opened_count", "sent_bytes", "answered_bytes")}, sys.stdout)

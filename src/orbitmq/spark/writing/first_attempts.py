"""First attempts of a task's requests, over blocking connections of its own.

Nearly every request succeeds at once, and then there is nothing to wait for but room. So the thread that encodes rows writes them to the
socket itself: a row of 1 KB costs 0.55 us of CPU from here to the kernel and back, by the event loop of the client 1.1. Whatever
does not succeed is handed back to be repeated there, with the same bytes.

Rules of this file
1. A request that was handed back may have been stored. It is the broker, not this file, that recognises the repeat.
2. After a failure of a connection everything unanswered on it is handed back at once.
3. Nothing is decided about errors: an answer counts as stored, or the request is handed back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from orbitmq.client.bulk.wave_connection import WaveConnection
from orbitmq.errors import ConnectionLostError, FrameError, RequestTimeoutError
from orbitmq.protocol.remoting.frame import Command

log = logging.getLogger("orbitmq.spark")

Request = TypeVar("Request")


class FirstAttempts(Generic[Request]):
    """Requests of one task by address; `Request` is what the task knows them by. For one thread."""

    def __init__(self, dial: Callable[[str], WaveConnection], is_stored: Callable[[int], bool]) -> None:
        """dial: a new connection. is_stored: what a response code says."""
        self._dial = dial
        self._is_stored = is_stored
        self._lines: dict[str, WaveConnection] = {}
        self._waiting: dict[str, dict[int, tuple[Request, int]]] = {}
        self.under_way_bytes = 0
        self.under_way_count = 0

    def is_connected(self, address: str) -> bool:
        return address in self._lines

    def begin(self, address: str, request: Request, command: Command) -> list[Request]:
        """Write a request; its body may be a view and has to stay as it is until the request ends. What is to be repeated."""
        line = self._lines.get(address)
        try:
            if line is None:
                line = self._lines[address] = self._dial(address)
                self._waiting[address] = {}
            opaque = line.send_one(command)
        except (ConnectionLostError, RequestTimeoutError) as error:
            return [*self._lost(address, error), request]
        size = len(command.body)
        self._waiting[address][opaque] = request, size
        self.under_way_bytes += size
        self.under_way_count += 1
        return self._take(address) if line.has_arrived() else []

    def wait(self) -> list[Request]:
        """Wait until something has ended at the broker with the most under way. What is to be repeated."""
        address = max(self._waiting, key=lambda place: len(self._waiting[place]))
        return self._take(address)

    def close(self) -> None:
        """End the connections; what is under way is given up."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()
        self._waiting.clear()
        self.under_way_bytes = self.under_way_count = 0

    def _take(self, address: str) -> list[Request]:
        """What has arrived, at least something."""
        line, waiting = self._lines[address], self._waiting[address]
        again: list[Request] = []
        try:
            answers = line.receive()
        except (ConnectionLostError, RequestTimeoutError, FrameError) as error:
            return self._lost(address, error)
        for answer in answers:
            known = waiting.pop(answer.command.opaque, None)
            if known is not None:
                request, size = known
                self.under_way_bytes -= size
                self.under_way_count -= 1
                if not self._is_stored(answer.command.code):
                    again.append(request)
        line.buffer.clear()
        return again

    def _lost(self, address: str, error: Exception) -> list[Request]:
        """The connection is of no use any more. All that was unanswered on it, in the order of sending."""
        line = self._lines.pop(address, None)
        if line is not None:
            line.close()
        unanswered = self._waiting.pop(address, {})
        self.under_way_bytes -= sum(size for _, size in unanswered.values())
        self.under_way_count -= len(unanswered)
        log.info("%d requests to %s are repeated: %s", len(unanswered) + (line is None), address, error)
        return [request for request, _ in unanswered.values()]

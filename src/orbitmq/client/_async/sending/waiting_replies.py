"""Requests of one client that wait for their replies, by correlation id.

Rules of this file
1. A reply that nobody waits for is counted and logged, never an error: its request may have run out of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client._async.runtime import Event, log, offload
from orbitmq.errors import ClientError
from orbitmq.limits.client import CLIENT_REQUESTS_WAITING_MAX
from orbitmq.limits.wire import DECOMPRESSED_BYTES_MAX
from orbitmq.protocol.sysflag import SysFlag, compression_of

if TYPE_CHECKING:  # a program that asks nothing needs no replies
    from orbitmq.client.sending.reply import Reply
    from orbitmq.protocol.remoting.frame import Command


class WaitingReply:
    """One request. `arrived` is set when `reply` is there."""

    __slots__ = ("arrived", "reply")

    def __init__(self) -> None:
        self.arrived = Event()
        self.reply: Reply | None = None


class WaitingReplies:
    """unexpected_count: replies that came when nobody waited for them any more.

    introduced: addresses of brokers that know this client as a producer, so that they can hand replies on to it.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, WaitingReply] = {}
        self.introduced: set[str] = set()
        self.unexpected_count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, correlation_id: str) -> WaitingReply:
        """`ClientError` when too many wait already."""
        if len(self._waiting) >= CLIENT_REQUESTS_WAITING_MAX:
            raise ClientError(
                f"{CLIENT_REQUESTS_WAITING_MAX} requests of this client wait for replies already",
                remedy="wait for some of them, or allow them less time",
            )
        waiting = self._waiting[correlation_id] = WaitingReply()
        return waiting

    def remove(self, correlation_id: str) -> None:
        del self._waiting[correlation_id]

    def arrived_plain(self, command: Command) -> bool:
        """A broker hands a reply on. Taken at once when its body needs no work, so that a burst of replies needs no tasks."""
        if command.int32("sysFlag") & SysFlag.COMPRESSED:
            return False
        self._take(command, bytes(command.body))
        return True

    async def arrived(self, command: Command) -> None:
        """As `arrived_plain`, for any reply. `ProtocolError` when its body cannot be restored."""
        body = bytes(command.body)
        compression = compression_of(command.int32("sysFlag"))
        if compression is not None:
            from orbitmq.protocol.compression import decompress

            body = await offload(len(body), decompress, body, compression, DECOMPRESSED_BYTES_MAX)
        self._take(command, body)

    def _take(self, command: Command, body: bytes) -> None:
        from orbitmq.client.sending.reply import pushed_reply

        reply = pushed_reply(command, body)
        waiting = self._waiting.get(reply.correlation_id)
        if waiting is None:
            self.unexpected_count += 1
            log.warning("a reply to request %r came when nobody waited for it any more", reply.correlation_id)
            return
        waiting.reply = reply
        waiting.arrived.set()

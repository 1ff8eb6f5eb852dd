"""Looking at queues and messages.

Rules of this file
1. Looking changes nothing: no offset is committed, no group is joined.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/administration/look_up.py: change that file and run `make generate`.
"""

from __future__ import annotations

from orbitmq.client._async.administration import look_up as source
from orbitmq.client._async.administration.look_up import Peeked, ReadRecords
from orbitmq.client._sync.administration.admin_calls import AdminCalls
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.sending.trace import Trace
from orbitmq.client.stored import StoredMessage
from orbitmq.limits.client import CLIENT_KEY_MATCHES_MAX
from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.protocol.remoting.bodies import MessageQueue


class LookUp(AdminCalls):
    """Calls that look at queues and messages."""

    def __init__(self, twin: source.LookUp, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.LookUp = twin

    def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the oldest message a queue still has; equal to `max_offset` when it has none."""
        return self._loop.run(self._twin.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Offset the next message of a queue will get."""
        return self._loop.run(self._twin.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Offset of the first message stored at or after an instant; `max_offset` when there is none."""
        return self._loop.run(self._twin.offset_by_time(queue, timestamp_ms))

    def peek(
        self, queue: MessageQueue, offset: int, *, count: int = 32, tags: str = "*", sql: str | None = None
    ) -> Peeked:
        """Messages of a queue from `offset` on, at most `count`; at once, without waiting for new ones. With `sql` only those for which
        this SQL92 expression over their properties is true.
        """
        return self._loop.run(self._twin.peek(queue, offset, count=count, tags=tags, sql=sql))

    def read_records(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count: int = 32,
        tags: str = "*",
        sql: str | None = None,
        hold_ms: int = 0,
    ) -> ReadRecords:
        """As `peek`, but records as they are stored. The broker holds the request for up to `hold_ms` while there are none."""
        return self._loop.run(self._twin.read_records(queue, offset, count=count, tags=tags, sql=sql, hold_ms=hold_ms))

    def message_at(self, queue: MessageQueue, offset: int) -> StoredMessage | None:
        """The message at one offset of a queue, or None."""
        return self._loop.run(self._twin.message_at(queue, offset))

    def message_by_id(self, message_id: str, topic: str | None = None) -> StoredMessage | None:
        """The message with an offset id, asked from the broker that the id names; or, with its topic, one with a unique id.

        Both kinds of id look alike. With `topic` the unique id is tried first.
        """
        return self._loop.run(self._twin.message_by_id(message_id, topic))

    def messages_by_unique_id(self, topic: str, unique_id: str) -> list[StoredMessage]:
        """Messages of a topic with this sender's id; more than one when a send was repeated."""
        return self._loop.run(self._twin.messages_by_unique_id(topic, unique_id))

    def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_count: int = CLIENT_KEY_MATCHES_MAX,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
    ) -> list[StoredMessage]:
        """Messages of a topic that carry `key`, stored in a span of time; at most `max_count` from each broker."""
        return self._loop.run(
            self._twin.messages_by_key(topic, key, max_count=max_count, begin_ms=begin_ms, end_ms=end_ms)
        )

    def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> list[Trace]:
        """What clients with trace told about a message (by its unique id), in the order in which it was stored.

        A send is one record, an attempt to consume two: `ConsumeBegun` and `ConsumeEnded` with the same `request_id`. Records are told some
        seconds late, and each broker returns at most 64 trace messages. Nothing was told while the trace topic does not exist.
        """
        return self._loop.run(self._twin.trace(message_id, topic=topic))

"""Explicit pulls: the program says which queue, from where, how much; it keeps its own offsets.

    with client.pull_consumer("export") as reader:
        for queue in reader.queues("orders"):
            pulled = reader.pull(queue, reader.committed(queue) or 0)
            ...
            reader.commit(queue, pulled.next_offset)

Rules of this file
1. A pull consumer is no member of its group: no heartbeat, no rebalance, nothing in the background. The group only names its offsets.
2. Every call is one request. Nothing is retried; the caller knows better when to ask again.
3. `pull_raw` makes no object for a record: bulk readers decode the bytes themselves.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/pulling/pull_consumer.py: change that file and run `make generate`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from orbitmq.client._async.pulling import pull_consumer as source
from orbitmq.client._async.pulling.pull_consumer import Pulled, PulledBytes
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.limits.client import CONSUMER_PULL_BYTES, CONSUMER_PULL_MESSAGES_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue


class PullConsumer:
    """Reads queues on a group's name. Made by `Client.pull_consumer`; usable until closed, `with` closes it."""

    def __init__(self, twin: source.PullConsumer, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.PullConsumer = twin

    @property
    def group(self) -> str:
        return self._twin.group

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Readable queues of a topic, asked from the name servers now. `RouteNotFoundError` for an unknown topic."""
        return self._loop.run(self._twin.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        wait_ms: int = 0,
        tags: str = "*",
        sql: str | None = None,
    ) -> Pulled:
        """Messages of a queue from `offset` on, at most `max_messages`, and about 256 KiB of them.

        tags, sql: only messages with one of these tags, or for which this SQL92 expression over their properties is true.
        wait_ms: how long the broker may wait for a message when there is none; 0 answers at once.
        A message whose body cannot be restored ends the answer before it; when it is the first, `ClientError` names its offset.
        """
        return self._loop.run(
            self._twin.pull(queue, offset, max_messages=max_messages, wait_ms=wait_ms, tags=tags, sql=sql)
        )

    def pull_raw(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = CONSUMER_PULL_MESSAGES_MAX,
        max_bytes: int = CONSUMER_PULL_BYTES,
        wait_ms: int = 0,
        tags: str = "*",
        sql: str | None = None,
    ) -> PulledBytes:
        """As `pull`, but the records as bytes: for reading in bulk without an object for each message.

        The broker bounds an answer as well, by its own settings (32 messages or 256 KiB by default, fewer from disk).
        """
        return self._loop.run(
            self._twin.pull_raw(
                queue, offset, max_messages=max_messages, max_bytes=max_bytes, wait_ms=wait_ms, tags=tags, sql=sql
            )
        )

    def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the oldest message a queue still has; equal to `max_offset` when it has none."""
        return self._loop.run(self._twin.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Offset the next message of a queue will get."""
        return self._loop.run(self._twin.max_offset(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Offset of the first message stored at or after an instant (ms since the epoch); `max_offset` when there is none."""
        return self._loop.run(self._twin.offset_at(queue, timestamp_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset on a queue; None when it has none. Brokers before 5.0 say 0 for a young queue."""
        return self._loop.run(self._twin.committed(queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Store the group's offset on a queue, in either direction: the first one that is not done. The broker has it on return.

        A broker knows the group once the group has pulled from it, or was created; before that it refuses (SUBSCRIPTION_GROUP_NOT_EXIST).
        """
        self._loop.run(self._twin.commit(queue, offset))

    def close(self) -> None:
        """Refuse further calls. There is nothing to be told to anybody."""
        self._loop.end(self._twin.close())

    def __enter__(self) -> Self:
        self._loop.run(self._twin.__aenter__())
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.end(self._twin.__aexit__(error_type, error, trace))

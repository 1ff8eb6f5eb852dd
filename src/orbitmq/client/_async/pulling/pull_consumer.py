"""Explicit pulls: the program says which queue, from where, how much; it keeps its own offsets.

    async with client.pull_consumer("export") as reader:
        for queue in await reader.queues("orders"):
            pulled = await reader.pull(queue, await reader.committed(queue) or 0)
            ...
            await reader.commit(queue, pulled.next_offset)

Rules of this file
1. A pull consumer is no member of its group: no heartbeat, no rebalance, nothing in the background. The group only names its offsets.
2. Every call is one request. Nothing is retried; the caller knows better when to ask again.
3. `pull_raw` makes no object for a record: bulk readers decode the bytes themselves.
"""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, Self

from orbitmq.client._async.consuming.reading import restore_body, wanted_records
from orbitmq.client._async.parts import ClientContext
from orbitmq.client._async.pulling.queue_reader import QueueReader
from orbitmq.client.consuming.pull_plan import PullStatus
from orbitmq.client.consuming.subscription import Subscription, subscribe
from orbitmq.client.pulling.pull_request import PullAnswer, PullRequest, queue_name
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError, ConfigurationError, ProtocolError
from orbitmq.limits.client import CONSUMER_PULL_BYTES, CONSUMER_PULL_MESSAGES_MAX, PULL_WAIT_MS_MAX
from orbitmq.limits.wire import FRAME_BYTES_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.sysflag import SysFlag

_COMPRESSED = SysFlag.COMPRESSED.value


class Pulled(NamedTuple):
    """What one pull brought.

    status: FOUND; NO_NEW_MESSAGE at the end of the queue; NO_MATCHED_MESSAGE when everything looked at was filtered out; OFFSET_ILLEGAL
        when the queue has no such offset.
    next_offset: where to go on, whatever the status. After OFFSET_ILLEGAL it is the nearest offset that exists: the oldest message's,
        or the end of the queue.
    min_offset, max_offset: bounds of the queue when the broker answered.
    """

    status: PullStatus
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class PulledBytes(NamedTuple):
    """What one raw pull brought; the other fields as in `Pulled`.

    data: whole records one after the other, in the form of the commit log (compressed bodies as they are, inner batches as one
        record). Tags were compared by hash code only, so records of another tag with the same code may be among them.
    offset_delta: to be added to the queue offsets in `data`; not 0 for moved queues of static topics only.
    """

    status: PullStatus
    data: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int


class PullConsumer:
    """Reads queues on a group's name. Made by `Client.pull_consumer`; usable until closed, `async with` closes it."""

    def __init__(self, client: ClientContext, group: str) -> None:
        self.client = client
        self.group = group
        self._reader = QueueReader(client, group, client.options.admin_timeout_ms)
        self._closed = False

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Readable queues of a topic, asked from the name servers now. `RouteNotFoundError` for an unknown topic."""
        self._check_open()
        return await self._reader.queues(topic)

    async def pull(
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
        wanted = subscribe(queue.topic, tags, 0, sql=sql)
        request = self._request(queue, offset, max_messages, CONSUMER_PULL_BYTES, wait_ms, wanted)
        answer = await self._reader.pull(request)
        messages, next_offset = await _decode(queue, answer, wanted)
        return Pulled(answer.status, messages, next_offset, answer.min_offset, answer.max_offset)

    async def pull_raw(
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
        wanted = subscribe(queue.topic, tags, 0, sql=sql)
        request = self._request(queue, offset, max_messages, max_bytes, wait_ms, wanted)
        answer = await self._reader.pull(request)
        return PulledBytes(
            answer.status, answer.data, answer.next_offset, answer.min_offset, answer.max_offset, answer.offset_delta
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the oldest message a queue still has; equal to `max_offset` when it has none."""
        self._check_open()
        return await self._reader.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset the next message of a queue will get."""
        self._check_open()
        return await self._reader.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Offset of the first message stored at or after an instant (ms since the epoch); `max_offset` when there is none."""
        self._check_open()
        return await self._reader.offset_at(queue, timestamp_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset on a queue; None when it has none. Brokers before 5.0 say 0 for a young queue."""
        self._check_open()
        return await self._reader.committed(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Store the group's offset on a queue, in either direction: the first one that is not done. The broker has it on return.

        A broker knows the group once the group has pulled from it, or was created; before that it refuses (SUBSCRIPTION_GROUP_NOT_EXIST).
        """
        self._check_open()
        _check_offset(queue, offset)
        await self._reader.commit(queue, offset)

    async def close(self) -> None:
        """Refuse further calls. There is nothing to be told to anybody."""
        self._closed = True

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _request(
        self, queue: MessageQueue, offset: int, max_messages: int, max_bytes: int, wait_ms: int, wanted: Subscription
    ) -> PullRequest:
        self._check_open()
        _check_offset(queue, offset)
        for name, value, low, high in (
            ("max_messages", max_messages, 1, CONSUMER_PULL_MESSAGES_MAX),
            ("max_bytes", max_bytes, 1, FRAME_BYTES_MAX),
            ("wait_ms", wait_ms, 0, PULL_WAIT_MS_MAX),
        ):
            if not low <= value <= high:
                raise ConfigurationError(f"{name}={value}: must be {low} to {high}")
        return PullRequest(
            group=self.group,
            queue=queue,
            offset=offset,
            count=max_messages,
            bytes_count=max_bytes,
            expression=wanted.expression,
            expression_type=wanted.expression_type,
            hold_ms=wait_ms,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError(f"the pull consumer of group {self.group!r} is closed", remedy="make a new one")


def _check_offset(queue: MessageQueue, offset: int) -> None:
    if not 0 <= offset < 2**63:
        raise ConfigurationError(
            f"offset {offset} of {queue_name(queue)}: offsets count from 0 and fit 64 bits",
            remedy="ask min_offset() for the oldest",
        )


async def _decode(queue: MessageQueue, answer: PullAnswer, wanted: Subscription) -> tuple[list[StoredMessage], int]:
    """Wanted messages of an answer, and the offset to go on at."""
    messages: list[StoredMessage] = []
    try:
        for record in wanted_records(answer.data, wanted.filter, answer.offset_delta):
            try:
                body = await restore_body(record) if record.sys_flag & _COMPRESSED else record.body
            except ProtocolError as error:
                if messages:
                    return messages, record.queue_offset
                raise ClientError(
                    f"the message at offset {record.queue_offset} of {queue_name(queue)} cannot be restored: {error}",
                    remedy=f"go on at offset {record.queue_offset + 1}, or read its bytes with pull_raw()",
                ) from error
            messages.append(StoredMessage(record, body, None, queue))
    except ProtocolError as error:
        raise ClientError(f"the answer to a pull of {queue_name(queue)} is damaged: {error}") from error
    return messages, answer.next_offset

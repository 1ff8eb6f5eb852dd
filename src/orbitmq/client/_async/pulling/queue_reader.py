"""Reading single queues on a group's name, without being a member of it: pulls, bounds, stored offsets.

Rules of this file
1. Every call is one request to one broker; the route of the topic is looked up when it is not known.
2. Nothing is retried and nothing is committed along with a read. The group is created by brokers that create groups on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orbitmq.client._async.consuming.send_back import DEAD_LETTER_LEVEL
from orbitmq.client._async.parts import ClientContext
from orbitmq.client._async.runtime import monotonic_ms
from orbitmq.client.consuming.offset_table import Lookup, OwnedOffsets, start_lookup
from orbitmq.client.consuming.pull_plan import PULL_ANSWERS
from orbitmq.client.options import ConsumeFrom
from orbitmq.client.pulling.pull_request import PullAnswer, PullRequest, queue_fields, queue_name, read_answer
from orbitmq.client.route import MASTER_ID
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError, RouteNotFoundError
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

_FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


class QueueReader:
    """Requests about queues. `timeout_ms` is for one of them, and is added to the time a broker may hold a pull."""

    def __init__(self, client: ClientContext, group: str, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self.group = group
        self.routes = client.routes
        self.troubles = client.network.troubles

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Readable queues of a topic as the name servers know it now. `RouteNotFoundError` for an unknown topic."""
        route = await self._client.routes.refresh(topic)
        if route is None:
            raise RouteNotFoundError(
                f"the name servers know no topic {topic!r}", remedy=f"create it: orbitmq topic create {topic}"
            )
        return route.subscribe_queues

    async def pull(self, request: PullRequest, broker_id: int = MASTER_ID) -> PullAnswer:
        """Ask the given member of the queue's broker group, or another one that is there."""
        queue = request.queue
        answer = await self._client.network.request(
            await self.address(queue, broker_id),
            request.code,
            request.fields(),
            timeout_ms=self._timeout_ms + request.hold_ms,
            doing=f"pulling {queue_name(queue)}",
            accept=PULL_ANSWERS,
        )
        return read_answer(request, answer)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the oldest message the queue still has; equal to `max_offset` when it has none."""
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset the next message of the queue will get."""
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Offset of the first message stored at or after an instant; `max_offset` when there is none."""
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": str(timestamp_ms)})

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset on the queue as the broker has it; None when it has none.

        Brokers before 5.0 say 0 for a group without an offset on a queue that still has its first message.
        """
        return await self._stored(queue, {"setZeroIfNotFound": "false"})

    async def commit(self, queue: MessageQueue, offset: int, *, timeout_ms: int | None = None) -> None:
        """Store the group's offset on the queue, in either direction; the broker has it when this returns."""
        await self._client.network.request(
            await self.address(queue),
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {**queue_fields(queue), "consumerGroup": self.group, "commitOffset": str(offset)},
            timeout_ms=timeout_ms or self._timeout_ms,
            doing=f"committing offset {offset} of group {self.group!r} on {queue_name(queue)}",
        )

    async def start_offset(
        self, queue: MessageQueue, consume_from: ConsumeFrom, from_timestamp_ms: int | None
    ) -> tuple[int, bool]:
        """Where the group goes on with a queue: at its stored offset, else where the policy says; and whether it is stored."""
        stored = await self._stored(queue, {})  # brokers say 0 for a young queue: its first messages are not skipped
        if stored is not None:
            return stored, True
        match start_lookup(consume_from, retry_topic=queue.topic.startswith(RETRY_PREFIX)):
            case Lookup.ZERO:
                return 0, False
            case Lookup.MAX:
                return await self.max_offset(queue), False
            case Lookup.BY_TIME:
                return await self.offset_at(queue, from_timestamp_ms or 0), False

    async def write_changed(
        self, table: OwnedOffsets, queues: Iterable[MessageQueue] | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Store what changed in `table`, of all queues or of these, all within `timeout_ms` if it is given.

        Failures are logged and tried again by the next call; after the last one they mean that messages are delivered again. A
        broker that failed once is not asked further.
        """
        failed: set[str] = set()
        writing = f"writing offsets of group {self.group} to broker"
        deadline_ms = None if timeout_ms is None else monotonic_ms() + timeout_ms
        for queue, offset in table.changed(queues).items():
            if queue.broker_name in failed:
                continue
            try:
                left_ms = None if deadline_ms is None else max(deadline_ms - monotonic_ms(), 1)
                await self.commit(queue, offset, timeout_ms=left_ms)
                table.written(queue, offset)
                self._client.network.troubles.worked(f"{writing} {queue.broker_name}")
            except ClientError as error:
                failed.add(queue.broker_name)
                self._client.network.troubles.failed(f"{writing} {queue.broker_name}", error)

    async def dead_letter(self, message: StoredMessage) -> None:
        """Have the broker of a message put a copy into the group's dead-letter topic."""
        await self._client.network.request(
            await self.address(message.queue),
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {
                "offset": str(message.physical_offset),
                "group": self.group,
                "delayLevel": str(DEAD_LETTER_LEVEL),
                "originMsgId": message.message_id,
                "originTopic": message.topic,
                "unitMode": "false",
                "bname": message.queue.broker_name,
            },
            timeout_ms=self._timeout_ms,
            doing=f"sending message {message.message_id} to the dead letters",
        )

    async def address(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        """Where to ask about a queue; an unknown broker is looked for at the name servers once more."""
        routes = self._client.routes
        address = (await routes.get(queue.topic)).reader(queue.broker_name, broker_id)
        if address is None:
            route = await routes.refresh(queue.topic)
            address = route.reader(queue.broker_name, broker_id) if route is not None else None
        if address is None:
            raise RouteNotFoundError(
                f"topic {queue.topic!r} has no broker {queue.broker_name!r}", remedy="see: orbitmq topic route"
            )
        return address

    async def _stored(self, queue: MessageQueue, more: Mapping[str, str]) -> int | None:
        answer = await self._client.network.request(
            await self.address(queue),
            RequestCode.QUERY_CONSUMER_OFFSET,
            {**queue_fields(queue), "consumerGroup": self.group, **more},
            timeout_ms=self._timeout_ms,
            doing=f"reading the offset of group {self.group!r} on {queue_name(queue)}",
            accept=_FOUND_OR_NOT,
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = answer.optional_integer("offset")
        if offset is None:  # to begin by the policy instead could skip messages
            raise ClientError(f"the broker has an offset of {queue_name(queue)} and does not say which")
        return offset if offset >= 0 else None

    async def _offset(self, queue: MessageQueue, code: RequestCode, more: Mapping[str, str] | None = None) -> int:
        name = queue_name(queue)
        answer = await self._client.network.request(
            await self.address(queue),
            code,
            {**queue_fields(queue), **(more or {})},
            timeout_ms=self._timeout_ms,
            doing=f"reading an offset of {name}",
        )
        offset = answer.optional_integer("offset")
        if offset is None or offset < 0:
            raise ClientError(f"the broker of {name} answered without an offset")
        return offset

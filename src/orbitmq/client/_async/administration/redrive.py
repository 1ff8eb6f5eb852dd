"""Sending dead letters again.

Rules of this file
1. One dead letter after another; the place is committed every second and at the end, and it never passes a letter that was not
   settled. A run that was killed repeats what it had sent since: the broker recognises these and stores none of them twice.
   RocketMQ's broker does not, and gets up to a second's worth of duplicates.
2. A letter that can never be sent is counted, named and passed; whatever else fails ends the run, which can be started again.
   A broker puts what is sent to the retry topic of a group that consumes in order among its dead letters and answers success. So what
   became of a letter for one group is looked at; the first that came back is refused, and the run ends there: the others would too.
3. A dry run changes nothing, its place included.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.client._async.administration.group_admin import GroupAdmin
from orbitmq.client._async.parts import ClientContext
from orbitmq.client._async.runtime import monotonic_ms, sleep_ms
from orbitmq.client._async.sending.producer import Producer
from orbitmq.client.options import ProducerOptions
from orbitmq.client.redrive import (
    Redriven,
    RedriveOrder,
    RedriveResult,
    Refusal,
    Span,
    for_group,
    once_of,
    redriven,
    span_of,
    wait_ms,
)
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import MessageIllegalError, NotFoundError, RemoteError
from orbitmq.limits.client import REDRIVE_COMMIT_MS
from orbitmq.protocol.names import REDRIVE_GROUP, dlq_topic, retry_topic
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import ResponseCode

OnProgress = Callable[[RedriveResult], None]


class Redrive:
    """One run over the dead letters of a group. Made by `Admin.redrive`, for all of it; who divides a run among several processes has one
    in each, which settles its part, and one that looks for `spans` and keeps their places with `commit`."""

    def __init__(
        self, client: ClientContext, admin: GroupAdmin, order: RedriveOrder, on_progress: OnProgress | None = None
    ) -> None:
        self._client = client
        self._admin = admin
        self._order = order
        self._left = order.max_count
        self._on_progress = on_progress
        self.came_back = False
        """Whether the broker made a dead letter of one that was sent to the group alone: then the run ends."""
        self._known_topics: dict[str, bool] = {}
        self._started_ms = monotonic_ms()
        self.result = RedriveResult(group=order.group, dry_run=order.dry_run)

    async def run(self) -> RedriveResult:
        """The account when all is done. An error leaves what was done so far in `result`, and the place behind it."""
        spans = await self.spans()
        self.result.total = sum(span.end - span.begin for span in spans)
        self._started_ms = monotonic_ms()
        producer = Producer(self._client, REDRIVE_GROUP, ProducerOptions(send_timeout_ms=10_000))
        try:
            for span in spans:
                await self._redrive(span, producer)
        finally:
            await producer.close()
        self.result.complete = not self.has_enough or self.result.looked_at == self.result.total
        return self.result

    async def spans(self) -> list[Span]:
        """What there is to look at, one for each dead-letter queue."""
        topic = dlq_topic(self._order.group)
        route = await self._client.routes.find(topic)
        if route is None:
            raise NotFoundError(
                f"group {self._order.group!r} has no dead letters: there is no topic {topic!r}",
                remedy="check the name of the group: orbitmq group list",
            )
        if not route.subscribe_queues:
            raise NotFoundError(
                f"topic {topic!r} cannot be read",
                remedy=f"give it the permission: orbitmq topic update {topic} --perm 6",
            )
        if self._order.only_group and not await self._exists(retry_topic(self._order.group)):
            raise NotFoundError(
                f"group {self._order.group!r} has no retry topic",
                remedy="start a member of it: its broker makes the topic then",
            )
        return [await self._span(queue) for queue in route.subscribe_queues]

    async def _span(self, queue: MessageQueue) -> Span:
        admin, selection = self._admin, self._order.selection
        first, end = await admin.min_offset(queue), await admin.max_offset(queue)
        kept = None if self._order.run_id is not None else await admin.group_offset(self._order.progress, queue)
        since = None if selection.since_ms is None else await admin.offset_by_time(queue, selection.since_ms)
        until = None if selection.until_ms is None else await admin.offset_by_time(queue, selection.until_ms)
        return span_of(queue, first, end, kept, since, until)

    async def _redrive(self, span: Span, producer: Producer) -> None:
        offset = committed = span.begin
        committed_ms = monotonic_ms()
        try:
            while offset < span.end and not self.has_enough:
                peeked = await self._admin.peek(span.queue, offset)
                for message in peeked.messages:
                    if message.queue_offset >= span.end or self.has_enough:
                        break
                    await self.settle(message, producer)
                    offset = message.queue_offset + 1
                    if monotonic_ms() - committed_ms >= REDRIVE_COMMIT_MS:
                        await self.commit(span.queue, offset)
                        committed, committed_ms = offset, monotonic_ms()
                else:
                    offset = max(offset, min(peeked.next_offset, span.end))
                    if not peeked.messages and peeked.next_offset <= offset < span.end:
                        break  # retention took the rest, or the queue was made anew
        finally:
            if offset > committed:
                await self.commit(span.queue, offset)

    @property
    def has_enough(self) -> bool:
        """Whether as many were sent as the run may send, or sending them is of no use."""
        return self.came_back or (self._left is not None and self._left <= 0)

    async def settle(self, message: StoredMessage, producer: Producer) -> None:
        """Redrive one dead letter, or pass it, or refuse it."""
        if not self._order.selection.takes(message):
            self.result.passed()
        else:
            await self._send(message, producer)
        if self._on_progress is not None:
            self._on_progress(self.result)

    async def _send(self, message: StoredMessage, producer: Producer) -> None:
        outgoing = redriven(message, self._order.to_topic)
        if outgoing is None:
            self._refuse(message, "it does not say which topic it came from; name one with to_topic")
            return
        if not self._order.only_group and not await self._exists(outgoing.topic):
            self._refuse(
                message, f"there is no topic {outgoing.topic!r} any more; create it, or name another with to_topic"
            )
            return
        if not self.result.dry_run:
            await self.pause()
            try:
                back = await self._store(message, outgoing, producer)
            except MessageIllegalError as error:
                self._refuse(message, str(error))
                return
            if back is not None:
                self.came_back = True
                self._refuse(
                    message,
                    f"the group consumes in order, so its broker made a dead letter of it again, at offset {back.queue_offset}: "
                    "redrive it without only_group, or when the group's consumers have been stopped for a minute",
                )
                return
        self.result.sent(self._target(outgoing))
        if self._left is not None:
            self._left -= 1

    async def pause(self) -> None:
        """Until the next letter may be sent."""
        await sleep_ms(wait_ms(self.result.redriven, monotonic_ms() - self._started_ms, self._order.rate))

    async def _store(self, message: StoredMessage, sent: Redriven, producer: Producer) -> StoredMessage | None:
        """Send it; the dead letter that the broker made of it, if it did."""
        topic = self._target(sent)
        once = once_of(self._order.group, message, topic, self._order.run_id)
        if self._order.only_group:
            unique_id = self._client.unique_ids.next()
            outgoing = for_group(self._order.group, sent, message.body, message.flag, unique_id)
            receipt = await producer.send_prepared(outgoing, producer.options.send_timeout_ms, once)
            queue = MessageQueue(dlq_topic(self._order.group), receipt.queue.broker_name, 0)
            there = await self._admin.message_at(queue, receipt.queue_offset)
            return None if there is None or there.offset_message_id != receipt.offset_message_id else there
        await producer.send(
            topic,
            message.body,
            tag=sent.tag,
            key=sent.keys or None,
            ordering_key=sent.ordering_key,
            properties=sent.properties,
            flag=message.flag,
            once=once,
        )
        return None

    def _target(self, sent: Redriven) -> str:
        return retry_topic(self._order.group) if self._order.only_group else sent.topic

    async def _exists(self, topic: str) -> bool:
        known = self._known_topics.get(topic)
        if known is None:
            known = self._known_topics[topic] = await self._client.routes.find(topic) is not None
        return known

    def _refuse(self, message: StoredMessage, why: str) -> None:
        self.result.refuse(Refusal(message.queue, message.queue_offset, message.message_id, why))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Every letter of the queue before `offset` is settled. A dry run notes nothing."""
        if self.result.dry_run:
            return
        try:
            await self._admin.commit_group_offset(self._order.progress, queue, offset)
        except RemoteError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await self._admin.create_group(self._order.progress, broker=queue.broker_name)
            await self._admin.commit_group_offset(self._order.progress, queue, offset)

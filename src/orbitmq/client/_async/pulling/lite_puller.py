"""Pulling one queue for a lite consumer: ask, put what comes where polls find it, ask again.

Rules of this file
1. One pull of a queue is under way at a time. It belongs to one process queue: a seek puts another in its place, and what the old one
   still receives is forgotten.
2. No pull starts while the queue is paused or too much is unfinished; polling and resuming end the wait.
3. Pulls commit nothing. An offset that the broker does not have is corrected to the one it names, with a line in the log.
4. A message whose body cannot be restored goes to the group's dead letters: it is neither lost nor in the way of the others.
"""

from __future__ import annotations

from typing import Final, Protocol

from orbitmq.client._async.consuming.reading import restore_body, wanted_records
from orbitmq.client._async.pulling.lite_queue import LiteQueue, LiteQueues
from orbitmq.client._async.pulling.queue_reader import QueueReader
from orbitmq.client._async.runtime import log, monotonic_ms, wait_event
from orbitmq.client.consuming.pull_plan import PullStatus, wait_after_error_ms
from orbitmq.client.consuming.subscription import Subscription
from orbitmq.client.pulling.lite_options import LiteConsumerOptions
from orbitmq.client.pulling.pull_request import PullAnswer, PullRequest
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError, ProtocolError, RemoteError
from orbitmq.limits.client import CONSUMER_PULL_BYTES, LITE_PULL_HOLD_MS
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.sysflag import SysFlag

_COMPRESSED: Final = SysFlag.COMPRESSED.value

_UNKNOWN_MEMBER = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)


class Puller(Protocol):
    """A lite consumer as its pullers see it."""

    group: str
    options: LiteConsumerOptions
    subscriptions: dict[str, Subscription]
    reader: QueueReader
    queues: LiteQueues

    def broker_lost_us(self) -> None: ...


async def lite_pull_forever(consumer: Puller, owned: LiteQueue) -> None:
    """Pull until the queue is given up or begins anew."""
    messages = owned.messages
    while not messages.dropped:
        owned.waits_for = consumer.queues.hold(owned)
        if owned.waits_for is not None:
            await consumer.queues.wait_for_room(owned)
            continue
        messages.last_pull_ms = monotonic_ms()
        other_route = consumer.reader.routes.moved
        try:
            subscription = consumer.subscriptions.get(owned.queue.topic)
            if subscription is None:
                return  # the topic was left; the queue is about to be given up
            answer = await consumer.reader.pull(_request(consumer, owned, subscription), owned.broker_id)
            consumer.reader.troubles.worked(_subject(consumer, owned))
            if messages.dropped:
                return
            owned.broker_id = answer.broker_id
            if answer.status is PullStatus.OFFSET_ILLEGAL:
                log.warning(
                    "broker has no offset %d of %s; going on at %d", owned.next_offset, owned.name, answer.next_offset
                )
                consumer.queues.correct(owned, answer.next_offset)
                continue
            received = await _read(consumer, owned, subscription, answer)
            if messages.dropped:
                return
            owned.next_offset = answer.next_offset
            consumer.queues.put(owned, received)
        except (ClientError, ProtocolError) as error:
            if messages.dropped:
                return
            pause_ms = wait_after_error_ms(error)
            consumer.reader.troubles.failed(_subject(consumer, owned), error)
            if isinstance(error, RemoteError) and error.code in _UNKNOWN_MEMBER:
                consumer.broker_lost_us()
            await wait_event(other_route, pause_ms)


def _subject(consumer: Puller, owned: LiteQueue) -> str:
    """What is pulled, as the log names it: of a broker all queues of a topic fail together."""
    return f"pulling {owned.queue.topic} from broker {owned.queue.broker_name} for group {consumer.group}"


def _request(consumer: Puller, owned: LiteQueue, subscription: Subscription) -> PullRequest:
    return PullRequest(
        group=consumer.group,
        queue=owned.queue,
        offset=owned.next_offset,
        count=consumer.options.pull_messages_count,
        bytes_count=CONSUMER_PULL_BYTES,
        expression=subscription.expression,
        expression_type=subscription.expression_type,
        version=subscription.version,
        hold_ms=LITE_PULL_HOLD_MS,
        lite=True,
    )


async def _read(
    consumer: Puller, owned: LiteQueue, subscription: Subscription, answer: PullAnswer
) -> list[StoredMessage]:
    """Messages of an answer that the subscription wants. `RecordError` when the answer is damaged, `ClientError` when a message that
    cannot be restored could not be put among the dead letters: the pull is then repeated."""
    received: list[StoredMessage] = []
    for record in wanted_records(answer.data, subscription.filter, answer.offset_delta):
        message = StoredMessage(record, record.body, None, owned.queue)
        if record.sys_flag & _COMPRESSED:
            try:
                message.body = await restore_body(record)
            except ProtocolError as error:
                log.error("%r goes to the dead letters of group %s: %s", message, consumer.group, error)
                await consumer.reader.dead_letter(message)
                continue
        received.append(message)
    return received

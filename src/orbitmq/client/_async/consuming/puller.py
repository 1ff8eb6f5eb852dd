"""Pulling one queue: ask, take what comes, ask again.

Rules of this file
1. One pull of a queue is under way at a time, for as long as the consumer owns the queue.
2. No pull starts while too much is unsettled (`pull_plan.hold`); settling a message ends the wait.
3. A broker that neither holds a pull nor answers anything new is asked less often; an answer that leads back is refused.
4. What cannot be read does not stop the queue: a damaged answer is asked for again after a pause, a message whose body cannot be
   restored goes to the dead letters.
"""

from __future__ import annotations

from typing import Final

from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client._async.consuming.owned_queue import OwnedQueue
from orbitmq.client._async.consuming.reading import restore_body, wanted_records
from orbitmq.client._async.parts import Member
from orbitmq.client._async.runtime import log, monotonic_ms, sleep_ms, wait_event
from orbitmq.client.consuming.pull_plan import PULL_ANSWERS, Hold, PullFlag, pull_flags, wait_after_error_ms
from orbitmq.client.route import MASTER_ID
from orbitmq.errors import ClientError, ProtocolError, RemoteError
from orbitmq.limits.client import (
    CONSUMER_PULL_BYTES,
    PULL_AFTER_IDLE_MS,
    PULL_HOLD_MS,
    PULL_IDLE_ANSWERS_MAX,
    PULL_QUICK_MS,
    PULL_TIMEOUT_MS,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Buffer, Command
from orbitmq.protocol.sysflag import SysFlag

_COMPRESSED = SysFlag.COMPRESSED.value
OFFSET_RESET: Final = "OFFSET_RESET"
"""The remark by which a broker tells a reset from an offset that it does not have."""
_UNKNOWN_MEMBER = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)


async def pull_forever(consumer: Member, owned: OwnedQueue) -> None:
    """Pull until the queue is given up."""
    messages = owned.messages
    idle_count = 0
    while not messages.dropped:
        asked_ms = messages.last_pull_ms = monotonic_ms()
        reason = consumer.hold(owned)
        if reason is not None:
            await _wait_for_room(consumer, owned, reason)
            continue
        other_route = consumer.client.routes.moved
        try:
            answer = await _pull(consumer, owned)
            moved = await _take(consumer, owned, answer, asked_ms)
            consumer.client.network.troubles.worked(_subject(consumer, owned))
            idle_count = 0 if moved or monotonic_ms() - asked_ms >= PULL_QUICK_MS else idle_count + 1
            if idle_count >= PULL_IDLE_ANSWERS_MAX:
                await sleep_ms(PULL_AFTER_IDLE_MS)
        except (ClientError, ProtocolError) as error:
            if messages.dropped:
                return
            pause_ms = wait_after_error_ms(error)
            consumer.client.network.troubles.failed(_subject(consumer, owned), error)
            if isinstance(error, RemoteError) and error.code in _UNKNOWN_MEMBER:
                consumer.broker_lost_us()
            await wait_event(other_route, pause_ms)


def _subject(consumer: Member, owned: OwnedQueue) -> str:
    """What is pulled, as the log names it: of a broker all queues of a topic fail together."""
    return f"pulling {owned.queue.topic} from broker {owned.queue.broker_name} for group {consumer.group}"


async def _wait_for_room(consumer: Member, owned: OwnedQueue, reason: Hold) -> None:
    """Until a settled message may have made room; the caller looks again."""
    owned.waits_for = reason
    owned.room.clear()
    consumer.shared_waiters_count += reason.is_shared
    try:
        await wait_event(owned.room)
    finally:
        consumer.shared_waiters_count -= reason.is_shared
        owned.waits_for = None


async def _pull(consumer: Member, owned: OwnedQueue) -> Command:
    client = consumer.client
    queue = owned.queue
    address = client.routes.reader(queue.broker_name, owned.broker_id)
    if address is None:
        await client.routes.refresh(queue.topic)
        address = client.routes.reader(queue.broker_name, owned.broker_id)
        if address is None:
            raise client.routes.no_address(queue.broker_name)
    consumer.note_progress(owned)
    commit_offset = consumer.offsets.table.get(queue) or 0
    from_master = address == client.routes.master(queue.broker_name) and not consumer.options.broadcasting
    flags = pull_flags(commit_offset=commit_offset, from_master=from_master, with_subscription=False)
    subscription = consumer.subscriptions[queue.topic]
    answer = await client.network.request(
        address,
        RequestCode.PULL_MESSAGE,
        {
            "consumerGroup": consumer.group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(owned.next_offset),
            "maxMsgNums": str(consumer.options.pull_messages_count),
            "sysFlag": str(int(flags)),
            "commitOffset": str(commit_offset),
            "suspendTimeoutMillis": str(PULL_HOLD_MS),
            "subscription": subscription.expression,
            "subVersion": str(subscription.version),
            "expressionType": subscription.expression_type,
            "maxMsgBytes": str(CONSUMER_PULL_BYTES),
            "bname": queue.broker_name,
        },
        timeout_ms=PULL_TIMEOUT_MS,
        doing=f"pulling {owned.name}",
        accept=PULL_ANSWERS,
    )
    if flags & PullFlag.COMMIT_OFFSET:
        consumer.offsets.table.written(queue, commit_offset)
    return answer


async def _take(consumer: Member, owned: OwnedQueue, answer: Command, asked_ms: int) -> bool:
    """Apply an answer; whether it led on."""
    messages = owned.messages
    if messages.dropped:
        return True
    next_offset = answer.optional_integer("nextBeginOffset")
    if next_offset is None or next_offset < 0:
        raise ClientError(f"the answer to a pull of {owned.name} names no next offset")
    owned.broker_id = answer.integer("suggestWhichBrokerId", MASTER_ID)
    illegal = answer.code == ResponseCode.PULL_OFFSET_MOVED
    found = answer.code == ResponseCode.SUCCESS
    if illegal and answer.remark == OFFSET_RESET:
        # Also where the pull stands already: what was pulled and is not settled lies before it, and is done with.
        log.warning(
            "the offset of %s has been reset; going on at %d instead of %d", owned.name, next_offset, owned.next_offset
        )
        consumer.correct_offset(owned, next_offset)
        return True
    if (illegal and next_offset == owned.next_offset) or (not illegal and next_offset < owned.next_offset + found):
        raise ClientError(
            f"the answer to a pull of {owned.name} at offset {owned.next_offset} would lead back to {next_offset}"
        )
    if illegal:
        log.warning("broker has no offset %d of %s; going on at %d", owned.next_offset, owned.name, next_offset)
        consumer.correct_offset(owned, next_offset)
        return True
    received: list[ReceivedMessage] = []
    if found:
        received = await read_messages(consumer, owned, answer.body, answer.integer("offsetDelta"))
    if messages.dropped:
        return True
    moved = next_offset > owned.next_offset
    owned.next_offset = next_offset
    if received:
        owned.statistics.pulled(len(received), monotonic_ms() - asked_ms)
        consumer.deliver(owned, messages.put(received))
    elif not len(messages):
        consumer.offsets.table.advance(owned.queue, next_offset)
    hooks = consumer.client.hooks
    if hooks is not None:
        behind_count = max(0, answer.integer("maxOffset", next_offset) - next_offset)
        hooks.fetched(owned.queue, consumer.group, len(received), len(messages), behind_count)
    return moved


async def read_messages(
    consumer: Member, owned: OwnedQueue, data: Buffer, offset_delta: int = 0
) -> list[ReceivedMessage]:
    """Messages of an answer that the subscription wants, bodies restored; one that cannot be has a `problem`.

    `offset_delta` is added to their offsets (a queue of a static topic). `RecordError` when the answer itself is damaged.
    """
    queue = owned.queue
    tag_filter = consumer.subscriptions[queue.topic].filter
    received: list[ReceivedMessage] = []
    for record in wanted_records(data, tag_filter, offset_delta):
        message = ReceivedMessage(record, record.body, None, queue, owned)
        if record.sys_flag & _COMPRESSED:
            try:
                message.body = await restore_body(record)
            except ProtocolError as error:
                message.problem = str(error)
        received.append(message)
    return received

"""Giving a message back to its broker, to be delivered to the group again.

Rules of this file
1. First the broker that holds the message is asked to re-queue its own copy. If that fails the message is sent anew to the group's
   retry topic, to any broker. Only if both fail does the caller hear of it.
2. The attempt count travels with the message, so that the dead-letter limit holds on either way.
3. What is to wait a time that is no delay level goes to the retry topic as a timer message. A broker that cannot hold it that way is
   given the nearest level, and the log says so: the message comes again, at another time than was asked for.
"""

from __future__ import annotations

from typing import Final

from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client._async.parts import ClientContext
from orbitmq.client._async.runtime import Seldom, log
from orbitmq.client.due_time import LEVEL_STEPS_MS, nearest_level
from orbitmq.client.sending.outgoing import Outgoing
from orbitmq.errors import ClientError, SendFailedError
from orbitmq.limits.client import CONSUMER_SEND_BACK_TIMEOUT_MS
from orbitmq.protocol.names import retry_topic
from orbitmq.protocol.properties import Property, encode_properties
from orbitmq.protocol.remoting.codes import RequestCode

_NOT_COPIED: Final = (
    Property.TRAN_MSG, Property.RECONSUME_TIME, Property.MAX_RECONSUME_TIMES, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS,
    Property.TIMER_DELIVER_MS, Property.TIMER_OUT_MS, Property.TIMER_ENQUEUE_MS, Property.TIMER_DEQUEUE_MS, Property.TIMER_ROLL_TIMES,
    Property.POP_CK,
)  # fmt: skip

DEAD_LETTER_LEVEL: Final = -1


async def send_back(
    client: ClientContext,
    group: str,
    message: ReceivedMessage,
    delay_level: int,
    max_retries_count: int | None,
    troubles: Seldom,
) -> bool:
    """True when a broker has the message for another attempt; failures are logged, as seldom as `troubles` says."""
    address = client.routes.master(message.queue.broker_name) or message.store_host
    fields = {
        "offset": str(message.physical_offset),
        "group": group,
        "delayLevel": str(delay_level),
        "originMsgId": message.message_id,
        "originTopic": message.topic,
        "unitMode": "false",
        "bname": message.queue.broker_name,
    }
    if max_retries_count is not None:
        fields["maxReconsumeTimes"] = str(max_retries_count)
    try:
        await client.network.request(
            address,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            fields,
            timeout_ms=CONSUMER_SEND_BACK_TIMEOUT_MS,
            doing=f"sending message {message.message_id} back",
        )
        return True
    except ClientError as error:
        refusal = error
    if not await send_copy(client, group, message, delay_level, max_retries_count, troubles):
        return False
    _say(troubles, "message %s was sent to the retry topic anew because: %s%s", message, refusal)
    return True


async def send_copy(
    client: ClientContext,
    group: str,
    message: ReceivedMessage,
    delay_level: int,
    max_retries_count: int | None,
    troubles: Seldom,
) -> bool:
    """As `send_back`, always by sending the message anew: what a broker re-queues has not the attempts that were counted here."""
    try:
        outgoing = retry_copy(group, message, delay_level, max_retries_count)
        await client.inner_producer.send_prepared(outgoing, CONSUMER_SEND_BACK_TIMEOUT_MS)
        return True
    except ClientError as error:
        _say(troubles, "message %s could not be sent back and comes again here: %s%s", message, error)
    return False


async def send_later(
    client: ClientContext,
    group: str,
    message: ReceivedMessage,
    after_ms: int,
    max_retries_count: int | None,
    troubles: Seldom,
) -> bool:
    """As `send_back`, for another attempt after exactly `after_ms` where the broker has timer messages."""
    try:
        outgoing = retry_copy(group, message, 0, max_retries_count, after_ms)
        await client.inner_producer.send_prepared(outgoing, CONSUMER_SEND_BACK_TIMEOUT_MS)
        return True
    except ClientError as error:
        if isinstance(error, SendFailedError) and error.maybe_stored:
            _say(troubles, "message %s may have been sent back, and comes again here as well: %s%s", message, error)
            return False
        refusal = error
    level = nearest_level(after_ms)
    text = f"message %s waits {LEVEL_STEPS_MS[level - 1] // 1000} s (level {level}) instead of {after_ms} ms: %s%s"
    _say(troubles, text, message, refusal)
    return await send_back(client, group, message, level, max_retries_count, troubles)


def _say(troubles: Seldom, text: str, message: ReceivedMessage, error: ClientError) -> None:
    """A broker that is away fails every message: one line stands for many."""
    unlogged = troubles.due()
    if unlogged is not None:
        log.warning(text, message.message_id, error, f"; {unlogged} like it before were not logged" if unlogged else "")


def retry_copy(
    group: str,
    message: ReceivedMessage,
    delay_level: int,
    max_retries_count: int | None,
    after_ms: int | None = None,
) -> Outgoing:
    """The message as an ordinary one for the group's retry topic, its attempt counted.

    A dead letter is a message whose attempts exceed their maximum: it gets the maximum 0. The body leaves as it came, in
    its compressed form if it had one. What a timer has left on the message does not go with it: it would be taken for delivered already.
    """
    record = message.record
    properties = dict(message.properties)
    for name in _NOT_COPIED:
        properties.pop(name, None)
    properties[Property.RETRY_TOPIC] = message.topic
    properties.setdefault(Property.ORIGIN_MESSAGE_ID, message.offset_message_id)
    level = delay_level if delay_level > 0 else 3 + message.reconsume_times
    if delay_level == DEAD_LETTER_LEVEL:
        properties.pop(Property.DELAY, None)
        max_retries_count = 0
    elif after_ms is not None:
        properties.pop(Property.DELAY, None)
        properties[Property.TIMER_DELAY_MS] = str(after_ms)
    else:
        properties[Property.DELAY] = str(level)
    return Outgoing(
        retry_topic(group),
        record.body,
        encode_properties(properties).decode(),
        (message.message_id,),
        sys_flag=record.sys_flag & COMPRESSION_BITS,
        flag=message.flag,
        reconsume_times=message.reconsume_times + 1,
        max_reconsume_times=max_retries_count,
        is_timed=after_ms is not None,
    )


COMPRESSION_BITS: Final = 0x701
"""Bits of a record's flag that hold for a copy as well: how its body is compressed. Hosts and transaction state are the copy's own."""

"""Asking and being answered: requests that wait for the reply of a consumer, and replies on their way.

Rules of this file
1. A request ends with its reply, with its time, or with the failure to send it; nothing is kept of it afterwards.
2. Before the first request to a cluster every broker that may get the reply has heard of this client: replies are handed on to the
   producer connection of whoever asked.
3. A reply goes to the broker the request came from, because the one who asked is surely known there; to another one of the
   cluster only when that fails.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from orbitmq.client._async.parts import ClientContext
from orbitmq.client._async.runtime import monotonic_ms, offload, wait_event
from orbitmq.client._async.sending.send_path import SendPath
from orbitmq.client.arguments import check_instance, check_timeout_ms
from orbitmq.client.message import Message
from orbitmq.client.options import Codec, ProducerOptions
from orbitmq.client.sending.outgoing import Outgoing, compressed, prepare, request_fields
from orbitmq.client.sending.reply import Reply, reply_place, request_properties
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError, RequestTimeoutError, SendFailedError
from orbitmq.limits.client import REPLY_TIMEOUT_MS
from orbitmq.protocol.names import reply_topic
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode


async def ask(
    client: ClientContext, path: SendPath, options: ProducerOptions, topic: str, message: Message, timeout_ms: int
) -> Reply:
    """Send `message` as a request and wait for its reply. `RequestTimeoutError` when none comes in time."""
    check_timeout_ms(timeout_ms)
    deadline_ms = monotonic_ms() + timeout_ms
    correlation_id = str(uuid.uuid4())
    reserved = request_properties(correlation_id, client.client_id, timeout_ms)
    outgoing = prepare(topic, message, client.unique_ids, options.max_message_bytes, reserved=reserved)
    outgoing = await _packed(outgoing, options)
    waiting = client.waiting_replies.add(correlation_id)
    try:
        await path.queues(topic)
        await _introduce(client, topic)
        try:
            await path.store(outgoing, timeout_ms=max(1, deadline_ms - monotonic_ms()))
        except SendFailedError as error:
            if not error.maybe_stored:
                raise
            await wait_event(waiting.arrived, max(0, deadline_ms - monotonic_ms()))
            if waiting.reply is None:
                raise
        else:
            await wait_event(waiting.arrived, max(0, deadline_ms - monotonic_ms()))
    finally:
        client.waiting_replies.remove(correlation_id)
    if waiting.reply is None:
        raise RequestTimeoutError(
            f"no reply to request {outgoing.unique_ids[0]} to {topic!r} within {timeout_ms} ms",
            remedy="check that a consumer of the topic runs and replies; it may still handle the request",
        )
    return waiting.reply


async def _introduce(client: ClientContext, topic: str) -> None:
    """Make this client known at every broker that replies may go through. Their route is kept, so heartbeats go there, too."""
    introduced = client.waiting_replies.introduced
    route = client.routes.known_for_sending(topic)
    for cluster in sorted(route.clusters) if route is not None else ():
        replies = await client.routes.find(reply_topic(cluster))
        if replies is None:
            continue
        for broker_name in sorted(replies.brokers):
            address = replies.master(broker_name)
            if address is not None and address not in introduced:
                await client.introduce_to(address)
                introduced.add(address)


async def send_reply(
    client: ClientContext,
    message: StoredMessage,
    body: bytes,
    *,
    tag: str | None = None,
    properties: Mapping[str, str] | None = None,
    timeout_ms: int = REPLY_TIMEOUT_MS,
) -> None:
    """Reply to a request; returns when the one who asked has the reply. `ClientError` when it could not be handed on."""
    check_instance("message", message, StoredMessage, or_none=False)
    check_timeout_ms(timeout_ms)
    options = ProducerOptions()
    deadline_ms = monotonic_ms() + timeout_ms
    topic, reserved = reply_place(message)
    answer = Message(body, tag=tag, properties=properties or {})
    outgoing = prepare(topic, answer, client.unique_ids, options.max_message_bytes, reserved=reserved)
    outgoing = await _packed(outgoing, options)
    route = await client.routes.get(topic)
    failures: list[ClientError] = []
    for queue in _one_of_each_broker(route.publish_queues, message.queue.broker_name):
        left_ms = deadline_ms - monotonic_ms()
        address = client.routes.master(queue.broker_name, topic)
        if address is None or left_ms <= 0:
            continue
        fields = request_fields(
            outgoing, queue, client.inner_producer.group, options.topic_queues_count, client.clock.now_ms()
        )
        try:
            await client.network.request(
                address,
                RequestCode.SEND_REPLY_MESSAGE_V2,
                fields,
                outgoing.body,
                timeout_ms=left_ms,
                doing=f"replying to message {message.message_id}",
            )
        except ClientError as error:
            failures.append(error)
        else:
            return
    told = "; ".join(str(error) for error in failures) or f"no broker of topic {topic!r} can be sent to"
    raise ClientError(
        f"the reply to message {message.message_id} did not reach the client that asked: {told}",
        remedy="it may have given up waiting or ended; a reply is not repeated",
    )


async def _packed(outgoing: Outgoing, options: ProducerOptions) -> Outgoing:
    if len(outgoing.body) < options.compress_from_bytes or options.codec is Codec.NONE:
        return outgoing
    return await offload(len(outgoing.body), compressed, outgoing, options.codec)


def _one_of_each_broker(queues: tuple[MessageQueue, ...], first: str) -> list[MessageQueue]:
    by_broker: dict[str, MessageQueue] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, queue)
    return sorted(by_broker.values(), key=lambda queue: queue.broker_name != first)

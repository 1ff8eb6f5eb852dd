"""Sending messages.

Rules of this file
1. A send that returns a receipt was stored by a broker. One that raises `MessageIllegalError` never left; one that raises
   `SendFailedError` says whether it may be stored all the same.
2. All attempts of a send share one time limit, one body and one unique id.
3. A message with an ordering key, which belongs to one queue, is attempted once: a repeat behind later messages of the key would
   change their order, so it is the caller who decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from orbitmq.client._async.parts import Context
from orbitmq.client._async.runtime import monotonic_ms, offload
from orbitmq.client.answers import remote_error
from orbitmq.client.message import Message, SendReceipt, SendStatus, check_topic
from orbitmq.client.options import Codec, ProducerOptions
from orbitmq.client.outgoing import (
    STORED_CODES,
    Outgoing,
    compressed,
    prepare,
    prepare_batch,
    receipts,
    request_fields,
)
from orbitmq.client.queue_choice import RoundRobin, choose_by_key
from orbitmq.client.send_attempts import Attempts
from orbitmq.errors import ClientError, ConnectionLostError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command


class Producer:
    """Sends messages under a group name. Made by `Client.producer`; one producer serves any number of topics and tasks.

    Cost of a send: one request and one answer; the call returns when the broker has answered.
    """

    def __init__(self, client: Context, group: str, options: ProducerOptions) -> None:
        self._client = client
        self._choosers: dict[str, RoundRobin] = {}
        self._closed = False
        self.group = group
        self.options = options

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        key: str | Sequence[str] | None = None,
        delay_level: int = 0,
        ordering_key: str | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait_stored: bool = True,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send one message and wait until a broker has stored it.

        The parameters from `tag` to `wait_stored` are those of `Message`. ordering_key: messages with the same key go to the
        same queue and are consumed in the order in which their sends returned, as long as the topic keeps its queues.
        timeout_ms: for all attempts together; default `send_timeout_ms`.
        """
        message = Message(
            body,
            tag=tag,
            key=key,
            delay_level=delay_level,
            properties=properties or {},
            flag=flag,
            wait_stored=wait_stored,
        )
        outgoing = await self._prepare(topic, message, ordering_key)
        return (await self._store(outgoing, ordering_key, timeout_ms))[0]

    async def send_oneway(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        key: str | Sequence[str] | None = None,
        delay_level: int = 0,
        ordering_key: str | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        timeout_ms: int | None = None,
    ) -> str:
        """Hand one message to a broker's connection without asking for an answer; its unique id.

        Nobody learns whether it was stored: for logs and metrics whose loss is acceptable. Errors before writing are raised.
        """
        message = Message(body, tag=tag, key=key, delay_level=delay_level, properties=properties or {}, flag=flag)
        outgoing = await self._prepare(topic, message, ordering_key)
        deadline_ms = monotonic_ms() + (timeout_ms or self.options.send_timeout_ms)
        queue = await self._queue(topic, ordering_key, None)
        address = await self._address(queue)
        await self._client.network.post(
            address,
            RequestCode.SEND_MESSAGE_V2,
            self._fields(outgoing, queue),
            outgoing.body,
            timeout_ms=max(1, deadline_ms - monotonic_ms()),
        )
        return outgoing.unique_ids[0]

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        ordering_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        """Send messages as one request to one queue; a receipt for each, in order. They are stored together or not at all.

        All together at most `max_message_bytes` encoded, without delay level; bodies are not compressed.
        """
        self._check_open()
        check_topic(topic)
        outgoing = prepare_batch(topic, messages, self._client.unique_ids, self.options.max_message_bytes)
        return await self._store(outgoing, ordering_key, timeout_ms)

    async def send_prepared(self, outgoing: Outgoing, timeout_ms: int) -> SendReceipt:
        """Send what the consumer side has built itself, such as a message for a retry topic."""
        return (await self._store(outgoing, None, timeout_ms))[0]

    async def close(self) -> None:
        """Take the group out of the heartbeats and tell the brokers. Sends that wait for an answer still get it."""
        if not self._closed:
            self._closed = True
            await self._client.producer_closed(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- inside

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError(f"producer {self.group!r} is closed", remedy="make a new one with client.producer()")

    async def _prepare(self, topic: str, message: Message, ordering_key: str | None) -> Outgoing:
        self._check_open()
        check_topic(topic)
        options = self.options
        outgoing = prepare(topic, message, self._client.unique_ids, options.max_message_bytes, ordering_key)
        if options.codec is Codec.NONE or len(outgoing.body) < options.compress_from_bytes:
            return outgoing
        return await offload(len(outgoing.body), compressed, outgoing, options.codec)

    async def _store(self, outgoing: Outgoing, ordering_key: str | None, timeout_ms: int | None) -> list[SendReceipt]:
        options = self.options
        limit_ms = timeout_ms or options.send_timeout_ms
        retries_count = 0 if ordering_key is not None else options.retries_count
        attempts = Attempts(retries_count, limit_ms, options.attempt_timeout_ms)
        started_ms = monotonic_ms()
        not_ok: list[SendReceipt] | None = None
        while True:
            queue = await self._queue(outgoing.topic, ordering_key, attempts.last_broker)
            left_ms = attempts.left_ms(monotonic_ms() - started_ms)
            if left_ms is None:
                break
            try:
                stored = await self._attempt(outgoing, queue, left_ms, attempts.next_number)
            except ClientError as error:
                if not attempts.failed(queue.broker_name, error):
                    break
            else:
                status = stored[0].status
                if status is SendStatus.SEND_OK or not options.retry_not_stored_ok:
                    return stored
                not_ok = stored
                if not attempts.failed(queue.broker_name, ClientError(f"stored, but {status.name}"), again=True):
                    break
        if not_ok is not None:
            return not_ok
        failure = attempts.give_up(outgoing.topic, monotonic_ms() - started_ms)
        cause = attempts.failures[-1].error if attempts.failures else None
        raise failure from (None if cause is failure else cause)

    async def _attempt(
        self, outgoing: Outgoing, queue: MessageQueue, timeout_ms: int, number: int
    ) -> list[SendReceipt]:
        address = await self._address(queue)
        answer: Command = await self._client.network.invoke(
            address,
            RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2,
            self._fields(outgoing, queue),
            outgoing.body,
            timeout_ms=timeout_ms,
        )
        if answer.code not in STORED_CODES:
            raise remote_error(answer.code, answer.remark, address, f"sending to topic {outgoing.topic!r}")
        return receipts(outgoing, queue, answer, number)

    def _fields(self, outgoing: Outgoing, queue: MessageQueue) -> dict[str, str]:
        return request_fields(outgoing, queue, self.group, self.options.topic_queues_count, self._client.clock.now_ms())

    async def _queue(self, topic: str, ordering_key: str | None, failed_broker: str | None) -> MessageQueue:
        route = await self._client.routes.for_sending(topic, self.options.topic_queues_count)
        if ordering_key is not None:
            return choose_by_key(route.publish_queues, ordering_key)
        chooser = self._choosers.get(topic)
        if chooser is None:
            chooser = self._choosers[topic] = RoundRobin()
        return chooser.choose(route.publish_queues, failed_broker)

    async def _address(self, queue: MessageQueue) -> str:
        address = self._client.routes.master(queue.broker_name)
        if address is None:
            await self._client.routes.refresh(queue.topic)
            address = self._client.routes.master(queue.broker_name)
        if address is None:
            raise ConnectionLostError(
                f"broker {queue.broker_name} of topic {queue.topic!r} has no master address",
                request_sent=False,
                remedy="its master is not registered at the name servers; check that it runs",
            )
        return address

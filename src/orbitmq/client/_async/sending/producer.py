"""Sending messages.

Rules of this file
1. A send that returns a receipt was stored by a broker. One that raises `MessageIllegalError` never left; one that raises
   `SendFailedError` says whether it may be stored all the same.
2. What programs may say about a message is checked here; how it reaches a broker is `send_path`'s matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orbitmq.client._async.runtime import monotonic_ms, offload
from orbitmq.client._async.sending.receipt import SendReceipt
from orbitmq.client._async.sending.send_path import SendPath
from orbitmq.client.arguments import check_instance
from orbitmq.client.message import Message, Once, OnceWithin, check_ordering_key, check_topic, identity_of
from orbitmq.client.options import Codec, ProducerOptions
from orbitmq.client.sending.outgoing import Outgoing, compressed, prepare, prepare_batch
from orbitmq.errors import ClientError, ConfigurationError, MessageIllegalError
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.sysflag import TransactionType

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from orbitmq.client._async.parts import ClientContext
    from orbitmq.client._async.sending.batcher import Batcher
    from orbitmq.client._async.sending.transactions import Checker, GroupTransactions, MessageTransaction
    from orbitmq.client.sending.reply import Reply


class SendingCalls:
    """What programs call to send: the calls of a producer, and of a client, which makes a producer for them."""

    def _sender(self) -> Producer:
        """Whoever sends."""
        raise NotImplementedError

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        key: str | Sequence[str] | None = None,
        delay_level: int = 0,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        priority: int | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        once: Once | OnceWithin | str | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait_stored: bool = True,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send one message and wait until a broker has stored it.

        The parameters from `tag` to `wait_stored` are those of `Message`. ordering_key: messages with the same key go to the
        same queue and are consumed in the order in which their sends returned, as long as the topic keeps its queues.
        queue: exactly this one, of `queues`. once: makes repeats of this send, also by other processes, recognisable: a key alone, such
        as `order-42`, for a day (`OnceWithin`), or the row of a job (`Once`).
        timeout_ms: for all attempts together, and for waiting until there is room; default `send_timeout_ms`.
        """
        producer = self._sender()
        message = Message(
            body,
            tag=tag,
            key=key,
            delay_level=delay_level,
            at=at,
            after=after,
            priority=priority,
            properties=properties or {},
            flag=flag,
            wait_stored=wait_stored,
        )
        hooks = producer._client.hooks
        if hooks is None:
            return await producer._send(topic, message, ordering_key, queue, once, timeout_ms)
        message = hooks.completed(topic, message)
        work = producer._send(topic, message, ordering_key, queue, once, timeout_ms)
        return await hooks.watched(producer.group, topic, (message,), work, _outcome)

    async def send_oneway(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        key: str | Sequence[str] | None = None,
        delay_level: int = 0,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        timeout_ms: int | None = None,
    ) -> str:
        """Hand one message to a broker's connection without asking for an answer; its unique id.

        Nobody learns whether it was stored: for logs and metrics whose loss is acceptable. Errors before writing are raised.
        """
        producer = self._sender()
        message = Message(
            body, tag=tag, key=key, delay_level=delay_level, at=at, after=after, properties=properties or {}, flag=flag
        )
        outgoing = await producer._prepare(topic, producer._completed(topic, message), ordering_key, queue)
        await producer._path.post(outgoing, ordering_key, queue, timeout_ms)
        return outgoing.unique_ids[0]

    async def request(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        key: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = 3_000,
    ) -> Reply:
        """Send one message and wait for the reply of the program that consumes it.

        timeout_ms: for everything. `RequestTimeoutError` when no reply came, though the request may have been handled; the errors
        of `send` when it could not be sent.
        """
        producer = self._sender()
        producer._check(topic)
        from orbitmq.client._async.sending.requests import ask

        message = producer._completed(topic, Message(body, tag=tag, key=key, properties=properties or {}))
        return await ask(producer._client, producer._path, producer.options, topic, message, timeout_ms)

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        """Send messages as one request to one queue; a receipt for each, in order. They are stored together or not at all.

        All together at most `max_message_bytes` encoded, without delay level; bodies are not compressed. at, after: the due time of
        all of them, as in `send`.
        """
        producer = self._sender()
        producer._check(topic, queue)
        if ordering_key is not None:
            check_ordering_key(ordering_key)
        if not isinstance(messages, Sequence):
            raise MessageIllegalError(f"a batch is a list of messages, not {type(messages).__name__}")
        hooks = producer._client.hooks
        if hooks is not None:
            messages = [hooks.completed(topic, message) for message in messages]
        outgoing = prepare_batch(
            topic, messages, producer._client.unique_ids, producer.options.max_message_bytes, at, after
        )
        tracer = producer._client.tracer
        began_ms = 0 if tracer is None else monotonic_ms()
        work = producer._path.store(outgoing, ordering_key=ordering_key, queue=queue, timeout_ms=timeout_ms)
        if hooks is None:
            receipts = await work
        else:
            receipts = await hooks.watched(producer.group, topic, messages, work, lambda found: _outcome(found[0]))
        if tracer is not None:
            tracer.sent(producer.group, messages, receipts, monotonic_ms() - began_ms)
        return receipts

    def transaction(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        key: str | Sequence[str] | None = None,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> MessageTransaction:
        """A message that consumers see when the `async with` block of the transaction has ended well, and never when it was left by an
        exception.

        It is stored before the block begins. after: counts from the end of the block. A broker that hears nothing asks a member of
        this group, a living one; see `check_transactions`. timeout_ms: for sending, and again for the decision.
        """
        producer = self._sender()
        message = producer._completed(
            topic, Message(body, tag=tag, key=key, at=at, after=after, properties=properties or {})
        )
        return producer.transactions.made(
            lambda: producer._send_half(topic, message, timeout_ms), producer._path.limit_ms(timeout_ms)
        )


class Producer(SendingCalls):
    """Sends messages under a group name. Made by `Client.producer`; one producer serves any number of topics and tasks.

    Cost of a send: one request and one answer; the call returns when the broker has answered.
    """

    def __init__(self, client: ClientContext, group: str, options: ProducerOptions) -> None:
        self._client = client
        self._path = SendPath(client, group, options)
        self._batcher: Batcher | None = None
        if options.auto_batch_ms:
            from orbitmq.client._async.sending.batcher import Batcher

            self._batcher = Batcher(client, self._path, options, f"producer {group}")
        self._closed = False
        self._transactions: GroupTransactions | None = None
        self.group = group
        self.options = options

    def _sender(self) -> Producer:
        return self

    def check_transactions(self, checker: Checker) -> None:
        """Have `checker` answer brokers that ask about half messages of this group which this process knows nothing of: those of
        members that died.

        It looks whether the program's own work was done: True commits, False rolls back, None leaves it undecided for now. An error of it
        is logged and counts as None. Several checks may run at the same time; in the synchronous client each has a thread. Brokers
        that this client knows hear of the member at once; a program that sends nothing asks for `queues` of its topics before.
        """
        if not callable(checker):
            raise ConfigurationError(f"the checker is {checker!r}", remedy="give a function that takes a StoredMessage")
        self.transactions.checker = checker
        self._client.heartbeat_soon()

    @property
    def transactions(self) -> GroupTransactions:
        """What this process knows of its transactions."""
        if self._transactions is None:
            from orbitmq.client._async.sending.transactions import GroupTransactions

            self._transactions = GroupTransactions(self._client, self.group)
        return self._transactions

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of `topic` that can be sent to at present, for programs that choose one themselves."""
        self._check(topic)
        return list(await self._path.queues(topic))

    async def send_prepared(self, outgoing: Outgoing, timeout_ms: int, once: Once | None = None) -> SendReceipt:
        """Send what another part of the client has built itself, such as a message for a retry topic."""
        return (await self._path.store(outgoing, once=once, timeout_ms=timeout_ms))[0]

    async def close(self) -> None:
        """Take the group out of the heartbeats and tell the brokers. Sends that wait for an answer still get it."""
        if not self._closed:
            self._closed = True
            try:
                if self._batcher is not None:
                    await self._batcher.close()
                await self._path.close()
            finally:
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

    def _check(self, topic: str, queue: MessageQueue | None = None) -> None:
        self._check_open()
        check_topic(topic)
        if queue is not None:
            check_instance("queue", queue, MessageQueue)
            if queue.topic != topic:
                raise MessageIllegalError(
                    f"the queue {queue!r} belongs to topic {queue.topic!r}, the message to {topic!r}",
                    remedy="take a queue of `await producer.queues(topic)`",
                )

    def _completed(self, topic: str, message: Message) -> Message:
        hooks = self._client.hooks
        return message if hooks is None else hooks.completed(topic, message)

    async def _send(
        self,
        topic: str,
        message: Message,
        ordering_key: str | None,
        queue: MessageQueue | None,
        once: Once | OnceWithin | str | None,
        timeout_ms: int | None,
    ) -> SendReceipt:
        tracer = self._client.tracer
        began_ms = 0 if tracer is None else monotonic_ms()
        batcher = self._batcher
        waits = batcher is not None and ordering_key is None and once is None and timeout_ms is None
        if batcher is not None and waits and batcher.takes(topic, message):
            self._check(topic, queue)
            receipt = await batcher.send(topic, message, queue)
        else:
            outgoing = await self._prepare(topic, message, ordering_key, queue)
            receipts = await self._path.store(
                outgoing, ordering_key=ordering_key, queue=queue, once=identity_of(once), timeout_ms=timeout_ms
            )
            receipt = receipts[0]
        if tracer is not None:
            tracer.sent(self.group, (message,), (receipt,), monotonic_ms() - began_ms)
        return receipt

    async def _send_half(self, topic: str, message: Message, timeout_ms: int | None) -> SendReceipt:
        half = {Property.TRAN_MSG: "true", Property.PGROUP: self.group}
        outgoing = await self._prepare(topic, message, None, None, half)
        outgoing = outgoing._replace(sys_flag=outgoing.sys_flag | TransactionType.PREPARED)
        return (await self._path.store(outgoing, timeout_ms=timeout_ms))[0]

    async def _prepare(
        self,
        topic: str,
        message: Message,
        ordering_key: str | None,
        queue: MessageQueue | None,
        reserved: Mapping[str, str] | None = None,
    ) -> Outgoing:
        self._check(topic, queue)
        options = self.options
        outgoing = prepare(topic, message, self._client.unique_ids, options.max_message_bytes, ordering_key, reserved)
        if len(outgoing.body) < options.compress_from_bytes or options.codec is Codec.NONE:
            return outgoing
        return await offload(len(outgoing.body), compressed, outgoing, options.codec)


def _outcome(receipt: SendReceipt) -> tuple[int, str]:
    return receipt.attempts_count, receipt.queue.broker_name

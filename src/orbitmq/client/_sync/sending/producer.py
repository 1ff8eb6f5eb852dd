"""Sending messages.

Rules of this file
1. A send that returns a receipt was stored by a broker. One that raises `MessageIllegalError` never left; one that raises
   `SendFailedError` says whether it may be stored all the same.
2. What programs may say about a message is checked here; how it reaches a broker is `send_path`'s matter.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/sending/producer.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from orbitmq.client._async.sending import producer as source
from orbitmq.client._sync.handler_threads import listening
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client._sync.sending.receipt import SendReceipt
from orbitmq.client._sync.sending.transactions import MessageTransaction
from orbitmq.client.message import Message, Once, OnceWithin
from orbitmq.client.options import ProducerOptions
from orbitmq.client.sending.reply import Reply
from orbitmq.client.stored import StoredMessage
from orbitmq.protocol.remoting.bodies import MessageQueue


class SendingCalls:
    """What programs call to send: the calls of a producer, and of a client, which makes a producer for them."""

    def __init__(self, twin: source.SendingCalls, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.SendingCalls = twin

    def send(
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
        found = self._loop.run(
            self._twin.send(
                topic,
                body,
                tag=tag,
                key=key,
                delay_level=delay_level,
                at=at,
                after=after,
                priority=priority,
                ordering_key=ordering_key,
                queue=queue,
                once=once,
                properties=properties,
                flag=flag,
                wait_stored=wait_stored,
                timeout_ms=timeout_ms,
            )
        )
        return SendReceipt(found, self._loop)

    def send_oneway(
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
        return self._loop.run(
            self._twin.send_oneway(
                topic,
                body,
                tag=tag,
                key=key,
                delay_level=delay_level,
                at=at,
                after=after,
                ordering_key=ordering_key,
                queue=queue,
                properties=properties,
                flag=flag,
                timeout_ms=timeout_ms,
            )
        )

    def request(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        key: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = 3000,
    ) -> Reply:
        """Send one message and wait for the reply of the program that consumes it.

        timeout_ms: for everything. `RequestTimeoutError` when no reply came, though the request may have been handled; the errors
        of `send` when it could not be sent.
        """
        return self._loop.run(
            self._twin.request(topic, body, tag=tag, key=key, properties=properties, timeout_ms=timeout_ms)
        )

    def send_batch(
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
        found = self._loop.run(
            self._twin.send_batch(
                topic, messages, at=at, after=after, ordering_key=ordering_key, queue=queue, timeout_ms=timeout_ms
            )
        )
        return [SendReceipt(each, self._loop) for each in found]

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
        """A message that consumers see when the `with` block of the transaction has ended well, and never when it was left by an
        exception.

        It is stored before the block begins. after: counts from the end of the block. A broker that hears nothing asks a member of
        this group, a living one; see `check_transactions`. timeout_ms: for sending, and again for the decision.
        """
        found = self._loop.do(
            self._twin.transaction,
            topic,
            body,
            tag=tag,
            key=key,
            at=at,
            after=after,
            properties=properties,
            timeout_ms=timeout_ms,
        )
        return MessageTransaction(found, self._loop)


class Producer(SendingCalls):
    """Sends messages under a group name. Made by `Client.producer`; one producer serves any number of topics and tasks.

    Cost of a send: one request and one answer; the call returns when the broker has answered.
    """

    def __init__(self, twin: source.Producer, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.Producer = twin

    @property
    def group(self) -> str:
        return self._twin.group

    @property
    def options(self) -> ProducerOptions:
        return self._twin.options

    def check_transactions(self, checker: Callable[[StoredMessage], bool | None]) -> None:
        """Have `checker` answer brokers that ask about half messages of this group which this process knows nothing of: those of
        members that died.

        It looks whether the program's own work was done: True commits, False rolls back, None leaves it undecided for now. An error of it
        is logged and counts as None. Several checks may run at the same time; in the synchronous client each has a thread. Brokers
        that this client knows hear of the member at once; a program that sends nothing asks for `queues` of its topics before.
        """
        self._loop.do(self._twin.check_transactions, listening(checker))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of `topic` that can be sent to at present, for programs that choose one themselves."""
        return self._loop.run(self._twin.queues(topic))

    def close(self) -> None:
        """Take the group out of the heartbeats and tell the brokers. Sends that wait for an answer still get it."""
        self._loop.end(self._twin.close())

    def __enter__(self) -> Self:
        self._loop.run(self._twin.__aenter__())
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.end(self._twin.__aexit__(error_type, error, trace))

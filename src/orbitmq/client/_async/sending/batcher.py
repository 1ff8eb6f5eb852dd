"""Automatic batching: sends of many tasks that travel as one request.

Messages to one topic (or one explicit queue) wait a few milliseconds for others and leave as a batch: one request and one answer
for all of them, a fraction of the work for client and broker. Worth it where many tasks send at the same time; a single task that
awaits each send only waits longer.

Rules of this file
1. A batch leaves when it is full or its time is over, whichever comes first; its members get their own receipts, or a copy each of
   one error.
2. Only what a batch can carry comes here: no delay level or due time, no ordering key, no `once`, no time limit of its own, no large body.
3. A message was checked before it joins: it cannot spoil the batch for the others.
4. A caller that is cancelled leaves its message behind; it is sent all the same.
"""

from __future__ import annotations

from orbitmq.client._async.parts import ClientContext
from orbitmq.client._async.runtime import Event, Tasks, wait_event
from orbitmq.client._async.sending.receipt import SendReceipt
from orbitmq.client._async.sending.send_path import SendPath
from orbitmq.client.message import Message
from orbitmq.client.options import Codec, ProducerOptions
from orbitmq.client.sending.outgoing import batch_member, batch_of
from orbitmq.errors import ClientError, OrbitError
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import MessageQueue

_Key = tuple[str, MessageQueue | None, bool]
"""Topic, explicit queue, and whether the broker answers after its flush: what members of a batch have in common."""


class _OpenBatch:
    """Open until `full` is set or its time is over; `done` when its members may take their receipts or its `error`."""

    __slots__ = ("done", "error", "full", "members", "receipts", "size", "unique_ids")

    def __init__(self) -> None:
        self.members: list[bytes] = []
        self.unique_ids: list[str] = []
        self.size = 0
        self.full = Event()
        self.done = Event()
        self.receipts: list[SendReceipt] = []
        self.error: OrbitError | None = None


class Batcher:
    """The batches of one producer."""

    def __init__(self, client: ClientContext, path: SendPath, options: ProducerOptions, owner: str) -> None:
        self._client = client
        self._path = path
        self._options = options
        self._open: dict[_Key, _OpenBatch] = {}
        self._unfinished: set[_OpenBatch] = set()
        self._tasks = Tasks(owner)

    def takes(self, topic: str, message: Message) -> bool:
        """Whether a message can wait for others: batches are neither delayed nor compressed, and it must leave room."""
        options = self._options
        size = len(message.body)
        if message.delay_level or message.is_timed or message.priority is not None:
            return False
        if 2 * size > options.auto_batch_bytes or topic.startswith(RETRY_PREFIX):
            return False
        return size < options.compress_from_bytes or options.codec is Codec.NONE

    async def send(self, topic: str, message: Message, queue: MessageQueue | None) -> SendReceipt:
        """Join a batch and wait for its end. The errors of `Producer.send`."""
        self._client.network.home.check()
        unique_id, member = batch_member(message, self._client.unique_ids, self._options.max_message_bytes)
        key = (topic, queue, message.wait_stored)
        batch = self._open.get(key)
        if batch is not None and batch.size + len(member) > self._options.auto_batch_bytes:
            self._close(key, batch)
            batch = None
        if batch is None:
            batch = self._open[key] = _OpenBatch()
            self._unfinished.add(batch)
            self._tasks.spawn(self._carry(key, batch), f"batch for {topic}")
        position = len(batch.members)
        batch.members.append(member)
        batch.unique_ids.append(unique_id)
        batch.size += len(member)
        await wait_event(batch.done)
        if batch.error is not None:
            raise _copy(batch.error)
        return batch.receipts[position]

    async def close(self) -> None:
        """Let what waits leave, and wait for its end."""
        for key, batch in tuple(self._open.items()):
            self._close(key, batch)
        for batch in tuple(self._unfinished):
            await wait_event(batch.done)

    def _close(self, key: _Key, batch: _OpenBatch) -> None:
        """Nobody joins any more."""
        if self._open.get(key) is batch:
            del self._open[key]
        batch.full.set()

    async def _carry(self, key: _Key, batch: _OpenBatch) -> None:
        topic, queue, wait_stored = key
        batch.error = ClientError(
            "the batch was not sent; the log of the client says why"
        )  # unless what follows says otherwise
        try:
            await wait_event(batch.full, self._options.auto_batch_ms)
            self._close(key, batch)
            outgoing = batch_of(topic, b"".join(batch.members), batch.unique_ids, wait_stored=wait_stored)
            batch.receipts = await self._path.store(outgoing, queue=queue)
            batch.error = None
        except OrbitError as error:
            batch.error = error
        finally:
            self._close(key, batch)
            self._unfinished.discard(batch)
            batch.done.set()


def _copy(error: OrbitError) -> OrbitError:
    """The same error for one of several callers: each raises its own, which grows a traceback and a context of its own."""
    copied = error.__class__.__new__(error.__class__, *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    copied.__suppress_context__ = error.__suppress_context__
    return copied

"""Telling the trace topic what this client sent and consumed.

Rules of this file
1. Tracing never holds up, slows or fails what it tells about: records wait in a bounded buffer, and beyond it they are dropped and
   counted.
2. They leave in batches, when there are enough or after some seconds, through a producer of their own that is not traced.
3. What is in the buffer when the client closes is sent, within the time that closing may take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from orbitmq.client._async.parts import ClientContext, Sender
from orbitmq.client._async.runtime import Event, Tasks, log, wait_event
from orbitmq.client._async.sending.receipt import SendReceipt
from orbitmq.client.message import Message
from orbitmq.client.sending.outgoing import prepare
from orbitmq.client.sending.trace import ConsumeBegun, ConsumeEnded, ConsumeOutcome, MessageKind, SentTrace, attempt_id
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError
from orbitmq.limits.client import CLIENT_TRACES_MAX, TRACE_PAUSE_MS, TRACE_SEND_TIMEOUT_MS
from orbitmq.limits.wire import BODY_BYTES_MAX
from orbitmq.protocol.properties import Property

BATCH_RECORDS: Final = 64
"""Records of one trace message: as many messages as a look-up by key returns."""

BATCH_KEYS_BYTES: Final = 16_384
"""Bytes of keys of one trace message: half of what its properties may take."""


DEFAULT_REGION: Final = "DefaultRegion"
"""Where a broker names no region."""


class _Record(NamedTuple):
    topic: str
    text: str
    keys: str


class Tracer:
    """The trace records of one client. `dropped_count`: records that found the buffer full or could not be sent."""

    def __init__(self, client: ClientContext, sender: Sender, topic: str) -> None:
        self._client = client
        self._sender = sender
        self._topic = topic
        self._records: deque[_Record] = deque()
        self._enough = Event()
        self._tasks = Tasks(f"tracer of {client.client_id}")
        self.dropped_count = 0

    # --- what happened

    def sent(self, group: str, messages: Sequence[Message], receipts: Sequence[SendReceipt], cost_ms: int) -> None:
        """A send was answered. Brokers may ask not to be traced."""
        began_ms = self._client.clock.now_ms() - cost_ms
        for message, receipt in zip(messages, receipts, strict=True):
            if not receipt.trace_on:
                continue
            keys = " ".join(message.keys)
            trace = SentTrace(
                began_ms,
                receipt.region or DEFAULT_REGION,
                group,
                receipt.queue.topic,
                receipt.message_id,
                message.tag,
                keys or None,
                self._client.routes.master(receipt.queue.broker_name, receipt.queue.topic) or "",
                len(message.body),
                cost_ms,
                MessageKind.DELAYED if message.delay_level or message.is_timed else MessageKind.NORMAL,
                receipt.offset_message_id,
                receipt.send_status.value == 0,
            )
            self._add(receipt.queue.topic, trace.encoded(), f"{receipt.message_id} {keys}")

    def begun(self, group: str, message: StoredMessage) -> None:
        """A message is handed to the program."""
        properties = message.properties
        if properties.get(Property.TRACE_ON) == "false":
            return
        keys = properties.get(Property.KEYS)
        trace = ConsumeBegun(
            self._client.clock.now_ms(),
            properties.get(Property.MSG_REGION) or DEFAULT_REGION,
            group,
            self._attempt(group, message),
            message.message_id,
            message.reconsume_times,
            keys,
        )
        self._add(message.topic, trace.encoded(), f"{message.message_id} {keys or ''}")

    def ended(self, group: str, message: StoredMessage, cost_ms: int, *, succeeded: bool) -> None:
        """The program has settled a message."""
        properties = message.properties
        if properties.get(Property.TRACE_ON) == "false":
            return
        keys = properties.get(Property.KEYS)
        trace = ConsumeEnded(
            self._attempt(group, message),
            message.message_id,
            cost_ms,
            succeeded,
            keys,
            ConsumeOutcome.SUCCESS if succeeded else ConsumeOutcome.FAILED,
            self._client.clock.now_ms(),
            group,
        )
        self._add(message.topic, trace.encoded(), f"{message.message_id} {keys or ''}")

    async def close(self, timeout_ms: int) -> None:
        """Send what is left, as far as the time allows."""
        await self._tasks.close()
        if self._records and timeout_ms:
            final = Event()

            async def send_all() -> None:
                await self._send_all(timeout_ms)
                final.set()

            self._tasks.spawn(send_all(), "last trace records")
            await wait_event(final, timeout_ms)
            await self._tasks.close()

    # --- sending

    def _attempt(self, group: str, message: StoredMessage) -> str:
        return attempt_id(
            group, self._client.client_id, message.message_id, message.queue_offset, message.reconsume_times
        )

    def _add(self, topic: str, text: str, keys: str) -> None:
        if len(self._records) >= CLIENT_TRACES_MAX:
            self.dropped_count += 1
            return
        self._records.append(_Record(topic, text, keys))
        if not len(self._tasks):
            self._tasks.spawn(self._send_forever(), "trace")
        if len(self._records) >= BATCH_RECORDS:
            self._enough.set()

    async def _send_forever(self) -> None:
        while True:
            enough = await wait_event(self._enough, TRACE_PAUSE_MS)
            self._enough.clear()
            await self._send_all(TRACE_SEND_TIMEOUT_MS, BATCH_RECORDS if enough else 1)

    async def _send_all(self, timeout_ms: int, least_count: int = 1) -> None:
        """Send what is there until fewer than `least_count` are left."""
        while len(self._records) >= least_count:
            batch = self._take()
            keys = dict.fromkeys(key for record in batch for key in record.keys.split())
            message = Message("".join(record.text for record in batch).encode(), key=tuple(keys))
            try:
                outgoing = prepare(self._topic, message, self._client.unique_ids, BODY_BYTES_MAX)
                await self._sender.send_prepared(outgoing, timeout_ms)
            except ClientError as error:
                self.dropped_count += len(batch)
                log.warning("%d trace records were not sent: %s", len(batch), error)

    def _take(self) -> list[_Record]:
        """The next records about one topic, as many as one message may carry."""
        first = self._records.popleft()
        batch, keys_bytes = [first], len(first.keys)
        kept: deque[_Record] = deque()
        while self._records and len(batch) < BATCH_RECORDS:
            record = self._records.popleft()
            if record.topic != first.topic or keys_bytes + len(record.keys) > BATCH_KEYS_BYTES:
                kept.append(record)
                continue
            batch.append(record)
            keys_bytes += len(record.keys) + 1
        self._records.extendleft(reversed(kept))
        return batch

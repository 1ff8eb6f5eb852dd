"""A checked message in the form that goes into a send request.

Rules of this file
1. What is here was checked and encoded once; every attempt of a send, on whatever broker, uses the same bytes and the
   same unique id, so that repeats can be recognised.
2. A batch is one request: one queue, one answer, bodies never compressed.
3. What only batches and large bodies need is imported when the first of them comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from orbitmq.client.message import (
    Message,
    SendStatus,
    check_message,
    check_ordering_key,
    encoded_properties,
    message_properties,
)
from orbitmq.client.options import Codec
from orbitmq.errors import MessageIllegalError
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX, PROPERTIES_ROOM_BYTES
from orbitmq.protocol.ids import UniqueIds
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, RETRY_PREFIX
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.sysflag import Compression, with_compression

if TYPE_CHECKING:
    from datetime import datetime, timedelta

COMPRESSIONS: Final = {Codec.ZLIB: Compression.ZLIB, Codec.LZ4: Compression.LZ4, Codec.ZSTD: Compression.ZSTD}

WAITING: Final = f"{Property.WAIT}\x01true\x02"
NOT_WAITING: Final = f"{Property.WAIT}\x01false\x02"
"""The one property of a message that was given none, beside its id."""

STORED_CODES: Final = {int(status.value): status for status in SendStatus}
"""Response codes of a send that mean: stored."""


class Outgoing(NamedTuple):
    """One send request without its queue. `unique_ids` has one id per message of a batch.

    message: what the program gave, where there is one. is_timed: it has a due time of its own, which a broker must know what to do with.
    """

    topic: str
    body: bytes
    properties: str
    unique_ids: tuple[str, ...]
    sys_flag: int = 0
    flag: int = 0
    is_batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    message: Message | None = None
    is_timed: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether `SendTemplate` can write it."""
        return not (self.is_batch or self.reconsume_times or self.max_reconsume_times is not None)


def prepare(
    topic: str,
    message: Message,
    ids: UniqueIds,
    max_bytes: int,
    ordering_key: str | None = None,
    reserved: Mapping[str, str] | None = None,
) -> Outgoing:
    """Check and encode one message, uncompressed. `MessageIllegalError`.

    reserved: properties of the protocol that no program may set itself.
    """
    check_message(message, max_bytes)
    unique_id = ids.next()
    is_timed = message.at is not None or message.after is not None
    is_bare = message.tag is None and message.key is None and not message.properties and not message.delay_level
    if is_bare and not is_timed and message.priority is None and ordering_key is None and reserved is None:
        text = (WAITING if message.wait_stored else NOT_WAITING) + f"{Property.UNIQ_KEY}\x01{unique_id}\x02"
    else:
        properties = message_properties(message, unique_id)
        if message.priority is not None and (ordering_key is not None or Property.TRAN_MSG in (reserved or ())):
            raise MessageIllegalError(
                "a priority beside an ordering key or in a transaction: the broker would drop it",
                remedy="leave one of them out",
            )
        if ordering_key is not None:
            check_ordering_key(ordering_key)
            properties[Property.SHARDING_KEY] = ordering_key
        if reserved is not None:
            properties.update(reserved)
        text = encoded_properties(properties).decode()
    return Outgoing(
        topic, bytes(message.body), text, (unique_id,), flag=message.flag, message=message, is_timed=is_timed
    )


def prepare_batch(
    topic: str,
    messages: Sequence[Message],
    ids: UniqueIds,
    max_bytes: int,
    at: datetime | int | None = None,
    after: timedelta | float | None = None,
) -> Outgoing:
    """Check and encode a batch. `MessageIllegalError` for what the protocol cannot send in one, or too much of it.

    at, after: the due time of all of them. Messages that have one themselves need the same.
    """
    from orbitmq.protocol.batches import BatchItem, encode_batch

    if not messages:
        raise MessageIllegalError("the batch is empty", remedy="send at least one message")
    if topic.startswith(RETRY_PREFIX):
        raise MessageIllegalError(f"batches cannot go to the retry topic {topic!r}")
    for number, message in enumerate(messages):
        if not isinstance(message, Message):
            raise MessageIllegalError(
                f"message {number} of the batch is {type(message).__name__}", remedy="give orbitmq.Message(body, ...)"
            )
    if at is not None or after is not None:
        messages = [_due(message, number, at, after) for number, message in enumerate(messages)]
    waits, timed = messages[0].wait_stored, messages[0].is_timed
    items: list[BatchItem] = []
    unique_ids: list[str] = []
    for number, message in enumerate(messages):
        try:
            check_message(message, max_bytes)
        except MessageIllegalError as error:
            raise MessageIllegalError(f"message {number} of the batch: {error}") from error
        if message.delay_level or message.priority is not None:
            raise MessageIllegalError(
                f"message {number} of the batch has a delay level or a priority, which the protocol has for single messages only",
                remedy="send it with send(), or give the batch a time: at or after",
            )
        if message.at != messages[0].at or message.after != messages[0].after:
            raise MessageIllegalError(
                f"message {number} of the batch is due at another time than the first one; a batch has one due time",
                remedy="make a batch of those with the same time: send_batch(..., at=...)",
            )
        if message.wait_stored is not waits:
            raise MessageIllegalError("messages of one batch need the same wait_stored")
        unique_id = ids.next()
        unique_ids.append(unique_id)
        items.append(
            BatchItem(message.flag, bytes(message.body), encoded_properties(message_properties(message, unique_id)))
        )
    body = encode_batch(items)
    if len(body) > max_bytes:
        raise MessageIllegalError(
            f"the batch of {len(items)} messages has {len(body)} bytes encoded, the producer allows {max_bytes}",
            remedy="split it, for example at half the messages",
        )
    return batch_of(topic, body, unique_ids, wait_stored=waits, is_timed=timed)


def _due(message: Message, number: int, at: datetime | int | None, after: timedelta | float | None) -> Message:
    """A message of a batch that has a due time."""
    if message.is_timed and (message.at, message.after) != (at, after):
        raise MessageIllegalError(
            f"message {number} of the batch has a due time of its own, and the batch another",
            remedy="give the time once: send_batch(..., at=...)",
        )
    return msgspec.structs.replace(message, at=at, after=after)


def batch_member(message: Message, ids: UniqueIds, max_bytes: int) -> tuple[str, bytes]:
    """Check and encode one member of a batch alone: its unique id and its bytes, which are joined to those of others."""
    from orbitmq.protocol.batches import BatchItem, encode_batch

    check_message(message, max_bytes)
    unique_id = ids.next()
    properties = encoded_properties(message_properties(message, unique_id))
    return unique_id, encode_batch([BatchItem(message.flag, bytes(message.body), properties)])


def batch_of(
    topic: str, body: bytes, unique_ids: Sequence[str], *, wait_stored: bool, is_timed: bool = False
) -> Outgoing:
    """The request for encoded members."""
    properties = WAITING if wait_stored else NOT_WAITING
    return Outgoing(topic, body, properties, tuple(unique_ids), is_batch=True, is_timed=is_timed)


def compressed(outgoing: Outgoing, codec: Codec) -> Outgoing:
    """The same message with a compressed body, or as it is when that would not be smaller. Cost: CPU of the codec."""
    from orbitmq.protocol.compression import compress

    compression = COMPRESSIONS[codec]
    body = compress(outgoing.body, compression)
    if len(body) >= len(outgoing.body):
        return outgoing
    return outgoing._replace(body=body, sys_flag=with_compression(outgoing.sys_flag, compression))


def has_room(properties: str, once: str) -> bool:
    """Whether a broker takes `once` behind encoded properties that it takes alone."""
    room = PROPERTIES_BYTES_MAX - PROPERTIES_ROOM_BYTES
    most = len(properties) + len(once)
    if 4 * most <= room:
        return True  # nearly always, and without encoding it
    return len(properties.encode()) + len(once.encode()) <= room


def request_fields(
    outgoing: Outgoing, queue: MessageQueue, group: str, queues_count: int, now_ms: int, once: str = ""
) -> dict[str, str]:
    """Ext fields of the short send header. once: encoded properties behind those of the message."""
    fields = {
        "a": group,
        "b": outgoing.topic,
        "c": AUTO_CREATE_TOPIC,
        "d": str(queues_count),
        "e": str(queue.queue_id),
        "f": str(outgoing.sys_flag),
        "g": str(now_ms),
        "h": str(outgoing.flag),
        "i": outgoing.properties + once,
        "j": str(outgoing.reconsume_times),
        "k": "false",
        "m": "true" if outgoing.is_batch else "false",
        "n": queue.broker_name,
    }
    if outgoing.max_reconsume_times is not None:
        fields["l"] = str(outgoing.max_reconsume_times)
    return fields

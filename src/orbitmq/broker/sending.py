"""A message on its way into the store: what a front end hands over, what admission answers, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from orbitmq.broker.idempotence.identity import SendIdentity
from orbitmq.broker.idempotence.memory import SentPlace
from orbitmq.broker.idempotence.repeats import FirstAnswer
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import NewMessage


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a message comes from: the peer's packed address and the version of its client."""

    host: bytes
    version: int
    knows_types: bool = False
    """Its messages are of the type that their topic takes, whether the broker enforces types or not."""


class Sending(msgspec.Struct, gc=False):
    """One message, or one batch, as a front end hands it over. `properties` is the encoded text of the request."""

    topic: str
    queue_id: int
    body: bytes
    properties: str = ""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    default_topic: str = ""
    default_topic_queues: int = 4
    unit_mode: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


class Placement(msgspec.Struct, gc=False):
    """An admitted message: what to append, and what to tell the sender.

    `queue_id` is the queue it asked for or was given, which for a delayed message is not the one it is stored in.
    """

    message: NewMessage
    queue_id: int
    unique_key: str
    wait: bool
    identity: SendIdentity | None = None
    """Which send it is, when its sender may repeat it."""
    handle: str | None = None
    """What recalls it, of a timer message that waits for its time."""


class EarlierResult(msgspec.Struct, gc=False):
    """A send whose key is known: where the first one went, and what is to be appended should that one not count any more."""

    placement: Placement
    place: SentPlace


class BatchPlacement(msgspec.Struct, gc=False):
    """An admitted batch: appended as one block, consecutive in one queue. `unique_key` is that of the batch as a whole."""

    messages: list[NewMessage]
    queue_id: int
    unique_key: str | None
    wait: bool
    sends: Sequence[SendIdentity] = ()
    """Which send each of `messages` is, when the sender may repeat the batch."""
    earlier: Sequence[SentPlace | None] = ()
    """For each message of the request where it went before; None for those in `messages`. Empty: all are in `messages`."""


class StoredSend(msgspec.Struct, gc=False):
    """The outcome of a message that is in the log: by this send, or by an earlier one that this send repeats.

    `status` is one of those that are kept. `queue_id` is the queue that the message goes to in its
    topic; the offsets are those of its record, which of a message that waits is in another topic's queue.
    """

    status: PutStatus
    queue_id: int
    unique_key: str
    physical_offset: int
    queue_offset: int
    handle: str | None = None
    """What recalls it, of a timer message that waits for its time."""
    first: FirstAnswer | None = None
    """Of a repeat: what the first send was told."""


class StoredBatch(msgspec.Struct, gc=False):
    """The outcome of a batch that is in the log, as `StoredSend`: where each of its messages is, in their order."""

    status: PutStatus
    queue_id: int
    unique_key: str | None
    places: Sequence[Dispatched | SentPlace]

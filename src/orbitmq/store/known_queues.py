"""Where every consume queue stood, in a file of our own: a start opens no queue that is as it was then.

RocketMQ ignores the file `orbitmq.queues`. With 40,000 queues, listing and searching each of them takes seconds of CPU, and asking the
system whether a file was changed takes a tenth of a second.

Rules of this file
1. What is said of a queue counts only while each of its files has the fingerprint that it had. The system moves the time of change
   with every write, cut, rename and restored copy, whoever does it, and never back. The same holds for the directories: of one that is
   as it was, the names are known.
2. A power failure may leave a file with an earlier time of change and other bytes. So nothing counts beyond the boot that wrote it
   and the newest mark, unless that mark is of the orderly stop which wrote it: all had been synced by then, and nobody wrote since.
3. It is a cache, written whole, and never synced: what is damaged, missing or in another form does not count, and the queues are looked at.

The file is eight bytes that name it and blocks as in `blocks`, their bodies in MessagePack: first the `Head`, then each topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.store.blocks import decode_blocks, encode_block
from orbitmq.store.files import Files, Fingerprint
from orbitmq.store.mark import Mark

QUEUES_FILE: Final = "orbitmq.queues"
MAGIC: Final = b"ORBQUES1"
HEAD, TOPIC = 1, 2
"""Kinds of blocks."""


class Head(msgspec.Struct, array_like=True, frozen=True):
    """What holds for the whole file."""

    boot: str
    """Boot id of the machine when it was written."""
    serial: int
    """Serial number of the mark of the orderly stop that wrote it; 0 when it was written otherwise."""
    log_start: int
    """First byte that the log had: what is said of the first units holds from there on."""
    topic_count: int
    directory: Fingerprint | None
    """Fingerprint of the directory with the topics."""


class KnownQueue(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One queue, with nothing in its files behind the last unit."""

    queue_id: int
    base: int
    """Offset of the first byte of its first file."""
    files: list[Fingerprint]
    """Fingerprint of each file, in order; empty where the queue has to be looked at."""
    min_offset: int
    min_physical: int
    """Position of the record of the unit at `min_offset`, -1 where that is not known."""
    max_offset: int
    max_physical: int


class KnownTopic(msgspec.Struct, array_like=True, frozen=True):
    name: str
    directory: Fingerprint | None
    queues: list[KnownQueue]


_head = msgspec.msgpack.Decoder(Head)
_topic = msgspec.msgpack.Decoder(KnownTopic)
_encoder = msgspec.msgpack.Encoder()


class KnownQueues:
    """The content of a file that counts; every topic is decoded when it is asked for."""

    def __init__(self, head: Head, topics: dict[str, memoryview]) -> None:
        self.head = head
        self._topics = topics

    @property
    def topics(self) -> list[str]:
        return sorted(self._topics)

    def topic(self, name: str) -> KnownTopic | None:
        body = self._topics.get(name)
        return None if body is None else _topic.decode(body)


def write_known_queues(files: Files, root: Path, head: Head, topics: Iterable[KnownTopic]) -> None:
    """Replace the file. Raises OSError. Cost: 2 us for each queue."""
    path = root / QUEUES_FILE
    new = path.with_name(path.name + ".tmp")
    content = bytearray(MAGIC + encode_block(HEAD, _encoder.encode(head)))
    for topic in topics:
        content += encode_block(TOPIC, _encoder.encode(topic))
    file = files.open(new, create=True)
    try:
        file.truncate(0)
        file.pwrite(content, 0)
    finally:
        file.close()
    files.rename(new, path)


def read_known_queues(files: Files, root: Path, mark: Mark, boot: str, log_start: int) -> KnownQueues | None:
    """The content, when it counts with this mark, the newest one, in this boot of the machine; None otherwise."""
    path = root / QUEUES_FILE
    if not files.exists(path):
        return None
    blocks = decode_blocks(files.read_bytes(path), MAGIC)
    first = next(blocks, None)
    if first is None or first.kind != HEAD:
        return None
    try:
        head = _head.decode(first.body)
        is_of_stop = mark.clean and head.serial == mark.serial
        counts = (is_of_stop or head.boot == mark.boot == boot) and head.log_start <= log_start
        topics = {_name_of(block.body): block.body for block in blocks} if counts else {}
    except msgspec.MsgspecError:
        return None
    return KnownQueues(head, topics) if counts and len(topics) == head.topic_count else None


class _Named(msgspec.Struct, array_like=True, frozen=True):
    """The beginning of a `KnownTopic`."""

    name: str


_named = msgspec.msgpack.Decoder(_Named)


def _name_of(body: memoryview) -> str:
    return _named.decode(body).name

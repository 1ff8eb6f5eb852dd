"""Keys of idempotent sends whose records are gone, and topics that were deleted before, as recorded tables: a slave that begins with the
oldest byte that is left would store a repeat of such a send once more, once it leads.

Rules of this file
1. Keys are recorded before retention takes the file of their first send, in pieces that fill a record. They come out of the journal, on a
   thread; in memory they are in no order.
2. A piece is written once. When its own file goes it is read from the log again, as long as its epoch counts.
3. Transient scopes are not recorded: nobody repeats their sends after a minute.
4. A leader may end between two pieces: which looks are recorded as a whole says a key of its own, written when all pieces of one are
   confirmed. Others count for nothing, and are begun again.
5. What a copy knows already stays as it is. It takes in what is new, and keeps that in its own journal.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

import msgspec

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.journal import ENTRY_BYTES, KeysBlock
from orbitmq.broker.table_records.changes import KeyChanges
from orbitmq.broker.table_records.word_reading import WordReading
from orbitmq.clock import Clock
from orbitmq.errors import RecordError
from orbitmq.limits.broker import TABLE_GATHERING_NS, TABLE_RECORD_BYTES_MAX
from orbitmq.protocol.remoting.bodies import DataVersion
from orbitmq.store.store import MessageStore

logger = logging.getLogger("orbitmq.broker")

_HEAD_BYTES: Final = 1_024
"""What a record has besides the keys: the name of its scope, at most 255 bytes, twice where it is escaped."""


_WHOLE: Final = "whole"
"""The key whose value is the log position below which all keys are in the table."""
_WAKEUP: Final = "keys of sends"


class _KeyPiece(NamedTuple):
    """What a key of the table says."""

    epoch: int
    end: int
    """The log position below which all sends of the piece lie."""
    number: int
    scope: str

    @property
    def key(self) -> str:
        return f"{self.epoch}:{self.end}:{self.number}:{self.scope}"

    @classmethod
    def of(cls, key: str) -> _KeyPiece:
        """Raises ValueError for what is no key of the table."""
        epoch, end, number, scope = key.split(":", 3)
        return cls(int(epoch), int(end), int(number), scope)


class RecordedSentKeys:
    """A key is `epoch:end:number:scope`; its value `[used_ms, entries]`, entries of the journal in base64. The key `whole` has
    a log position."""

    record_name: ClassVar[str] = "sentKeys"
    is_gathered: ClassVar[bool] = True

    def __init__(self, idempotence: Idempotence, store: MessageStore, reading: WordReading, clock: Clock) -> None:
        self._idempotence = idempotence
        self._clock = clock
        self._store = store
        self._reading = reading
        self._said_below: int | None = None
        """Keys whose records lie below are in the table, or in `_unsaid`; None: the table says."""
        self._unsaid: dict[str, bytes] = {}
        """Pieces of the last look that are in no confirmed record yet."""
        self._found_at = 0
        """Records below that log position are none of that look, though they may name its pieces."""
        self._whole = 0
        """What `whole` is to say once they are; 0: what it says already."""
        self._is_looking = False
        self._is_failing = False
        """That the last look failed was reported."""
        self.version = DataVersion()
        self.changes = KeyChanges()
        store.deadlines.define(_WAKEUP, self._follow)

    def recorded_keys(self) -> Iterable[str]:
        return ()

    def recorded_value(self, key: str) -> bytes | None:
        if key != _WHOLE and not self._counts(key):
            return None
        if key == _WHOLE and self._whole and not self._unsaid:
            return msgspec.json.encode(self._whole)
        try:
            return self._unsaid.get(key) or self._reading.last_word(self.record_name, key)
        except RecordError as error:
            logger.error("keys of sends whose records are gone are lost to a new copy: %s", error)
            return None

    def _counts(self, key: str) -> bool:
        """Whether the epoch of a piece is remembered."""
        piece = _KeyPiece.of(key)
        memory = self._idempotence.memory
        if memory.windows.keys_of(piece.scope, piece.epoch) is not None:
            return True
        scope = memory.scope(piece.scope)
        return scope is not None and scope.keys_of(piece.epoch) is not None

    def take(self, values: Mapping[str, bytes | None], version: DataVersion | None) -> None:
        self._said_below, self._unsaid, self._whole = None, {}, 0  # somebody else leads, or what was appended is gone
        for key, value in values.items():
            if value is not None and key != _WHOLE:
                piece = _KeyPiece.of(key)
                used_ms, entries = msgspec.json.decode(value, type=tuple[int, str])
                self._idempotence.keep_earlier(piece.scope, piece.epoch, b64decode(entries, validate=True), used_ms)
        self.changes.discard(values)

    def differs(self, key: str, value: bytes | None) -> bool:
        """What was taken in before this process stands in the journal."""
        at = self._reading.recorded_at(self.record_name, key)
        return value is not None and at >= self._idempotence.restored_below

    def is_newer_than(self, version: DataVersion | None) -> bool:
        return False

    # --- before records go --------------------------------------------------------------------------------------------

    def say_again(self) -> None:
        """What the log said of this table counts no more."""
        self._said_below, self._unsaid, self._whole = 0, {}, 0

    def unsaid_below(self, position: int) -> list[str] | None:
        if self._said_below is None:
            self._said_below = self._whole_below()
        if (unsaid := self._unsaid_now()) or self._said_below >= position:
            return unsaid
        if not self._is_looking:
            self._look(self._said_below, position)
        return self._unsaid_now() if self._said_below >= position else None

    def _unsaid_now(self) -> list[str]:
        """What is to be recorded of the last look: its pieces, and then that they are all there."""
        recorded_at = self._reading.recorded_at
        self._unsaid = {
            key: value
            for key, value in self._unsaid.items()
            if recorded_at(self.record_name, key) < self._found_at and self._counts(key)
        }
        return list(self._unsaid) or ([_WHOLE] if self._whole and self._whole_below() < self._whole else [])

    def _whole_below(self) -> int:
        """As the log says."""
        try:
            return msgspec.json.decode(self._reading.last_word(self.record_name, _WHOLE) or b"0", type=int)
        except RecordError as error:
            logger.error("which keys of sends are recorded is not known, recording them again: %s", error)
            return 0

    def _follow(self) -> None:
        """Record that the pieces of a look are all there, although nobody asks for it."""
        unsaid = self._unsaid_now()
        if unsaid == [_WHOLE]:
            self.changes.note(_WHOLE, at_once=True)
        elif unsaid and self.changes.is_on:
            self._follow_soon()

    def _follow_soon(self) -> None:
        self._store.deadlines.arm(_WAKEUP, self._clock.monotonic_ns() + 2 * TABLE_GATHERING_NS)

    def _look(self, begin: int, end: int) -> None:
        """Find the keys between two log positions, and have them recorded. A look that fails is begun again when it is asked for."""
        try:
            find, piece_bytes = self._idempotence.places_in_journal(begin, end), self._piece_bytes
        except OSError as error:
            self._look_failed(error)
            return

        def done(found: list[tuple[str, bytes]] | BaseException) -> None:
            self._is_looking = False
            if isinstance(found, BaseException):
                self._look_failed(found)
                return
            self._is_failing = False
            if self._said_below != begin:
                return  # from where on to look has changed
            self._said_below, self._unsaid, self._found_at = end, dict(found), self._store.log.end
            if found:
                self._whole = end
                self._follow_soon()
            for key in self._unsaid:
                self.changes.note(key)

        self._is_looking = True
        self._store.run_blocking(lambda: list(_pieces(find(), end, piece_bytes)), done)

    def _look_failed(self, error: BaseException) -> None:
        if not self._is_failing:
            logger.error("keys of sends whose records are to go could not be read, trying again: %s", error)
        self._is_failing = True

    @property
    def _piece_bytes(self) -> int:
        room = min(TABLE_RECORD_BYTES_MAX, self._store.settings.mapped_file_size_commit_log // 4) - _HEAD_BYTES
        return max(room * 3 // 4 // ENTRY_BYTES, 1) * ENTRY_BYTES


def _pieces(blocks: Sequence[KeysBlock], end: int, bytes_max: int) -> Iterator[tuple[str, bytes]]:
    """Keys and values of the table that say so, each scope and epoch for itself, in pieces of at most so many bytes of entries."""
    entries: dict[tuple[str, int], bytearray] = {}
    used_ms: dict[tuple[str, int], int] = {}
    for block in blocks:
        name = block.scope, block.epoch
        entries.setdefault(name, bytearray()).extend(block.entries)
        used_ms[name] = max(used_ms.get(name, 0), block.used_ms)
    for (scope, epoch), all_of_it in entries.items():
        for number, at in enumerate(range(0, len(all_of_it), bytes_max)):
            text = b64encode(all_of_it[at : at + bytes_max]).decode()
            yield _KeyPiece(epoch, end, number, scope).key, msgspec.json.encode([used_ms[scope, epoch], text])


class RecordedTopicEnds:
    """A key is a topic that was deleted; its value the log position below which sends to it count no more as first ones."""

    record_name: ClassVar[str] = "endedTopics"
    is_gathered: ClassVar[bool] = True

    def __init__(self, idempotence: Idempotence, reading: WordReading) -> None:
        self._ended = idempotence.memory.ended
        self._reading = reading
        self.version = DataVersion()
        self.changes = KeyChanges()

    def recorded_keys(self) -> Iterable[str]:
        return [topic for topic, _ in self._ended.items()]

    def recorded_value(self, key: str) -> bytes | None:
        position = self._ended.of(key)
        return None if position is None else msgspec.json.encode(position)

    def take(self, values: Mapping[str, bytes | None], version: DataVersion | None) -> None:
        for topic, value in values.items():
            if value is not None:
                self._ended.add(topic, msgspec.json.decode(value, type=int))
        self._ended.keep_few()
        self.changes.discard(values)

    def differs(self, key: str, value: bytes | None) -> bool:
        return value is not None and self.recorded_value(key) != value

    def is_newer_than(self, version: DataVersion | None) -> bool:
        return False

    def say_again(self) -> None:
        """Its places in the log say what is said."""

    def unsaid_below(self, position: int) -> list[str]:
        """Topics whose deletion is recorded below that position, and nowhere behind it."""
        at = self._reading.recorded_at
        return [topic for topic, end in self._ended.items() if at(self.record_name, topic) < end < position]

"""Idempotent sends: the memory of what was sent, kept beside the log it is derived of.

Admission asks (`admit`), the send path says where a message went (`sent`), and the log confirms it (`apply`). What the log
confirmed goes to the journal; after a start the journal and the log behind its last position say what was sent.

Rules of this file
1. A key is remembered from the moment its record has a place, so that a repeat in the same turn is one; it goes to the
   journal only with its record, by way of the log.
2. The journal may lag behind the log; it never leads. What a crash took out of the log is taken out of the memory: a key
   whose message is lost would turn its repeat into a loss.
3. A broker that never saw an idempotent send has no file and writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from orbitmq.broker.idempotence.epoch_keys import EpochKeys
from orbitmq.broker.idempotence.finished import Finished
from orbitmq.broker.idempotence.forgetting import ForgettingTime
from orbitmq.broker.idempotence.identity import IDENTITY_MARK, SendIdentity, identity_in_log, is_lasting
from orbitmq.broker.idempotence.journal import (
    JOURNAL_FILE,
    MAGIC,
    EndedTopicBlock,
    FinishedBlock,
    KeyJournal,
    KeysBlock,
    PositionBlock,
    decode_blocks,
    digest_and_place,
    encode_ended_topic,
    encode_finished,
    encode_keys,
    encode_position,
    entry_of,
)
from orbitmq.broker.idempotence.memory import KeyBounds, KeyMemory, SentPlace, pack, unpack
from orbitmq.broker.refusal import Refusal
from orbitmq.clock import Clock
from orbitmq.errors import StoreDamagedError
from orbitmq.limits.broker import ONCE_FINISHED_MAX
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import Files
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.reading import store_timestamp_of
from orbitmq.store.saving import is_passing_trouble
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.broker")

POSITION_STEP_BYTES: Final = 1 << 20
"""Log written since the last position block at which another one is due without new keys: what a start after a crash reads
once more because of this file."""

SHORTEN_FROM_BYTES: Final = 4 << 20
"""The journal is made shorter when it has grown to twice its shortest size and this much."""

GIVEN_BACK_AT_LEAST: Final = 512
"""Forgotten keys freed with every call of `apply`, beside two for each record: faster than they can come."""


class Idempotence:
    """The idempotent sends of one store. Hand it to `open_store` as a derived structure."""

    name = "once"

    def __init__(
        self,
        files: Files,
        root: Path,
        clock: Clock,
        bounds: KeyBounds | None = None,
        *,
        shorten_from_bytes: int = SHORTEN_FROM_BYTES,
    ) -> None:
        self.memory = KeyMemory(bounds or KeyBounds())
        self.repeat_count = 0
        """Sends answered with the place of an earlier one."""
        self.stale_count = 0
        self.full_count = 0
        self._clock = clock
        self._forgetting = ForgettingTime(clock.now_ms(), self._steady_ms())
        self._shorten_from_bytes = shorten_from_bytes
        self._journal = KeyJournal(files, root / JOURNAL_FILE)
        self._log: CommitLog | None = None
        self._position = 0
        """Everything below was taken in."""
        self._witness = (-1, 0)
        self._noted = 0
        """The position of the journal's last position block."""
        self.restored_below = 0
        """What the log says below this position was taken in by the process before, and stands in the journal."""
        self._sent: dict[int, tuple[EpochKeys, int, Dispatched]] = {}
        """Log position -> its keys, its entry and itself: of records that have a place and have not come back through `apply`."""
        self._unsaved: dict[EpochKeys, list[int]] = {}
        self._unsaved_ends: list[bytes] = []
        """Blocks of finished epochs and deleted topics for the journal."""
        self._keep_bytes: int | None = None
        """What the journal is to be cut to at the end of recovery; None when there is none."""
        self._live: frozenset[tuple[str, int]] | None = None
        """While the journal is made shorter, what is kept of it; nothing is appended meanwhile."""
        self._ends: frozenset[tuple[str, int]] = frozenset()
        self._ended_topics = b""
        """The first blocks of the shorter journal."""
        self._end = b""
        """The last block of the shorter journal."""

    # --- for senders ------------------------------------------------------------------------------------------------

    def admit(self, sends: Sequence[SendIdentity], topic: str, now_ms: int) -> list[SentPlace | None]:
        """For each send of one request to `topic`, all of one scope and epoch: where it went before, or None for a new one.

        Raises `Refusal`: a stale epoch, or no room for the new ones; then nothing has changed.
        """
        memory = self.memory
        try:
            found = memory.find_all(sends, topic)
            new = found.count(None)
            if new and not memory.has_room(sends[0], new):
                memory.make_room(sends[0], new, now_ms, self._steady_ms())
        except Refusal as refusal:
            self._count(refusal)
            raise
        self.repeat_count += len(found) - new
        return [None if place is None else unpack(place) for place in found]

    def admit_one(self, identity: SendIdentity, topic: str, now_ms: int) -> SentPlace | None:
        """`admit` for one send; whoever answers it as a repeat counts it. Cost: about 0.8 us.

        A send with a window is a repeat only if the first one's record says, too, that the window is not over.
        """
        longest_ms = self.memory.bounds.lasting_idle_ms
        if identity.window_ms > longest_ms:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{Property.ONCE_WINDOW} is {identity.window_ms} ms; this broker remembers keys for at most {longest_ms} "
                "(idempotenceReservedTime): take a shorter window, or set it higher",
            )
        try:
            place = self.memory.find(identity, topic, now_ms)
            if place is None:
                if not self.memory.has_room(identity, 1):
                    self.memory.make_room(identity, 1, now_ms, self._steady_ms())
                return None
        except Refusal as refusal:
            self._count(refusal)
            raise
        return unpack(place)

    def on_its_way(self, physical_offset: int) -> Dispatched | None:
        """The record of an idempotent send that got its place and has not come back from the log; None for any other."""
        sent = self._sent.get(physical_offset)
        return None if sent is None else sent[2]

    def _count(self, refusal: Refusal) -> None:
        if refusal.code == ResponseCode.STALE_EPOCH:
            self.stale_count += 1
        else:
            self.full_count += 1

    def sent(self, identity: SendIdentity, record: Dispatched, queue_id: int) -> None:
        """A new send got its place; `queue_id` is what its sender is told."""
        place = pack(record.physical_offset, record.queue_offset, queue_id)
        keys = self.memory.keep(identity, place, record.store_timestamp, self._steady_ms(), is_confirmed=False)
        if keys is not None:
            self._sent[record.physical_offset] = (keys, entry_of(identity.digest, place), record)

    def sent_all(self, sends: Sequence[SendIdentity], records: Sequence[Dispatched], queue_id: int) -> None:
        """`sent` for the new sends of one request, all of one scope and epoch, that `admit` has just let in."""
        places = [pack(record.physical_offset, record.queue_offset, queue_id) for record in records]
        keys = self.memory.keep_new(sends, places, records[0].store_timestamp, self._steady_ms())
        if keys is None:
            return
        for identity, record, place in zip(sends, records, places, strict=True):
            self._sent[record.physical_offset] = (keys, entry_of(identity.digest, place), record)

    def failed(self, identity: SendIdentity, record: Dispatched, queue_id: int) -> None:
        """That send did not reach the log: a repeat of it is a first send."""
        sent = self._sent.pop(record.physical_offset, None)
        if sent is not None:
            place = pack(record.physical_offset, record.queue_offset, queue_id)
            self.memory.take_back(sent[0], identity.digest, place)

    def take_back(self, to: int) -> None:
        """The log was cut at `to`: a repeat of what was sent behind it is a first send, and no epoch began there."""
        for position in sorted((position for position in self._sent if position >= to), reverse=True):
            keys, entry, _ = self._sent.pop(position)
            self.memory.take_back(keys, *digest_and_place(entry))

    def finish(self, scope: str, finished: Finished, now_ms: int) -> bool:
        """The sender has the answers to all its sends in that epoch and will not repeat one; see `KeyMemory.finish`.

        It is no more than a hint: when a crash forgets it, the keys come back out of the log. So nothing is noted of it where too much
        waits for the next `write`, which comes with new messages.
        """
        if not self.memory.finish(scope, finished, now_ms):
            return False
        if len(self._unsaved_ends) < ONCE_FINISHED_MAX:
            self._unsaved_ends.append(encode_finished(scope, finished, now_ms))
        return True

    def keep_earlier(self, scope: str, epoch: int, entries: bytes, used_ms: int) -> None:
        """Sends of which the log says again that they came first, in entries of the journal: their own records are gone from it."""
        places = KeysBlock(scope, epoch, used_ms, entries).places()
        keys, new = self.memory.keep_earlier(scope, epoch, places, used_ms, self._steady_ms())
        if keys is not None and new:
            self._unsaved.setdefault(keys, []).extend(entry_of(digest, place) for digest, place in new)

    def places_in_journal(self, begin: int, end: int) -> Callable[[], list[KeysBlock]]:
        """What finds the keys of lasting scopes whose first send lies between two log positions, both below what was confirmed: on any
        thread, it may wait for the disk. Raises OSError."""
        self.write()
        journal, live = self._journal, {one for one in self.memory.live_epochs() if is_lasting(one[0])}

        def find() -> list[KeysBlock]:
            if not live or not journal.exists:
                return []
            return journal.keys_between(begin, end, live)

        return find

    def end_topic(self, topic: str, log_end: int) -> None:
        """The topic is being deleted, and the log is that long: what was sent to it is forgotten.

        The end is in the journal on return, synced with the next save. Where there is no room for it, or while the journal is
        made shorter, it is written by the next `write`: a process that is killed before that knows the keys again.
        """
        if not (self.memory.scope_count or len(self.memory.finished) or self._journal.exists):
            return
        self.memory.ended.add(topic, log_end)
        self.memory.ended.keep_few()
        self.memory.end_topic(topic)
        self._unsaved_ends.append(encode_ended_topic(topic, log_end))
        if self._live is None:
            try:
                # Also what was finished before: the end stands for what is before it.
                self._journal.append(self._unsaved_ends)
                self._unsaved_ends = []
            except OSError as error:
                logger.warning("the end of topic %r could not be written yet: %s", topic, error)

    def _steady_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS

    # --- what the log says (Derived) --------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        sent, position, memory = self._sent, self._position, self.memory
        keeps_aside = memory.keeps_aside
        is_any = b"".join([entry.properties for entry in entries]).rfind(IDENTITY_MARK) >= 0  # one look at all of them
        for entry in entries if is_any else ():
            if entry.properties.rfind(IDENTITY_MARK) < 0:  # `in` takes several times as long
                continue
            if sent and (known := sent.pop(entry.physical_offset, None)) is not None:
                self._unsaved.setdefault(known[0], []).append(known[1])
                if keeps_aside:
                    memory.confirm(known[0], digest_and_place(known[1])[1])
            elif entry.physical_offset >= position:
                self._learn(entry)
        if entries and (last := entries[-1]).end_offset > position:
            self._position = last.end_offset
            self._witness = (last.physical_offset, last.store_timestamp)
            if memory.scope_count or memory.finished:
                self._forget()
                memory.give_back(GIVEN_BACK_AT_LEAST + 2 * len(entries))

    def _forget(self) -> None:
        """What is old, as far as the clock is believed."""
        memory, forgetting = self.memory, self._forgetting
        wall_ms, steady_ms = self._clock.now_ms(), self._steady_ms()
        if forgetting.was_put_forward(wall_ms, steady_ms):
            memory.use_again(wall_ms)
        memory.expire_transient(steady_ms)
        if forgetting.has_come(steady_ms):
            corrected = memory.corrected_count
            memory.expire_lasting(wall_ms)
            if memory.corrected_count > corrected:
                logger.warning(
                    "%d scopes of idempotent sends were used later than now, because the clock was ahead: they count as used now",
                    memory.corrected_count - corrected,
                )  # fmt: skip

    def _learn(self, entry: Dispatched) -> None:
        """A record that nobody announced: the log is read again, or was copied from elsewhere."""
        found = identity_in_log(entry)
        if found is None:
            return
        identity, queue_id = found
        place = pack(entry.physical_offset, entry.queue_offset, queue_id)
        keys = self.memory.keep(identity, place, entry.store_timestamp, self._steady_ms())
        if keys is not None:
            self._unsaved.setdefault(keys, []).append(entry_of(identity.digest, place))

    def write(self) -> None:
        """Append new keys to the journal. What comes while it is made shorter waits for the next call."""
        if self._live is not None:
            return
        if self._unsaved or self._unsaved_ends:
            used_ms = self._witness[1]
            blocks = [
                encode_keys(keys.scope, keys.epoch, used_ms, entries)
                for keys, entries in self._unsaved.items()
                if self.memory.is_live(keys)
            ]
            self._append_with_position(blocks + self._unsaved_ends)
            self._unsaved = {}
            self._unsaved_ends = []
        elif self._position - self._noted >= POSITION_STEP_BYTES and self._journal.exists:
            self._append_with_position([])

    def _append_with_position(self, blocks: list[bytes]) -> None:
        self._journal.append([*blocks, encode_position(self._position_block(synced=False))])
        self._noted = self._position

    def _position_block(self, *, synced: bool) -> PositionBlock:
        return PositionBlock(self._position, *self._witness, synced)

    def begin_sync(self) -> None:
        journal = self._journal
        if self._live is not None:  # a save that was begun and never ran
            self._live = None
            self.write()
        if not journal.exists:
            return
        if self._position > self._noted:
            self._append_with_position([])
        if journal.size_bytes > 2 * journal.shortened_bytes + self._shorten_from_bytes:
            memory = self.memory
            self._live = memory.live_epochs()
            self._ends = memory.ends()
            memory.ended.forget_below(memory.first_position())
            ended = [encode_ended_topic(topic, position) for topic, position in memory.ended.items()]
            self._ended_topics = b"".join(ended)
            self._end = encode_position(self._position_block(synced=True))

    def datasync(self) -> None:
        """The log was synced before, up to everything that the journal speaks of."""
        live = self._live
        if live is None:
            self._journal.datasync()
            return
        journal = self._journal
        try:
            journal.shorten(live, self._ends, self._ended_topics, self._end)
        except StoreDamagedError as error:
            logger.error("%s; the next start takes what is missing from the log", error)
            journal.shortened_bytes = journal.size_bytes
            journal.datasync()
        except OSError as error:
            if not is_passing_trouble(error):
                raise
            logger.warning("%s was not made shorter, it is tried again: %s", JOURNAL_FILE, error)
            journal.datasync()
        finally:
            self._live = None

    def state(self) -> object:
        """Whether there is a journal: a start that misses it knows that keys are missing."""
        return {"journal": True} if self._journal.exists else None

    # --- recovery (Recoverable) -------------------------------------------------------------------------------------

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        self._log = log
        content = self._journal.read()
        if content is None:
            needed = self._start_without(log, state, position)
        else:
            self._load(log, content, state, position)
            needed = self._position
        if self._position < log.start:
            logger.warning(
                "the log between %d and %d is gone: idempotent sends stored there are forgotten",
                self._position, log.start,
            )  # fmt: skip
        self._noted = self.restored_below = self._position
        return needed

    def _start_without(self, log: CommitLog, state: object, position: int | None) -> int:
        """Where to begin without a file; from where on entries are needed."""
        if state is not None:
            logger.error("%s is missing: what was sent is collected from the whole log", JOURNAL_FILE)
            self._position = log.start
        elif position is None:
            # Another broker's store, as far as anybody knows: what recovery reads for itself is taken in, no more.
            self._position = log.start
            return log.end_of_files
        else:
            self._position = position
        return self._position

    def _load(self, log: CommitLog, content: memoryview, state: object, position: int | None) -> None:
        """Take up the keys before the last position block that can be believed."""
        believed: tuple[PositionBlock, int] | None = None
        good_bytes = len(MAGIC)
        ends: list[bytes] = []
        """Behind what can be believed: they are written once more."""
        ended_behind: list[str] = []
        for block, end in decode_blocks(content):
            good_bytes = end
            if isinstance(block, PositionBlock) and _is_believed(block, log, position):
                believed = (block, end)
                ends.clear()
                ended_behind.clear()
            elif isinstance(block, EndedTopicBlock):
                self.memory.ended.add(block.topic, block.position)
                ends.append(encode_ended_topic(block.topic, block.position))
                ended_behind.append(block.topic)
        self._unsaved_ends += ends
        if good_bytes < len(content):
            logger.warning(
                "%s ends in %d bytes that are no whole block: what they said is collected from the log",
                JOURNAL_FILE, len(content) - good_bytes,
            )  # fmt: skip
        if believed is not None and not _stands(believed[0], log):
            believed = None  # the file of another store
        if believed is None:
            self._keep_bytes = 0
            if position is not None and state is None:
                self._position = position  # the file is younger than the mark
            else:
                logger.error("%s cannot be believed: what was sent is collected from the whole log", JOURNAL_FILE)
                self._position = log.start
            return
        last, self._keep_bytes = believed
        for block, _ in decode_blocks(content[: self._keep_bytes]):
            if isinstance(block, KeysBlock):
                self.memory.keep_all(block.scope, block.epoch, block.places(), block.used_ms, self._steady_ms())
            elif isinstance(block, FinishedBlock):
                self.memory.finish(block.scope, block.finished, block.used_ms)
            elif isinstance(block, EndedTopicBlock):
                self.memory.end_topic(block.topic)
        for topic in ended_behind:
            self.memory.end_topic(topic)
        self._position, self._witness = last.position, (last.witness, last.witness_ms)

    def finish_restore(self) -> None:
        """Cut off, durably, what could not be believed, before anything is appended behind it."""
        assert self._log is not None
        self._position = min(self._position, self._log.end)
        self.memory.ended.cut(self._log.end)
        if self._keep_bytes is not None:
            self._journal.cut(self._keep_bytes)
            self._keep_bytes = None

    def close(self) -> None:
        self._journal.close()


def _is_believed(block: PositionBlock, log: CommitLog, position: int | None) -> bool:
    """Whether the log still holds what it held when the block was written.

    With a mark of ours that is what the mark vouches for. Without one RocketMQ wrote last: it only appends, or cuts off an
    end, so the log is the same up to a record that is still in its place.
    """
    if position is not None:
        return block.synced or block.position <= position
    return block.position <= log.start or (block.witness >= 0 and _stands(block, log))


def _stands(block: PositionBlock, log: CommitLog) -> bool:
    """Whether the last record that was known then is in the log; one that is gone for its age, or was never known, is taken to be. It
    may be damaged: its length and its time tell it from another."""
    if block.witness < log.start:
        return True
    record = log.record(block.witness)
    is_as_long = record is not None and block.witness + len(record) == block.position
    return record is not None and is_as_long and store_timestamp_of(record) == block.witness_ms

"""A small broker's life against a store that may die at any call, and the account of what it promised.

`Life` appends messages to several queues, delays some of them, sends some idempotently and repeats those, lets time
pass, syncs and saves, all driven by one random generator. It keeps what was acknowledged. `examine` opens what a crash
left behind and checks every promise.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from orbitmq.broker.once.idempotence import Idempotence
from orbitmq.broker.once.identity import TRANSIENT_PREFIX, Once, once_in_log, read_once
from orbitmq.broker.once.memory import Place, unpack
from orbitmq.broker.refusal import Refusal
from orbitmq.clock import ManualClock
from orbitmq.errors import StoreUnwritableError
from orbitmq.protocol.filters import tags_code
from orbitmq.protocol.names import QUARANTINE_TOPIC, SCHEDULE_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.dispatch import Dispatched, dispatched_from_record
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import Files
from orbitmq.store.message import NewMessage
from orbitmq.store.opening import open_store
from orbitmq.store.settings import FlushDiskType, StoreSettings
from orbitmq.store.store import MessageStore
from orbitmq.testing.little_store import SMALL, SteppedWorker, close_as_killed
from orbitmq.timing.levels.history import HISTORY_FILE, LevelHistory
from orbitmq.timing.levels.offsets import OFFSETS_FILE, LevelOffsets
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.restoring import source_offset

START_MS = 1_790_000_000_000
TOPICS = ("TopicA", "TopicB", "TopicC")
LEVELS = "1s 2s 5s"
QUEUES = 2


def small_settings(flush: FlushDiskType) -> StoreSettings:
    return msgspec.structs.replace(SMALL, flush_disk_type=flush)


@dataclass
class Promises:
    """What was acknowledged. Keys are unique keys."""

    plain: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Key -> (topic, queue id)."""
    delayed: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """Key -> (topic, queue id, due time)."""
    tried: set[str] = field(default_factory=set)
    """Every key that was ever sent, acknowledged or not."""
    ends: dict[str, int] = field(default_factory=dict)
    """Key -> log position behind its record."""
    body_crcs: dict[str, int] = field(default_factory=dict)
    """Key -> CRC-32 of what was sent."""
    once: dict[str, tuple[Once, int]] = field(default_factory=dict)
    """Key of an acknowledged idempotent send -> which send it was, and the log position of its record."""
    epochs: dict[str, list[int]] = field(default_factory=dict)
    """Scope -> every epoch that was ever tried."""

    def up_to(self, end: int) -> Promises:
        """What may be asked for when only the log below `end` was synced."""
        return Promises(
            {key: place for key, place in self.plain.items() if self.ends[key] <= end},
            {key: place for key, place in self.delayed.items() if self.ends[key] <= end},
            self.tried,
            self.ends,
            self.body_crcs,
            {key: sent for key, sent in self.once.items() if self.ends[key] <= end},
            self.epochs,
        )


class Running:
    """An open store with its delay levels and its memory of idempotent sends."""

    def __init__(self, root: Path, files: Files, clock: ManualClock, flush: FlushDiskType) -> None:
        self.clock = clock
        self.flush = flush
        self.worker = SteppedWorker()
        config = root / "config"
        files.make_dirs(config)
        levels = DelayLevels.parse(LEVELS)
        self.history = LevelHistory.load(ConfigFile(files, config / HISTORY_FILE), levels, clock.now_ms())
        self.release = LevelRelease(
            clock, self.history.due_time, LevelOffsets(ConfigFile(files, config / OFFSETS_FILE), clock)
        )
        self.levels = levels
        self.idempotence = Idempotence(files, root, clock, shorten_from_bytes=1_000)
        self.store: MessageStore = open_store(
            root,
            small_settings(flush),
            files,
            clock,
            notify=lambda call: call(),
            due_time=self.history.due_time,
            derived=[self.release, self.idempotence],
            worker=self.worker,
        )
        self.history.keep()
        self.release.attach(self.store)

    def run_due(self) -> None:
        self.store.run_due(self.clock.monotonic_ns())
        self.store.commit()

    def settle(self, ms: int) -> None:
        """Let time pass in small steps, with all work done at every step."""
        for _ in range(0, ms, 250):
            self.clock.advance(250)
            for _ in range(4):
                self.run_due()
                self.worker.close()

    def die(self) -> None:
        """What the kernel does for a killed process: its lock is dropped."""
        close_as_killed(self.store)


class Life:
    """A broker that sends messages to itself until something stops it."""

    def __init__(
        self,
        root: Path,
        files: Files,
        seed: int | str,
        flush: FlushDiskType,
        promises: Promises | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.clock = clock or ManualClock(START_MS)
        self.promises = promises if promises is not None else Promises()
        self.sent = 0
        self.refused = 0
        self.repeatable: list[str] = []
        self.running = Running(root, files, self.clock, flush)

    def live(self, turns: int) -> None:
        for _ in range(turns):
            for _ in range(self.rng.randint(0, 4)):
                if self.rng.random() < 0.1:
                    self._repeat()
                self._send()
            self.running.store.commit()
            if self.rng.random() < 0.4:
                self.clock.advance(self.rng.choice((1, 20, 150, 400, 1500)))
            self.running.run_due()
            if self.rng.random() < 0.5:
                self.running.worker.step()

    def _send(self) -> None:
        self.sent += 1
        key = f"{self.seed}-{self.sent}"
        topic, queue_id = self.rng.choice(TOPICS), self.rng.randrange(QUEUES)
        body = self.rng.randbytes(self.rng.choice((0, 1, 10, 100, 900)))
        values = {Property.UNIQ_KEY: key, Property.KEYS: f"k{self.sent % 7}", Property.TAGS: f"tag{self.sent % 3}"}
        once = self._once(topic, values) if self.rng.random() < 0.3 else None
        self.promises.tried.add(key)
        self.promises.body_crcs[key] = zlib.crc32(body)
        store = self.running.store
        if self.rng.random() < 0.4:
            level = self.rng.randint(1, 3)
            due = self.clock.now_ms() + self.running.levels.delay_ms(level)
            values |= {Property.DELAY: str(level), Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id)}
            values[Property.DUE_MS] = str(due)
            message = NewMessage(SCHEDULE_TOPIC, level - 1, body, encode_properties(values), tags_code=due)

            def acknowledge() -> None:
                self.promises.delayed[key] = (topic, queue_id, due)
        else:
            tag = tags_code(values[Property.TAGS])
            message = NewMessage(topic, queue_id, body, encode_properties(values), tags_code=tag)

            def acknowledge() -> None:
                self.promises.plain[key] = (topic, queue_id)

        message.unique_key, message.keys = key, values[Property.KEYS]
        try:
            entry = store.append(message)
        except StoreUnwritableError:
            self.refused += 1
            return
        self.promises.ends[key] = entry.end_offset
        if once is not None:
            self._note(key, once, entry, queue_id)
        store.wait_durable(entry.end_offset, True, lambda status: acknowledge() if status is PutStatus.PUT_OK else None)

    def _once(self, topic: str, values: dict[str, str]) -> Once:
        """Make the message an idempotent send of one of two scopes, whose epochs go on now and then."""
        scope = self.rng.choice(("jobs", "~producer"))
        epochs = self.promises.epochs.setdefault(scope, [0])
        if self.rng.random() < 0.03:
            epochs.append(epochs[-1] + self.rng.randint(1, 3))
        values |= {Property.ONCE_SCOPE: scope, Property.ONCE_EPOCH: str(epochs[-1])}
        once = read_once(topic, values)
        assert once is not None
        if self.running.idempotence.admit([once], self.clock.now_ms()) != [None]:
            raise Broken(f"the first send of {values[Property.UNIQ_KEY]} is taken for a repeat")
        return once

    def _note(self, key: str, once: Once, entry: Dispatched, queue_id: int) -> None:
        idempotence = self.running.idempotence
        idempotence.sent(once, entry, queue_id)
        self.repeatable.append(key)

        def written(status: PutStatus) -> None:
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                idempotence.failed(once, entry, queue_id)

        def told(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                self.promises.once[key] = (once, entry.physical_offset)

        self.running.store.wait_durable(entry.end_offset, False, written)
        self.running.store.wait_durable(entry.end_offset, True, told)

    def _repeat(self) -> None:
        """One of the newest acknowledged idempotent sends is sent again."""
        known = [key for key in self.repeatable[-20:] if key in self.promises.once]
        if known:
            check_repeat(self.running, self.promises, self.rng.choice(known))


class Broken(AssertionError):
    """A promise was not kept."""


def read_everything(running: Running) -> dict[tuple[str, int], list[tuple[str, int, int]]]:
    """(topic, queue) -> (unique key, store timestamp, CRC-32 of the body) of all messages, read as a consumer would."""
    store = running.store
    found: dict[tuple[str, int], list[tuple[str, int, int]]] = {}
    for queue in list(store.queues):
        messages = found.setdefault((queue.topic, queue.queue_id), [])
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.get(queue.topic, queue.queue_id, offset, 32, 1 << 20)
            if result.cold:
                finished: list[object] = []
                store.read_cold(result, finished.append)
                running.worker.close()
                result = finished[0]  # type: ignore[assignment]
            if result.next_offset <= offset:
                raise Broken(f"reading {queue.topic}/{queue.queue_id} stands still at {offset}: {result.status}")
            position = offset
            data = b"".join(bytes(part) for part in result.records)
            at = 0
            while at < len(data):
                record = decode_record(data, at)
                at += record.total_size
                if record.queue_offset != position:
                    raise Broken(f"{queue.topic}/{queue.queue_id}: unit {position} is message {record.queue_offset}")
                position += 1
                key = decode_properties(record.properties).get(Property.UNIQ_KEY, "")
                messages.append((key, record.store_timestamp, zlib.crc32(record.body)))
            if position != result.next_offset:
                raise Broken(
                    f"{queue.topic}/{queue.queue_id}: a message between {position} and {result.next_offset} is missing"
                )
            offset = result.next_offset
    return found


def examine(root: Path, files: Files, promises: Promises, clock: ManualClock, flush: FlushDiskType) -> None:
    """Open what is left, check every promise, let everything fall due, and check again. Raises Broken."""
    running = Running(root, files, clock, flush)
    check_promises(running, promises, all_delivered=False)
    check_index(running)
    check_repeats(running, promises)
    running.settle(8_000)
    check_promises(running, promises, all_delivered=True)
    if running.release.pending_count:
        raise Broken(f"{running.release.pending_count} delayed messages are still pending after everything was due")
    check_index(running)
    running.store.close()

    again = Running(root, files, clock, flush)
    if again.store.report.scanned_records:
        raise Broken(f"after an orderly stop {again.store.report.scanned_records} records were scanned again")
    check_repeats(again, promises)
    again.settle(3_000)
    check_promises(again, promises, all_delivered=True)
    again.store.close()


def check_promises(running: Running, promises: Promises, *, all_delivered: bool) -> None:
    found = read_everything(running)
    places: dict[str, list[tuple[str, int, int]]] = {}
    for (topic, queue_id), messages in found.items():
        if topic in (SCHEDULE_TOPIC, QUARANTINE_TOPIC):
            continue
        for key, stored_at, _ in messages:
            places.setdefault(key, []).append((topic, queue_id, stored_at))
    for messages in found.values():
        for key, _, crc in messages:
            if key not in promises.tried:
                raise Broken(f"message {key!r} was never sent")
            if crc != promises.body_crcs[key]:
                raise Broken(f"message {key} has another body than was sent")
    for key, place in promises.plain.items():
        if [(topic, queue) for topic, queue, _ in places.get(key, [])] != [place]:
            raise Broken(f"acknowledged message {key} should be once in {place}, found {places.get(key)}")
    for key, (topic, queue_id, due) in promises.delayed.items():
        deliveries = places.get(key, [])
        if len(deliveries) > 1 or any(delivery[:2] != (topic, queue_id) for delivery in deliveries):
            raise Broken(f"delayed message {key} for {topic}/{queue_id} was delivered as {deliveries}")
        if any(stored_at < due for _, _, stored_at in deliveries):
            raise Broken(f"delayed message {key} came early: due {due}, {deliveries}")
        if all_delivered and not deliveries:
            raise Broken(f"delayed message {key} was lost")
    if found.get((QUARANTINE_TOPIC, 0)):
        raise Broken(f"messages went to quarantine: {found[QUARANTINE_TOPIC, 0]}")
    check_sources(running)


def check_repeats(running: Running, promises: Promises) -> None:
    """Every acknowledged idempotent send is known, and whatever is known is in the log."""
    for key in promises.once:
        check_repeat(running, promises, key)
    for once, place in remembered(running.idempotence):
        record = running.store.record_at(place.physical_offset)
        if record is None:
            raise Broken(
                f"the send {once} is remembered, but no record is at {place.physical_offset}: a repeat is lost"
            )
        found = decode_record(record)
        entry = dispatched_from_record(found, place.physical_offset, running.history.due_time)
        if once_in_log(entry) != (once, place.queue_id) or found.queue_offset != place.queue_offset:
            raise Broken(f"the send {once} is remembered at {place.physical_offset}, where another record is")


def check_repeat(running: Running, promises: Promises, key: str) -> None:
    once, physical_offset = promises.once[key]
    outdated = sum(epoch > once.epoch for epoch in promises.epochs[once.scope]) >= 2
    try:
        (place,) = running.idempotence.admit([once], running.clock.now_ms())
    except Refusal as refusal:
        if not outdated:
            raise Broken(f"the repeat of {key} is refused: {refusal.remark}") from refusal
        return
    if place is None and outdated and once.scope.startswith(TRANSIENT_PREFIX):
        return  # nobody repeats a send of a transient scope that late: it would be a copy
    if place is None:
        raise Broken(f"the repeat of {key}, {once}, would be stored a second time")
    if place.physical_offset != physical_offset:
        raise Broken(f"the repeat of {key} is told {place}, the first send was told {physical_offset}")


def remembered(idempotence: Idempotence) -> Iterator[tuple[Once, Place]]:
    memory = idempotence.memory
    for name, epoch in memory.live_epochs():
        scope = memory.scope(name)
        keys = scope.keys_of(epoch) if scope is not None else None
        for table in keys.tables if keys is not None else []:
            for digest, place in table.items():
                yield Once(name, epoch, digest), unpack(place)


def check_sources(running: Running) -> None:
    """No source record has two deliveries in the log, and every one comes after its source."""
    sources: Counter[int] = Counter()
    for entry in running.store.scan(running.store.log.start):
        source = source_offset(entry) if entry.prepared_transaction_offset else None
        if source is not None:
            sources[source] += 1
            if source >= entry.physical_offset:
                raise Broken(f"the record at {entry.physical_offset} names a later source {source}")
    twice = [source for source, count in sources.items() if count > 1]
    if twice:
        raise Broken(f"sources delivered twice into the log: {twice}")


def check_index(running: Running) -> None:
    """Every key of every record is found."""
    store = running.store
    for entry in store.scan(store.log.start):
        for key in (entry.unique_key, entry.keys):
            if key is not None and entry.physical_offset not in store.query_by_key(
                entry.topic, key, 100_000, 0, 1 << 62
            ):
                raise Broken(f"key {key!r} of the record at {entry.physical_offset} is not in the index")

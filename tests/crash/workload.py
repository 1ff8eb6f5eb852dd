"""A small broker's life against a store that may die at any call, and the account of what it promised.

`Life` appends messages to several queues, delays some of them, sends some idempotently and repeats those, consumes,
deletes a topic now and then and uses it again, lets time pass, syncs and saves, all driven by one random generator. It
keeps what was acknowledged. `examine` opens what a crash left behind and checks every promise.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tests.crash.readers import Broken, Readers, read_queue
from tests.worlds.little_store import SMALL, SteppedWorker, close_as_killed

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.identity import TRANSIENT_PREFIX, SendIdentity, identity_in_log, read_identity
from orbitmq.broker.idempotence.memory import SentPlace, unpack
from orbitmq.broker.refusal import Refusal
from orbitmq.clock import ManualClock
from orbitmq.errors import StoreUnwritableError
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import QUARANTINE_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, encode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.dispatch import Dispatched, dispatched_from_record
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import Files
from orbitmq.store.message import NewMessage
from orbitmq.store.opening import open_store
from orbitmq.store.reading import is_sound
from orbitmq.store.reserve import Reserve, bytes_to_set_aside
from orbitmq.store.settings import FlushDiskType, StoreSettings
from orbitmq.store.store import MessageStore
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.levels.history import HISTORY_FILE, LevelHistory
from orbitmq.timing.levels.offsets import OFFSETS_FILE, LevelOffsets
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.restoring import source_offset
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.timers.changes import recall, reschedule
from orbitmq.timing.timers.timers import TimerRecord, Timers, TimerSettings, TimerState

START_MS = 1_790_000_000_000
TOPICS = ("TopicA", "TopicB", "TopicC")
LEVELS = "1s 2s 5s"
FRAIL_TOPIC = "TopicD"
"""Deleted and used again; has plain messages only."""
QUEUES = 2
PLACES = tuple((topic, queue_id) for topic in (*TOPICS, FRAIL_TOPIC) for queue_id in range(QUEUES))
TIMER_SETTINGS = TimerSettings(shape=IndexShape(capacity=12, carried=2, small=4))


def small_settings(flush: FlushDiskType) -> StoreSettings:
    return msgspec.structs.replace(SMALL, flush_disk_type=flush)


@dataclass
class Promises:
    """What was acknowledged. Keys are unique keys."""

    plain: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Key -> (topic, queue id)."""
    delayed: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """Key -> (topic, queue id, due time)."""
    recalled: dict[str, int] = field(default_factory=dict)
    """Key of a timer message whose recall was acknowledged -> log position behind that."""
    changing: set[str] = field(default_factory=set)
    """Keys of timer messages whose recall was tried: whether they come is open until it is acknowledged."""
    tried: set[str] = field(default_factory=set)
    """Every key that was ever sent, acknowledged or not."""
    ends: dict[str, int] = field(default_factory=dict)
    """Key -> log position behind its record."""
    body_crcs: dict[str, int] = field(default_factory=dict)
    """Key -> CRC-32 of what was sent."""
    once: dict[str, tuple[SendIdentity, str, int]] = field(default_factory=dict)
    """Key of an acknowledged idempotent send -> which send to which topic it was, and the log position of its record."""
    epochs: dict[str, list[int]] = field(default_factory=dict)
    """Scope -> every epoch that was ever tried."""
    received: set[str] = field(default_factory=set)
    """Every key that the consumers were given."""
    synced_timers: int = 0
    """Queue offset up to which the timers have saved durably what is pending."""

    def up_to(self, end: int) -> Promises:
        """What may be asked for when only the log below `end` was synced."""
        return Promises(
            {key: place for key, place in self.plain.items() if self.ends[key] <= end},
            {key: place for key, place in self.delayed.items() if self.ends[key] <= end},
            {key: position for key, position in self.recalled.items() if position <= end},
            self.changing,
            self.tried,
            self.ends,
            self.body_crcs,
            {key: sent for key, sent in self.once.items() if self.ends[key] <= end},
            self.epochs,
            self.received,
            self.synced_timers,
        )


class Running:
    """An open store with its delay levels and its memory of idempotent sends."""

    def __init__(self, root: Path, files: Files, clock: ManualClock, flush: FlushDiskType) -> None:
        self.clock = clock
        self.flush = flush
        self.worker = SteppedWorker()
        config = root / "config"
        log_files, settings = files, small_settings(flush)
        reserve = Reserve(log_files, root, bytes_to_set_aside(settings.mapped_file_size_commit_log))
        files = reserve.files
        files.make_dirs(config)
        levels = DelayLevels.parse(LEVELS)
        self.history = LevelHistory.load(ConfigFile(files, config / HISTORY_FILE), levels, clock.now_ms())
        self.release = LevelRelease(
            clock, self.history.due_time, LevelOffsets(ConfigFile(files, config / OFFSETS_FILE), clock)
        )
        self.levels = levels
        self.idempotence = Idempotence(files, root, clock, shorten_from_bytes=1_000)
        exchange = TimerExchange(files, root, 1_000, 1_000, log_file_bytes=52 * 40 + 16, slot_count=4_096)
        self.timers = Timers(files, root, clock, TIMER_SETTINGS, exchange)
        self.timers._ledger.shorten_from_bytes = 1_000
        self.store: MessageStore = open_store(
            root,
            settings,
            log_files,
            clock,
            notify=lambda call: call(),
            due_time=self.history.due_time,
            derived=[self.release, self.idempotence, self.timers],
            worker=self.worker,
            reserve=reserve,
        )
        try:
            self.history.keep()
            missing, pending = self.timers.index.parts.missing, self.timers.pending
            self.missing = [offset for offset in pending.offsets() if missing.overlaps(offset, offset + 1)]
            """Queue offsets of pending timer records that this start has to read, because the files of the index do not know them."""
            self.release.attach(self.store)
            self.timers.attach(self.store)
            self.readers = Readers(
                root, files, clock, self.store, self.worker, lambda topic, queue_id: (topic, queue_id) in PLACES
            )
        except BaseException:
            self.die()
            raise

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

    def stop(self) -> None:
        """The orderly stop."""
        self.readers.table.save()
        self.timers.hand_over()
        self.store.close()
        self.timers.close()

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
        self.timed: list[str] = []
        """Keys of acknowledged timer messages."""
        self.deletions = 0
        self.places: dict[str, int] = {}
        """Key -> queue offset of its record in the timer topic."""
        self.running = Running(root, files, self.clock, flush)

    def live(self, turns: int) -> None:
        for _ in range(turns):
            for _ in range(self.rng.randint(0, 4)):
                if self.rng.random() < 0.1:
                    self._repeat()
                if self.rng.random() < 0.15:
                    self._change()
                self._send()
            self.running.store.commit()
            if self.rng.random() < 0.5:
                self._consume()
            if self.rng.random() < 0.02:
                self._delete()
            if self.rng.random() < 0.4:
                self.clock.advance(self.rng.choice((1, 20, 150, 400, 1500)))
            self.running.run_due()
            if self.rng.random() < 0.5:
                self.running.worker.step()

    def _consume(self) -> None:
        """The consumers take what one queue has, and now and then their offsets are saved."""
        self.running.readers.read(*self.rng.choice(PLACES), self.promises.received)
        if self.rng.random() < 0.2:
            self.running.readers.save()

    def _delete(self) -> None:
        """Delete the frail topic, in the order of the broker: what was sent to it may be there or not from now on."""
        self.deletions += 1
        # What a power failure brings back of it need not be given to consumers of the new topic.
        self.promises.received.update(key for key, place in self.promises.plain.items() if place[0] == FRAIL_TOPIC)
        self.promises.plain = {key: place for key, place in self.promises.plain.items() if place[0] != FRAIL_TOPIC}
        table = self.running.readers.table
        table.drop_topic(FRAIL_TOPIC)
        with suppress(OSError):
            table.save()
            self.running.store.delete_topic(FRAIL_TOPIC)

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
        draw = self.rng.random()
        if draw < 0.3:
            due = self.clock.now_ms() + self.rng.randint(1, 6_000)
            values |= {Property.TIMER_DELIVER_MS: str(due), Property.TIMER_OUT_MS: str(slot_time(due, 1_000))}
            values |= {Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id), Property.DUE_MS: str(due)}
            message = NewMessage(
                TIMER_TOPIC, 0, body, encode_properties(values), tags_code=tags_code(values[Property.TAGS])
            )

            def acknowledge() -> None:
                self.promises.delayed[key] = (topic, queue_id, due)
                self.timed.append(key)
        elif draw < 0.5:
            level = self.rng.randint(1, 3)
            due = self.clock.now_ms() + self.running.levels.delay_ms(level)
            values |= {Property.DELAY: str(level), Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id)}
            values[Property.DUE_MS] = str(due)
            message = NewMessage(SCHEDULE_TOPIC, level - 1, body, encode_properties(values), tags_code=due)

            def acknowledge() -> None:
                self.promises.delayed[key] = (topic, queue_id, due)
        else:
            tag = tags_code(values[Property.TAGS])
            deletions = self.deletions
            if once is None and self.rng.random() < 0.25:
                topic = FRAIL_TOPIC
            message = NewMessage(topic, queue_id, body, encode_properties(values), tags_code=tag)

            def acknowledge() -> None:
                if topic != FRAIL_TOPIC or self.deletions == deletions:
                    self.promises.plain[key] = (topic, queue_id)

        message.unique_key, message.keys = key, values[Property.KEYS]
        try:
            entry = store.append(message)
        except StoreUnwritableError:
            self.refused += 1
            return
        self.promises.ends[key] = entry.end_offset
        if entry.topic == TIMER_TOPIC:
            self.places[key] = entry.queue_offset
        if once is not None:
            self._note(key, once, topic, entry, queue_id)
        store.wait_durable(entry.end_offset, True, lambda status: acknowledge() if status is PutStatus.PUT_OK else None)

    def _once(self, topic: str, values: dict[str, str]) -> SendIdentity:
        """Make the message an idempotent send of one of two scopes, whose epochs go on now and then."""
        scope = self.rng.choice(("jobs", "~producer"))
        epochs = self.promises.epochs.setdefault(scope, [0])
        if self.rng.random() < 0.03:
            epochs.append(epochs[-1] + self.rng.randint(1, 3))
        values |= {Property.ONCE_SCOPE: scope, Property.ONCE_EPOCH: str(epochs[-1])}
        once = read_identity(topic, values)
        assert once is not None
        if self.running.idempotence.admit([once], topic, self.clock.now_ms()) != [None]:
            raise Broken(f"the first send of {values[Property.UNIQ_KEY]} is taken for a repeat")
        return once

    def _note(self, key: str, once: SendIdentity, topic: str, entry: Dispatched, queue_id: int) -> None:
        idempotence = self.running.idempotence
        idempotence.sent(once, entry, queue_id)
        self.repeatable.append(key)

        def written(status: PutStatus) -> None:
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                idempotence.failed(once, entry, queue_id)

        def told(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                self.promises.once[key] = (once, topic, entry.physical_offset)

        self.running.store.wait_durable(entry.end_offset, False, written)
        self.running.store.wait_durable(entry.end_offset, True, told)

    def _repeat(self) -> None:
        """One of the newest acknowledged idempotent sends is sent again."""
        known = [key for key in self.repeatable[-20:] if key in self.promises.once]
        if known:
            check_repeat(self.running, self.promises, self.rng.choice(known))

    def _change(self) -> None:
        """One of the newest acknowledged timer messages is recalled, or moved to another time."""
        if not self.timed:
            return
        key = self.rng.choice(self.timed[-20:])
        timers, place = self.running.timers, self.places[key]
        if timers.state_of(place) is not TimerState.PENDING:
            return
        source = timers.read(place)
        if source is None:
            raise Broken(f"the record of pending message {key} cannot be read")
        if self.rng.random() < 0.5:
            self._recall(key, source)
        else:
            self._reschedule(key, source)

    def _recall(self, key: str, source: TimerRecord) -> None:
        promises, store = self.promises, self.running.store
        promises.changing.add(key)

        def told(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                promises.recalled[key] = store.log.written_end

        with suppress(StoreUnwritableError):
            self.running.timers.change(source, recall(source.record, self.clock.now_ms()), wait=True, on_done=told)

    def _reschedule(self, key: str, source: TimerRecord) -> None:
        """A crash may take the change: neither time is too early then."""
        promises, store, now_ms = self.promises, self.running.store, self.clock.now_ms()
        due = now_ms + self.rng.randint(1, 6_000)
        messages = reschedule(source.record, due, now_ms, 1_000, fresh_key=f"{self.seed}-{self.sent}-{due}-fresh")
        topic, queue_id, before = promises.delayed[key]
        promises.delayed[key] = (topic, queue_id, min(before, due))
        try:
            next_offset = store.queues.for_append(TIMER_TOPIC, 0).next_offset
            self.running.timers.change(source, messages, wait=True, on_done=lambda status: None)
        except StoreUnwritableError:
            return
        self.places[key] = next_offset


def read_everything(running: Running) -> dict[tuple[str, int], list[tuple[str, int, int]]]:
    """(topic, queue) -> (unique key, store timestamp, CRC-32 of the body) of all messages, read as a consumer would."""
    found: dict[tuple[str, int], list[tuple[str, int, int]]] = {}
    for queue in list(running.store.queues):
        place = queue.topic, queue.queue_id
        found[place] = list(read_queue(running.store, running.worker, *place, queue.min_offset))
    return found


def examine(root: Path, files: Files, promises: Promises, clock: ManualClock, flush: FlushDiskType) -> None:
    """Open what is left, check every promise, let everything fall due, and check again. Raises Broken."""
    running = Running(root, files, clock, flush)
    check_promises(running, promises, all_delivered=False)
    check_index(running)
    check_repeats(running, promises)
    check_pending(running)
    check_collected(running, promises)
    check_entries(running)
    running.readers.check()
    send_more(running, promises)
    check_entries(running)
    running.settle(8_000)
    check_promises(running, promises, all_delivered=True)
    if running.release.pending_count:
        raise Broken(f"{running.release.pending_count} delayed messages are still pending after everything was due")
    if running.timers.pending_count:
        raise Broken(f"{running.timers.pending_count} timer messages are still pending after everything was due")
    check_index(running)
    check_pending(running)
    check_received(running, promises)
    running.stop()

    again = Running(root, files, clock, flush)
    if again.store.report.scanned_records:
        raise Broken(f"after an orderly stop {again.store.report.scanned_records} records were scanned again")
    check_repeats(again, promises)
    again.settle(3_000)
    check_promises(again, promises, all_delivered=True)
    check_received(again, promises)
    again.stop()


def send_more(running: Running, promises: Promises) -> None:
    """A few messages right behind what was recovered: they get the log positions and the numbers of what was lost."""
    for number in range(12):
        key, due = f"more-{number}", running.clock.now_ms() + 500 + 90 * number
        values = {Property.UNIQ_KEY: key, Property.TIMER_DELIVER_MS: str(due), Property.DUE_MS: str(due)}
        values |= {
            Property.TIMER_OUT_MS: str(slot_time(due, 1_000)),
            Property.REAL_TOPIC: "TopicA",
            Property.REAL_QID: "0",
        }
        message = NewMessage(TIMER_TOPIC, 0, b"more", encode_properties(values), unique_key=key)
        placed = running.store.append(message)
        promises.tried.add(key)
        promises.body_crcs[key] = zlib.crc32(b"more")
        promises.ends[key] = placed.end_offset
        promises.delayed[key] = ("TopicA", 0, due)
    for number in range(40):
        key, (topic, queue_id) = f"next-{number}", PLACES[number % len(PLACES)]
        message = NewMessage(topic, queue_id, b"next", encode_properties({Property.UNIQ_KEY: key}), unique_key=key)
        promises.ends[key] = running.store.append(message).end_offset
        promises.tried.add(key)
        promises.body_crcs[key] = zlib.crc32(b"next")
        promises.plain[key] = (topic, queue_id)
    running.store.commit()
    running.worker.close()


def check_received(running: Running, promises: Promises) -> None:
    """Consumers that go on from the saved offsets have been given every message there is."""
    for place in PLACES:
        running.readers.read(*place, promises.received)
    running.readers.check()
    for place, messages in read_everything(running).items():
        skipped = [key for key, _, _ in messages if key not in promises.received] if place in PLACES else []
        if skipped:
            raise Broken(f"the consumers of {place} were never given {skipped}")


def check_promises(running: Running, promises: Promises, *, all_delivered: bool) -> None:
    found = read_everything(running)
    places: dict[str, list[tuple[str, int, int]]] = {}
    for (topic, queue_id), messages in found.items():
        if topic in (SCHEDULE_TOPIC, QUARANTINE_TOPIC, TIMER_TOPIC):
            continue
        for key, stored_at, _ in messages:
            places.setdefault(key, []).append((topic, queue_id, stored_at))
    for (topic, _), messages in found.items():
        for key, _, crc in messages if topic != TIMER_TOPIC else ():
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
        if deliveries and key in promises.recalled:
            raise Broken(f"timer message {key} was delivered although its recall was acknowledged: {deliveries}")
        if all_delivered and not deliveries and key not in promises.changing:
            raise Broken(f"delayed message {key} was lost")
    if found.get((QUARANTINE_TOPIC, 0)):
        raise Broken(f"messages went to quarantine: {found[QUARANTINE_TOPIC, 0]}")
    check_sources(running)


def check_pending(running: Running) -> None:
    """Exactly those timer records are pending that no later record names: the log is the judge."""
    waiting: dict[int, int] = {}
    for entry in running.store.scan(running.store.log.start):
        source = source_offset(entry) if entry.prepared_transaction_offset else None
        if source is not None:
            waiting.pop(source, None)
        if entry.topic == TIMER_TOPIC and Property.TIMER_DEL_UNIQKEY.encode() not in entry.properties:
            waiting[entry.physical_offset] = entry.queue_offset
    timers = running.timers
    pending = {place for place in waiting.values() if timers.state_of(place) is not TimerState.GONE}
    if pending != set(waiting.values()) or timers.pending_count != len(waiting):
        raise Broken(
            f"by the log {sorted(waiting.values())} are pending, {timers.pending_count} of them: {sorted(pending)}"
        )


def check_collected(running: Running, promises: Promises) -> None:
    """No start reads records for what was durable. What else the index knew may be gone with the end of the log."""
    timers = running.timers
    collected = [*timers._recovery.made_again, *(one for one in running.missing if one < promises.synced_timers)]
    if collected or timers.index.parts.trouble_count:
        raise Broken(f"collected again: {collected}, {timers.index.parts.trouble_count} runs are damaged")


def check_entries(running: Running) -> None:
    """Every pending record stands in one part of the index."""
    timers = running.timers
    if timers.index.parts.missing:
        raise Broken(f"the index does not know {timers.index.parts.missing.ranges}")
    entries = Counter(
        queue_offset for part in timers.index.parts.sources() for _, queue_offset in part.by_due(None, 0, None)
    )
    for queue_offset in timers.pending.offsets():
        if entries[queue_offset] != 1:
            raise Broken(f"timer record {queue_offset} stands in the index {entries[queue_offset]} times")


def check_repeats(running: Running, promises: Promises) -> None:
    """Every acknowledged idempotent send is known, and whatever is known is in the log."""
    for key in promises.once:
        check_repeat(running, promises, key)
    for once, place in remembered(running.idempotence):
        record = running.store.log.record(place.physical_offset)  # from the disk, if need be
        if record is None or not is_sound(record, place.physical_offset):
            raise Broken(
                f"the send {once} is remembered, but no record is at {place.physical_offset}: a repeat is lost"
            )
        found = decode_record(record)
        entry = dispatched_from_record(found, place.physical_offset, running.history.due_time)
        if identity_in_log(entry) != (once, place.queue_id) or found.queue_offset != place.queue_offset:
            raise Broken(f"the send {once} is remembered at {place.physical_offset}, where another record is")


def check_repeat(running: Running, promises: Promises, key: str) -> None:
    once, topic, physical_offset = promises.once[key]
    outdated = sum(epoch > once.epoch for epoch in promises.epochs[once.scope]) >= 2
    try:
        (place,) = running.idempotence.admit([once], topic, running.clock.now_ms())
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


def remembered(idempotence: Idempotence) -> Iterator[tuple[SendIdentity, SentPlace]]:
    memory = idempotence.memory
    for name, epoch in memory.live_epochs():
        scope = memory.scope(name)
        keys = scope.keys_of(epoch) if scope is not None else None
        for digest, place in keys.items() if keys is not None else []:
            yield SendIdentity(name, epoch, digest), unpack(place)


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
    found: dict[tuple[str, str], set[int]] = {}
    for entry in store.scan(store.log.start):
        for key in (entry.unique_key, entry.keys):
            if key is None:
                continue
            if (entry.topic, key) not in found:
                found[entry.topic, key] = set(store.query_by_key(entry.topic, key, 100_000, 0, 1 << 62))
            if entry.physical_offset not in found[entry.topic, key]:
                raise Broken(f"key {key!r} of the record at {entry.physical_offset} is not in the index")

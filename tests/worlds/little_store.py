"""A store for tests: files of a few kilobytes, a clock that moves when told to, and file work that runs when told to.

Rules of this file
1. Nothing sleeps and nothing runs in the background: `turn`, `advance` and `worker.step` are all that happens.
2. `kill` ends the store as the kernel ends a killed process: nothing is saved, the lock is free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.clock import ManualClock
from orbitmq.errors import JobRefusedError
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.records import Record, iter_records
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import Files, OsFiles
from orbitmq.store.message import NewMessage
from orbitmq.store.opening import open_store
from orbitmq.store.reading import GetResult
from orbitmq.store.reads import ReadProblem, RecordsNotInMemory
from orbitmq.store.settings import StoreSettings
from orbitmq.store.store import MessageStore
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.levels.history import HISTORY_FILE, LevelHistory
from orbitmq.timing.levels.offsets import OFFSETS_FILE, LevelOffsets
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.timers.timers import Timers, TimerSettings

T = TypeVar("T")

SMALL = StoreSettings(
    mapped_file_size_commit_log=16 * 1024,
    mapped_file_size_consume_queue=20 * 40,
    max_hash_slot_num=50,
    max_index_num=120,
    max_message_size=4096,
)
"""File sizes that make everything roll within a few dozen messages."""

SMALL_TIMERS = TimerSettings()

LITTLE_WHEEL: Final = {"roll_window_slots": 7_200, "log_file_bytes": 52 * 20 + 16, "slot_count": 20_000}
"""A wheel of five hours, of which two are in use, and a timer log of twenty units a file."""


def close_as_killed(store: MessageStore) -> None:
    """Close all files of a store and drop its lock without writing anything, as the kernel does for a killed process."""
    if store.index is not None:
        for file in store.index.index_files:
            file.close()
    for queue in store.queues:
        queue.close()
    for derived in store._derived:
        if isinstance(derived, Timers):
            derived.abandon()
        elif isinstance(derived, Idempotence):
            derived.close()
    store.log.close()
    store._saving.release()


def _refuse() -> None:
    raise JobRefusedError("no place for the job")


class SteppedWorker:
    """A worker that runs a job only when told to, so that a test decides what overlaps."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.is_full = False
        """While true, what is submitted is refused; the next steps say so."""

    def submit(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        self.jobs.append((_refuse if self.is_full else job, done))

    def step(self) -> bool:
        """Run the oldest job; False when there is none."""
        if not self.jobs:
            return False
        job, done = self.jobs.pop(0)
        result: Any
        try:
            result = job()
        except Exception as error:
            result = error
        done(result)
        return True

    def close(self) -> None:
        """Run everything that was submitted."""
        while self.step():
            pass


class LittleStore:
    """An open store with its delay levels, its timers and its memory of idempotent sends, and short ways to use them."""

    def __init__(
        self,
        root: Path,
        *,
        files: Files | None = None,
        clock: ManualClock | None = None,
        levels: str = "1s 2s 5s",
        settings: StoreSettings = SMALL,
        timers: TimerSettings = SMALL_TIMERS,
        index: IndexShape | None = None,
        wheel: Mapping[str, int] = LITTLE_WHEEL,
        **changes: Any,
    ) -> None:
        self.root = root
        self.files = files or OsFiles()
        self.clock = clock or ManualClock()
        self.worker = SteppedWorker()
        self.levels = DelayLevels.parse(levels)
        self.statuses: list[PutStatus] = []
        """What `send` was told, in order."""
        config = root / "config"
        self.files.make_dirs(config)
        history = LevelHistory.load(ConfigFile(self.files, config / HISTORY_FILE), self.levels, self.clock.now_ms())
        self.offsets_file = ConfigFile(self.files, config / OFFSETS_FILE)
        self.release = LevelRelease(self.clock, history.due_time, LevelOffsets(self.offsets_file, self.clock))
        self.idempotence = Idempotence(self.files, root, self.clock)
        self.precision_ms = timers.precision_ms
        if index is not None:
            timers = msgspec.structs.replace(timers, shape=index)
        self.exchange = TimerExchange(self.files, root, timers.precision_ms, **wheel)
        self.timers = Timers(self.files, root, self.clock, timers, self.exchange)
        self.timer_index = self.timers.index
        self.store = open_store(
            root,
            msgspec.structs.replace(settings, **changes),
            self.files,
            self.clock,
            notify=lambda call: call(),
            due_time=history.due_time,
            derived=[self.release, self.idempotence, self.timers],
            worker=self.worker,
        )
        try:
            history.keep()
            self.release.attach(self.store)
            self.timers.attach(self.store)
        except BaseException:
            self.kill()
            raise

    # --- writing ----------------------------------------------------------------------------------------------------

    def message(
        self,
        topic: str = "Topic",
        queue_id: int = 0,
        body: bytes = b"body",
        *,
        level: int = 0,
        after_ms: int | None = None,
        **properties: str,
    ) -> NewMessage:
        """A message, re-addressed as admission does when it has a delay level, or is due after some time."""
        values = dict(properties)
        tag = values.get(Property.TAGS)
        code = tags_code(tag) if tag else 0
        if level:
            code = self.clock.now_ms() + self.levels.delay_ms(level)
            values |= {Property.DELAY: str(level), Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id)}
            values[Property.DUE_MS] = str(code)
            topic, queue_id = SCHEDULE_TOPIC, level - 1
        elif after_ms is not None:
            due_ms = self.clock.now_ms() + after_ms
            values[Property.TIMER_DELIVER_MS] = str(due_ms)
            values[Property.TIMER_OUT_MS] = str(slot_time(due_ms, self.precision_ms))
            values |= {Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id), Property.DUE_MS: str(due_ms)}
            topic, queue_id = TIMER_TOPIC, 0
        return NewMessage(
            topic,
            queue_id,
            body,
            encode_properties(values),
            tags_code=code,
            unique_key=values.get(Property.UNIQ_KEY),
            keys=values.get(Property.KEYS),
        )

    def append(self, *args: Any, **properties: Any) -> Dispatched:
        """Append a `message`; the next `turn` writes it."""
        placed = self.store.append(self.message(*args, **properties))
        self.store.wait_durable(placed.end_offset, True, self.statuses.append)
        return placed

    def send(self, *args: Any, **properties: Any) -> Dispatched:
        """Append a `message` and end the turn."""
        placed = self.append(*args, **properties)
        self.store.commit()
        return placed

    def log_bytes(self, begin: int = 0, end: int | None = None) -> bytes:
        """What the log holds from one position to another, or to its end."""
        log = self.store.log
        found, position = b"", begin
        end = log.written_end if end is None else end
        while position < end:
            segment = log.sequence.find(position)
            assert segment is not None
            size = min(end, segment.end) - position
            found += segment.read(position, size)
            position += size
        return found

    # --- time -------------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """One turn of the event loop: what is due runs, then everything is written."""
        self.store.run_due(self.clock.monotonic_ns())
        self.store.commit()

    def advance(self, ms: int) -> None:
        """Let time pass; then everything there is to do is done."""
        self.clock.advance(ms)
        for _ in range(6):
            self.turn()
            self.worker.close()

    def settle(self) -> None:
        """Everything that can be done at this moment."""
        for _ in range(500):
            self.turn()
            self.worker.close()
            next_ns = self.store.deadlines.next_ns
            if next_ns is None or next_ns > self.clock.monotonic_ns():
                return

    def pass_time(self, ms: int) -> None:
        """`settle` at a later moment."""
        self.clock.advance(ms)
        self.settle()

    # --- reading ----------------------------------------------------------------------------------------------------

    def get(self, topic: str = "Topic", queue_id: int = 0, offset: int = 0, count: int = 1000) -> GetResult:
        """One read; cold records are fetched."""
        result = self.store.get(topic, queue_id, offset, count, 1 << 24)
        if result.cold:
            finished: list[GetResult | ReadProblem] = []
            self.store.read_cold(result, finished.append)
            self.worker.close()
            (read,) = finished
            if not isinstance(read, GetResult):
                raise read
            return read
        return result

    def asked(self, question: Callable[[], T]) -> T:
        """The answer of the store to something that may need old records, which are fetched as the broker does."""
        found: list[T | Exception] = []

        def ask() -> None:
            try:
                found.append(question())
            except RecordsNotInMemory as missing:
                self.store.fetch(missing, ask)
            except Exception as error:
                found.append(error)

        ask()
        self.worker.close()
        (answer,) = found
        if isinstance(answer, Exception):
            raise answer
        return answer

    def records(self, topic: str = "Topic", queue_id: int = 0) -> list[Record]:
        """Every record of a queue, as a consumer reads them."""
        found: list[Record] = []
        offset = self.store.min_offset(topic, queue_id)
        while offset < self.store.max_offset(topic, queue_id):
            result = self.get(topic, queue_id, offset)
            if result.next_offset <= offset:
                raise AssertionError(f"reading {topic}/{queue_id} stands still at {offset}: {result.status}")
            found += iter_records(b"".join(bytes(part) for part in result.records))
            offset = result.next_offset
        return found

    def bodies(self, topic: str = "Topic", queue_id: int = 0) -> list[bytes]:
        return [bytes(record.body) for record in self.records(topic, queue_id)]

    def properties(self, topic: str = "Topic", queue_id: int = 0) -> list[dict[str, str]]:
        return [decode_properties(record.properties) for record in self.records(topic, queue_id)]

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The orderly stop."""
        self.timers.hand_over()
        self.store.close()

    def kill(self) -> None:
        close_as_killed(self.store)

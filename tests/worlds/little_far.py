"""A far tier for tests: a small store, files written in this process, time and work that move when told to.

Rules of this file
1. Nothing sleeps and nothing runs in the background: `advance`, `work` and `step` are all that happens.
2. `kill` ends the store as the kernel ends a killed process, in the middle of whatever is under way.
3. What reached the wheel is what stands in its topic; nothing of the wheel itself is here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.worlds.little_store import SMALL, SteppedWorker

from orbitmq.clock import ManualClock
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import FAR_TIMER_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import Files, OsFiles
from orbitmq.store.message import NewMessage
from orbitmq.store.opening import open_store
from orbitmq.store.settings import StoreSettings
from orbitmq.store.writability import COPY
from orbitmq.timing.far.changes import noted_message, recall_message
from orbitmq.timing.far.far_timers import FarStatus, FarTimers
from orbitmq.timing.far.process import Helper, Helpers
from orbitmq.timing.far.queries import FarPage, FarRecord
from orbitmq.timing.far.tier import FarQuery, FarTierError, Tier
from orbitmq.timing.timers.changes import reschedule

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ROUNDS_MAX = 2_000
"""Rounds of work after which something must be going in circles."""


class LittleFar:
    """An open store with a far tier, and short ways to use both."""

    def __init__(
        self,
        root: Path,
        tier: Tier | None,
        *,
        files: Files | None = None,
        clock: ManualClock | None = None,
        settings: StoreSettings = SMALL,
        horizon_ms: int = 3 * DAY_MS,
        second_tier: Tier | None = None,
        leads: bool = True,
        **changes: Any,
    ) -> None:
        """Unless it `leads` it only copies another one's log (`copy`)."""
        self.clock = clock or ManualClock()
        self.worker, self.far_worker, self.second_worker = SteppedWorker(), SteppedWorker(), SteppedWorker()
        self.tier = tier
        second = Helper(self.clock, second_tier, self.second_worker) if second_tier is not None else None
        helpers = Helpers(Helper(self.clock, tier, self.far_worker), second) if tier is not None else None
        self.far = FarTimers(files or OsFiles(), root, self.clock, helpers, horizon_ms=horizon_ms)
        self.store = open_store(
            root,
            msgspec.structs.replace(settings, **changes),
            files or OsFiles(),
            self.clock,
            notify=lambda call: call(),
            derived=[self.far],
            worker=self.worker,
        )
        self.far.begin(self.store)
        if leads:
            self.far.attach(self.store)
        else:
            self.store.only_copy("it copies")

    # --- copying ----------------------------------------------------------------------------------------------------

    def copy(self, leader: LittleFar) -> None:
        """Take everything that the leader's log has more."""
        theirs, own = leader.store.log, self.store.begin_raw()
        at = max(own, theirs.start) if self.store.log.sequence.segments else theirs.start
        while at < theirs.written_end:
            segment = theirs.sequence.find(at)
            assert segment is not None
            end = min(segment.end, theirs.written_end)
            data = theirs.read_written(at, end - at)
            assert data is not None
            self.store.append_raw(at, data)
            at = end
        self.store.commit()

    def lead(self) -> None:
        """It becomes the leader."""
        self.store.begin_raw()
        self.store.allow(COPY)
        self.far.attach(self.store)

    def save(self) -> None:
        """Everything is durable."""
        saved: list[bool] = []
        self.store.save_durably(saved.append)
        while not saved:
            self.clock.advance(1)
            self.step()
        assert saved == [True]

    def remove_log(self, count: int) -> None:
        """Retention: the oldest files of the log go, as far as nothing in them is needed here."""
        self.save()
        needed, segments = self.far.lowest_needed(), self.store.log.sequence.segments[:-1]
        count = min(count, sum(needed is None or segment.end <= needed for segment in segments))
        if count:
            self.store.remove_paths(self.store.drop_first_segments(count))

    # --- writing ----------------------------------------------------------------------------------------------------

    def send(self, deliver_ms: int, body: bytes = b"body", *, topic: str = "Topic", **properties: str) -> Dispatched:
        """A far message, as admission stores it; the turn ends with it."""
        values = dict(properties) | {
            Property.REAL_TOPIC: topic,
            Property.REAL_QID: "1",
            Property.DUE_MS: str(deliver_ms),
        }
        tag = values.get(Property.TAGS)
        placed = self.store.append(
            NewMessage(
                FAR_TIMER_TOPIC,
                0,
                body,
                encode_properties(values),
                tags_code=tags_code(tag) if tag else 0,
                unique_key=values.get(Property.UNIQ_KEY),
                keys=values.get(Property.KEYS),
                born_timestamp=self.clock.now_ms(),
            )
        )
        self.store.commit()
        return placed

    def recall(self, found: FarRecord) -> PutStatus | None:
        """None when it is not pending any more."""
        return self._change(found, recall_message(found.record))

    def reschedule(self, found: FarRecord, deliver_ms: int) -> PutStatus | None:
        """`found` needs its body."""
        record, now_ms = found.record, self.clock.now_ms()
        topic = FAR_TIMER_TOPIC if self.far.accepts(deliver_ms, now_ms) else TIMER_TOPIC
        messages = reschedule(record, deliver_ms, now_ms, 1_000, topic=topic, fresh_key="F" * 32)
        return self._change(found, noted_message(messages[0], record))

    def _change(self, found: FarRecord, message: NewMessage) -> PutStatus | None:
        if self.far.status(found.source) is not FarStatus.PENDING:
            return None
        told: list[PutStatus] = []
        self.far.change(found.record, [message], wait=False, on_done=told.append)
        self.store.commit()
        return told[0]

    # --- time -------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One turn and one job of each thread; False when there was nothing to do."""
        self.store.run_due(self.clock.monotonic_ns())
        self.store.commit()
        worked = self.worker.step()
        worked = self.second_worker.step() or worked
        return self.far_worker.step() or worked

    def work(self) -> None:
        """Everything that can be done now."""
        quiet = 0
        for _ in range(ROUNDS_MAX):
            quiet = 0 if self.step() or self.far.is_releasing else quiet + 1
            if quiet == 3:
                return
            self.clock.advance(1)
        raise AssertionError("the far tier does not come to rest")

    def advance(self, ms: int) -> None:
        """Let time pass, an hour at a time, and do what there is to do."""
        while ms > 0:
            step_ms = min(ms, HOUR_MS)
            self.clock.advance(step_ms)
            ms -= step_ms
            self.work()

    # --- reading ----------------------------------------------------------------------------------------------------

    def find(self, **query: Any) -> list[FarRecord]:
        """One page."""
        answers: list[FarPage | Exception] = []
        self.far.find(FarQuery(**query), answers.append)
        self._until(lambda: bool(answers))
        (answer,) = answers
        if isinstance(answer, Exception):
            raise answer
        return answer.records

    def find_again(self, message_id: str) -> FarRecord | None:
        """One message by its id, with its body, asked again while the tier does not work; None when it is not there."""
        for _ in range(ROUNDS_MAX):
            try:
                found = self.find(message_id=message_id, bodies=True)
            except FarTierError:
                self.clock.advance(1_000)
            else:
                return found[0] if found else None
        raise AssertionError("the tier does not come back")

    def _until(self, reached: Callable[[], bool]) -> None:
        for _ in range(ROUNDS_MAX):
            if reached():
                return
            self.step()
        raise AssertionError("no answer")

    def records(self, topic: str) -> list[Record]:
        """Every record of queue 0 of a topic that is still in the log."""
        queue = self.store.queues.get(topic, 0)
        if queue is None:
            return []
        views = [self.store.log.record(unit[0]) for unit in queue.scan(queue.min_offset, queue.max_offset)]
        return [decode_record(bytes(view)) for view in views if view is not None]

    def wheel(self) -> list[tuple[int, bytes]]:
        """(due time, body) of everything that ever reached the wheel."""
        return [
            (int(decode_properties(record.properties)[Property.DUE_MS]), record.body)
            for record in self.records(TIMER_TOPIC)
        ]

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The orderly stop."""
        self.store.close()

    def kill(self) -> None:
        """Jobs that were submitted never run."""
        self.worker.jobs.clear()
        self.far_worker.jobs.clear()
        self.second_worker.jobs.clear()
        self.store.abandon()

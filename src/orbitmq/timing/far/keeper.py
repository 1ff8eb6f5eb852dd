"""What the far tier does by itself: promotion into the wheel, landing in files, writing files anew, removing them.

One step at a time, each of the same shape: look, do the work elsewhere, append what came of it to the log, and go on when the log
gives it back. Whatever step is interrupted is begun again from what the log says.

Rules of this file
1. Promotion comes first. Messages that no file holds are promoted from the log, whatever becomes of the tier.
2. A message is appended only while it is pending, and is *leaving* from then until the log says so or the write fails.
3. A tier that cannot be reached is tried again for ever, with growing pauses, and stops nothing else. Damage counts by row group: what
   can be read of a damaged file is written anew, the rest is reported, left out and kept; the next start tries it again.
4. A file is removed when the state that does not need it is durable and its copy lies in the tier, not before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from orbitmq.clock import Clock
from orbitmq.errors import OrbitError, StoreUnwritableError
from orbitmq.limits.far import (
    FAR_ANSWER_MS,
    FAR_COMPACTION_PAUSE_MS,
    FAR_GARBAGE_MS,
    FAR_IDLE_MS,
    FAR_LANDING_AGE_MS,
    FAR_LANDING_BYTES_MAX,
    FAR_LANDING_ROWS_MAX,
    FAR_LOAD_FILE_AGE_MS,
    FAR_LOAD_SWEEP_MS,
    FAR_PROMOTION_BYTES_MAX,
    FAR_PROMOTION_ROWS_MAX,
    FAR_RETRY_MS,
    FAR_RETRY_MS_MAX,
    FAR_SLEEP_MS_MAX,
    FAR_SLICE_ROWS,
)
from orbitmq.protocol.records import Record, decode_record, iter_records
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Worker
from orbitmq.timing.far.buffered import FarUnit
from orbitmq.timing.far.changes import (
    Change,
    Compacted,
    FarFile,
    Indexed,
    Landed,
    Promoted,
    change_message,
    leaving_message,
    source_of_far,
)
from orbitmq.timing.far.damage import Damage
from orbitmq.timing.far.loads import Load, Loading
from orbitmq.timing.far.log_reading import read_units
from orbitmq.timing.far.plan import (
    Horizon,
    compaction,
    landing_is_due,
    landing_name,
    next_promotion,
    waited_ms,
    without_index,
)
from orbitmq.timing.far.spare import SpareHelper
from orbitmq.timing.far.state import Owner
from orbitmq.timing.far.tier import (
    Compaction,
    FarFileDamagedError,
    Rows,
    Salvage,
    Tier,
    refuse_foreign,
    view_of,
)

logger = logging.getLogger("orbitmq.timing")
T = TypeVar("T")

NS_PER_MS: Final = 1_000_000
WAKEUP: Final = "far-timers"
SLICE: Final = "far-timers slice"


class _Batch:
    """Messages on their way from the tier to the wheel, and the mark that follows them."""

    def __init__(
        self, messages: Sequence[tuple[FarUnit | int, Record | None]], mark: Promoted | Compacted | None
    ) -> None:
        self.left = deque(messages)
        self.mark = mark


class FarKeeper:
    """The moving part of the far tier of one store."""

    def __init__(
        self,
        owner: Owner,
        clock: Clock,
        tier: Tier,
        worker: Worker,
        horizon: Horizon,
        precision_ms: int,
        spare: SpareHelper | None,
    ) -> None:
        self._owner = owner
        self._state = owner.held
        self._clock = clock
        self._tier = tier
        self._worker = worker
        self._spare = spare
        self._is_writing = False
        self.horizon = horizon
        self._precision_ms = precision_ms
        self._store: MessageStore | None = None
        self._busy = False
        self._is_to_look = False
        self._closed = False
        self._awaiting: int | None = None
        """Log position of the record that ends the present step."""
        self._batch: _Batch | None = None
        self._opened = False
        self._in_use = False
        self._used_ns = 0
        self._swept_ns = 0
        self._retry_ns = 0
        self._pause_ms = 0
        self._compacted_ns: int | None = None
        self._rotated_ns = clock.monotonic_ns()
        self.questions = 0
        """Look-ups that are under way."""
        self._published = -1
        self._published_ns = clock.monotonic_ns()
        self._compaction_asked = False
        self.leaving: set[int] = set()
        """Source numbers of messages whose timer record is appended and has not come back through the log."""
        self.changing: set[int] = set()
        """Source numbers of messages that are being recalled or rescheduled."""
        self.damage = Damage(owner.held)
        self.loading = Loading()
        self.trouble: str | None = None
        """Why the tier does not work at the moment."""
        self.landed_count = 0
        self.quarantined_count = 0
        self.failure_count = 0
        self.paused = False
        """While true no step is begun. For maintenance and tests."""

    def attach(self, store: MessageStore) -> None:
        self._store = store
        store.deadlines.define(WAKEUP, self.look)
        store.deadlines.define(SLICE, self._slice)
        self.arm()

    def close(self) -> None:
        """End what runs. Its results are not looked at any more."""
        self._closed = True
        self._tier.stop()
        self._worker.close()
        self._tier.stop()
        if self._spare is not None:
            self._spare.close()

    @property
    def is_moving(self) -> bool:
        return self._busy or self._is_to_look or bool(self.leaving) or bool(self.changing)

    @property
    def is_waiting(self) -> bool:
        """Whether the tier failed and is tried again later."""
        return self._clock.monotonic_ns() < self._retry_ns

    def request_compaction(self) -> None:
        """Land and write anew whatever can be."""
        self._compaction_asked = True
        self._compacted_ns = None
        self.arm()

    def request_repair(self) -> None:
        """Get what can be read out of damaged files, put what is known of the rest into quarantine, and give the files up."""
        self.damage.give_up()
        self.arm()

    def arm(self) -> None:
        """Look soon: something changed."""
        if self._store is not None and not self._closed:
            self._is_to_look = True
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns())

    def applied(self, position: int, finished: Sequence[int]) -> None:
        """The log was applied up to `position`, and finished these messages, by their source numbers."""
        self.leaving.difference_update(finished)
        self.changing.difference_update(finished)
        if self._awaiting is not None and position > self._awaiting:
            self._awaiting = None
            self._busy = False
        self.arm()

    # --- what next --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Begin the next step, if there is one; otherwise sleep until there may be."""
        store, self._is_to_look = self._store, False
        if store is None or self._busy or self._closed or self.paused:
            return
        if not store.writes_accepted:
            self._sleep(FAR_RETRY_MS)
            return
        now_ns = self._clock.monotonic_ns()
        if not self.questions and now_ns - self._rotated_ns >= FAR_ANSWER_MS * NS_PER_MS:
            self._state.rotate()
            self._rotated_ns = now_ns
        if not self._begin(store) and not self._busy:
            self._rest()

    def _begin(self, store: MessageStore) -> bool:
        """Begin the most urgent step; False when there is none."""
        state, now_ms = self._state, self._clock.now_ms()
        until_ms = self.horizon.due_until_ms(now_ms)
        earliest_ms = state.buffered.earliest_ms
        if earliest_ms is not None and earliest_ms <= until_ms:
            self._promote_from_log(store, until_ms)
            return True
        if self.is_waiting:
            return False
        sound = [file for file in state.files.values() if self.damage.is_sound(file)]
        step = self._file_step(store, sound, until_ms, now_ms)
        if step is None:
            return False
        if self._opened:
            step()
        else:
            self._call(self._open_tier, lambda _: None)
        return True

    def _file_step(
        self, store: MessageStore, sound: list[FarFile], until_ms: int, now_ms: int
    ) -> Callable[[], None] | None:
        state = self._state
        file = next_promotion(sound, until_ms)
        if file is not None:
            return lambda: self._promote_from_file(file, until_ms)
        damaged = self.damage.next_to_read()
        if damaged is not None:
            return lambda: self._salvage(damaged)
        buffered = state.buffered
        age_ms = waited_ms(state.waiting_since_ms, now_ms)
        asked = self._compaction_asked and buffered.pending_count > 0
        if asked or landing_is_due(buffered.pending_count, buffered.payload_bytes, age_ms):
            return lambda: self._land(store)
        load = self.loading.next(state.jobs)
        if load is not None:
            return lambda: self._load(load)
        manifest, removable, now_ns = self._owner.manifest(), self._owner.removable(), self._clock.monotonic_ns()
        if (
            manifest is not None
            and self._published != self._owner.serial
            and (removable or self._is_time_to_publish(now_ns))
        ):
            serial = self._owner.serial
            return lambda: self._publish(manifest, serial)
        if removable:
            return lambda: self._remove(removable)
        if bare := without_index(sound):
            return lambda: self._index(bare)
        if self._opened and now_ns - self._swept_ns >= FAR_LOAD_SWEEP_MS * NS_PER_MS:
            return lambda: self._call(self._sweep, lambda _: None)
        self.damage.forget_removed()
        if self._compacted_ns is None or now_ns - self._compacted_ns >= FAR_COMPACTION_PAUSE_MS * NS_PER_MS:
            self._compacted_ns = now_ns
            asked, self._compaction_asked = self._compaction_asked, False
            chosen = compaction(sound, state.tombstones.items(), asked=asked, lost_indexes=self.damage.known)
            if chosen:
                return lambda: self._compact(chosen)
        return None

    def _is_time_to_publish(self, now_ns: int) -> bool:
        """At once while the process runs; otherwise it is not started for this alone more often than it would land."""
        return self._in_use or now_ns - self._published_ns >= FAR_LANDING_AGE_MS * NS_PER_MS

    @property
    def is_published(self) -> bool:
        """Whether the copy of the state beside the files says what there is."""
        return self._owner.is_saved and self._published == self._owner.serial

    def _publish(self, manifest: bytes, serial: int) -> None:
        def published(_: None) -> None:
            self._published, self._published_ns = serial, self._clock.monotonic_ns()

        self._call(lambda: self._tier.publish(manifest), published)

    def _rest(self) -> None:
        """Nothing to do now. Wake when there may be, and let an idle process go."""
        state, now_ms = self._state, self._clock.now_ms()
        if self._in_use:
            idle_ms = (self._clock.monotonic_ns() - self._used_ns) // NS_PER_MS
            if idle_ms >= FAR_IDLE_MS:
                self._in_use = False
                self._worker.submit(self._tier.stop, _report_failure)
        waits = [FAR_IDLE_MS] if self._in_use else []
        if self._spare is not None and (spare_ms := self._spare.rest(_report_failure)) is not None:
            waits.append(spare_ms)
        if (next_ms := state.next_sound_ms(self.damage.is_sound)) is not None:
            waits.append(min(max(self.horizon.promotion_ms(next_ms) - now_ms, 1), FAR_SLEEP_MS_MAX))
        if state.waiting_since_ms is not None and state.buffered.pending_count:
            waits.append(max(FAR_LANDING_AGE_MS - waited_ms(state.waiting_since_ms, now_ms), 1))
        if self._owner.has_garbage or (self._in_use and not self.is_published):
            waits.append(FAR_GARBAGE_MS)
        if self.is_waiting:
            waits = [max((self._retry_ns - self._clock.monotonic_ns()) // NS_PER_MS, 1)]
        if waits:
            self._sleep(min(waits))

    def _sleep(self, wait_ms: int) -> None:
        assert self._store is not None
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + wait_ms * NS_PER_MS)

    # --- calls ------------------------------------------------------------------------------------------------------

    def _call(self, job: Callable[[], T], done: Callable[[T], None], *, writes: bool = False) -> None:
        """Run `job`, a call to the tier, elsewhere, then `done` with what it gave. One that `writes` a file takes long."""
        self._busy = self._in_use = True
        self._is_writing = writes
        self._worker.submit(job, lambda result: self._called(result, done))

    def _called(self, result: Any, done: Callable[[Any], None]) -> None:
        self._busy = self._is_writing = False
        self._used_ns = self._clock.monotonic_ns()
        store = self._store
        if self._closed or store is None:
            return
        if isinstance(result, FarFileDamagedError):
            self.damage.note(result.name, str(result))
        elif isinstance(result, BaseException):
            self._failed(result)
        else:
            self._pause_ms = 0
            self.trouble = None
            done(result)
        self.arm()
        store.commit()

    def _failed(self, error: BaseException) -> None:
        self.failure_count += 1
        self._opened = False
        self._pause_ms = min(max(self._pause_ms * 2, FAR_RETRY_MS), FAR_RETRY_MS_MAX)
        self._retry_ns = self._clock.monotonic_ns() + self._pause_ms * NS_PER_MS
        self.trouble = f"{type(error).__name__}: {error}"
        logger.error("the far tier does not work, trying again in %d ms: %s", self._pause_ms, error)

    def _open_tier(self) -> None:
        """Runs on the worker, which touches nothing of the state but what cannot change while this step runs."""
        opened = self._tier.open()
        serial, store_id = self._owner.serial, self._owner.store_id
        refuse_foreign(opened, serial, store_id)
        if serial:
            self._sweep()
        self._opened = True

    def _sweep(self) -> None:
        before_ms = self._clock.now_ms() - FAR_LOAD_FILE_AGE_MS
        removed = self._tier.sweep([*self._state.files, *self._state.index_uses], before_ms)
        if removed:
            logger.info("removed %d files of the far tier that steps without an end had left", len(removed))
        self._swept_ns = self._clock.monotonic_ns()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def ask(self, job: Callable[[Tier], T], done: Callable[[T | BaseException], None]) -> None:
        """Put a question to the tier: to the spare helper while the other one writes a file."""
        self.arm()
        if self._is_writing and self._spare is not None:
            self._spare.ask(job, done)
            return
        self._in_use = True
        self._used_ns = self._clock.monotonic_ns()
        self._worker.submit(lambda: job(self._tier), done)

    # --- promotion --------------------------------------------------------------------------------------------------

    def _promote_from_log(self, store: MessageStore, until_ms: int) -> None:
        units: list[FarUnit] = []
        room = FAR_PROMOTION_BYTES_MAX
        for unit in self._state.buffered.due(until_ms)[:FAR_PROMOTION_ROWS_MAX]:
            room -= unit.size
            if room < 0 and units:
                break
            units.append(unit)
        self._busy = True

        def promote(found: list[tuple[FarUnit, bytes | None]]) -> None:
            messages = [(unit, None if data is None else decode_record(data)) for unit, data in found]
            self._batch = _Batch(messages, None)
            self._slice()

        read_units(store, units, promote, self._give_up, self)

    def _promote_from_file(self, file: FarFile, until_ms: int) -> None:
        def promote(rows: Rows) -> None:
            records = list(iter_records(rows.records))
            self._batch = _Batch(
                [(source_of_far(record), record) for record in records], Promoted(file.name, rows.taken, rows.next_ms)
            )
            self._busy = True
            self._slice()

        view = view_of(file)
        self._call(
            lambda: self._tier.rows(view, until_ms, FAR_PROMOTION_ROWS_MAX, FAR_PROMOTION_BYTES_MAX),
            promote,
        )

    def _slice(self) -> None:
        """Append the next messages of the batch; the mark with the last ones."""
        store, batch = self._store, self._batch
        if store is None or batch is None or self._closed:
            return
        last: Dispatched | None = None
        sources: list[int] = []
        try:
            while batch.left and len(sources) < FAR_SLICE_ROWS:
                place, record = batch.left[0]
                source = place if isinstance(place, int) else place.source
                if source in self.changing:
                    break
                if source not in self.leaving and self._state.is_pending(source):
                    last = self._promote(store, place, record, source)
                    sources.append(source)
                batch.left.popleft()
            if not batch.left and batch.mark is not None:
                last = store.append(change_message(batch.mark), accepted=True)
        except StoreUnwritableError as error:
            logger.warning("promotion from the far tier waits: %s", error)
            self._give_up()
        self.leaving.update(sources)
        if self._batch is not None and not batch.left:
            self._batch = None
            if last is None:
                self._busy = False
                self.arm()
            else:
                self._awaiting = last.physical_offset

        def committed(status: PutStatus) -> None:
            if status is not PutStatus.PUT_OK:
                self.leaving.difference_update(sources)
                self._give_up()
            elif self._batch is not None:
                store.deadlines.arm(SLICE, self._clock.monotonic_ns())

        if last is not None:
            store.wait_durable(last.end_offset, False, committed)
        elif self._batch is not None:  # the next message is being changed: wait for what becomes of it
            store.deadlines.arm(SLICE, self._clock.monotonic_ns() + NS_PER_MS)

    def _promote(self, store: MessageStore, place: FarUnit | int, record: Record | None, source: int) -> Dispatched:
        due = None if isinstance(place, int) else (place.deliver_ms, place.topic)
        message, problem = leaving_message(record, source, due, self._precision_ms)
        if problem:
            logger.error("the far message %d goes to quarantine: %s", source, problem)
            self.quarantined_count += 1
        return store.append(message, accepted=True)

    def _give_up(self) -> None:
        """The present step is begun again later, from what the log says then."""
        self._batch = None
        self._awaiting = None
        self._busy = False
        self._sleep(FAR_RETRY_MS)

    # --- files ------------------------------------------------------------------------------------------------------

    def _note(self, change: Change) -> None:
        """Append a change and let the step end when the log gives it back."""
        store = self._store
        assert store is not None
        self._busy = True
        try:
            entry = store.append(change_message(change), accepted=True)
        except StoreUnwritableError as error:
            logger.warning("a step of the far tier waits: %s", error)
            self._give_up()
            return
        self._awaiting = entry.physical_offset

        def committed(status: PutStatus) -> None:
            if status is not PutStatus.PUT_OK:
                self._give_up()

        store.wait_durable(entry.end_offset, False, committed)

    def _land(self, store: MessageStore) -> None:
        buffered = self._state.buffered
        first, seen = buffered.first, self._owner.position
        units: list[FarUnit] = []
        room = FAR_LANDING_BYTES_MAX
        following = buffered.next_offset
        for unit in buffered.pending():
            room -= unit.size
            if units and (room < 0 or len(units) >= FAR_LANDING_ROWS_MAX):
                following = unit.queue_offset
                break
            units.append(unit)
        self._busy = True

        def land(found: list[tuple[FarUnit, bytes | None]]) -> None:
            records = []
            for unit, data in found:
                if data is None and buffered.is_pending(unit.queue_offset):
                    try:
                        self._promote(store, unit, None, unit.source)
                    except StoreUnwritableError:
                        self._give_up()
                        return
                elif data is not None:
                    records.append(data)
            if not records:
                self._landed(Landed(first, following, seen, None, self._clock.now_ms()))
                return
            blob = b"".join(records)
            self._call(
                lambda: self._tier.land(landing_name(first, following), blob),
                lambda file: self._landed(Landed(first, following, seen, file, self._clock.now_ms())),
                writes=True,
            )

        read_units(store, units, land, self._give_up, self)

    def _landed(self, change: Landed) -> None:
        self.landed_count += change.file.rows if change.file is not None else 0
        self._note(change)

    def _load(self, load: Load) -> None:
        """Look at the next file that a job wrote; when all were, have them count."""
        if load.left:
            written = load.left[0]
            self._call(lambda: self._tier.check(written), load.note, writes=True)
        elif (change := load.change(self._clock.now_ms())) is not None:
            self._note(change)

    def _compact(self, chosen: list[FarFile]) -> None:
        views = [view_of(file) for file in chosen]
        dead = [*self._state.tombstones, *self._state.handed]
        number = self._owner.position

        def noted(result: Compaction) -> None:
            self._note(Compacted([view.name for view in views], result.added, result.dropped))

        self._call(lambda: self._tier.compact(views, dead, number), noted, writes=True)

    def _index(self, chosen: list[FarFile]) -> None:
        views, number = [view_of(file) for file in chosen], self._owner.position

        def noted(index: str) -> None:
            self._note(Indexed(index, [view.name for view in views]))

        self._call(lambda: self._tier.index(views, number), noted, writes=True)

    def _salvage(self, file: FarFile) -> None:
        view, number = view_of(file), self._owner.position
        ranges, dead = file.lost or [(file.taken, file.rows)], [*self._state.tombstones, *self._state.handed]
        gives_up = self.damage.gives_up(file)

        def salvaged(result: Salvage) -> None:
            change, given_up = self.damage.salvaged(file, result, gives_up=gives_up)
            if change is not None and given_up:
                self._batch, self._busy = _Batch([(unit, None) for unit in given_up], change), True
                self._slice()
            elif change is not None:
                self._note(change)

        self._call(lambda: self._tier.salvage(view, ranges, dead, number), salvaged, writes=True)

    def _remove(self, names: list[str]) -> None:
        def removed(_: None) -> None:
            self._owner.removed(names)
            if self._spare is not None:
                self._spare.forget(names, _report_failure)

        self._call(lambda: self._tier.remove(names), removed)


def _report_failure(result: object) -> None:
    if isinstance(result, OrbitError):
        logger.error("a process for the far tier could not be tidied up: %s", result)

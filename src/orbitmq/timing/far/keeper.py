"""The work that the far tier does by itself: promotion to the near timers, landing in files, writing files anew, removing them.

One step at a time, each of the same shape: look, have a helper do the work, append what came of it to the log, and go on when the log
gives it back. Whatever step is interrupted is begun again from what the log says.

Rules of this file
1. Promotion comes first. Messages that no file holds are promoted from the log, whatever becomes of the tier.
2. What a step leads to is appended by `outcomes`; what is not pending any more stays out of it.
3. A tier that cannot be reached is tried again for ever, with growing pauses, and stops nothing else. What cannot be read of a damaged
   file is left out and kept; see `files`.
4. A file is removed when the state that does not need it is durable, its copy lies in the tier, and every copy of the log that is known has
   the record that lets go of it (in shared storage: it may lead, and need the file), not before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
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
)
from orbitmq.protocol.records import iter_records
from orbitmq.store.store import MessageStore
from orbitmq.timing.far.buffered import FarUnit
from orbitmq.timing.far.changes import (
    Change,
    FarFile,
    Indexed,
    Landed,
    Promoted,
    source_of_far,
)
from orbitmq.timing.far.loads import Load, Loading
from orbitmq.timing.far.log_reads import Read, read_units
from orbitmq.timing.far.outcomes import FarLeaving, Outcome, StepOutcomes, of_unit
from orbitmq.timing.far.plan import (
    Horizon,
    compaction,
    first_units,
    landing_is_due,
    landing_name,
    next_promotion,
    waited_ms,
    without_index,
)
from orbitmq.timing.far.process import Helpers
from orbitmq.timing.far.sharing import StorageEntry
from orbitmq.timing.far.state import FarState
from orbitmq.timing.far.state_file import StateFile
from orbitmq.timing.far.tier import Compaction, FarFileDamagedError, Rows, Tier, view_of
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.timing")
T = TypeVar("T")

WAKEUP: Final = "far-timers"
IDLE: Final = "far-timers idle"


def _claimed(tier: Tier) -> None:
    """Who enters the storage writes there."""


class FarKeeper:
    """The moving part of the far tier of one store."""

    def __init__(
        self, held: FarState, saving: StateFile, clock: Clock, helpers: Helpers, horizon: Horizon, precision_ms: int
    ) -> None:
        self._state = held
        self._saving = saving
        self._clock = clock
        self._helpers = helpers
        self.horizon = horizon
        self._store: MessageStore | None = None
        self._deadlines: Deadlines | None = None
        self.storage = StorageEntry(saving)
        self._led_from = 0
        """Log position from which on this keeper has learnt itself which files nothing needs any more."""
        self._attachment = 0
        """How many times it was attached or detached: what a step began under an earlier one comes to nothing."""
        self._busy = False
        self._is_to_look = False
        self.is_closed = False
        self._awaiting: int | None = None
        """Log position of the record that ends the present step."""
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
        self.outcomes: Final = StepOutcomes(held, clock, precision_ms, appended=self._appended, failed=self._give_up)
        self.loading = Loading()
        self.trouble: str | None = None
        """Why the tier does not work at the moment."""
        self.landed_count = 0
        self.failure_count = 0

    def begin(self, store: MessageStore) -> None:
        """Questions may come, also to one that is not attached."""
        self._deadlines = store.deadlines
        store.deadlines.define(IDLE, self._rest_detached)

    def attach(self, store: MessageStore) -> None:
        if self._store is not None:
            return
        self._store = store
        self._attachment += 1
        self._state.files.forget_garbage()  # the first sweep finds what has not been removed
        self._led_from, self._swept_ns = self._state.position, 0
        store.deadlines.define(WAKEUP, self.look)
        self.outcomes.attach(store)
        self.arm()

    def detach(self) -> None:
        """Begin no step, end the present one, and forget what is in flight. What is being changed remains so until the log says more."""
        if self._store is None:
            return
        self._store.deadlines.disarm(WAKEUP)
        self.outcomes.detach()
        self._store, self._awaiting = None, None
        self._busy = self._is_to_look = False
        self._attachment += 1
        self.storage.leave()
        self._published, self.trouble = -1, None
        self._retry_ns = self._pause_ms = 0
        self.loading = Loading()

    def close(self) -> None:
        """End what runs. Its results are not looked at any more."""
        self.is_closed = True
        self.outcomes.give_up()
        self._helpers.close()

    @property
    def is_moving(self) -> bool:
        return self._busy or self._is_to_look or bool(self.outcomes.leaving) or bool(self.outcomes.changing)

    @property
    def is_waiting(self) -> bool:
        """Whether the tier failed and is tried again later."""
        return self._clock.monotonic_ns() < self._retry_ns

    @property
    def is_published(self) -> bool:
        """Whether the copy of the state beside the files says what there is."""
        return self._saving.is_saved and self._published == self._saving.serial

    def request_compaction(self) -> None:
        """Land and write anew whatever can be."""
        self._compaction_asked = True
        self._compacted_ns = None
        self.arm()

    def arm(self) -> None:
        """Look soon: something changed."""
        if self._store is not None and not self.is_closed:
            self._is_to_look = True
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns())

    def applied(self, position: int, finished: Sequence[int]) -> None:
        """The log was applied up to `position`, and finished these messages, by their source numbers."""
        self.outcomes.leaving.difference_update(finished)
        self.changed(finished)
        if self._awaiting is not None and position > self._awaiting:
            self._awaiting = None
            self._busy = False
        self.arm()

    def changed(self, sources: Iterable[int]) -> None:
        """These messages are not being changed any more."""
        for source in sources:
            self.outcomes.changing.pop(source, None)

    def ask(self, job: Callable[[Tier], T], done: Callable[[T | BaseException], None]) -> None:
        """Put a question to the tier."""
        self.arm()
        if self._deadlines is not None:
            self._deadlines.arm(IDLE, self._clock.monotonic_ns() + FAR_IDLE_MS * NS_PER_MS)
        self._helpers.ask(job, done)

    def _rest_detached(self) -> None:
        """While nothing is moved, questions alone keep a process running."""
        if self._store is None and self._deadlines is not None and (idle_ms := self._helpers.rest()) is not None:
            self._deadlines.arm(IDLE, self._clock.monotonic_ns() + idle_ms * NS_PER_MS)

    # --- what next --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Begin the next step, if there is one; otherwise sleep until there may be."""
        store, self._is_to_look = self._store, False
        if store is None or self._busy or self.is_closed:
            return
        if not store.writes_accepted:
            self._sleep(FAR_RETRY_MS)
            return
        self.rotate()
        if not self._begin(store):
            self._rest()

    def rotate(self) -> None:
        """Forget what was finished long ago, while nobody asks: attached or not, for it grows with what the log says."""
        now_ns = self._clock.monotonic_ns()
        if not self.questions and now_ns - self._rotated_ns >= FAR_ANSWER_MS * NS_PER_MS:
            self._state.rotate()
            self._rotated_ns = now_ns

    def _begin(self, store: MessageStore) -> bool:
        """Begin the most urgent step; False when there is none."""
        if self._promote_from_log(store):
            return True
        if self.is_waiting:
            return False
        steps: tuple[Callable[[], bool], ...] = (
            lambda: self.storage.has_to_claim and self._run(_claimed),
            self._promote_from_file,
            self._salvage,
            lambda: self._land(store),
            self._load,
            self._publish,
            self._remove,
            self._index,
            self._sweep,
            self._compact,
        )
        return any(step() for step in steps)

    def _rest(self) -> None:
        """Nothing to do now. Wake when there may be, and let idle processes go."""
        state, now_ms = self._state, self._clock.now_ms()
        waits = [] if (idle_ms := self._helpers.rest()) is None else [idle_ms]
        if (next_ms := state.next_ms(state.files.sound)) is not None:
            waits.append(min(max(self.horizon.promotion_ms(next_ms) - now_ms, 1), FAR_SLEEP_MS_MAX))
        if state.waiting_since_ms is not None and state.buffered.pending_count:
            waits.append(max(FAR_LANDING_AGE_MS - waited_ms(state.waiting_since_ms, now_ms), 1))
        if state.files.has_garbage or (self._helpers.in_use and not self.is_published):
            waits.append(FAR_GARBAGE_MS)
        if self.is_waiting:
            waits = [max((self._retry_ns - self._clock.monotonic_ns()) // NS_PER_MS, 1)]
        if waits:
            self._sleep(min(waits))

    def _sleep(self, wait_ms: int) -> None:
        assert self._store is not None
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + wait_ms * NS_PER_MS)

    # --- the shape of every step ------------------------------------------------------------------------------------

    def _run(
        self, job: Callable[[Tier], T], then: Callable[[T], Outcome | None] = lambda _: None, *, writes: bool = False
    ) -> bool:
        """Have a helper run `job`, then append what `then` makes of its result. One that `writes` a file takes long."""

        may_sweep = bool(self._saving.serial) and self._may_sweep

        def opened_job(tier: Tier) -> T:
            if self.storage.enter(tier) and may_sweep:
                self._sweep_now(tier)
            return self.storage.do(tier, job, writes=writes)

        self._busy = True
        self._helpers.work(opened_job, self._unless_detached(lambda result: self._ran(result, then)), writes=writes)
        return True

    def _unless_detached(self, then: Callable[[T], None]) -> Callable[[T], None]:
        """`then`, which does nothing when the keeper was detached meanwhile."""
        attachment = self._attachment

        def told(result: T) -> None:
            if attachment == self._attachment:
                then(result)

        return told

    @property
    def _may_sweep(self) -> bool:
        """Whether every copy knows which files this log let go of before this keeper led: what is unknown is nobody's."""
        return self.storage.sharing.copies_have(self._led_from)

    def _ran(self, result: Any, then: Callable[[Any], Outcome | None]) -> None:
        self._busy = False
        store = self._store
        if self.is_closed or store is None:
            return
        if isinstance(result, FarFileDamagedError):
            self._state.files.note_damage([(result.name, str(result))])
        elif isinstance(result, BaseException):
            self._failed(result)
        else:
            self._pause_ms = 0
            self.trouble = None
            self.storage.tell()
            if (outcome := then(result)) is not None:
                self._append(*outcome)
        self.arm()
        store.commit()

    def _failed(self, error: BaseException) -> None:
        self.failure_count += 1
        self.storage.is_open = False
        self._pause_ms = min(max(self._pause_ms * 2, FAR_RETRY_MS), FAR_RETRY_MS_MAX)
        self._retry_ns = self._clock.monotonic_ns() + self._pause_ms * NS_PER_MS
        self.trouble = f"{type(error).__name__}: {error}"
        logger.error("the far tier does not work, trying again in %d ms: %s", self._pause_ms, error)

    def _read(self, store: MessageStore, units: list[FarUnit], done: Callable[[Read], None]) -> bool:
        """Read messages that no file holds, then go on with `done`."""
        self._busy = True
        given_up = self._unless_detached(lambda _: self._give_up())
        read_units(store, units, self._unless_detached(done), lambda: given_up(None), lambda: self.is_closed)
        return True

    def _append(self, messages: Sequence[FarLeaving], change: Change | None) -> None:
        """Append an outcome; the step ends when the log gives its last record back."""
        if messages or change is not None:
            self._busy = True
            self.outcomes.append(messages, change)

    def _appended(self, position: int | None) -> None:
        if position is None:
            self._busy = False
            self.arm()
        else:
            self._awaiting = position

    def _give_up(self) -> None:
        """The present step is begun again later, from what the log says then."""
        self.outcomes.give_up()
        self._awaiting = None
        self._busy = False
        self._sleep(FAR_RETRY_MS)

    # --- the steps: each begins and answers True, or has nothing to do ----------------------------------------------

    def _promote_from_log(self, store: MessageStore) -> bool:
        buffered, until_ms = self._state.buffered, self.horizon.due_until_ms(self._clock.now_ms())
        if buffered.earliest_ms is None or buffered.earliest_ms > until_ms:
            return False
        units = first_units(buffered.due(until_ms), FAR_PROMOTION_ROWS_MAX, FAR_PROMOTION_BYTES_MAX)
        return self._read(store, units, lambda found: self._append([of_unit(*one) for one in found], None))

    def _promote_from_file(self) -> bool:
        until_ms = self.horizon.due_until_ms(self._clock.now_ms())
        file = next_promotion(self._state.files.sound, until_ms)
        if file is None:
            return False
        view = view_of(file)

        def promoted(rows: Rows) -> Outcome:
            messages = [FarLeaving(source_of_far(record), record) for record in iter_records(rows.records)]
            return messages, Promoted(view.name, rows.taken, rows.next_ms)

        return self._run(
            lambda tier: tier.rows(view, until_ms, FAR_PROMOTION_ROWS_MAX, FAR_PROMOTION_BYTES_MAX), promoted
        )

    def _salvage(self) -> bool:
        """Write anew what can be read of a damaged file."""
        damaged = self._state.files.next_damaged()
        return damaged is not None and self._write_anew([damaged[0]], is_damaged=True, gives_up=damaged[1])

    def _write_anew(self, files: list[FarFile], *, is_damaged: bool = False, gives_up: bool = False) -> bool:
        views, dead, number = (
            [view_of(file) for file in files],
            self._state.finished_rows,
            f"{self._state.position:020d}",
        )
        names = [view.name for view in views]

        def written(result: Compaction) -> Outcome:
            units, change = self._state.files.rewritten(names, result, gives_up=gives_up)
            return [of_unit(unit) for unit in units], change

        return self._run(
            lambda tier: tier.compact(views, dead, number + self.storage.written_by(), is_damaged), written, writes=True
        )

    def _land(self, store: MessageStore) -> bool:
        """Write what only the log holds to a file."""
        buffered = self._state.buffered
        age_ms = waited_ms(self._state.waiting_since_ms, self._clock.now_ms())
        is_asked = self._compaction_asked and buffered.pending_count > 0
        if not is_asked and not landing_is_due(buffered.pending_count, buffered.payload_bytes, age_ms):
            return False
        first, seen = buffered.first, self._state.position
        units = first_units(buffered.pending(), FAR_LANDING_ROWS_MAX, FAR_LANDING_BYTES_MAX)
        is_all = len(units) == buffered.pending_count
        following = buffered.next_offset if is_all else units[-1].queue_offset + 1

        def write(found: Read) -> None:
            unreadable = [of_unit(unit) for unit, data in found if data is None]
            records = b"".join(data for _, data in found if data is not None)

            def landed(file: FarFile | None) -> Outcome:
                self.landed_count += 0 if file is None else file.rows
                return unreadable, Landed(first, following, seen, file, self._clock.now_ms())

            if records:
                self._run(
                    lambda tier: tier.land(landing_name(first, following, self.storage.written_by()), records),
                    landed,
                    writes=True,
                )
            else:
                self._append(*landed(None))

        return self._read(store, units, write)

    def _load(self) -> bool:
        """Look at the next file that a job wrote; when all were, have them count."""
        while (load := self.loading.next(self._state.jobs)) is not None:
            if load.left:
                return self._check(load)
            if (change := load.change(self._clock.now_ms())) is not None:
                self._append([], change)
                return True
        return False

    def _check(self, load: Load) -> bool:
        written = load.left[0]
        return self._run(lambda tier: tier.check(written), load.note, writes=True)

    def _publish(self) -> bool:
        """Put a copy of the saved state beside the files: at once while the process runs, or where files wait to be removed; otherwise
        the process is not started for this alone more often than it would land."""
        files, serial, content = self._state.files, self._saving.serial, self._saving.content
        if content is None or self._published == serial or not (files.by_name or files.has_garbage):
            return False
        is_time = self._clock.monotonic_ns() - self._published_ns >= FAR_LANDING_AGE_MS * NS_PER_MS
        if not (is_time or self._helpers.in_use or files.removable(serial)):
            return False

        def published(_: None) -> None:
            self._published, self._published_ns = serial, self._clock.monotonic_ns()

        return self._run(lambda tier: tier.publish(content), published)

    def _remove(self) -> bool:
        names = self._state.files.removable(self._saving.serial)
        if not names or not self.storage.sharing.copies_have(self._saving.position):
            return False

        def removed(_: None) -> None:
            self._state.files.removed(names)
            self._helpers.forget(names)

        return self._run(lambda tier: tier.remove(names), removed)

    def _index(self) -> bool:
        """Give loaded files the index that they lack."""
        chosen = without_index(self._state.files.sound)
        if not chosen:
            return False
        views, number = [view_of(file) for file in chosen], f"{self._state.position:020d}"
        names = [view.name for view in views]

        def written(tier: Tier) -> str:
            return tier.index(views, number + self.storage.written_by())

        return self._run(written, lambda index: ([], Indexed(index, names)), writes=True)

    def _sweep(self) -> bool:
        is_time = self._clock.monotonic_ns() - self._swept_ns >= FAR_LOAD_SWEEP_MS * NS_PER_MS
        return self.storage.is_open and is_time and self._may_sweep and self._run(self._sweep_now)

    def _sweep_now(self, tier: Tier) -> None:
        """Runs elsewhere, and touches nothing of the state but what cannot change while a step runs."""
        loads_before_ms = self._clock.now_ms() - FAR_LOAD_FILE_AGE_MS
        removed = tier.sweep(self._state.files.not_removed, loads_before_ms, self.storage.writer)
        if removed:
            logger.info("removed %d files of the far tier that steps without an end had left", len(removed))
        self._swept_ns = self._clock.monotonic_ns()

    def _compact(self) -> bool:
        """Write files anew where that is worth it, and look for such files now and then only."""
        self._state.files.forget_removed_damage()
        now_ns = self._clock.monotonic_ns()
        if self._compacted_ns is not None and now_ns - self._compacted_ns < FAR_COMPACTION_PAUSE_MS * NS_PER_MS:
            return False
        self._compacted_ns = now_ns
        is_asked, self._compaction_asked = self._compaction_asked, False
        state = self._state
        chosen = compaction(
            state.files.sound, state.tombstones.items(), asked=is_asked, lost_indexes=state.files.unreadable
        )
        return bool(chosen) and self._write_anew(chosen)

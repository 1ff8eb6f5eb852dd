"""Timer messages that are due later than the wheel looks: the far tier of one store.

Admission stores such a message in the topic `orbitmq_sys_far_timer`. From there it goes into a Parquet file by due time, and when it
comes near, into the wheel, as a timer record that names its source. A message due in ten years is written three times: when it
comes, into a file, and when it comes near.

Rules of this file
1. What is pending is a function of the log, learnt in `apply` alone, in a running broker as in recovery; see `state`.
2. The state is saved with every durable save in which it changed. The log may go only as far as the last saved state needs
   it; see `lowest_needed`.
3. Questions are answered by `queries`, work is done by `keeper`; both are parts of this.
"""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.clock import Clock
from orbitmq.errors import RecordError, StoreDamagedError, StoreUnwritableError
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.protocol.names import FAR_TIMER_TOPIC, TIMER_CHANGES_TOPIC
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import OnDone, PutStatus
from orbitmq.store.files import Files
from orbitmq.store.message import NewMessage
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Worker
from orbitmq.timing.far.buffered import FarUnit
from orbitmq.timing.far.changes import change_message, decode_change, far_facts, finish_of, source_of_far
from orbitmq.timing.far.keeper import FarKeeper
from orbitmq.timing.far.loads import Load
from orbitmq.timing.far.plan import Horizon
from orbitmq.timing.far.queries import FarPage, FarQueries
from orbitmq.timing.far.spare import SpareHelper
from orbitmq.timing.far.state import DAY_MS, STATE_FILE, FarState, SavedState, decode_state, encode_state
from orbitmq.timing.far.tier import FarQuery, Tier
from orbitmq.timing.rewriting import Taken

logger = logging.getLogger("orbitmq.timing")

DEFAULT_HORIZON_MS: Final = 3 * DAY_MS
"""RocketMQ's own limit: what is due within it stays where a Java broker delivers it."""

_OURS: Final = frozenset({FAR_TIMER_TOPIC, TIMER_CHANGES_TOPIC})


class FarStanding(enum.Enum):
    PENDING = "pending"
    LEAVING = "leaving"
    """Taken to the wheel, or being changed, right now."""
    GONE = "gone"


class FarCounts(NamedTuple):
    pending: int
    by_topic: dict[str, int]
    by_day: dict[int, int]
    """Days since 1970, UTC -> messages due on it."""
    next_deliver_ms: int | None
    """Nothing is due before this time."""


class _Durable(NamedTuple):
    """What the state file on disk needs of the log."""

    serial: int
    needed: int


def _first(queue: ConsumeQueue | None) -> int | None:
    """Log position of the first record of a queue that is still known."""
    if queue is None or queue.max_offset <= queue.min_offset:
        return None
    unit = queue.kept_unit(queue.min_offset)
    return None if unit is None else unit[0]


class FarTimers:
    """The far tier of one store. Hand it to `open_store` as derived structure, then `attach` the store."""

    name = "far_timers"

    def __init__(
        self,
        files: Files,
        root: Path,
        clock: Clock,
        tier: Tier | None,
        worker: Worker,
        *,
        horizon_ms: int = DEFAULT_HORIZON_MS,
        precision_ms: int = 1_000,
        takes: bool = True,
        spare: SpareHelper | None = None,
        url: str = "",
    ) -> None:
        """`url` says where the tier lies, for others. `tier` is None where what reads and writes its files is not installed: then nothing
        is taken in. `worker`
        belongs to the tier alone, whose calls may last seconds. With `takes` false nothing new is taken in, what is
        there comes back in its time. `spare` answers questions while `worker` writes files."""
        self.url: Final = url
        self._takes = takes and tier is not None
        self.held = FarState()
        """What is pending, and where."""
        self._files = files
        self._path = root / STATE_FILE
        self._clock = clock
        self._horizon = Horizon(horizon_ms)
        self._log: CommitLog | None = None
        self._queues: ConsumeQueues | None = None
        self._store: MessageStore | None = None
        self._position = 0
        self._serial = 0
        self._store_id = ""
        self._first_seen = 0
        """Position of the first far record, while no state was ever saved."""
        self._durable: _Durable | None = None
        self._syncing: tuple[bytes, _Durable] | None = None
        self._manifest: bytes | None = None
        self._garbage: list[tuple[int, str]] = []
        self._done_at_start: dict[int, int] = {}
        """What the saved state says is finished of the messages that no file holds, until the log has been read."""
        self.keeper: FarKeeper | None = None
        self.queries: FarQueries | None = None
        if tier is not None:
            self.keeper = FarKeeper(self, clock, tier, worker, self._horizon, precision_ms, spare)
            self.queries = FarQueries(self.held, self.keeper)

    # --- what the log says (Derived) --------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        held, known = self.held, self._position
        touched = False
        finished: list[int] = []
        for entry in entries:
            if entry.physical_offset < known:
                if entry.topic == FAR_TIMER_TOPIC:
                    self._load_again(entry)
                continue
            is_finish = False
            if entry.prepared_transaction_offset > 0:
                finish = finish_of(entry)
                if finish is not None:
                    held.finished(finish, entry.physical_offset)
                    finished.append(finish.source)
                    is_finish = touched = True
                elif not entry.sys_flag & TRANSACTION_MASK and held.finished_in_log(
                    entry.prepared_transaction_offset, entry.physical_offset
                ):
                    finished.append(entry.prepared_transaction_offset)
                    touched = True
            if entry.topic in _OURS:
                touched = True
                if entry.topic == FAR_TIMER_TOPIC:
                    self._take_in(entry)
                elif not is_finish:
                    self._change(entry.physical_offset)
        if entries:
            self._position = max(known, entries[-1].end_offset)
        if touched and self._store is not None and self.keeper is not None:
            self.keeper.applied(self._position, finished)

    def _take_in(self, entry: Dispatched) -> None:
        facts = far_facts(entry.properties)
        if facts is None:
            logger.error("the record at %d in %s is no timer message", entry.physical_offset, FAR_TIMER_TOPIC)
            self.held.ignored(entry.queue_offset, entry.physical_offset)
            return
        if not self._serial and not self.held.buffered.next_offset:
            self._first_seen = entry.physical_offset
        self.held.stored(entry.queue_offset, entry.physical_offset, entry.size, facts, entry.store_timestamp)

    def _load_again(self, entry: Dispatched) -> None:
        """A far record that the saved state contains. Where the process ended between saving that and the topic's queue, the
        queue did not lead to it when the others were loaded."""
        held, offset = self.held, entry.queue_offset
        if offset < held.buffered.next_offset:
            return
        facts = far_facts(entry.properties)
        if facts is None:
            held.ignored(offset, entry.physical_offset)
            return
        held.waiting_since_ms = held.waiting_since_ms or entry.store_timestamp
        held.buffered.add(offset, entry.physical_offset, entry.size, *facts)
        if offset in self._done_at_start:
            held.buffered.finish(offset, self._done_at_start[offset])

    def _change(self, position: int) -> None:
        assert self._log is not None
        view = self._log.record(position)
        if view is None:
            raise StoreDamagedError(f"the record of a change at {position} is not in the log")
        try:
            self.held.changed(decode_change(decode_record(view).body))
        except RecordError as error:
            logger.error("the change of the far tier at %d is left out: %s", position, error)

    @property
    def position(self) -> int:
        """Everything the log says below was applied."""
        return self._position

    @property
    def serial(self) -> int:
        """Number of the state that was saved last; 0 before the first."""
        return self._durable.serial if self._durable is not None else 0

    @property
    def store_id(self) -> str:
        """Tells this store's files from those of another."""
        return self._store_id

    # --- saving -----------------------------------------------------------------------------------------------------

    @property
    def _is_unsaved(self) -> bool:
        return self.held.is_changed or (not self._serial and self.held.buffered.next_offset > 0)

    @property
    def is_saved(self) -> bool:
        """Whether the state file says all that the log says; always where there was never a far message."""
        return not self._is_unsaved and self.serial == self._serial

    def state(self) -> object:
        return {"serial": self._serial, "changed": self._is_unsaved}

    def write(self) -> None:
        """Nothing: what changed since the last durable save is in the log, which is read from there."""

    def begin_sync(self) -> None:
        self._syncing = None
        if not self._is_unsaved:
            return
        if not self._store_id:
            self._store_id = f"{self._clock.now_ms():x}-{os.urandom(6).hex()}"
        self._serial += 1
        saved = self.held.saved(self._serial, self._position, self._store_id)
        self._garbage += [(self._serial, name) for name in self.held.garbage]
        self.held.garbage.clear()
        self._syncing = encode_state(saved), _Durable(self._serial, self._first_needed())

    def datasync(self) -> None:
        """Runs after the log was synced, so the state never leads it. What cannot be written stays needed in the log."""
        if self._syncing is None:
            return
        content, durable = self._syncing
        try:
            self._files.write_atomic(self._path, content)
        except OSError as error:
            self.held.is_changed = True
            logger.error("the state of the far tier was not saved, the log stays as long as it is needed: %s", error)
            return
        self._durable = durable
        self._manifest = content

    def manifest(self) -> bytes | None:
        """The state that was saved last, while there are files."""
        return self._manifest if self.held.files or self._garbage else None

    def removable(self) -> list[str]:
        """Files that the saved state does not speak of any more."""
        serial = self.serial
        return [name for number, name in self._garbage if number <= serial]

    def removed(self, names: Sequence[str]) -> None:
        """These files are gone."""
        self._garbage = [entry for entry in self._garbage if entry[1] not in names]

    @property
    def has_garbage(self) -> bool:
        """Whether files are still to be removed, now or once the state is saved."""
        return bool(self._garbage or self.held.garbage)

    def _first_needed(self) -> int:
        oldest = self.held.buffered.oldest
        return self._position if oldest is None else min(oldest.physical_offset, self._position)

    def lowest_needed(self) -> int | None:
        """Log position from which on the log is needed, by the messages that no file holds and by the saved state; None when
        all of it may go."""
        if not self._is_unsaved and (self._durable is None or self._durable.serial == self._serial):
            oldest = self.held.buffered.oldest
            return None if oldest is None else oldest.physical_offset
        if self._durable is not None:
            return self._durable.needed
        oldest = self.held.buffered.oldest
        return self._first_seen if oldest is None else min(self._first_seen, oldest.physical_offset)

    # --- making room in the log (PendingOwner) ----------------------------------------------------------------------

    def bytes_below(self, position: int) -> int:
        """Size of the messages that no file holds and that lie below a log position."""
        return sum(unit.size for unit in self._below(position))

    def _below(self, position: int) -> Iterator[FarUnit]:
        for unit in self.held.buffered.pending():
            if unit.physical_offset >= position:
                return
            yield unit

    def take_below(self, position: int, limit: int) -> list[Taken]:
        """Those of them that nobody is changing, oldest first."""
        if self.keeper is None:
            return []
        keeper = self.keeper
        free = (unit for unit in self._below(position) if self.standing(unit.source) is FarStanding.PENDING)
        taken = list(islice(free, limit))
        keeper.changing.update(unit.source for unit in taken)
        return [Taken(unit.physical_offset, unit.size, unit.deliver_ms) for unit in taken]

    def put_back(self, positions: Sequence[int]) -> None:
        if self.keeper is not None:
            self.keeper.changing.difference_update(position + 1 for position in positions)

    # --- recovery (Recoverable) -------------------------------------------------------------------------------------

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        self._log, self._queues = log, queues
        queue = queues.get(FAR_TIMER_TOPIC, 0)
        saved = self._load()
        if saved is None:
            firsts = [_first(queue)]
            if position is None or not isinstance(state, dict) or state.get("changed"):
                # Files may have been loaded where no message was ever sent.
                firsts.append(_first(queues.get(TIMER_CHANGES_TOPIC, 0)))
            first = min((at for at in firsts if at is not None), default=None)
            if first is None and position is None:
                # Nothing is asked for; but where consume queues are being made from the log, the far one has yet to come.
                self._position = log.start
                return log.end_of_files
            if first is None:
                self._position = position or 0
            else:
                self._position = self._first_seen = first
                self.held.buffered.first = queue.min_offset if queue is not None else 0
            return self._position
        is_whole = (
            position is not None
            and isinstance(state, dict)
            and state.get("serial") == saved.serial
            and not state.get("changed")
        )
        self._position = position if is_whole and position is not None else saved.position
        self._serial, self._store_id = saved.serial, saved.store
        self.held.restore(saved)
        self._done_at_start = saved.done
        self._load_buffered(log, queues, saved)
        self._durable = _Durable(saved.serial, self._first_needed())
        return self._position

    def _load(self) -> SavedState | None:
        """The state file's content. Raises StoreDamagedError."""
        if not self._files.exists(self._path):
            return None
        content = self._files.read_bytes(self._path)
        try:
            saved = decode_state(content)
        except StoreDamagedError as error:
            raise StoreDamagedError(
                f"{self._path}: {error}",
                remedy="copy manifest.json from the far tier's directory over it; it is the same file, at most minutes older",
            ) from error
        self._manifest = content
        return saved

    def _load_buffered(self, log: CommitLog, queues: ConsumeQueues, saved: SavedState) -> None:
        """The messages that no file holds, up to where the log is going to be applied from."""
        queue = queues.get(FAR_TIMER_TOPIC, 0)
        if queue is None:
            return
        held, lost = self.held, 0
        for offset in range(max(saved.landed_to, queue.min_offset), queue.max_offset):
            unit = queue.kept_unit(offset)
            if unit is None or unit[0] >= self._position:
                break
            view = log.record(unit[0])
            facts, stored_ms = None, 0
            if view is not None:
                try:
                    record = decode_record(view, body=False)
                    facts, stored_ms = far_facts(record.properties), record.store_timestamp
                except RecordError as error:
                    logger.error("the far record at %d cannot be read: %s", unit[0], error)
            if facts is None:
                held.ignored(offset, unit[0])
                lost += offset not in saved.done
            elif offset >= saved.next_offset:
                held.stored(offset, unit[0], unit[1], facts, stored_ms)
            else:
                held.waiting_since_ms = held.waiting_since_ms or stored_ms
                held.buffered.add(offset, unit[0], unit[1], *facts)
        for offset, finished_at in saved.done.items():
            if held.buffered.is_pending(offset):
                held.buffered.finish(offset, finished_at)
        expected = saved.next_offset - saved.landed_to - len(saved.done)
        gone = queue.min_offset - saved.landed_to
        if expected > 0 and (gone > 0 or lost):
            logger.error("far messages that no file holds are gone from the log: up to %d", max(gone, 0) + lost)

    def finish_restore(self) -> None:
        """Everything is known."""
        self._done_at_start = {}

    # --- what is due (DueWork) --------------------------------------------------------------------------------------

    def attach(self, store: MessageStore) -> None:
        """Begin to move messages. Without what reads the tier's files this is for a store that has none."""
        self._store = store
        if self.keeper is not None and self.queries is not None:
            self.queries.attach(store)
            self.keeper.attach(store)

    @property
    def has_tier(self) -> bool:
        """Whether its files can be read."""
        return self.keeper is not None

    @property
    def is_needed(self) -> bool:
        """Whether messages wait in the tier."""
        return self.held.pending_count > 0

    def may_hold(self, until_ms: int) -> bool:
        """Whether a message that waits here may be due before a time. Cost: a look at each file's name, nothing is read."""
        next_ms = self.held.next_deliver_ms
        return next_ms is not None and next_ms < until_ms

    @property
    def damaged_files(self) -> list[str]:
        """Files that could not be read: nothing is known of the messages in them but how many there are."""
        return [] if self.keeper is None else self.keeper.damage.files

    @property
    def next_due_ms(self) -> int | None:
        """When the next message is promoted; None when none waits, or the tier is out of reach."""
        if self.keeper is None or self.keeper.is_waiting or self.keeper.damage.files:
            return None
        return self.promotion_ms

    @property
    def promotion_ms(self) -> int | None:
        """When the earliest message that waits here belongs into the wheel, whether that is possible or not."""
        deliver_ms = self.held.next_deliver_ms
        return None if deliver_ms is None else self._horizon.promotion_ms(deliver_ms)

    @property
    def is_releasing(self) -> bool:
        return self.keeper is not None and self.keeper.is_moving

    def pending_units(self) -> Iterator[tuple[int | None, int, int]]:
        """Of the messages that no file holds; the others are found with `page`."""
        for unit in self.held.buffered.pending():
            yield None, unit.physical_offset, unit.deliver_ms

    def clock_moved(self) -> None:
        """The wall clock was set: what is to be done by it begins now."""
        if self.keeper is not None:
            self.keeper.look()

    # --- for senders and those who ask ------------------------------------------------------------------------------

    def accepts(self, deliver_ms: int, now_ms: int) -> bool:
        """Whether a message due at `deliver_ms` belongs here, and can be taken in. Cost: 0.2 us."""
        return self._takes and self._horizon.accepts(deliver_ms, now_ms)

    @property
    def takes_messages(self) -> bool:
        """Whether new messages are taken in."""
        return self._takes

    def compact(self) -> None:
        """Write what waits in the log to files, and files to larger ones, now. Begins it; nothing without a tier."""
        if self.keeper is not None:
            self.keeper.request_compaction()

    def repair(self) -> None:
        """Get what can be read out of damaged files, and give up the rest. Begins it; nothing without a tier."""
        if self.keeper is not None:
            self.keeper.request_repair()

    def restore_all(self) -> None:
        """Move everything into the wheel, and take nothing in until the next start: for a store that goes back to a Java
        broker, which rolls what is far. Begins it; it is done when nothing is pending here."""
        if self.keeper is not None:
            self._takes = False
            self._horizon = self.keeper.horizon = Horizon(TIMER_DELIVER_MS_MAX)
            self.keeper.arm()

    def counts(self) -> FarCounts:
        held = self.held
        return FarCounts(held.pending_count, dict(held.by_topic), dict(held.by_day), held.next_deliver_ms)

    def split_ms(self) -> int:
        """Messages due from now on until this time are near: a job that loads files sends them."""
        return self._clock.now_ms() + self._horizon.length_ms + self._horizon.step_ms + 1

    def load(self, load: Load) -> Load | None:
        """Have files that a job wrote checked, and then counted: a record says so, and `held.jobs`. What is under way, which is that of
        another attempt if that came first; None when too many wait. StoreUnwritableError.

        Without files, all that is left is the record; it needs no tier.
        """
        store = self._store
        if store is None:
            raise StoreUnwritableError("the broker is not running")
        if self.keeper is not None:
            begun = self.keeper.loading.begin(load)
            self.keeper.arm()
            return begun
        change = load.change(self._clock.now_ms())
        if load.left:
            raise ValueError("a tier is needed for files")
        if change is not None:
            store.append(change_message(change), accepted=True)
        return load

    def find(self, query: FarQuery, done: Callable[[FarPage | Exception], None]) -> None:
        """The first `query.limit` pending messages that match, in order of due time, given to `done` on this thread.

        With `query.bodies` they can be changed. FarBusyError when too many ask, FarTierError when the tier cannot be
        asked: then what the log alone holds is not answered either.
        """
        if self.queries is None:
            done(FarPage([], False))
        else:
            self.queries.find(query, done)

    page = find

    def standing(self, source: int) -> FarStanding:
        """Of a message that `find` has answered within the last minute, by its source number."""
        if not self.held.is_pending(source):
            return FarStanding.GONE
        keeper = self.keeper
        is_leaving = keeper is None or source in keeper.leaving or source in keeper.changing
        return FarStanding.LEAVING if is_leaving else FarStanding.PENDING

    def change(self, record: Record, messages: Sequence[NewMessage], *, wait: bool, on_done: OnDone) -> None:
        """Append `messages` as one change of a far message; the first one finishes it (`changes.recall_message`,
        `near_message`, `far_message`, `noted_message`). From now on it is LEAVING; when the append fails it is pending again.
        `on_done` hears of it when it is as durable as `wait` asks.

        ValueError when the message is not PENDING; see `standing`.
        """
        store, keeper, source = self._store, self.keeper, source_of_far(record)
        if store is None or keeper is None or self.standing(source) is not FarStanding.PENDING:
            raise ValueError(f"the far message {source} is not pending")
        try:
            if len(messages) == 1:
                end = store.append(messages[0], accepted=True).end_offset
            else:
                end = store.append_batch(messages)[-1].end_offset
        except StoreUnwritableError:
            on_done(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        keeper.changing.add(source)

        def written(status: PutStatus) -> None:
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                keeper.changing.discard(source)
            on_done(status)

        store.wait_durable(end, wait, written)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the process that keeps the files. What it was doing is done again after the next start."""
        if self.keeper is not None:
            self.keeper.close()

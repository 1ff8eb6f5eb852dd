"""Timer messages that are due beyond the horizon of three days: the far tier of one store.

Admission stores such a message in the topic `orbitmq_sys_far_timer`. From there it goes into a Parquet file by due time, and when it
comes near, into the topic of the near timers, as a timer record that names its source. A message due in ten years is written three
times: when it comes, into a file, and when it comes near.

Rules of this file
1. What is pending is a function of the log, learnt in `apply` alone, in a running broker as in recovery; see `state`.
2. What is learnt is saved by `state_file`, questions are answered by `queries`, work is done by `keeper`: all parts of this.
"""

from __future__ import annotations

import enum
import logging
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
from orbitmq.timing.appending import NOT_ATTACHED
from orbitmq.timing.far.buffered import FarUnit
from orbitmq.timing.far.changes import change_message, decode_change, far_facts, finish_of, source_of_far
from orbitmq.timing.far.keeper import FarKeeper
from orbitmq.timing.far.loads import Load
from orbitmq.timing.far.outcomes import TAKEN
from orbitmq.timing.far.plan import Horizon
from orbitmq.timing.far.process import Helpers
from orbitmq.timing.far.queries import FarPage, find
from orbitmq.timing.far.sharing import Sharing
from orbitmq.timing.far.state import FarState
from orbitmq.timing.far.state_file import SavedState, StateFile
from orbitmq.timing.far.tier import FarQuery
from orbitmq.timing.rewriting import Taken
from orbitmq.units import DAY_MS

logger = logging.getLogger("orbitmq.timing")

DEFAULT_HORIZON_MS: Final = 3 * DAY_MS
"""RocketMQ's own limit: what is due within it stays where a Java broker delivers it."""

_OURS: Final = frozenset({FAR_TIMER_TOPIC, TIMER_CHANGES_TOPIC})


class FarStatus(enum.Enum):
    PENDING = "pending"
    LEAVING = "leaving"
    """Being promoted, or changed, right now."""
    GONE = "gone"


class FarCounts(NamedTuple):
    pending: int
    by_topic: dict[str, int]
    by_day: dict[int, int]
    """Days since 1970, UTC -> messages due on it."""
    next_deliver_ms: int | None
    """Nothing is due before this time."""


class FarTimers:
    """The far tier of one store. Hand it to `open_store` as derived structure, then `attach` the store."""

    name = "far_timers"

    def __init__(
        self,
        files: Files,
        root: Path,
        clock: Clock,
        helpers: Helpers | None,
        *,
        horizon_ms: int = DEFAULT_HORIZON_MS,
        precision_ms: int = 1_000,
        takes: bool = True,
        url: str = "",
    ) -> None:
        """`url` says where the tier lies, for others. `helpers` is None where what reads and writes its files is not installed: then
        nothing is taken in. With `takes` false nothing new is taken in, what is there comes back in its time."""
        self.url: Final = url
        self._takes = takes and helpers is not None
        self._stays_in_log = False
        """Copies get the log, and not the files."""
        self.held = FarState()
        """The pending messages, and where they are."""
        self._clock = clock
        self._horizon = Horizon(horizon_ms)
        self.saving: Final = StateFile(files, root, clock, self.held)
        self._log: CommitLog | None = None
        self._store: MessageStore | None = None
        self._may_append = False
        self._done_at_start: dict[int, int] = {}
        """Finished messages that no file holds, as the saved state has them, until the log has been read up to where it speaks of."""
        self.keeper: FarKeeper | None = None
        if helpers is not None:
            self.keeper = FarKeeper(self.held, self.saving, clock, helpers, self._horizon, precision_ms)

    # --- what the log says (Derived) --------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        held, known = self.held, self.held.position
        touched = False
        finished: list[int] = []
        for entry in entries:
            if entry.physical_offset < known:
                if entry.topic == FAR_TIMER_TOPIC:
                    self._take_in_again(entry)
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
            held.position = max(known, entries[-1].end_offset)
            if held.position > known and self._store is not None:
                self._done_at_start = {}
        if touched and self._store is not None and self.keeper is not None:
            self.keeper.applied(held.position, finished)

    def _take_in(self, entry: Dispatched, *, is_counted: bool = False) -> None:
        offset, position, facts = entry.queue_offset, entry.physical_offset, far_facts(entry.properties)
        if facts is None:
            logger.error("the record at %d in %s is no timer message", position, FAR_TIMER_TOPIC)
            self.held.ignored(offset, position)
        else:
            self.held.stored(offset, position, entry.size, facts, entry.store_timestamp, is_counted=is_counted)

    def _take_in_again(self, entry: Dispatched) -> None:
        """A far record that the saved state contains. Where the process ended between saving that and the topic's queue, the
        queue did not lead to it when the others were loaded."""
        buffered, offset = self.held.buffered, entry.queue_offset
        if offset >= buffered.next_offset:
            self._take_in(entry, is_counted=True)
            if offset in self._done_at_start:
                buffered.finish(offset, self._done_at_start[offset])

    def _change(self, position: int) -> None:
        assert self._log is not None
        view = self._log.record(position)
        if view is None:
            raise StoreDamagedError(f"the record of a change at {position} is not in the log")
        try:
            self.held.changed(decode_change(decode_record(view).body))
        except RecordError as error:
            logger.error("the change of the far tier at %d is left out: %s", position, error)

    def state(self) -> object:
        return self.saving.mark()

    def write(self) -> None:
        """Nothing: what changed since the last durable save is in the log, which is read from there."""

    def begin_sync(self) -> None:
        if self.keeper is not None:
            self.keeper.rotate()
        if not self._may_append:
            self.held.files.forget_garbage()
        self.saving.begin()

    def datasync(self) -> None:
        self.saving.write()

    # --- recovery (Recoverable) -------------------------------------------------------------------------------------

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        self._log = log
        held, queue = self.held, queues.get(FAR_TIMER_TOPIC, 0)
        mark = state if position is not None and isinstance(state, dict) and not state.get("changed") else None
        saved = self.saving.load()
        if saved is None:
            firsts = [_first(queue)]
            if mark is None:  # files may have been loaded where no message was ever sent
                firsts.append(_first(queues.get(TIMER_CHANGES_TOPIC, 0)))
            first = min((at for at in firsts if at is not None), default=None)
            if first is None and position is None:
                # Nothing is asked for; but where consume queues are being made from the log, the far one has yet to come.
                held.position = log.start
                return log.end_of_files
            if first is None:
                held.position = position or 0
            else:
                held.position = held.first_stored = first
                held.buffered.first = queue.min_offset if queue is not None else 0
            return held.position
        held.restore(saved)
        if position is not None and mark is not None and mark.get("serial") == saved.serial:
            held.position = max(
                position, saved.position
            )  # a state that was taken from another broker is ahead of a log that still comes
        self._done_at_start = saved.done
        self._load_buffered(log, queue, saved)
        self.saving.restored()
        return held.position

    def _load_buffered(self, log: CommitLog, queue: ConsumeQueue | None, saved: SavedState) -> None:
        """The messages that no file holds, up to where the log is going to be applied from."""
        if queue is None:
            return
        held, lost = self.held, 0
        for offset in range(max(saved.landed_to, queue.min_offset), queue.max_offset):
            unit = queue.kept_unit(offset)
            if unit is None or unit[0] >= held.position:
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
            else:
                held.stored(offset, unit[0], unit[1], facts, stored_ms, is_counted=offset < saved.next_offset)
        for offset, finished_at in saved.done.items():
            if held.buffered.is_pending(offset):
                held.buffered.finish(offset, finished_at)
        expected = saved.next_offset - saved.landed_to - len(saved.done)
        gone = queue.min_offset - saved.landed_to
        if expected > 0 and (gone > 0 or lost):
            logger.error("far messages that no file holds are gone from the log: up to %d", max(gone, 0) + lost)

    def finish_restore(self) -> None:
        """The log has been read to its end."""
        if self._log is None or self._log.end >= self.held.position:
            self._done_at_start = {}

    # --- a state from another broker --------------------------------------------------------------------------------

    def take_state(self, saved: SavedState, worker: Worker, done: Callable[[BaseException | None], None]) -> None:
        """Begin with what another broker with this log knew at `saved.position`, before any of the log has come: what it says up to there
        is passed over, but for the messages that no file holds. `done` hears when the state is durable, or why it is not: then nothing
        has changed."""

        def written(result: tuple[bytes, SavedState] | BaseException) -> None:
            if isinstance(result, BaseException):
                done(result)
                return
            self.held.restore(result[1])
            self._done_at_start = result[1].done
            self.saving.taken(*result)
            done(None)

        worker.submit(lambda: self.saving.write_taken(saved), written)

    # --- making room in the log (PendingOwner) ----------------------------------------------------------------------

    def lowest_needed(self) -> int | None:
        return self.saving.lowest_needed()

    def bytes_below(self, position: int) -> int:
        """Size of the messages that no file holds and that lie below a log position."""
        return sum(unit.size for unit in self._below(position))

    def _below(self, position: int) -> Iterator[FarUnit]:
        for unit in self.held.buffered.pending():
            if unit.physical_offset >= position:
                return
            yield unit

    def take_below(self, position: int, limit: int) -> list[Taken]:
        """Messages below a log position that nobody is changing, oldest first."""
        if self.keeper is None:
            return []
        free = (unit for unit in self._below(position) if self.status(unit.source) is FarStatus.PENDING)
        taken = list(islice(free, limit))
        self.keeper.outcomes.changing.update((unit.source, TAKEN) for unit in taken)
        return [Taken(unit.physical_offset, unit.size, unit.deliver_ms) for unit in taken]

    def put_back(self, positions: Sequence[int]) -> None:
        if self.keeper is not None:
            self.keeper.changed(position + 1 for position in positions)

    # --- what is due (DueWork) --------------------------------------------------------------------------------------

    def begin(self, store: MessageStore) -> None:
        """The store is open: what waits can be found."""
        self._store = store
        if self.keeper is not None:
            self.keeper.begin(store)

    def attach(self, store: MessageStore) -> None:
        """Begin to move messages (`Appender`). Without what reads the tier's files this is for a store that has none."""
        self.begin(store)
        self._may_append = True
        if self.keeper is not None:
            self.keeper.attach(store)

    def detach(self) -> None:
        """Move nothing any more; see `FarKeeper.detach`. What waits is still learnt, and found."""
        self._may_append = False
        if self.keeper is not None:
            self.keeper.detach()

    @property
    def next_due_ms(self) -> int | None:
        """When the next message is promoted; None when none waits, or the tier is out of reach."""
        if self.keeper is None or self.keeper.is_waiting or self.damaged_files:
            return None
        return self.promotion_ms

    @property
    def promotion_ms(self) -> int | None:
        """When the earliest message that waits here is to be promoted, whether that is possible or not."""
        deliver_ms = self.held.next_deliver_ms
        return None if deliver_ms is None else self._horizon.promotion_ms(deliver_ms)

    @property
    def is_releasing(self) -> bool:
        return self.keeper is not None and self.keeper.is_moving

    def pending_units(self) -> Iterator[tuple[int | None, int, int]]:
        """Messages that no file holds, as `DueWork` says; the others are found with `find`."""
        for unit in self.held.buffered.pending():
            yield None, unit.physical_offset, unit.deliver_ms

    def clock_moved(self) -> None:
        """The wall clock was set: what is to be done by it begins now."""
        if self.keeper is not None:
            self.keeper.look()

    # --- for senders and operators ----------------------------------------------------------------------------------

    @property
    def has_tier(self) -> bool:
        """Whether its files can be read."""
        return self.keeper is not None

    @property
    def takes_messages(self) -> bool:
        """Whether new messages are taken in."""
        return self._takes and not self._stays_in_log

    def accepts(self, deliver_ms: int, now_ms: int) -> bool:
        """Whether a message due at `deliver_ms` belongs here, and can be taken in. Cost: 0.2 us."""
        return self._takes and not self._stays_in_log and self._horizon.accepts(deliver_ms, now_ms)

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
        return self.held.files.damaged

    def counts(self) -> FarCounts:
        held = self.held
        return FarCounts(held.pending_count, dict(held.by_topic), dict(held.by_day), held.next_deliver_ms)

    def compact(self) -> None:
        """Write what waits in the log to files, and files to larger ones, now. Begins it; nothing without a tier."""
        if self.keeper is not None:
            self.keeper.request_compaction()

    def repair(self) -> None:
        """Get what can be read out of damaged files, put what is known of the rest into quarantine, and give the files up. Begins it;
        nothing without a tier."""
        if self.keeper is not None:
            self.held.files.give_up_damaged()
            self.keeper.arm()

    def share(self, sharing: Sharing, *, takes: bool) -> None:
        """What this broker is to storage that copies share. Unless it `takes`, because copies do not get the tier's files, nothing is taken
        in and no files are loaded until the next call; what is here comes in its time."""
        self._stays_in_log = not takes
        if self.keeper is not None:
            self.keeper.storage.share(sharing)
            self.keeper.arm()

    def restore_all(self) -> None:
        """Promote everything, and take nothing in until the next start: for a store that goes back to a Java
        broker, which rolls what is far. Begins it; it is done when nothing is pending here."""
        if self.keeper is not None:
            self._takes = False
            self._horizon = self.keeper.horizon = Horizon(TIMER_DELIVER_MS_MAX)
            self.keeper.arm()

    # --- loading files ----------------------------------------------------------------------------------------------

    def split_ms(self) -> int:
        """Messages due from now on until this time are near: a job that loads files sends them."""
        return self._clock.now_ms() + self._horizon.length_ms + self._horizon.step_ms + 1

    def load(self, load: Load) -> Load | None:
        """Have files that a job wrote checked, and then counted: a record says so, and `held.jobs`. What is under way, which is that of
        another attempt if that came first; None when too many wait. StoreUnwritableError.

        Without files, all that is left is the record; it needs no tier.
        """
        store = self._store
        if store is None or not self._may_append:
            raise StoreUnwritableError(NOT_ATTACHED)
        if self._stays_in_log and load.left:
            raise StoreUnwritableError(
                "slaves copy this broker's log and do not get the far tier's files: send these messages instead"
            )
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

    # --- finding and changing messages ------------------------------------------------------------------------------

    def find(self, query: FarQuery, done: Callable[[FarPage | Exception], None]) -> None:
        """The first `query.limit` pending messages that match, in order of due time, given to `done` on this thread.

        With `query.bodies` they can be changed. FarBusyError when too many ask, FarTierError when the tier cannot be
        asked: then what the log alone holds is not answered either.
        """
        if self.keeper is None:
            done(FarPage([], False))
        else:
            find(self._store, self.held, self.keeper, query, done)

    def status(self, source: int) -> FarStatus:
        """Where a message is that `find` has answered within the last minute, by its source number."""
        if not self.held.is_pending(source):
            return FarStatus.GONE
        keeper = self.keeper
        is_leaving = keeper is None or source in keeper.outcomes.leaving or source in keeper.outcomes.changing
        return FarStatus.LEAVING if is_leaving else FarStatus.PENDING

    def change(self, record: Record, messages: Sequence[NewMessage], *, wait: bool, on_done: OnDone) -> None:
        """Append `messages` as one change of a far message; the first one finishes it (`changes.recall_message`,
        `noted_message`). From now on it is LEAVING; when the append fails it is pending again.
        `on_done` hears of it when it is as durable as `wait` asks.

        ValueError when the message is not PENDING; see `status`. StoreUnwritableError while nobody may append.
        """
        store, keeper, source = self._store, self.keeper, source_of_far(record)
        if store is None or keeper is None or self.status(source) is not FarStatus.PENDING:
            raise ValueError(f"the far message {source} is not pending")
        if not self._may_append:
            raise StoreUnwritableError(NOT_ATTACHED)
        try:
            if len(messages) == 1:
                placed = [store.append(messages[0], accepted=True)]
            else:
                placed = store.append_batch(messages)
        except StoreUnwritableError:
            on_done(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        keeper.outcomes.changing[source] = placed[0].physical_offset

        def written(status: PutStatus) -> None:
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                keeper.changed([source])
            on_done(status)

        store.wait_durable(placed[-1].end_offset, wait, written)

    def take_back(self, to: int) -> None:
        """The log was cut at `to`: messages whose changes lay behind it wait again. Nobody is attached then."""
        if self.keeper is not None:
            self.keeper.changed([source for source, at in self.keeper.outcomes.changing.items() if at >= to])

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the process that keeps the files. What it was doing is done again after the next start."""
        if self.keeper is not None:
            self.keeper.close()


def _first(queue: ConsumeQueue | None) -> int | None:
    """Log position of the first record of a queue that is still known."""
    if queue is None or queue.max_offset <= queue.min_offset:
        return None
    unit = queue.kept_unit(queue.min_offset)
    return None if unit is None else unit[0]

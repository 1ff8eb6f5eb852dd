"""Timer messages: what is pending, and releasing it at the exact millisecond.

The log says what is pending. The index keeps it on the disk in the order of due times; what is due soon is held in memory. The loop
sleeps until the first of it is due. "Why is my timer message late" is answered by `run`: the broker was paused or could not write, too
much was due at once, or the record had to be read from a slow disk.

Rules of this file
1. What is pending is a function of the log: timers learn of new, delivered and changed messages through `apply` alone, in a
   running broker as in recovery. Progress therefore never leads the log.
2. The identity of a pending message is the queue offset of its record in the timer topic. Runs and due times only say where to
   look: before anything leaves, its record says whether it is pending and whether its time has come.
3. A message that is *leaving* (taken for delivery, being changed, being moved) is left alone by all others, until the log says that
   it is finished or the append failed.
4. A record that cannot be delivered goes to quarantine and blocks nothing; a store that takes nothing is waited for.
5. Work per turn is bounded: one slice taken into memory and one batch of releases.
6. The wall clock decides (`Clock.due_ns`). Sleeping uses the monotonic clock and is capped, so that a stepped wall clock is noticed.
"""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import StoreUnwritableError
from orbitmq.histogram import Histogram
from orbitmq.limits.timers import HANDED_OVER_MAX, RELEASE_BATCH_MAX
from orbitmq.protocol.names import FAR_TIMER_TOPIC, QUARANTINE_TOPIC, TIMER_TOPIC
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import Files
from orbitmq.store.message import NewMessage
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.store import MessageStore
from orbitmq.timing.appending import NOT_ATTACHED
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.index.counting import SlotCounts
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.index.timer_index import DUE_SLICE, TimerIndex
from orbitmq.timing.release import LATENESS_BOUNDS_MS, RETRY_MS, SLEEP_MAX_MS
from orbitmq.timing.rewriting import Taken
from orbitmq.timing.timers.delivery import Delivery
from orbitmq.timing.timers.exchange import Exchange, HandOver, PendingInDueOrder
from orbitmq.timing.timers.facts import FinishedTimer, TimerFacts, all_facts, unstated_facts
from orbitmq.timing.timers.feeding import Feeding
from orbitmq.timing.timers.leaving import Leaving, LeavingTimers, finish_sources
from orbitmq.timing.timers.ledger import TimerLedger
from orbitmq.timing.timers.pending import PendingTimers
from orbitmq.timing.timers.pending_records import PendingRecords, TimerRecord
from orbitmq.timing.timers.read_ahead import ReadAhead
from orbitmq.timing.timers.recovery import TimerRecovery
from orbitmq.timing.timers.soon import SoonTimers


class TimerSettings(msgspec.Struct, frozen=True):
    """Settings of one store's timers."""

    precision_ms: int = 1_000
    """Width of the slots in which RocketMQ keeps due times, and which records and timer files name. Delivery is exact whatever it is."""
    stopped: bool = False
    """Release nothing."""
    shape: IndexShape = IndexShape()
    """How much goes into a part of the index."""


logger = logging.getLogger("orbitmq.timing")

NS_PER_MS: Final = 1_000_000
WAKEUP: Final = "timers"

CHANGES: Final = frozenset({TIMER_TOPIC, FAR_TIMER_TOPIC, QUARANTINE_TOPIC})
"""Topics of records that finish a message without delivering it."""


class TimerState(enum.Enum):
    """What can be done with a timer record now."""

    PENDING = "pending"
    LEAVING = "leaving"
    """Taken for delivery, or being changed, at this moment: it is too late for another change."""
    GONE = "gone"
    """Delivered, changed, moved, cancelled, or never there."""


class Timers:
    """The timer messages of one store. Hand it to `open_store` as derived structure, then `attach` the store."""

    name = "timers"

    def __init__(self, files: Files, root: Path, clock: Clock, settings: TimerSettings, exchange: Exchange) -> None:
        self._clock = clock
        self._precision_ms = settings.precision_ms
        self._exchange = exchange
        self._ledger = TimerLedger(files, root, clock)
        self._recovery = TimerRecovery(self._ledger, exchange, settings.precision_ms)
        self._store: MessageStore | None = None
        self._leaving = LeavingTimers()
        self._soon = SoonTimers()
        self._records = PendingRecords(self._ledger, settings.precision_ms)
        self._read_ahead = ReadAhead(self._soon, self._records.size_of, self._arrived)
        self._delivery = Delivery(
            self._ledger, self._soon, self._leaving, self._read_ahead, clock, settings.precision_ms
        )
        self.index = TimerIndex(files, root, clock, self, settings.precision_ms, settings.shape)
        """Finds, lists and counts what is pending."""
        self.index.found = self._found
        self._feeding = Feeding(self._soon, self.index.due, self._records.places)
        self._slot_counts = SlotCounts(
            lambda slot_ms: self.index.pending_between(slot_ms + 1, slot_ms + self._precision_ms + 1)
        )
        self._is_open = self._is_fenced = False
        self._is_exact = False
        """Whether the timer files of RocketMQ say what is pending, once what is being saved is on the disk."""
        self._saved_exact = self._is_handed_over = False
        """Whether that is being saved, and whether it was."""
        self.handed_over_max = HANDED_OVER_MAX
        """With more pending messages an orderly stop leaves no timer files."""
        self.taken_in: list[Callable[[Sequence[TimerFacts]], None]] = []
        """Told from `apply` of every batch of records that came into the timer topic, cancellations among them."""
        self.finished: list[Callable[[Sequence[FinishedTimer]], None]] = []
        """Told from `apply`, after `taken_in`, of every batch of records that are pending no longer."""
        self.lateness_ms = Histogram(LATENESS_BOUNDS_MS)
        """From the due time of each message that this process delivered to the moment it became visible."""
        self.delivered_count = 0
        self.paused = settings.stopped
        """While true nothing is released; due messages wait. For maintenance and tests."""

    # --- what the log says (Derived) ----------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        arrived = [entry for entry in entries if entry.topic == TIMER_TOPIC and entry.queue_id == 0]
        if arrived:
            self._take_in(arrived)
        named = [entry for entry in entries if entry.prepared_transaction_offset]
        if named:
            self._finish_sources(named)
        if entries:
            self._ledger.took(entries[-1])
        if arrived and self._store is not None:
            self._arm()

    def _take_in(self, arrived: Sequence[Dispatched]) -> None:
        """What came into the timer topic; raises OSError before anything has changed."""
        ledger = self._ledger
        if self._is_open and not self._is_fenced:  # a start raises it at its end
            self._exchange.raise_fence()
            self._is_fenced = True
        self._is_exact = self._is_handed_over = False
        every = self._facts_of(arrived)
        first, end = arrived[0].queue_offset, arrived[-1].queue_offset + 1
        if first == ledger.pending.next_offset and end - first == len(arrived):  # nearly always
            ledger.add_all(first, end)
            if cancelling := [facts for facts in every if facts.is_cancel]:
                ledger.finish_many([facts.queue_offset for facts in cancelling])  # they never wait themselves
        else:
            every = [
                facts
                for facts in every
                if (ledger.skip if facts.is_cancel else ledger.add)(facts.queue_offset) or facts.is_cancel
            ]
            cancelling = [facts for facts in every if facts.is_cancel]
        for facts in cancelling:
            ledger.cancels.add(facts)
        waiting = [facts for facts in every if not facts.is_cancel] if cancelling else every
        if self._slot_counts.is_asked:
            for facts in waiting:
                self._slot_counts.came(slot_time(facts.deliver_ms, self._precision_ms))
        if self._store is not None:
            self._place(waiting)
        else:
            self._feeding.arrived(0)
        self.index.taken_in(every)
        for observer in self.taken_in:
            observer(every)

    def _facts_of(self, entries: Sequence[Dispatched]) -> list[TimerFacts]:
        every = all_facts(entries, self._precision_ms)
        now_ms = self._clock.now_ms()
        return [  # a list of its own: nothing in it is None
            facts
            or unstated_facts(entry.queue_offset, entry.physical_offset, entry.size, now_ms, entry.store_timestamp)
            for facts, entry in zip(every, entries, strict=True)
        ]

    def _place(self, arrived: Sequence[TimerFacts]) -> None:
        """See that messages that came in are in memory before their time."""
        horizon_ms = self._feeding.horizon_ms
        later = [facts.deliver_ms for facts in arrived if facts.deliver_ms >= horizon_ms]
        if later:
            self._feeding.arrived(min(later))
        if len(later) < len(arrived):
            add = self._soon.add
            for facts in arrived:
                if facts.deliver_ms < horizon_ms:
                    add(facts.deliver_ms, facts.physical_offset, facts.topic)

    def _found(self, batch: Sequence[TimerFacts]) -> None:
        """The index has found records that it lacked."""
        self._slot_counts.went(None)
        for facts in batch:
            if facts.is_cancel:
                self._ledger.cancels.add(facts)
                self._ledger.finish(facts.queue_offset)
            elif self._feeding.holds(facts.deliver_ms, facts.queue_offset):
                self._soon.add(facts.deliver_ms, facts.physical_offset, facts.topic)
            else:
                self._feeding.arrived(facts.deliver_ms)
        self._arm()

    def _finish_sources(self, entries: Sequence[Dispatched]) -> None:
        gone = list(finish_sources(entries, self._leaving, self._ledger, self.index.facts_at))
        if not gone:
            return
        self._is_exact = self._is_handed_over = False
        if self._slot_counts.is_asked:
            for _, one in gone:
                due_ms = one.deliver_ms
                self._slot_counts.went(None if due_ms is None else slot_time(due_ms, self._precision_ms))
        finished, now_ms = [one for _, one in gone], self._clock.now_ms()
        delivered = Counter([taken.due_ms for taken, one in gone if one.topic not in CHANGES])
        for due_ms, count in delivered.items():
            if due_ms is not None:
                self.delivered_count += count
                self.lateness_ms.observe(max(now_ms - due_ms, 0), count)
        self.index.finished(finished)
        for observer in self.finished:
            observer(finished)

    def due_before(self, until_ms: int) -> list[tuple[int, int, int]]:
        """(queue offset, log position, due time) of what is pending, known to the index and due before a time. 2 us each."""
        found, after = list[tuple[int, int, int]](), (0, -1)
        while after[0] < until_ms:
            part = self.index.due(after, until_ms, DUE_SLICE)
            due = {queue_offset: due_ms for due_ms, queue_offset, _ in part.entries}
            offsets = sorted(due)
            for queue_offset, position in zip(offsets, self._records.places(offsets), strict=True):
                if position is not None:
                    found.append((queue_offset, position, due[queue_offset]))
            if part.end <= after:
                break
            after = part.end
        return found

    def delivered_elsewhere(self, units: Iterable[tuple[int, int, int]]) -> int:
        """A broker that does not say so in its records has delivered these (as `due_before` names them); how many were pending."""
        given = list(units)
        told = self._ledger.finish_many([queue_offset for queue_offset, _, _ in given])
        gone = [unit for unit, was_pending in zip(given, told, strict=True) if was_pending]
        if gone:
            self._is_exact = self._is_handed_over = False
            self._slot_counts.went(None)
            finished = [FinishedTimer(offset, position, TIMER_TOPIC, due_ms) for offset, position, due_ms in gone]
            self.index.finished(finished)
            for observer in self.finished:
                observer(finished)
        return len(gone)

    # --- saving and recovery (Recoverable) ----------------------------------------------------------------------------

    def state(self) -> object:
        return self._ledger.state()

    def write(self) -> None:
        self.index.write()
        self._ledger.write()

    def begin_sync(self) -> None:
        self._saved_exact = self._is_exact
        self._forget_cancels()
        self.index.begin_sync()
        self._ledger.begin_sync()

    def datasync(self) -> None:
        self.index.datasync()
        self._ledger.datasync()
        self._is_handed_over = self._saved_exact

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        self.index.restore(log, queues)
        return self._recovery.restore(log, queues, state, position)

    @property
    def applied_end(self) -> int:
        """Log position up to which records were taken in."""
        return self._ledger.position

    def finish_restore(self) -> None:
        """Raises OSError."""
        self._recovery.finish()
        self.index.finish_restore()
        ledger = self._ledger
        if self._recovery.is_taken_over and ledger.pending.next_offset:
            assert ledger.log is not None
            ledger.log.datasync()  # nothing may speak of more than that
            self.begin_sync()
            self.datasync()
            first = ledger.pending.first_pending
            self._exchange.settle_take_over(
                ledger.pending.next_offset if first is None else first, self._clock.now_ms()
            )
        if ledger.pending.next_offset:
            self._exchange.raise_fence()
            self._is_fenced = True
        self._is_open = True

    def hand_over(self, *, is_all: bool = True) -> None:
        """Before the save of an orderly stop: leave timer files so that RocketMQ can go on with them.

        It goes on refusing the store unless `is_all`, because messages wait elsewhere, and where more than `handed_over_max` are pending,
        or it is not known yet what is, by files that match their sums. 0.6 us a message, 3 us without the compiled leaf; raises OSError."""
        ledger = self._ledger
        self.index.check_now()
        is_possible = is_all and self.index.is_complete and ledger.pending.count <= self.handed_over_max
        if self._is_exact or not is_possible or not ledger.pending.next_offset:
            return
        pending = PendingInDueOrder(self.index, self._records)
        self._exchange.hand_over(
            HandOver(
                pending,
                pending.by_topic,
                ledger.cancels.waiting(),
                ledger.newest_record(),
                ledger.pending.next_offset,
                self._clock.now_ms(),
            )
        )
        written_count = pending.by_topic.total()
        self._is_exact = self.index.is_complete and written_count == ledger.pending.count
        if not self._is_exact:
            logger.error("%d of %d timers could be left for RocketMQ", written_count, ledger.pending.count)

    def find_all(self) -> None:
        """Find at once what is otherwise found beside the work of a broker: for tools. 15 us a message that is missing."""
        self.index.work_off()

    def close(self) -> None:
        """Raises OSError when RocketMQ goes on refusing a store that it could go on with."""
        self.abandon()
        if self._is_handed_over:
            self._exchange.lower_fence()

    def abandon(self) -> None:
        self._ledger.close()
        self.index.close()

    # --- what is pending ----------------------------------------------------------------------------------------------

    def state_of(self, queue_offset: int) -> TimerState:
        """Cost: less than a microsecond."""
        if not self._ledger.pending.is_pending(queue_offset):
            return TimerState.GONE
        return TimerState.LEAVING if queue_offset in self._leaving else TimerState.PENDING

    def read(self, queue_offset: int) -> TimerRecord | None:
        """The record, verified, while it is pending; see `PendingRecords.read`. May touch the disk for an old one."""
        return self._records.read(queue_offset)

    def will_read(self, queue_offsets: Iterable[int]) -> None:
        """Before many are read: see `PendingRecords.will_read`."""
        self._records.will_read(queue_offsets)

    @property
    def pending(self) -> PendingTimers:
        """Which queue offsets are pending, for looking only."""
        return self._ledger.pending

    @property
    def pending_count(self) -> int:
        """Exact; cancellations are no messages."""
        return self._ledger.pending.count

    @property
    def has_cancel_room(self) -> bool:
        """Whether another cancel record that names no source can be remembered."""
        return not self._ledger.cancels.is_full

    @property
    def next_offset(self) -> int:
        """Queue offset behind the last record of the timer topic that was taken in."""
        return self._ledger.pending.next_offset

    @property
    def synced_offset(self) -> int:
        """Queue offset behind the last record that was taken in and is durable."""
        return self._ledger.synced_offset

    @property
    def delivered_until_ms(self) -> int:
        """Time of the first slot in which something is pending, or the one in progress."""
        now_ms = self._clock.now_ms()
        times = (now_ms, self._soon.first_due_ms, self._leaving.first_due_ms, self._feeding.next_due_ms)
        if not self.index.is_complete:
            return 0
        return slot_time(min(time for time in times if time is not None), self._precision_ms)

    def slot_count(self, slot_ms: int) -> int:
        """How many messages are pending in the slot, exactly. 0.2 us, but for a slot that was filled before anybody asked, which
        takes 1 us for each of its messages."""
        return self._slot_counts.of(slot_ms)

    @property
    def next_due_ms(self) -> int | None:
        """A time at or before the due time of everything that is pending; None when nothing is. Exact for what is due soon."""
        if not self._ledger.pending.count:
            return None
        unknown_ms = None if self.index.is_complete else self._clock.now_ms()
        times = (self._soon.first_due_ms, self._leaving.first_due_ms, self._feeding.next_due_ms, unknown_ms)
        return min((time for time in times if time is not None), default=None)

    @property
    def is_releasing(self) -> bool:
        """Whether something is on its way and not visible yet."""
        return len(self._leaving) > 0 or self._read_ahead.is_running

    @property
    def released_count(self) -> int:
        """Messages appended to their topics."""
        return self._delivery.release.released_count

    @property
    def quarantined_count(self) -> int:
        return self._delivery.release.quarantined_count

    def pending_units(self) -> Iterator[tuple[None, int, int]]:
        """(None, log position, due time) of every pending message in the order of the timer topic. Reads every record."""
        return self._records.units()

    # --- changing what is pending -------------------------------------------------------------------------------------

    def change(
        self,
        source: TimerRecord,
        messages: Sequence[NewMessage],
        *,
        wait: bool,
        on_done: Callable[[PutStatus], None],
    ) -> None:
        """Append `messages`, the first of which names the source, as one change.

        From now on the source is LEAVING: it is not released. When the append fails it is pending again. `on_done` comes when the
        change is as durable as `wait` asks, from the end of this turn on. Raises ValueError when the source is not PENDING,
        StoreUnwritableError and RecordError when nothing was appended: also while nobody may append.
        """
        store, physical_offset = self._store, source.physical_offset
        if self.state_of(source.queue_offset) is not TimerState.PENDING:
            raise ValueError(f"timer record {source.queue_offset} is not pending")
        if store is None:
            raise StoreUnwritableError(NOT_ATTACHED)
        placed = [store.append(messages[0])] if len(messages) == 1 else store.append_batch(messages)
        self._leaving.add_changed(
            physical_offset,
            Leaving(source.queue_offset, source.deliver_ms, real_topic=source.topic),
            placed[0].physical_offset,
        )

        def committed(status: PutStatus) -> None:
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                self._untake([physical_offset])
            on_done(status)

        store.wait_durable(placed[-1].end_offset, wait, committed)

    def take_back(self, to: int) -> None:
        """The log was cut at `to`: messages whose changes lay behind it are pending again. Nobody is attached then."""
        self._untake(self._leaving.changed_from(to))

    # --- making way for retention (PendingOwner) ----------------------------------------------------------------------

    def lowest_needed(self) -> int | None:
        """Log position of the oldest pending record; retention must not take its file. None when nothing is pending."""
        return self._records.lowest_needed()

    def bytes_below(self, position: int) -> int:
        return self._records.bytes_below(position)

    def take_below(self, position: int, limit: int) -> list[Taken]:
        """In the order of the log. A due time is not looked up: a timer record carries its own."""
        taken: list[Taken] = []
        known = list(self._records.below(position, limit + len(self._leaving)))  # may fail: before anything is taken
        for queue_offset, physical_offset, size in known:
            if queue_offset not in self._leaving and len(taken) < limit:
                self._leaving.add(physical_offset, Leaving(queue_offset, None))
                taken.append(Taken(physical_offset, size, 0))
        return taken

    def put_back(self, positions: Sequence[int]) -> None:
        self._untake(positions)

    # --- releasing ----------------------------------------------------------------------------------------------------

    def attach(self, store: MessageStore) -> None:
        """Begin to release into `store` (`Appender`), and to work on the index between its turns, which goes on from the first time on."""
        if self._store is not None:
            return
        self._store = store
        store.deadlines.define(WAKEUP, self.run)
        self.index.attach(store)
        if self._ledger.pending.count:
            self._feeding.arrived(0)
        self._arm()

    def detach(self) -> None:
        """Release nothing any more, and forget what is in flight. What is due later is still learnt, and what is being changed remains so
        until the log says more of it."""
        if self._store is None:
            return
        self._store.deadlines.disarm(WAKEUP)
        self._store = None
        self._leaving.drop_taken()
        self._soon.clear()
        self._read_ahead.clear()
        self._feeding.begin()
        self._feeding.arrived(0)

    def clock_moved(self) -> None:
        """The wall clock was set; without a word it would be noticed within `SLEEP_MAX_MS`."""
        self._arm()

    def run(self) -> None:
        """One turn's share: take a slice of what is due soon into memory, release a batch of what is due, read ahead."""
        store = self._store
        if store is None:
            return
        now_ms = self._clock.now_ms()
        self._read_ahead.warm_from = store.warm_from
        is_feeding = self._feeding.step(now_ms, store.warm_from)
        released = 0
        if not self.paused and store.writes_accepted:
            until_ms = self._clock.due_ns() // NS_PER_MS
            released = self._delivery.leave(store, until_ms, RELEASE_BATCH_MAX, self._arm, self._untake)
        self._read_ahead.look(store, now_ms)
        if not released:
            self._forget_cancels()
            self._arm(soonest_ms=0 if store.writes_accepted or is_feeding else RETRY_MS)

    def _forget_cancels(self) -> None:
        """Those whose messages have left, where it is known what waits. Where another broker delivers, the log says how far it has come."""
        ledger = self._ledger
        if not self.index.is_complete:
            return
        if self._store is not None:
            ledger.cancels.forget(self.delivered_until_ms)
        elif ledger.cancels:
            left_until_ms = self.index.nothing_before_ms(ledger.witness[1])
            ledger.cancels.forget(slot_time(left_until_ms, self._precision_ms))

    def _arrived(self, is_good: bool) -> None:
        """The worker has brought something, or could not."""
        self._arm(soonest_ms=0 if is_good else RETRY_MS)

    def _untake(self, positions: Sequence[int]) -> None:
        """What was taken at these log positions did not reach the log."""
        for physical_offset in positions:
            leaving = self._leaving.pop(physical_offset)
            if leaving is not None and leaving.unit is not None and self._store is not None:
                self._soon.give_back(leaving.unit)
        self._arm(soonest_ms=RETRY_MS)

    def _arm(self, *, soonest_ms: int = 0) -> None:
        """Wake when something is due or is to be opened, but within `SLEEP_MAX_MS`, and not before `soonest_ms` from now."""
        store = self._store
        if store is None:
            return
        now_ns = self._clock.due_ns()
        times = [self._feeding.next_look_ms(now_ns // NS_PER_MS)]
        if not self.paused:
            times.append(self._soon.next_due_ms)
        next_ms = min((time for time in times if time is not None), default=None)
        if next_ms is None and not self._ledger.pending.count:
            return
        wait_ns = SLEEP_MAX_MS * NS_PER_MS
        if next_ms is not None:
            wait_ns = max(min(next_ms * NS_PER_MS - now_ns, wait_ns), soonest_ms * NS_PER_MS, 0)
        store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + wait_ns)

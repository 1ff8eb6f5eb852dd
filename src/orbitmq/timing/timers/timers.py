"""Timer messages: what is pending, and releasing it at the exact millisecond.

The log says what is pending. The wheel groups it by slot on the disk; slots that are near are held in memory, unit by unit in
due order. The loop sleeps until the first of them is due. A look here answers "why is my timer message late".

Rules of this file
1. What is pending is a function of the log: timers learn of new, delivered and changed messages through `apply` alone, in a
   running broker as in recovery. Progress therefore never leads the log.
2. The identity of a pending message is the queue offset of its record in the timer topic. Units, slots and due times only say
   where to look: before anything leaves, its record says whether it is pending and whether its time has come.
3. Who is *leaving* (taken for delivery, being changed, being moved) belongs to whoever took it, until the log says that it is
   finished or the append failed.
4. A record that cannot be delivered goes to quarantine and blocks nothing; a store that takes nothing is waited for.
5. Work per turn is bounded: one batch of releases and one slice of opening.
6. The wall clock decides (`Clock.due_ns`). Sleeping uses the monotonic clock and is capped, so that a stepped wall clock is noticed.
"""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock
from orbitmq.histogram import Histogram
from orbitmq.limits.timers import RELEASE_BATCH_MAX
from orbitmq.protocol.names import FAR_TIMER_TOPIC, QUARANTINE_TOPIC, TIMER_TOPIC
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import Files
from orbitmq.store.message import NewMessage
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.store import MessageStore
from orbitmq.timing.due_time import roll_window
from orbitmq.timing.release import LATENESS_BOUNDS_MS, RETRY_MS, SLEEP_MAX_MS
from orbitmq.timing.rewriting import Taken
from orbitmq.timing.timer_files.checkpoint import TimerCheckpoint
from orbitmq.timing.timer_files.link import Link
from orbitmq.timing.timer_files.unit import DELETE, ROLL, TimerUnit
from orbitmq.timing.timer_files.wheel import NO_POSITION
from orbitmq.timing.timers.aside import Aside
from orbitmq.timing.timers.audit import Audit
from orbitmq.timing.timers.cancels import Cancels
from orbitmq.timing.timers.delivery import Delivery
from orbitmq.timing.timers.facts import FinishedTimer, TimerFacts, all_facts, timer_facts
from orbitmq.timing.timers.finishing import finish_sources
from orbitmq.timing.timers.leaving import Leaving, LeavingTimers
from orbitmq.timing.timers.ledger import TimerLedger
from orbitmq.timing.timers.opening import Opening
from orbitmq.timing.timers.pending import PendingTimers
from orbitmq.timing.timers.pending_records import PendingRecords, TimerRecord
from orbitmq.timing.timers.read_ahead import ReadAhead
from orbitmq.timing.timers.record_units import RecordUnits
from orbitmq.timing.timers.recovery import TimerRecovery
from orbitmq.timing.timers.relinking import Relinking
from orbitmq.timing.timers.settings import TimerSettings
from orbitmq.timing.timers.slot_counts import SlotCounts
from orbitmq.timing.timers.slots import DueUnit, NearSlots, OpenSlot

logger = logging.getLogger("orbitmq.timing")

NS_PER_MS: Final = 1_000_000
READ_CLOCK_BEHIND_MS: Final = 6 * 86_400_000
"""How far the read clock may lie behind what is linked; with half a lap of the wheel, a week, there is no place for it."""
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

    def __init__(self, files: Files, root: Path, clock: Clock, settings: TimerSettings) -> None:
        self._clock = clock
        self._precision_ms = settings.precision_ms
        window_slots = min(roll_window(settings.roll_window_slots), settings.slot_count // 2 - 1)
        self._units = RecordUnits(window_slots, settings.precision_ms)
        self._ledger = TimerLedger(
            files,
            root,
            clock,
            settings.precision_ms,
            log_file_bytes=settings.log_file_bytes,
            slot_count=settings.slot_count,
        )
        self._recovery = TimerRecovery(self._ledger, self._link_again, _no_level)
        self._store: MessageStore | None = None
        self._saving = False
        self._leaving = LeavingTimers()
        self._near = NearSlots()
        self._records = PendingRecords(self._ledger, settings.precision_ms)
        self._read_ahead = ReadAhead(self._near, self._records.size_of, self._arrived)
        self._cancels = Cancels(self._ledger.cancels, settings.precision_ms, self._arrived)
        self._opening = Opening(
            self._ledger.files, settings.slot_count, self._near, self._read_cancels, self._find_units
        )
        self._delivery = Delivery(
            self._ledger, self._near, self._leaving, self._read_ahead, clock, settings.precision_ms
        )
        self._aside = Aside(self._near, self._opening)
        self._slot_counts = SlotCounts(self._count_in)
        self.audit = Audit()
        """Gets to know the index, where there is one."""
        self.linked: list[Callable[[Sequence[TimerFacts]], None]] = []
        """Told from `apply` of every batch of records that came into the timer topic, cancellations among them."""
        self.finished: list[Callable[[Sequence[FinishedTimer]], None]] = []
        """Told from `apply`, after `linked`, of every batch of records that are pending no longer."""
        self.lateness_ms = Histogram(LATENESS_BOUNDS_MS)
        """From the due time of each message that this process delivered to the moment it became visible."""
        self.linked_count = 0
        """Messages that began to wait since the start of the process; one that is moved begins again."""
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
        """Link what came into the timer topic; raises OSError before anything has changed."""
        ledger, now_ms = self._ledger, self._clock.now_ms()
        write_ms = ledger.files.floor(now_ms)
        if not 0 <= write_ms - ledger.files.read_ms <= READ_CLOCK_BEHIND_MS:  # set back, or nothing was saved for long
            self._move_read_clock(now_ms)
        every = all_facts(arrived, self._precision_ms)
        links, are_usual = self._units.links_of(arrived, every, write_ms)
        slots = ledger.link(links)
        running = self._store is not None
        first, end = arrived[0].queue_offset, arrived[-1].queue_offset + 1
        are_next = first >= ledger.pending.next_offset and end - first == len(arrived)
        if running and are_usual and are_next and slots == [link[0] for link in links]:  # nearly always
            ledger.add_all(first, end)
            if cancelling := [facts.queue_offset for facts in every if facts is not None and facts.is_cancel]:
                ledger.finish_many(cancelling)  # they have taken effect, and never wait themselves
                links = [link for link in links if not link[1] & DELETE]
            self._place_all(links)
            self._tell_linked([facts for facts in every if facts is not None])
            return
        new: list[TimerFacts] = []
        for at, (entry, facts) in enumerate(zip(arrived, every, strict=True)):
            is_cancel = facts is not None and facts.is_cancel
            if is_cancel:
                ledger.cancels.add(facts)
            if not (ledger.skip(entry.queue_offset) if is_cancel else ledger.add(entry.queue_offset)):
                continue
            if facts is not None:
                new.append(facts)
            if running and slots[at] != NO_POSITION:
                self._place(Link(*links[at]), slots[at], facts)
        self._tell_linked(new)

    def _tell_linked(self, new: Sequence[TimerFacts]) -> None:
        for observer in self.linked:
            observer(new)

    def _link_again(self, entry: Dispatched) -> Link:
        """As at its arrival, for recovery."""
        write_ms, facts = self._ledger.files.floor(self._clock.now_ms()), timer_facts(entry, self._precision_ms)
        self._ledger.cancels.add(facts)
        return self._units.link_of(entry, facts, write_ms)

    def _place_all(self, links: Sequence[Link | tuple[int, ...]]) -> None:
        """`_place` for messages that were linked in the slots that were meant for them."""
        self.linked_count += len(links)
        if self._slot_counts.is_asked:
            for link in links:
                self._slot_counts.came(link[0])
        near, opening, precision_ms, before_ms = self._near, self._opening, self._precision_ms, -1
        for slot_ms, magic, physical_offset, _, topic_hash, deliver_ms in links:
            open_slot = near.get(slot_ms)
            if open_slot is not None:
                place_ms = slot_ms + precision_ms if magic & ROLL else deliver_ms
                near.link(open_slot, topic_hash, place_ms, physical_offset)
            elif slot_ms != before_ms:
                opening.linked(before_ms := slot_ms)

    def _place(self, link: Link, slot_ms: int, facts: TimerFacts | None) -> None:
        """A unit was linked into a slot: see that it is found there in its time."""
        rolls = link.magic & ROLL or (facts is not None and facts.deliver_ms > slot_ms + self._precision_ms)
        open_slot = self._near.get(slot_ms)
        if facts is not None and facts.is_cancel and not rolls:
            self._ledger.cancels.add(facts, is_open=open_slot is not None)
            return
        self.linked_count += 1
        self._slot_counts.came(slot_ms)
        now_ms = self._clock.now_ms()
        if slot_ms > link.slot_ms and slot_ms > now_ms:
            early_ms = self._ledger.files.floor(max(link.slot_ms, now_ms))
            due_ms = early_ms + self._precision_ms if rolls else early_ms if facts is None else facts.deliver_ms
            self._aside.add(DueUnit(due_ms, link.physical_offset, early_ms, link.topic_hash))
        if open_slot is None:
            self._opening.linked(slot_ms)
        else:
            due_ms = slot_ms + self._precision_ms if rolls else slot_ms if facts is None else facts.deliver_ms
            self._near.link(open_slot, link.topic_hash, due_ms, link.physical_offset)

    def _finish_sources(self, entries: Sequence[Dispatched]) -> None:
        gone = list(finish_sources(entries, self._leaving, self._near, self._ledger))
        if self._slot_counts.is_asked:
            for leaving, _ in gone:
                self._slot_counts.went(self._slot_left(leaving))
        finished, now_ms = [one for _, one in gone], self._clock.now_ms()
        delivered = Counter([one.deliver_ms for one in finished if one.topic not in CHANGES])
        for due_ms, count in delivered.items():
            if due_ms is not None:
                self.delivered_count += count
                self.lateness_ms.observe(max(now_ms - due_ms, 0), count)
        if finished:
            for observer in self.finished:
                observer(finished)

    # --- saving and recovery (Recoverable) ----------------------------------------------------------------------------

    def state(self) -> object:
        return self._ledger.state()

    def write(self) -> None:
        self._ledger.write()

    def begin_sync(self) -> None:
        if self._store is not None:  # what was delivered since is over for a RocketMQ broker as well
            self._move_read_clock(self._clock.now_ms())
        self._ledger.begin_sync()

    def datasync(self) -> None:
        self._ledger.datasync()

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        return self._recovery.restore(log, queues, state, position)

    def finish_restore(self) -> None:
        self._recovery.finish()

    def hand_over(self, *, is_all: bool = True) -> None:
        """Before an orderly stop: leave the timer files so that RocketMQ can go on with them; unless `is_all`, because messages wait
        elsewhere, it goes on refusing the store. Raises OSError."""
        if self._store is not None:
            self._move_read_clock(self._clock.now_ms())
        self._ledger.hand_over(is_all=is_all)

    def link_all(self) -> None:
        """Link at once what is otherwise linked beside the work of a broker: for tools. 10 us a message; raises OSError."""
        while (relinking := self._recovery.relinking) is not None:
            if relinking.step(lambda entry, link, slot_ms: None):
                self._recovery.relinking = None

    def close(self) -> None:
        self._ledger.close()

    def abandon(self) -> None:
        self._ledger.abandon()

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

    def in_slot(self, slot_ms: int, topic: str) -> list[int]:
        """Queue offsets of some messages to a topic that are pending in a slot, newest first; see `PendingRecords.in_slot`."""
        return self._records.in_slot(slot_ms, self._units.hash_of(topic))

    @property
    def pending(self) -> PendingTimers:
        """Which queue offsets are pending, for looking only."""
        return self._ledger.pending

    @property
    def pending_count(self) -> int:
        """Exact; cancellations are no messages."""
        return self._ledger.pending.count

    @property
    def next_offset(self) -> int:
        """Queue offset behind the last record of the timer topic that was taken in."""
        return self._ledger.pending.next_offset

    def checkpoint(self) -> TimerCheckpoint:
        """What the checkpoint file says: how far slots are read and records linked, durably. Reads a page of the file."""
        return self._ledger.files.read_checkpoint()

    def slot_count(self, slot_ms: int) -> int:
        """How many messages are pending in the slot, exactly. 0.2 us, but for a slot that was filled before anybody asked, which
        takes 20 us for each of its units."""
        return self._slot_counts.of(slot_ms)

    def _count_in(self, slot_ms: int) -> int:
        files, count, position = self._ledger.files, 0, self._ledger.files.slot(slot_ms).last
        while position != NO_POSITION:
            walk = files.walk(position, slot_ms)
            found = (unit.physical_offset for unit in walk.units if not unit.is_delete)
            count += sum(self._records.size_of(physical_offset) is not None for physical_offset in found)
            position = walk.next
        return count

    def _slot_left(self, leaving: Leaving) -> int | None:
        """The slot in which a message that is finished was linked; None when that is not known."""
        if leaving.due_ms is None:
            return None
        if leaving.unit is not None:
            return None if self._aside.has_filled(leaving.unit.slot_ms) else leaving.unit.slot_ms
        slot_ms = self._ledger.files.floor(leaving.due_ms - 1)
        near_ms = self._clock.now_ms() + self._units.window_slots * self._precision_ms // 3
        return slot_ms if slot_ms < near_ms else None

    @property
    def next_due_ms(self) -> int | None:
        """A time at or before the due time of everything that is pending; None when nothing is. Exact for slots that are open. What
        was linked into a slot after its time counts as due then."""
        if not self._ledger.pending.count:
            return None
        times = (self._first_held_ms(), self._leaving.first_due_ms)
        return min((time for time in times if time is not None), default=None)

    def _first_held_ms(self) -> int | None:
        """The same of what has not been taken."""
        near = self._near
        closed_ms, incomplete = self._opening.first_closed_ms, near.first_incomplete()
        times = [near.first_due_ms, self._delivery.held_due_ms, self._aside.first_due_ms]
        times.append(None if closed_ms is None else closed_ms + 1)
        times.append(None if incomplete is None else incomplete.slot_ms + 1)
        return min((time for time in times if time is not None), default=None)

    @property
    def is_releasing(self) -> bool:
        """Whether something is on its way and not visible yet."""
        return len(self._leaving) > 0 or self._read_ahead.is_running

    @property
    def released_count(self) -> int:
        """Messages appended to their topics, and hops of those that are too far away."""
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
        StoreUnwritableError and RecordError when nothing was appended.
        """
        store, physical_offset = self._store, source.physical_offset
        if store is None or self.state_of(source.queue_offset) is not TimerState.PENDING:
            raise ValueError(f"timer record {source.queue_offset} is not pending")
        placed = store.append(messages[0]) if len(messages) == 1 else store.append_batch(messages)[-1]
        self._leaving.add(physical_offset, Leaving(source.queue_offset, source.deliver_ms, real_topic=source.topic))

        def committed(status: PutStatus) -> None:
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                self._untake([physical_offset])
            on_done(status)

        store.wait_durable(placed.end_offset, wait, committed)

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
        """Begin to release into `store`."""
        self._store = store
        files, now_ms = self._ledger.files, self._clock.now_ms()
        self._opening.restored(files.heads(), now_ms)
        if files.read_ms > now_ms:  # the clock was set back: what was linked since may be due before its slot
            self._aside.restored(files, now_ms)
        store.deadlines.define(WAKEUP, self.run)
        self._arm()

    def clock_moved(self) -> None:
        """The wall clock was set; without a word it would be noticed within `SLEEP_MAX_MS`."""
        self._arm()

    def run(self) -> None:
        """One turn's share: open a slice of what is near, release a batch of what is due, read ahead."""
        store = self._store
        if store is None:
            return
        now_ms = self._clock.now_ms()
        self._read_ahead.warm_from = store.warm_from
        is_linking = True
        if self._recovery.relinking is not None and store.writes_accepted:
            is_linking = self._link_more(store, self._recovery.relinking)
        self._aside.step(now_ms)
        is_opening = self._opening.step(now_ms, store.warm_from)
        released = 0
        if not self.paused and store.writes_accepted:
            until_ms = self._clock.due_ns() // NS_PER_MS
            released = self._delivery.leave(store, until_ms, RELEASE_BATCH_MAX, self._arm, self._untake)
            self._find_lost(now_ms)
        self._read_ahead.look(store, now_ms)
        if self._ledger.files.wants_sync:
            self._save(store)
        if not released:
            self._move_read_clock(now_ms)
            self._arm(soonest_ms=0 if is_linking and (store.writes_accepted or is_opening) else RETRY_MS)

    def _link_more(self, store: MessageStore, relinking: Relinking) -> bool:
        """False when it did not work."""
        try:
            if relinking.step(self._place_again):
                self._recovery.relinking = None
                self._save(store)
        except OSError as error:
            logger.error("timers could not be linked again, trying once more: %s", error)
            return False
        return True

    def _place_again(self, entry: Dispatched, link: Link, slot_ms: int) -> None:
        if not link.magic & DELETE and self._near.get(slot_ms) is None:
            self._slot_counts.came(slot_ms)
            self._opening.linked(slot_ms)
            return
        self.linked_count -= not link.magic & DELETE  # it began to wait long ago
        self._place(link, slot_ms, timer_facts(entry, self._precision_ms))

    def _find_lost(self, now_ms: int) -> None:
        """What is overdue, although nothing that is held is: its unit must be damaged, so it gets another one."""
        if self._recovery.relinking is not None or not self.audit.is_due(now_ms):
            return
        suspects = self.audit.look(now_ms, self._first_held_ms())
        lost = [one for one in suspects if self.state_of(one) is TimerState.PENDING]
        if not lost:
            self.audit.linked_again(0)
            return
        links: list[tuple[int, int, int]] = []
        for queue_offset in lost:
            unit, record = self._records.unit(queue_offset), self._records.read(queue_offset)
            if unit is not None:
                links.append((*unit, 0 if record is None else self._units.hash_of(record.topic)))
        try:
            slot_ms = self._ledger.link_again(links)
        except OSError as error:
            logger.error("%d timer messages that were missed could not be linked again: %s", len(links), error)
            return
        self.audit.linked_again(len(links))
        open_slot = self._near.get(slot_ms)
        for physical_offset, _, topic_hash in links:
            self._slot_counts.came(slot_ms)
            if slot_ms > now_ms:
                now_slot = self._ledger.files.floor(now_ms)
                self._aside.add(DueUnit(now_slot, physical_offset, now_slot, topic_hash))
            if open_slot is not None:
                self._near.link(open_slot, topic_hash, slot_ms, physical_offset)
        if open_slot is None:
            self._opening.linked(slot_ms)

    def _save(self, store: MessageStore) -> None:
        if not self._saving:
            self._saving = True
            store.save_durably(self._saved)

    def _saved(self, durable: bool) -> None:
        """Whatever came of it, a store that cannot sync says so itself."""
        self._saving = False

    def _move_read_clock(self, now_ms: int) -> None:
        """Say up to which slot everything is finished."""
        files = self._ledger.files
        if not files.is_open:
            return
        now_slot = files.floor(now_ms)
        self._near.close_spent(now_slot)
        times = (self._near.first_unfinished_ms(), self._opening.first_closed_ms, now_slot)
        files.read_until(min(time for time in times if time is not None))
        if self._recovery.relinking is None:
            self._ledger.cancels.forget(files.read_ms)

    def _read_cancels(self, slot: OpenSlot) -> None:
        assert self._store is not None
        self._cancels.read(self._store, slot)

    def _find_units(self, slot_ms: int, done: Callable[[Sequence[TimerUnit]], None]) -> None:
        store = self._store
        assert store is not None

        def found(units: list[TimerUnit] | BaseException) -> None:
            if isinstance(units, BaseException):
                logger.error(
                    "the timer log could not be searched, what is missing is delivered after a restart: %s", units
                )
                units = []
            done(units)
            self._arm()

        store.run_blocking(lambda: self._recovery.units_of(slot_ms), found)

    def _arrived(self, is_good: bool) -> None:
        """The worker has brought something, or could not."""
        self._arm(soonest_ms=0 if is_good else RETRY_MS)

    def _untake(self, positions: Sequence[int]) -> None:
        """What was taken at these log positions did not reach the log."""
        for physical_offset in positions:
            leaving = self._leaving.pop(physical_offset)
            if leaving is not None and leaving.unit is not None:
                self._near.give_back(leaving.unit)
        self._arm(soonest_ms=RETRY_MS)

    def _arm(self, *, soonest_ms: int = 0) -> None:
        """Wake when something is due or is to be opened, but within `SLEEP_MAX_MS`, and not before `soonest_ms` from now."""
        store = self._store
        if store is None:
            return
        now_ns = self._clock.due_ns()
        now_ms = now_ns // NS_PER_MS
        times = [self._opening.next_look_ms(now_ms), None if self._recovery.relinking is None else now_ms]
        if not self.paused:
            times += self._near.next_due_ms, self._aside.next_look_ms
        next_ms = min((time for time in times if time is not None), default=None)
        if next_ms is None and not self._ledger.pending.count:
            return
        wait_ns = SLEEP_MAX_MS * NS_PER_MS
        if next_ms is not None:
            wait_ns = max(min(next_ms * NS_PER_MS - now_ns, wait_ns), soonest_ms * NS_PER_MS, 0)
        store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + wait_ns)


def _no_level(properties: dict[str, str], store_timestamp: int) -> int:
    """The due time of a delayed message, which nobody asks of a timer record."""
    return 0

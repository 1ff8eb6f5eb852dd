"""Recurring messages of one broker: requests change them, their runs become messages when they are due.

The service sleeps until the next run of all. A turn of one message is worked out (`turns`), its runs are made messages by the
broker's admission (`RunSender`), and runs and progress are appended as one batch: the log holds both or, where its end was torn off,
some of the runs, which recovery knows from their properties. So each run is stored once, whenever the process ends.

Rules of this file
1. What holds is a function of the log: definitions and progress are records, and the book is read from them, whoever wrote them.
2. A run that cannot be stored for a reason of its own (its topic is gone, it is too large) is left out, reported and shown with
   its message; it stops no other. While the store takes no messages, runs wait, and then the rule's catch-up decides.
3. The wall clock decides (`Clock.due_ns`). Sleeping uses the monotonic clock and is capped, so that a stepped wall clock is noticed.
4. Work per turn is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from orbitmq.clock import Clock
from orbitmq.errors import ConfigurationError, RecordError, StoreUnwritableError
from orbitmq.histogram import Histogram
from orbitmq.limits import recurrence as limits
from orbitmq.protocol.names import RECURRING_TOPIC
from orbitmq.protocol.records import stored_size
from orbitmq.protocol.remoting.recurring_bodies import RecurringOutcome
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import OnDone, PutStatus
from orbitmq.store.message import NewMessage
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.store import MessageStore
from orbitmq.timing.appending import NOT_ATTACHED
from orbitmq.timing.recurrence.book import RecurrenceBook
from orbitmq.timing.recurrence.reading import BookReading
from orbitmq.timing.recurrence.records import Record, defined, deleted, encode, progressed
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.schedule import Occurrence
from orbitmq.timing.recurrence.state import (
    Change,
    RecurringState,
    RunMessage,
    RunPlace,
    ahead_ms,
    define,
    delete,
    pause,
    resume,
)
from orbitmq.timing.recurrence.turns import (
    Agenda,
    LeftOut,
    LeftOutReason,
    Previous,
    RecurrenceTurn,
    previous_of,
    runs_after,
    settled,
    take_turn,
)
from orbitmq.timing.release import LATENESS_BOUNDS_MS
from orbitmq.timing.rewriting import Taken

logger = logging.getLogger("orbitmq.timing")

SLEEP_MAX_MS: Final = 1_000
"""Longest sleep while any run is to come: how late a forward step of the wall clock is noticed."""

RETRY_MS: Final = 200
"""Pause before trying again when the store takes no messages."""

REWRITES_PER_TURN_MAX: Final = 2
"""Definitions written anew in one turn because a start would read too many records: more than records can come."""

BATCH_SHARE: Final = 4
"""The runs of one turn take at most this part of a log file: they lie side by side in one."""

NS_PER_MS: Final = 1_000_000
WAKEUP: Final = "recurring"


class Unstorable(Exception):
    """Why a run cannot become a message."""


class RunSender(Protocol):
    """What the broker does for runs."""

    def message_of(self, state: RecurringState, run: Occurrence, now_ms: int) -> NewMessage:
        """The message of a run: its id is the unique key, and all runs of one turn go to one queue. Raises Unstorable."""
        ...

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset that a consumer group takes from a queue; None when it has committed none."""
        ...


class Recurrences:
    """The recurring messages of one store. Hand it to `open_store` as derived structure, give it a `sender`, then `attach` the store."""

    name = "recurring"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._book = RecurrenceBook()
        self._reading = BookReading(self._book)
        self._agenda = Agenda()
        self._troubles: dict[str, str] = {}
        self._store: MessageStore | None = None
        self.sender: RunSender | None = None
        """Makes the messages of runs; needed before `attach`."""
        self._recovered = False
        self._in_flight = 0
        self._move_below = 0
        self._settling: set[str] = set()
        """Of those in the recovery's `unsettled`: the record of their progress is on its way."""
        self.lateness_ms = Histogram(LATENESS_BOUNDS_MS)
        """From the instant of each run to the moment its message became visible."""
        self.stored_count = 0
        """Runs that became messages since the start of the process."""
        self.left_out_counts: dict[LeftOutReason, int] = dict.fromkeys(LeftOutReason, 0)
        """Reason -> how often runs were left out for it; spans of time, not runs."""
        self.rewritten_count = 0
        """Definitions written anew."""

    # --- what the log says (Derived, Recoverable) -------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        changed = self._reading.apply(entries)
        if changed and self._recovered:
            for name in changed:
                self._troubles.pop(name, None)
                self._changed(name)
            self._arm()

    def state(self) -> object:
        return self._reading.state()

    def write(self) -> None:
        """Nothing waits in memory: everything is a record of the log."""

    def begin_sync(self) -> None:
        """As `write`."""

    def datasync(self) -> None:
        """As `write`."""

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        return self._reading.restore(log, queues, state, position)

    def finish_restore(self) -> None:
        self._recovered = True
        for state in self._book:
            self._changed(state.name)

    # --- what retention asks ----------------------------------------------------------------------------------------

    def lowest_needed(self) -> int | None:
        """Log position of the oldest definition that holds; retention must not take its file."""
        oldest = self._book.oldest()
        return None if oldest is None else oldest.physical_offset

    def bytes_below(self, position: int) -> int:
        """Bytes of definitions below a log position."""
        return sum(kept.size for kept in self._book.below(position))

    def take_below(self, position: int, limit: int) -> list[Taken]:
        """Write the definitions below `position` anew, at most `limit` now and the others in the next turns. There is nothing
        for the caller to move: a definition that is copied as it is would bring back old progress."""
        if self._store is not None:
            self._move_below = max(self._move_below, position)
            self._move(limit)
            self._arm()
        return []

    def put_back(self, positions: Sequence[int]) -> None:
        """Nothing is ever taken."""

    # --- what those who move the clock ask (DueWork) ----------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When the next run of all happens; None when there is none."""
        return self._agenda.next_due_ms

    @property
    def is_releasing(self) -> bool:
        """Whether something was appended that is not visible yet."""
        return self._in_flight > 0

    def pending_units(self) -> Iterator[tuple[int | None, int, int]]:
        """Runs are no messages before they happen."""
        return iter(())

    def clock_moved(self) -> None:
        """The wall clock was set; without a word it would be noticed within `SLEEP_MAX_MS`."""
        self._arm()

    # --- requests ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._book)

    def __iter__(self) -> Iterator[RecurringState]:
        return iter(self._book)

    def get(self, name: str) -> RecurringState | None:
        return self._book.get(name)

    def due_ms(self, name: str) -> int | None:
        """When the next run of a message happens; None while it is paused, and when there are no more runs."""
        return self._agenda.due_ms(name)

    def trouble(self, name: str) -> str | None:
        """Why runs of a message are left out that should happen; None when all is well."""
        state = self._book.get(name)
        wrong_ms = 0 if state is None or state.paused else ahead_ms(state, self._clock.now_ms())
        if wrong_ms:
            return (
                f"the clock was ahead: runs of the next {wrong_ms // 1_000} s count as over; define it again, or pause and resume it, "
                "and it goes on from now"
            )
        return self._troubles.get(name)

    def state_counts(self) -> dict[str, int]:
        """How many are active, paused, ended (no more runs) and in trouble. Costs a look at each."""
        counts = {"active": 0, "paused": 0, "ended": 0, "trouble": 0}
        for state in self._book:
            if self.trouble(state.name) is not None:
                counts["trouble"] += 1
            elif state.paused:
                counts["paused"] += 1
            else:
                counts["ended" if self._agenda.due_ms(state.name) is None else "active"] += 1
        return counts

    def upcoming(self, state: RecurringState, count: int) -> list[Occurrence]:
        """The next runs; those that a paused message would have if it was resumed now. None of them when its rule is not usable."""
        after_ms = state.progress.settled_ms
        if state.paused:
            after_ms = max(after_ms, self._clock.now_ms())
        try:
            return runs_after(self._agenda.schedule(state), state, after_ms, count)
        except ConfigurationError:
            return []

    def put(self, name: str, rule: Rule, message: RunMessage, on_done: OnDone) -> Change:
        """Define a message or replace it. `on_done` hears when that is as durable as the flush mode asks.

        Nothing changes when this raises: ConfigurationError for what is not usable or beyond the bounds, StoreUnwritableError (while
        nobody may append as well), RecordError when the definition is too large for this store.
        """
        self._happen(name)
        current = self._book.get(name)
        change = define(current, name, rule, message, self._clock.now_ms())
        if change.outcome is not RecurringOutcome.UNCHANGED:
            self._check_room(current, message)
        return self._change(name, change, on_done)

    def set_paused(self, state: RecurringState, *, paused: bool, on_done: OnDone) -> Change:
        """Pause a message or let it go on; as `put`."""
        self._happen(state.name)
        current = self._book.get(state.name) or state
        return self._change(state.name, pause(current) if paused else resume(current, self._clock.now_ms()), on_done)

    def delete(self, state: RecurringState, on_done: OnDone) -> Change:
        """Forget a message; as `put`. What its runs have stored stays."""
        self._happen(state.name)
        return self._change(state.name, delete(), on_done)

    def _check_room(self, current: RecurringState | None, message: RunMessage) -> None:
        if current is None and len(self._book) >= limits.RECURRENCE_DEFINITIONS_MAX:
            raise ConfigurationError(
                f"this broker keeps RECURRENCE_DEFINITIONS_MAX = {limits.RECURRENCE_DEFINITIONS_MAX} recurring messages already",
                remedy="delete some, or spread their topics over more brokers",
            )
        replaced_bytes = 0 if current is None else len(current.message.body)
        total_bytes = self._book.bodies_bytes - replaced_bytes + len(message.body)
        if total_bytes > limits.RECURRENCE_BODIES_BYTES_MAX and len(message.body) > replaced_bytes:
            raise ConfigurationError(
                f"the bodies of all recurring messages of this broker would have {total_bytes} bytes, at most "
                f"RECURRENCE_BODIES_BYTES_MAX = {limits.RECURRENCE_BODIES_BYTES_MAX} are allowed",
                remedy="send references to the data, not the data",
            )

    def _change(self, name: str, change: Change, on_done: OnDone) -> Change:
        store = self._open_store()
        if change.outcome is RecurringOutcome.UNCHANGED:
            kept = self._book.place_of(name)
            assert kept is not None
            store.wait_durable(kept.physical_offset + 1, True, on_done)
            if self._troubles.pop(name, None) is not None:
                self._changed(name)
                self._arm()
            return change
        before = self._book.get(name)
        if change.state is not None:
            self._append(defined(change.state), on_done)
        else:
            assert before is not None
            self._append(deleted(before), on_done)
        self._troubles.pop(name, None)
        self._changed(name)
        self._tidy()
        self._arm()
        return change

    def _happen(self, name: str) -> None:
        """What is due happens before the rule changes."""
        store = self._open_store()
        now_ms = self._clock.due_ns() // NS_PER_MS
        while store.writable and (due_ms := self._agenda.due_ms(name)) is not None and due_ms <= now_ms:
            self._take(name, now_ms)

    def _open_store(self) -> MessageStore:
        if self._store is None:
            raise StoreUnwritableError(NOT_ATTACHED)
        return self._store

    # --- writing ----------------------------------------------------------------------------------------------------

    def _append(self, record: Record, on_done: OnDone | None = None, *, accepted: bool = False) -> None:
        """Append a record about one message. Raises StoreUnwritableError, RecordError."""
        entry = self._open_store().append(self._record(record), accepted=accepted)
        self._note(record, entry, (), on_done)

    def _record(self, record: Record) -> NewMessage:
        return NewMessage(RECURRING_TOPIC, 0, encode(record), b"", born_timestamp=self._clock.now_ms())

    def _note(self, record: Record, entry: Dispatched, runs: Sequence[Occurrence], on_done: OnDone | None) -> None:
        """The record has its place behind its runs; the end of the turn decides whether all of them stay."""
        name = self._book.note(record, entry.queue_offset, entry.physical_offset, entry.size)
        self._in_flight += 1
        if name in self._reading.unsettled:
            self._settling.add(name)

        def stored(status: PutStatus) -> None:
            self._in_flight -= 1
            self._settling.discard(name)
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                self.take_back(entry.physical_offset)
            else:
                now_ms = self._clock.now_ms()
                for run in runs:
                    self.lateness_ms.observe(max(now_ms - run.at_ms, 0))
                self.stored_count += len(runs)
            if on_done is not None:
                on_done(status)

        self._open_store().wait_durable(entry.end_offset, True, stored)

    def take_back(self, to: int) -> None:
        """What was appended at the log position `to` or behind it is not in the log: what held before holds again."""
        for name in self._book.take_back(to):
            self._changed(name)
        self._arm(soonest_ms=RETRY_MS)

    def _changed(self, name: str) -> None:
        """The book says something new about a message."""
        state = self._book.get(name)
        if state is None:
            self._agenda.drop(name)
            self._troubles.pop(name, None)
            return
        try:
            self._agenda.put(state)
        except ConfigurationError as error:
            self._report(name, f"its rule is not usable any more: {error}")

    def _report(self, name: str, trouble: str) -> None:
        """Say what is wrong, once; `trouble` is asked for the rest."""
        if self._troubles.get(name) != trouble:
            self._troubles[name] = trouble
            logger.error("recurring message %r: %s", name, trouble)

    # --- runs -------------------------------------------------------------------------------------------------------

    def attach(self, store: MessageStore) -> None:
        """Begin to let runs happen, in `store` (`Appender`); until then, and after `detach`, what others append is learnt all the same."""
        if self._store is not None:
            return
        self._store = store
        store.deadlines.define(WAKEUP, self.wake)
        for name in list(self._troubles):  # what went wrong at another time may go well now
            del self._troubles[name]
            self._changed(name)
        self._report_future()
        self._arm()

    def detach(self) -> None:
        """Append nothing any more. What was appended is in the book, until the log says otherwise."""
        if self._store is not None:
            self._store.deadlines.disarm(WAKEUP)
            self._store, self._move_below = None, 0

    def _report_future(self) -> None:
        """Say which messages a clock that was ahead has stopped."""
        now_ms = self._clock.now_ms()
        if wrong := [state.name for state in self._book if not state.paused and ahead_ms(state, now_ms)]:
            logger.error(
                "%d recurring messages have no runs for now, because the clock was ahead, such as %r: %s",
                len(wrong), wrong[0], self.trouble(wrong[0]),
            )  # fmt: skip

    def _arm(self, *, soonest_ms: int = 0) -> None:
        """Wake at the next run, but within `SLEEP_MAX_MS`, and not before `soonest_ms` from now."""
        store, due_ms = self._store, self._agenda.next_due_ms
        has_work = bool(self._reading.unsettled.keys() - self._settling) or self._has_to_move()
        if store is None or (due_ms is None and not has_work):
            return
        wait_ms = 0 if due_ms is None or has_work else min(due_ms - self._clock.due_ns() // NS_PER_MS, SLEEP_MAX_MS)
        store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + max(wait_ms, soonest_ms, 0) * NS_PER_MS)

    def wake(self) -> None:
        """Let happen what is due, a bounded part of it; the end of the turn writes it."""
        store = self._open_store()
        if store.is_over:
            return
        if not store.writable:
            self._arm(soonest_ms=RETRY_MS)
            return
        try:
            self._settle_found()
            now_ms = self._clock.due_ns() // NS_PER_MS
            self._take_all(self._agenda.take_due(now_ms, limits.RECURRENCE_NAMES_PER_TURN_MAX), now_ms)
            self._move(limits.RECURRENCE_NAMES_PER_TURN_MAX)
            self._tidy()
        except StoreUnwritableError as error:
            logger.warning("runs of recurring messages wait: %s", error)
            self._arm(soonest_ms=RETRY_MS)
        else:
            self._arm()

    def _settle_found(self) -> None:
        """Write the progress of messages whose runs recovery found without it."""
        waiting = self._reading.unsettled.keys() - self._settling
        for name in islice(waiting, limits.RECURRENCE_NAMES_PER_TURN_MAX):
            state = self._book.get(name)
            assert state is not None, "what deletes it settles it as well"
            self._append(progressed(state), accepted=True)

    def _take_all(self, names: Sequence[str], now_ms: int) -> None:
        """Take the turns of several messages. Raises StoreUnwritableError; then those that are left are still to be taken."""
        for position, name in enumerate(names):
            try:
                self._take(name, now_ms)
            except StoreUnwritableError:
                for waiting in names[position + 1 :]:
                    self._changed(waiting)
                raise

    def _take(self, name: str, now_ms: int) -> None:
        """Take the turn of one message. Raises StoreUnwritableError; then the turn is still to be taken."""
        state = self._book.get(name)
        assert state is not None, "the agenda follows the book"
        try:
            turn = take_turn(state, self._agenda.schedule(state), now_ms, self._previous(state))
            if turn.settled_ms != state.progress.settled_ms:
                self._carry_out(state, turn, now_ms)
        except StoreUnwritableError:
            self._changed(name)
            raise
        except Exception as error:  # whatever it is: one message stops no other
            logger.exception("the turn of recurring message %r failed", name)
            self._agenda.drop(name)
            self._report(name, f"its turn failed: {type(error).__name__}: {error}; define it again to try once more")
        else:
            self._changed(name)

    def _previous(self, state: RecurringState) -> Previous:
        """What is known about the message of the run before, as far as the rule asks."""
        rule, last, topic = state.rule, state.progress.last, state.message.topic
        if rule.overlap_group is None or last is None:
            return Previous.NONE
        assert self.sender is not None
        queue = self._open_store().queues.get(topic, last.queue_id)
        committed = self.sender.committed_offset(rule.overlap_group, topic, last.queue_id)
        # A queue that ends before the message is another one: the topic was deleted and made again.
        same = queue is not None and queue.next_offset > last.queue_offset
        return previous_of(state.progress, committed, queue.min_offset if queue is not None and same else None)

    def _carry_out(self, state: RecurringState, turn: RecurrenceTurn, now_ms: int) -> None:
        assert self.sender is not None
        store = self._open_store()
        messages: list[NewMessage] = []
        room_bytes = store.settings.mapped_file_size_commit_log // BATCH_SHARE
        trouble: str | None = None
        try:
            for run in turn.runs[: limits.RECURRENCE_RUNS_PER_TURN_MAX]:
                message = self.sender.message_of(state, run, now_ms)
                topic = message.topic.encode()
                room_bytes -= stored_size(topic, len(message.body), len(message.properties), message.sys_flag)
                if messages and room_bytes < 0:
                    break
                messages.append(message)
            self._store_turn(state, _first_of(turn, len(messages)), messages)
        except (Unstorable, RecordError) as error:
            trouble = f"a run cannot be stored: {error}"
            left_out = LeftOut(LeftOutReason.REFUSED, turn.runs[0].planned_ms, turn.settled_ms + 1)
            self._store_turn(state, RecurrenceTurn((), (*turn.left_out, left_out), turn.settled_ms), [])
        if trouble is not None:
            self._report(state.name, trouble)
        elif messages:
            self._troubles.pop(state.name, None)

    def _store_turn(self, state: RecurringState, turn: RecurrenceTurn, messages: list[NewMessage]) -> None:
        """Append the runs and the record of their progress as one batch. Raises StoreUnwritableError, RecordError."""
        store = self._open_store()
        last: RunPlace | None = None
        if messages:
            queue = store.queues.for_append(messages[0].topic, messages[0].queue_id)
            last = RunPlace(messages[0].queue_id, queue.next_offset + len(messages) - 1)
        record = progressed(settled(state, turn, last))
        entries = store.append_batch([*messages, self._record(record)])
        self._note(record, entries[-1], turn.runs, None)
        for span in turn.left_out:
            self.left_out_counts[span.reason] += 1
            logger.log(
                logging.WARNING if span.reason is LeftOutReason.MISSED else logging.DEBUG,
                "recurring message %r: runs planned from %d to before %d are left out: %s",
                state.name, span.first_ms, span.before_ms, span.reason.value,
            )  # fmt: skip

    # --- writing definitions anew -----------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Keep few what a start reads."""
        for _ in range(REWRITES_PER_TURN_MAX):
            oldest = self._book.too_old()
            if oldest is not None:
                self._rewrite([oldest])

    def _has_to_move(self) -> bool:
        return next(self._book.below(self._move_below), None) is not None

    def _move(self, limit: int) -> None:
        """Write definitions anew that lie where retention wants to clean."""
        self._rewrite([kept.state for kept in islice(self._book.below(self._move_below), limit)])

    def _rewrite(self, states: Sequence[RecurringState]) -> None:
        """Write definitions anew; what the store does not take now is for the next time."""
        if states and not self._open_store().writes_accepted:
            return
        try:
            for state in states:
                self._append(defined(state), accepted=True)
                self.rewritten_count += 1
        except StoreUnwritableError as error:
            logger.warning("definitions of recurring messages are not written anew yet: %s", error)


def _first_of(turn: RecurrenceTurn, count: int) -> RecurrenceTurn:
    """The turn up to its first `count` runs; the others are in the next one."""
    if count >= len(turn.runs):
        return turn
    runs = turn.runs[:count]
    return RecurrenceTurn(runs, turn.left_out, runs[-1].planned_ms)

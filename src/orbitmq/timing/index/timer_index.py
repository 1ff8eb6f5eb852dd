"""The index of pending timers: which fall due next, which ones match, and how many there are.

It hears of every record of the timer topic from the timers (`taken_in`, `finished`), gathers them in memory, and puts 65,536 at a
time into a run, a sorted file that is read in place. What fell due stays where it is until a whole run is past, or so much of
several that what is left of them fits into one.

Rules of this file
1. The index is a hint: `is_pending` decides, and everything here can be made again from the log. Nothing that goes wrong with it
   stops the store.
2. It may answer too much, never too little: while something is missing, or was not compared with its sums since the start, it refuses
   to answer and says so. What is known falls due meanwhile, and what is found anew goes to `found`.
3. All work is done in steps of about a millisecond, a quarter of the time at most while others have something to do; half of it
   while questions are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from orbitmq.clock import Clock
from orbitmq.errors import StoreDamagedError, TimerIndexIncompleteError
from orbitmq.limits.timers import TIMER_MATCHES_READ_MAX
from orbitmq.protocol.names import OWN_TOPIC_PREFIX, TIMER_TOPIC
from orbitmq.protocol.records import sound_record
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched, dispatched_from_record, no_levels
from orbitmq.store.files import Files
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.reading import store_timestamp_of
from orbitmq.store.store import MessageStore
from orbitmq.timing.index import search
from orbitmq.timing.index.counting import Counted, Counting
from orbitmq.timing.index.entries import Candidate, id_hash, key_bytes, key_hash, topic_seed
from orbitmq.timing.index.gathering import Found, PartColumns
from orbitmq.timing.index.journal import NOTHING, Witness
from orbitmq.timing.index.parts import CLOSED_MAX, IndexShape, Parts
from orbitmq.timing.index.run import Run
from orbitmq.timing.index.search import DamagedPartError, DueSlice, IndexPage, IndexQuery, due_slice
from orbitmq.timing.index.upkeep import Steps, fill, seal, tidy
from orbitmq.timing.timers.facts import FinishedTimer, TimerFacts, all_facts, timer_facts, unstated_facts
from orbitmq.timing.timers.pending import PendingTimers

logger = logging.getLogger("orbitmq.timing")

WAKEUP: Final = "timer-index"

STEPS_NS: Final = 1_000_000
"""Work done in one turn of the loop."""

PAUSE_NS: Final = 3_000_000
"""Until the next turn that does some; a third of it while there are questions that cannot be answered."""

RETRY_NS: Final = 10_000_000_000
"""Pause after a file could not be written."""

START_NS: Final = 200_000_000
"""Work done before the store serves: enough to count two hundred thousand timers."""

ARRIVALS_PER_STEP: Final = 50
"""Work done with new timers, one step for so many: a little more than they cause, so that it never piles up."""

ARRIVAL_NS: Final = 3_000
"""Work done at once with each of many timers that come together."""

DUE_SLICE: Final = 1_000
"""Timers counted at a time."""

SKIPPED_MAX: Final = 4_096
"""Entries of each gathering looked at before a page, because they may be over: a millisecond."""


READ_BYTES_MAX: Final = 1 << 20
"""Of records read at a time while the index is made ready; one that is longer is read alone."""


class PendingView(Protocol):
    """What the index asks the timers. `Timers` is one."""

    @property
    def pending(self) -> PendingTimers: ...


class TimerIndex:
    """The index of one store, a part of its timers, who say what it is to do."""

    def __init__(
        self,
        files: Files,
        root: Path,
        clock: Clock,
        timers: PendingView,
        precision_ms: int = 1_000,
        shape: IndexShape | None = None,
    ) -> None:
        self._files = files
        self._clock = clock
        self._timers = timers
        self._precision_ms = precision_ms
        self._log: CommitLog | None = None
        self._queues: ConsumeQueues | None = None
        self._store: MessageStore | None = None
        self._recovering = True
        self._credit = 0
        self._retry_ns = 0
        self.parts = Parts(files, root, shape or IndexShape())
        self._counting = Counting(self.parts, self._is_pending)
        self._job: Steps | None = None
        self.found: Callable[[Sequence[TimerFacts]], None] = _nobody
        """Told of all records that were missing and are called pending."""
        self._look = False
        """Whether runs may be past, or small by now."""
        self._unchecked: list[Run] = []
        """Loaded, and not compared with their sums yet."""
        self._is_checking = False

    # --- what the timers say ------------------------------------------------------------------------------------------

    def taken_in(self, batch: Sequence[TimerFacts]) -> None:
        """These came into the timer topic, in order. Cost: 1.2 us a timer here, and twice as much for what it leaves to do."""
        parts = self.parts
        if batch and batch[0].queue_offset < parts.next_offset:
            batch = [facts for facts in batch if facts.queue_offset >= parts.next_offset]
        if not batch:
            return
        if self._recovering:
            for facts in batch:
                parts.follow(facts, self._witness_at)
                self._gather([facts])
        else:
            self._gather(batch)
        self._work_along(len(batch))
        self._arm(PAUSE_NS)

    def _gather(self, batch: Sequence[TimerFacts]) -> None:
        """Timers and cancellations with nothing unknown before and between them."""
        parts = self.parts
        timers = [facts for facts in batch if not facts.is_cancel]
        self._counting.taken_in(timers)
        at = 0
        while at < len(timers):
            room = parts.shape.capacity - len(parts.open.gathering.offsets)
            chosen = timers[at : at + room]
            parts.open.gathering.take(chosen)
            parts.open.last = chosen[-1]
            parts.next_offset = chosen[-1].queue_offset + 1
            if len(chosen) == room:
                self._close_full()
            at += room
        parts.open.last = batch[-1]
        parts.next_offset = batch[-1].queue_offset + 1

    def _work_along(self, arrived_count: int) -> None:
        """Do what new timers cause, but no more of it at once than a little of the time that they took."""
        self._credit += arrived_count
        end_ns = self._clock.monotonic_ns() + max(STEPS_NS // 2, arrived_count * ARRIVAL_NS)
        while self._credit >= ARRIVALS_PER_STEP:
            self._credit -= ARRIVALS_PER_STEP
            if not self._step():
                self._credit = 0
            elif self._clock.monotonic_ns() >= end_ns:
                return

    def _close_full(self) -> None:
        """The open gathering takes no more. Where little of it is pending still, that is carried on."""
        parts = self.parts
        while len(parts.closed) >= CLOSED_MAX and self._step():
            pass
        offsets = self._timers.pending.offsets(parts.open.gathering.offsets[0])
        still_pending = list(islice(offsets, parts.shape.carried + 1))
        if len(still_pending) <= parts.shape.carried:
            parts.carry_on(still_pending)
        else:
            parts.close()

    def finished(self, batch: Sequence[FinishedTimer]) -> None:
        """These are pending no longer."""
        if self._counting.is_idle:
            return
        gone: list[tuple[int, str, int]] = []
        for one in batch:
            topic, due_ms = one.real_topic or one.topic, one.deliver_ms
            if due_ms is None or topic == TIMER_TOPIC or topic.startswith(OWN_TOPIC_PREFIX):
                facts = self._facts_of(one.physical_offset, one.queue_offset)
                if facts is None:
                    self._counting.again()  # it was counted, and nobody knows under what
                    return
                topic, due_ms = facts.topic, facts.deliver_ms
            gone.append((one.queue_offset, topic, due_ms))
        self._counting.finished(gone)

    def _is_pending(self, queue_offset: int) -> bool:
        return self._timers.pending.is_pending(queue_offset)

    # --- questions ----------------------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether everything that is pending can be found."""
        return not self.parts.missing

    @property
    def is_ready(self) -> bool:
        """Whether questions are answered: everything that is pending can be found, and by nothing that may be damaged."""
        return not self.parts.missing and not self._unchecked

    @property
    def is_counted(self) -> bool:
        """Whether everything that is pending has been counted, by nothing that may be damaged."""
        return self._counting.is_done and not self._unchecked

    def find_id(self, topic: str, message_id: str, limit: int = TIMER_MATCHES_READ_MAX) -> list[Candidate]:
        """Pending timers of a topic whose message id may be this, earliest due first. Compare the record.

        Some microseconds, and one for each million pending. Raises TimerIndexIncompleteError.
        """
        self._need(self.is_ready)
        wanted = id_hash(topic_seed(topic), message_id)
        return search.find_id(self.parts.having_id(wanted), self._timers.pending.is_pending, wanted, limit)

    def find_key(self, topic: str, key: str, limit: int = TIMER_MATCHES_READ_MAX) -> list[Candidate]:
        """As `find_id`, of those one of whose keys may be this."""
        self._need(self.is_ready)
        wanted = key_bytes(key)
        sources = self.parts.having_key(key_hash(topic_seed(topic), wanted))
        return search.find_key(sources, self._timers.pending.is_pending, topic, wanted, limit)

    def page(self, query: IndexQuery) -> IndexPage:
        """Pending timers in order; compare keys with the record. A millisecond or two, up to ten where much was recalled.

        Raises ValueError for a query or cursor that makes no sense, TimerIndexIncompleteError.
        """
        self._need(self.is_ready)
        for one in self.parts.gathered():
            one.gathering.skip_gone(self._is_pending, SKIPPED_MAX)
        parts = self.parts
        if query.topic is None or query.key is None:
            sources = parts.sources()
        else:
            sources = parts.having_key(key_hash(topic_seed(query.topic), key_bytes(query.key)))
        return search.page(sources, self._is_pending, query)

    def due(self, after: Found, until_ms: int, limit: int) -> DueSlice:
        """At most `limit` timers that are known, behind `after` and due before `until_ms`; see `due_slice`."""
        while True:
            try:
                return due_slice(self.parts.sources(), after, until_ms, limit)
            except DamagedPartError as error:
                self._forget(error.part, str(error))

    def nothing_before_ms(self, until_ms: int) -> int:
        """A time before which nothing that is known is pending, at most `until_ms`; too early where much is over and was not looked at.
        Some milliseconds."""
        for one in self.parts.gathered():
            one.gathering.skip_gone(self._is_pending, SKIPPED_MAX)
        found = self.due((0, -1), until_ms, DUE_SLICE)
        waits = self._timers.pending.are_pending([queue_offset for _, queue_offset, _ in found.entries])
        return next(
            (due_ms for (due_ms, _, _), is_pending in zip(found.entries, waits, strict=True) if is_pending),
            found.end[0],
        )

    def left(self) -> Iterator[PartColumns]:
        """All timers that are known, part by part, those that are over among them. 0.3 us each."""
        for part in self.parts.sources():
            try:
                yield part.left()
            except StoreDamagedError as error:
                assert isinstance(part, Run)
                self._forget(part, str(error))

    def pending_between(self, from_ms: int, until_ms: int) -> int:
        """How many that are known are pending and due from one time to before another. 1 us each, and 4 us a part."""
        count, after = 0, (from_ms, -1)
        while after[0] < until_ms:
            found = self.due(after, until_ms, DUE_SLICE)
            count += sum(self._timers.pending.are_pending([one[1] for one in found.entries]))
            after = found.end
        return count

    def counts(
        self, topic: str | None = None, from_ms: int | None = None, until_ms: int | None = None, bucket_ms: int = 0
    ) -> Counted:
        """How many are pending, exactly; see `PendingCounts.count`. Raises TimerIndexIncompleteError shortly after a start."""
        counts = self._counting.counts
        self._need(counts is not None and not self._unchecked)
        assert counts is not None
        return counts.count(topic, from_ms, until_ms, bucket_ms)

    def _need(self, ready: bool) -> None:
        if not ready:
            pending = self._timers.pending
            left = sum(pending.count_below(end) - pending.count_below(begin) for begin, end in self.parts.missing)
            what = "they are being counted"
            if left:
                left = max(left - len(self.parts.filling or ()), 1)
                what = f"{left} of {pending.count} are still to be read from the log"
            elif self._unchecked:
                what = f"{len(self._unchecked)} of {len(self.parts.runs)} files are still to be checked"
            raise TimerIndexIncompleteError(
                f"the index of pending timers is being made ready: {what}", remedy="ask again in a moment"
            )

    # --- work ---------------------------------------------------------------------------------------------------------

    def attach(self, store: MessageStore) -> None:
        """Begin to work between the turns of `store`, and to check the runs on its worker; later calls change nothing."""
        if self._store is not None:
            return
        self._store = store
        self._unchecked = list(self.parts.runs)
        store.deadlines.define(WAKEUP, self._work)
        self._work_for(START_NS)
        self._arm(0)
        self._check_next()

    def _arm(self, pause_ns: int) -> None:
        if self._store is not None and self._has_work():
            now_ns = self._clock.monotonic_ns()
            self._store.deadlines.arm(WAKEUP, max(now_ns + pause_ns, self._retry_ns))

    def _has_work(self) -> bool:
        parts = self.parts
        return bool(self._job or parts.spent or parts.closed or parts.missing or self._counting.is_idle or self._look)

    def _work(self) -> None:
        self._work_for(STEPS_NS)
        is_ready = self.is_complete and self._counting.is_done
        self._arm(PAUSE_NS if is_ready else PAUSE_NS // 3)

    def _work_for(self, length_ns: int) -> None:
        end_ns = self._clock.monotonic_ns() + length_ns
        while self._step() and self._clock.monotonic_ns() < end_ns:
            pass

    def work_off(self) -> None:
        """Do everything there is to do at once: for tools and tests."""
        self.check_now()
        while self._step():
            pass

    def _step(self) -> bool:
        """About a millisecond of work; False when there is none at present."""
        if self.parts.open.gathering.sort_step():
            return True
        if self.parts.spent:
            if not self.parts.spent[-1].empty_step():
                self.parts.spent.pop()
            return True
        if self._recovering and not self.parts.closed:
            return False
        if self._retry_ns and self._clock.monotonic_ns() < self._retry_ns:
            return False
        self._retry_ns = 0
        try:
            if self._job is None:
                self._job = self._next_job()
                if self._job is None:
                    return False
            next(self._job)
        except StopIteration:
            self._job = None
        except OSError as error:
            logger.warning("the timer index could not go on and tries again: %s", error)
            self._try_later()
            return False
        except Exception:  # the index is a cache: who links a timer, or waits for a deadline, has nothing to do with it
            logger.exception("the timer index failed and tries again")
            self._counting.again()
            self._try_later()
            return False
        return True

    def _try_later(self) -> None:
        self._job = None
        self._retry_ns = self._clock.monotonic_ns() + RETRY_NS

    def _next_job(self) -> Steps | None:
        parts = self.parts
        if parts.closed:
            return seal(parts, self._files, parts.closed[0])
        if self._recovering:
            return None
        if parts.missing:
            self._counting.again()  # it may have been made from what was damaged
            return fill(parts, self._files, self._timers.pending, self._facts_at, self.found)
        if self._counting.is_idle:
            return self._counting.walk()
        if self._look:
            self._look = False
            return tidy(parts, self._files, self._timers.pending)
        return None

    def _check_next(self) -> None:
        """Compare the columns of one run after the other with their sums. Where no job can be had the next durable save tries again."""
        unchecked, store = self._unchecked, self._store
        while unchecked and unchecked[-1] not in self.parts.runs:
            unchecked.pop()
        if not unchecked or store is None or self._is_checking:
            return
        self._is_checking = True
        run = unchecked[-1]

        def done(result: str | BaseException | None) -> None:
            self._is_checking = False
            if isinstance(result, BaseException):
                logger.warning("%s could not be checked, it is tried again: %s", run.path, result)
                return
            if run in unchecked:
                unchecked.remove(run)
            if result is not None and run in self.parts.runs:
                self._forget(run, result)
            self._check_next()

        store.run_blocking(run.check, done)

    def check_now(self) -> None:
        """Compare with their sums at once all runs that were not compared: 3 ms each."""
        unchecked, self._unchecked[:] = list(self._unchecked), []
        for run in unchecked:
            if run in self.parts.runs and (problem := run.check()) is not None:
                self._forget(run, problem)

    def _forget(self, run: Run, problem: str) -> None:
        self.parts.forget_run(run, problem)
        if self._job is not None:
            self._job.close()
            self._job = None
        self._arm(0)

    # --- the record of a timer ----------------------------------------------------------------------------------------

    def _facts_at(self, queue_offsets: Sequence[int]) -> list[TimerFacts | None]:
        """Of each by the queue of the timer topic; of a record that says nothing, where it stands. None where nothing is left of it.
        10 us each where they lie together."""
        queue, log = self._queues.get(TIMER_TOPIC, 0) if self._queues is not None else None, self._log
        if queue is None or log is None:
            return [None] * len(queue_offsets)
        units = [queue.kept_unit(queue_offset) for queue_offset in queue_offsets]
        positions = [unit[0] for unit in units if unit is not None]
        records: list[bytes | None] = []
        while len(records) < len(positions):
            records += log.records(positions[len(records) :], READ_BYTES_MAX)
        data = iter(records)
        entries = [
            None if unit is None else _entry(next(data), unit[0], queue_offset)
            for queue_offset, unit in zip(queue_offsets, units, strict=True)
        ]
        known = iter(all_facts([entry for entry in entries if entry is not None], self._precision_ms))
        found: list[TimerFacts | None] = []
        for queue_offset, unit, entry in zip(queue_offsets, units, entries, strict=True):
            facts = None if entry is None else next(known)
            if facts is None and unit is not None:
                facts = unstated_facts(queue_offset, unit[0], unit[1], self._clock.now_ms())
            found.append(facts)
        return found

    def facts_at(self, physical_offset: int) -> TimerFacts | None:
        """Of the timer record at a log position, None where no such record is or can be read. 10 us."""
        try:
            return self._facts_of(physical_offset, None)
        except OSError as error:
            logger.warning("the record at %d could not be read: %s", physical_offset, error)
            return None

    def _facts_of(self, physical_offset: int, queue_offset: int | None) -> TimerFacts | None:
        record = self._log.record(physical_offset) if self._log is not None else None
        entry = _entry(record, physical_offset, queue_offset)
        return None if entry is None else timer_facts(entry, self._precision_ms)

    # --- saving -------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        self._counting.saved()
        self.parts.write()

    def begin_sync(self) -> None:
        self._look = not self._recovering and bool(self.parts.runs)
        self._check_next()
        self._arm(PAUSE_NS)
        self.parts.begin_sync()

    def datasync(self) -> None:
        self.parts.datasync()

    # --- recovery -----------------------------------------------------------------------------------------------------

    def restore(self, log: CommitLog, queues: ConsumeQueues) -> None:
        """Take up the files. What they lack is told by the timers, or found later."""
        self._log, self._queues = log, queues
        self.parts.load()

    def finish_restore(self) -> None:
        assert self._queues is not None
        queue = self._queues.get(TIMER_TOPIC, 0)
        self.parts.believe(self._is_there, self._witness_at(queue.max_offset) if queue is not None else NOTHING)
        pending = self._timers.pending
        self.parts.missing.keep(lambda begin, end: pending.count_below(end) > pending.count_below(begin))
        self._recovering = False

    def _witness_at(self, end_offset: int) -> Witness:
        """The record before a queue offset, as far as it can still be told."""
        assert self._queues is not None
        assert self._log is not None
        queue = self._queues.get(TIMER_TOPIC, 0)
        unit = queue.kept_unit(end_offset - 1) if queue is not None else None
        record = self._log.read(unit[0], unit[1]) if unit is not None else None
        stamp = 0 if record is None else store_timestamp_of(record)
        return Witness(end_offset, -1 if unit is None else unit[0], stamp)

    def _is_there(self, witness: Witness) -> bool:
        """Whether the log holds the record that was the last one then. A record that is gone for its age is taken to be it."""
        if not witness.end_offset:
            return True
        assert self._queues is not None
        queue = self._queues.get(TIMER_TOPIC, 0)
        if queue is None or witness.end_offset > queue.max_offset:
            return False
        here = self._witness_at(witness.end_offset)
        if here.physical_offset < 0 or witness.physical_offset < 0:
            return True
        return here == witness or (here.physical_offset == witness.physical_offset and not here.store_timestamp)

    def close(self) -> None:
        """Release the files. To be called when the store is closed."""
        self.parts.close_files()


def _nobody(facts: Sequence[TimerFacts]) -> None:
    """Until somebody wants to hear of it."""


def _entry(data: bytes | None, physical_offset: int, queue_offset: int | None) -> Dispatched | None:
    """Of the timer record in `data`, with that queue offset where one is given; None where that is another one, or not sound."""
    record = None if data is None else sound_record(data, physical_offset)
    if record is None or record.topic != TIMER_TOPIC or queue_offset not in (None, record.queue_offset):
        return None
    return dispatched_from_record(record, physical_offset, no_levels)

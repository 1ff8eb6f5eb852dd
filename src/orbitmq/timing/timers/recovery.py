"""Finding out at a start which timers are pending, however the last process ended.

Three cases. *Ours*: the journal says what was pending at a position of the log, and the entries behind it say the rest. *Collected*:
the journal is missing or damaged; the entries of the whole timer topic say what is pending. *Taken over*: RocketMQ wrote last; its timer
files say what it has delivered.

Rules of this file
1. What cannot be believed is reported and not used. Nothing is thrown away before what replaces it can be made again after
   another crash.
2. A journal is believed up to the last position block that the recovered log is known to contain: one up to the recovery mark,
   one written while the machine has been up, one that was synced; and whose last record stands in its place: otherwise it is the journal
   of another store.
3. RocketMQ cannot have run while its fence is up: then the journal is good, whatever else is missing.
"""

from __future__ import annotations

import logging
from itertools import takewhile

from orbitmq.errors import StoreDamagedError
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.reading import store_timestamp_of
from orbitmq.timing.timers.exchange import Exchange, TakenOver
from orbitmq.timing.timers.ledger import TimerLedger
from orbitmq.timing.timers.pending_journal import JOURNAL_FILE, JournalContent, JournalPosition

logger = logging.getLogger("orbitmq.timing")


class TimerRecovery:
    """One start of one store."""

    def __init__(self, ledger: TimerLedger, exchange: Exchange, precision_ms: int) -> None:
        self._ledger = ledger
        self._exchange = exchange
        self._precision_ms = precision_ms
        self._keep_bytes: int | None = None
        """What the journal is to be cut to; None when it stays as it is."""
        self._is_new = False
        """Whether the journal has to be written anew."""
        self._foreign_from = 0
        self.is_taken_over = False
        """Whether RocketMQ wrote last."""
        self.made_again: list[str] = []
        """What this start could not believe and made again, and why."""

    # --- before the entries -------------------------------------------------------------------------------------------

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        """See `Recoverable`."""
        ledger = self._ledger
        ledger.log, ledger.queues = log, queues
        if isinstance(state, dict):
            ledger.cancels.restore(state.get("cancels"))
        loaded = ledger.journal.load(lambda at: self._is_believed(at, log, position))
        if loaded is not None and loaded.at is not None and not _stands(loaded.at, log):
            loaded = loaded._replace(at=None)
        if loaded is not None:
            self._report_torn(loaded)
            self._is_new = loaded.is_old
        at = None if loaded is None else loaded.at
        if loaded is not None and at is not None:
            ledger.pending = loaded.pending
            ledger.position, ledger.witness = at.position, (at.witness, at.witness_ms)
            ledger.noted(at)
        if position is None and not self._exchange.is_fenced:
            return self._restore_taken_over(log, loaded)
        if loaded is not None and at is not None:
            self._keep_bytes = loaded.keep_bytes
            return at.position
        if loaded is not None:
            self._keep_bytes = 0
        if state is None and position is not None:  # no timer was known at the mark; what there is of files is younger
            ledger.position = position
            return position
        why = "is missing" if loaded is None else "cannot be believed"
        self.made_again.append(f"{JOURNAL_FILE} {why}")
        logger.error("%s %s: which timers are pending is collected from the log", JOURNAL_FILE, why)
        return self._collect(log)

    def _is_believed(self, at: JournalPosition, log: CommitLog, position: int | None) -> bool:
        if position is not None:
            is_known = at.synced or at.position <= position or at.boot == self._ledger.boot
            # What finished its timers may have stood in files that retention has removed since.
            return is_known and at.position >= log.start
        return at.position <= log.start or (at.witness >= 0 and _stands(at, log))

    def _report_torn(self, loaded: JournalContent) -> None:
        size = self._ledger.journal.file_bytes
        if loaded.good_bytes < size:
            logger.warning(
                "%s ends in %d bytes that are no whole block: what they said is collected from the log",
                JOURNAL_FILE, size - loaded.good_bytes,
            )  # fmt: skip

    def _collect(self, log: CommitLog) -> int:
        """Forget everything: the entries of the whole timer topic say what is pending."""
        ledger, queue = self._ledger, self._ledger.queue
        self._is_new = True
        ledger.position = log.start
        if queue is not None:
            first = queue.first_at(log.start)
            unit = queue.kept_unit(first)
            if unit is not None:
                ledger.position = max(unit[0], log.start)
                ledger.pending.next_offset = first
        return ledger.position

    def _restore_taken_over(self, log: CommitLog, loaded: JournalContent | None) -> int:
        ledger, queue = self._ledger, self._ledger.queue
        if queue is None and loaded is None and not self._exchange.exists:
            return log.end_of_files
        self.is_taken_over = self._is_new = True
        if loaded is not None and loaded.at is not None:
            self._foreign_from = ledger.pending.next_offset
            return ledger.position
        if queue is not None:
            first = queue.first_at(log.start)
            ledger.pending.next_offset = first
            ledger.pending.add_range(first, queue.max_offset)
            ledger.position = max(queue.max_physical, log.start)
        return log.end_of_files

    # --- after the entries --------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """All entries up to the end of the log were taken in. Raises OSError."""
        ledger, queue = self._ledger, self._ledger.queue
        assert ledger.log is not None
        end = 0 if queue is None else queue.max_offset
        if ledger.pending.next_offset > end:
            raise StoreDamagedError(
                f"{JOURNAL_FILE} speaks of {ledger.pending.next_offset} timer messages, the log holds {end}",
                remedy=f"move {JOURNAL_FILE} away: it is made again from the log",
            )
        ledger.position = min(ledger.position, ledger.log.end)
        if self.is_taken_over:
            now_ms = ledger.clock.now_ms()
            self._exchange.take_over(
                TakenOver(
                    ledger.log,
                    queue,
                    ledger.pending,
                    ledger.cancels,
                    self._foreign_from,
                    now_ms,
                    self._precision_ms,
                )
            )
            logger.info("%d timers of RocketMQ are pending", ledger.pending.count)
        elif queue is not None:
            self._finish_removed(queue.first_at(ledger.log.start))
        if self._is_new:
            ledger.rewrite()
        elif self._keep_bytes is not None:
            ledger.journal.cut(self._keep_bytes)

    def _finish_removed(self, first_kept: int) -> None:
        """Retention takes nothing that is pending: what it took was finished behind the end of the journal. The records that say so
        name a place in the log that no queue tells any more."""
        pending = self._ledger.pending
        if pending.first_pending is not None and pending.first_pending < first_kept:
            self._ledger.finish_many(list(takewhile(lambda offset: offset < first_kept, pending.offsets())))


def _stands(at: JournalPosition, log: CommitLog) -> bool:
    """Whether the last record that a journal knew is in the log; one that is gone for its age, or was never known, is taken to be. It
    may be damaged: its length and its time tell it from another."""
    if at.witness < log.start:
        return True
    record = log.record(at.witness)
    is_as_long = record is not None and at.witness + len(record) == at.position
    return record is not None and is_as_long and store_timestamp_of(record) == at.witness_ms

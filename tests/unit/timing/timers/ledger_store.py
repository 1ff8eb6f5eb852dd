"""A store with the ledger of its timers and no engine: a test says what is delivered, and sees what a start finds again.

Rules of this file
1. Nothing falls due by itself: `deliver` and `cancel` append the records that an engine or a request would.
2. `check` holds bitmap, chains and log against each other; it raises AssertionError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.worlds.little_store import SMALL, SteppedWorker, close_as_killed

from orbitmq.clock import ManualClock
from orbitmq.protocol.javahash import java_hash
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import Files, OsFiles
from orbitmq.store.message import NewMessage
from orbitmq.store.opening import level_due_time, open_store
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.settings import StoreSettings
from orbitmq.timing.due_time import cancel_key, roll_window, slot_time, slot_to_link
from orbitmq.timing.restoring import source_offset
from orbitmq.timing.timer_files.link import Link
from orbitmq.timing.timer_files.log import ChainEnd
from orbitmq.timing.timer_files.unit import DEFAULT, DELETE, ROLL, TimerUnit
from orbitmq.timing.timers.delivered_records import deliver
from orbitmq.timing.timers.facts import timer_facts
from orbitmq.timing.timers.ledger import TimerLedger
from orbitmq.timing.timers.recovery import TimerRecovery

LOG_FILE_BYTES = 52 * 20 + 16
SLOTS = 4096


class LedgerEngine:
    """The least that takes entries and tells the ledger."""

    name = "timers"

    def __init__(
        self, files: Files, root: Path, clock: ManualClock, precision_ms: int, slot_count: int, **options: Any
    ) -> None:
        self.clock = clock
        self.ledger = TimerLedger(
            files, root, clock, precision_ms, log_file_bytes=LOG_FILE_BYTES, slot_count=slot_count, **options
        )
        self._recovery = TimerRecovery(self.ledger, self.link_of, level_due_time(DelayLevels.parse()))

    def link_of(self, entry: Dispatched) -> Link | None:
        precision = self.ledger.files.precision_ms
        facts = timer_facts(entry, precision)
        if facts is None:
            return None
        window = roll_window(SLOTS // 4)
        write_ms = self.ledger.files.floor(self.clock.now_ms())
        slot_ms, rolls = slot_to_link(facts.slot_ms, write_ms, window, precision)
        magic = DEFAULT | (ROLL if rolls else 0) | (DELETE if facts.is_cancel else 0)
        return Link(slot_ms, magic, facts.physical_offset, facts.size, java_hash(facts.topic), facts.deliver_ms)

    def apply(self, entries: Sequence[Dispatched]) -> None:
        ledger = self.ledger
        links = []
        for entry in entries:
            if entry.topic == TIMER_TOPIC:
                link = self.link_of(entry)
                assert link is not None
                if ledger.skip(entry.queue_offset) if link.magic & DELETE else ledger.add(entry.queue_offset):
                    links.append(link)
            if entry.prepared_transaction_offset and (source := source_offset(entry)) is not None:
                offset = ledger.offset_of_source(source)
                if offset is not None:
                    ledger.finish(offset)
        if links:
            ledger.link(links)
        if entries:
            ledger.took(entries[-1])

    def write(self) -> None:
        self.ledger.write()

    def begin_sync(self) -> None:
        self.ledger.begin_sync()

    def datasync(self) -> None:
        self.ledger.datasync()

    def state(self) -> object:
        return self.ledger.state()

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        return self._recovery.restore(log, queues, state, position)

    def finish_restore(self) -> None:
        self._recovery.finish()


class LedgerStore:
    """An open store with such an engine."""

    def __init__(
        self,
        root: Path,
        *,
        files: Files | None = None,
        clock: ManualClock | None = None,
        precision_ms: int = 1000,
        settings: StoreSettings = SMALL,
        shorten_from_bytes: int = 4 << 20,
        slot_count: int = SLOTS,
        **changes: Any,
    ) -> None:
        self.root = root
        self.files = files or OsFiles()
        self.clock = clock or ManualClock()
        self.worker = SteppedWorker()
        self.engine = LedgerEngine(
            self.files, root, self.clock, precision_ms, slot_count, shorten_from_bytes=shorten_from_bytes
        )
        self.store = open_store(
            root,
            msgspec.structs.replace(settings, **changes),
            self.files,
            self.clock,
            notify=lambda call: call(),
            derived=[self.engine],
            worker=self.worker,
        )

    @property
    def ledger(self) -> TimerLedger:
        return self.engine.ledger

    # --- writing ------------------------------------------------------------------------------------------------------

    def message(
        self,
        key: str,
        deliver_ms: int,
        *,
        topic: str = "Topic",
        queue_id: int = 0,
        body: bytes = b"body",
        source: int = 0,
    ) -> NewMessage:
        """A timer message, as admission re-addresses it."""
        slot_ms = slot_time(deliver_ms, self.ledger.files.precision_ms)
        values = {
            Property.UNIQ_KEY: key,
            Property.TIMER_DELIVER_MS: str(deliver_ms),
            Property.TIMER_OUT_MS: str(slot_ms),
            Property.REAL_TOPIC: topic,
            Property.REAL_QID: str(queue_id),
            Property.DUE_MS: str(deliver_ms),
        }
        message = NewMessage(TIMER_TOPIC, 0, body, encode_properties(values), unique_key=key)
        message.prepared_transaction_offset = source
        return message

    def append(self, key: str, after_ms: int, **options: Any) -> Dispatched:
        """A message due `after_ms` from now; the next `commit` writes it."""
        return self.store.append(self.message(key, self.clock.now_ms() + after_ms, **options))

    def send(self, key: str, after_ms: int, **options: Any) -> Dispatched:
        placed = self.append(key, after_ms, **options)
        self.store.commit()
        return placed

    def cancel(self, sent: Dispatched) -> Dispatched:
        """Recall a pending message by a cancel record that names it."""
        values = decode_properties(sent.properties)
        key = values[Property.UNIQ_KEY]
        values[Property.TIMER_DEL_UNIQKEY] = cancel_key(values[Property.REAL_TOPIC], key)
        message = NewMessage(TIMER_TOPIC, 0, b"0", encode_properties(values), unique_key=key)
        message.prepared_transaction_offset = sent.physical_offset + 1
        placed = self.store.append(message)
        self.store.commit()
        return placed

    def deliver(self, sent: Dispatched) -> Dispatched:
        """Append the delivery; the next `commit` writes it."""
        view = self.store.log.record(sent.physical_offset)
        assert view is not None
        return self.store.append(deliver(view))

    # --- time ---------------------------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Let time pass; saves that fall due run to their end."""
        self.clock.advance(ms)
        for _ in range(3):
            self.store.run_due(self.clock.monotonic_ns())
            self.store.commit()
            self.worker.close()

    # --- reading ------------------------------------------------------------------------------------------------------

    def records(self) -> list[tuple[int, int, str]]:
        """(queue offset, log position, unique key) of every record that the ledger calls pending."""
        queue = self.store.queues.get(TIMER_TOPIC, 0)
        found = []
        for offset in self.ledger.pending.offsets():
            unit = queue.unit(offset) if queue is not None else None
            assert unit is not None, f"pending message {offset} has no record"
            view = self.store.log.record(unit[0])
            assert view is not None
            found.append((offset, unit[0], decode_properties(decode_record(view).properties)[Property.UNIQ_KEY]))
        return found

    def pending(self) -> list[str]:
        """Unique keys of what is pending, in the order of the topic."""
        return [key for _, _, key in self.records()]

    def chains(self) -> dict[int, list[TimerUnit]]:
        """The units of every slot in use from the read clock on, oldest first."""
        found = {}
        for slot_ms, slot in self.ledger.files.slots():
            walk = self.ledger.files.walk(slot.last, slot_ms)
            assert walk.end is ChainEnd.COMPLETE, walk.problem
            found[slot_ms] = walk.units[::-1]
        return found

    def check(self) -> None:
        """Everything pending stands in exactly one chain; slot counts are those of the chains; the sum is theirs."""
        chains = self.chains()
        places = Counter(unit.physical_offset for units in chains.values() for unit in units if not unit.is_delete)
        records = self.records()
        missing = [key for _, physical, key in records if places[physical] != 1]
        assert not missing, f"pending but not in one chain: {missing}"
        assert len(records) == self.ledger.pending.count
        total = 0
        for slot_ms, units in chains.items():
            count = sum(-1 if unit.is_delete else 1 for unit in units)
            assert self.ledger.files.slot(slot_ms).unit_count == count, slot_ms
            total += count
        assert self.ledger.files.at().waiting_sum == total

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.ledger.hand_over(is_all=True)
        self.store.close()
        self.ledger.close()

    def kill(self) -> None:
        close_as_killed(self.store)
        self.ledger.close()

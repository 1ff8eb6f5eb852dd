"""The undecided transactions of one store: derived of its log, recovered with it, and kept from retention.

Rules of this file
1. What holds is learnt from `apply` alone. Nothing is appended here.
2. The recovery mark lists what is undecided. Where it cannot, and in a store that RocketMQ wrote, the queues say it: every half message
   from the saved offset on that no op record names. RocketMQ writes op records late, so after it the committed messages of the log are
   looked at as well.
3. A half message that cannot be read at a start is reported, and its transaction is not known any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from orbitmq.broker.transactions.check_times import CheckRules, CheckTimes
from orbitmq.broker.transactions.op_progress import OpProgress
from orbitmq.broker.transactions.records import (
    Ending,
    HalfFacts,
    ending_of,
    facts_of_half,
    named_by_body,
    named_by_keys,
)
from orbitmq.broker.transactions.undecided import UNNUMBERED, HalfPlace, Transaction, Undecided
from orbitmq.limits.transactions import COPIES_REMEMBERED_MAX, MARKED_UNDECIDED_MAX
from orbitmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.dispatch import Dispatched, DueTime
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.recovery import LogScan
from orbitmq.timing.rewriting import Taken

logger = logging.getLogger("orbitmq.broker")

_COMMIT: Final = int(TransactionType.COMMIT)


class Transactions:
    """Give it to `open_store` as derived structure. Whoever checks and writes op records hears of what is learnt by three calls."""

    name = "transactions"

    def __init__(self, offsets_file: ConfigFile, due_time: DueTime, rules: CheckRules) -> None:
        """`offsets_file`: the consumer offsets, in which RocketMQ keeps how far it has seen transactions decided."""
        self.rules = rules
        self._offsets_file = offsets_file
        self._due_time = due_time
        self._log: CommitLog | None = None
        self._queues: ConsumeQueues | None = None
        self._restored_foreign = False
        self._next_half = 0
        self._ops = OpProgress()
        self._taken: set[int] = set()
        """Log positions of half messages that are being checked, or put again for retention."""
        self._noted_progress = self.synced_progress = (0, 0)
        self.undecided = Undecided()
        self.times = CheckTimes(self.undecided, rules)
        self.copied: Callable[[int, Transaction], None] | None = None
        """Told of each copy: the log position it replaces, and the transaction, which knows its new place."""
        self.due_changed: Callable[[], None] | None = None
        """Told that a check may be due earlier than before."""
        self.unnamed_found: Callable[[], None] | None = None
        """Told that half messages have ended which no op record names."""

    # --- what the log says (Derived) --------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        undecided = self.undecided
        is_any = len(undecided) > 0
        for entry in entries:
            topic = entry.topic
            if topic == HALF_TOPIC:
                self._half(entry)
                is_any = len(undecided) > 0
            elif topic == OP_HALF_TOPIC:
                self._op(entry)
            elif is_any and ((mark := entry.prepared_transaction_offset) or entry.sys_flag & TRANSACTION_MASK):
                kind = entry.sys_flag & TRANSACTION_MASK
                if kind == _COMMIT:
                    undecided.committed(mark, entry.unique_key)
                elif not kind:
                    undecided.replaced(mark - 1)
                    self._taken.discard(mark - 1)
        if undecided.unnamed and self.unnamed_found is not None:
            self.unnamed_found()

    def _half(self, entry: Dispatched) -> None:
        if entry.queue_offset < self._next_half or entry.queue_id:
            return
        self._next_half = entry.queue_offset + 1
        facts = facts_of_half(entry, entry.size)
        assert self._log is not None, "restore() comes first"
        known = self.undecided.half(facts, log_start=self._log.start)
        if facts.source is not None:
            self._taken.discard(facts.source)
        if known is None:
            return
        self.times.add(known)
        if facts.source is not None and self.copied is not None:
            self.copied(facts.source, known)
        if self.due_changed is not None:
            self.due_changed()

    def _op(self, entry: Dispatched) -> None:
        if entry.queue_offset < self._ops.next_offset or entry.queue_id:
            return
        ending = ending_of(entry.properties)
        if ending is not None:
            named = named_by_keys(entry.keys)
        else:
            record = self._record(entry.physical_offset)
            named = [] if record is None else named_by_body(record.body)
        self.undecided.named(named, ending)
        self._ops.noted(entry.queue_offset, named)

    def state(self) -> object:
        """What is undecided by log position, or where in the queues that is to be read; see `restore`."""
        undecided = self.undecided
        half, op = self.progress
        state: dict[str, object] = {"half": half, "op": op, "next": [self._next_half, self._ops.next_offset]}
        state["unnamed"] = {str(offset): ending.value for offset, ending in undecided.unnamed.items()}
        if len(undecided) <= MARKED_UNDECIDED_MAX:
            state["pending"] = [known.place.physical_offset for known in undecided]
        return state

    def write(self) -> None:
        """Nothing: the mark holds all."""

    def begin_sync(self) -> None:
        self._noted_progress = self.progress

    def datasync(self) -> None:
        """The log is synced up to what `begin_sync` saw."""
        self.synced_progress = self._noted_progress

    @property
    def progress(self) -> tuple[int, int]:
        """Offsets of the half and of the op queue from which on RocketMQ would have to look."""
        first = self.undecided.first
        half = self._next_half if first is None else first.place.queue_offset
        return half, self._ops.offset(half)

    # --- recovery (Recoverable) -------------------------------------------------------------------------------------

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        self._log, self._queues = log, queues
        if position is not None and isinstance(state, dict):
            self._restore_own(state, position)
            return position
        self._restored_foreign = True
        table = (self._offsets_file.load() or {}).get("offsetTable", {})
        half, op = (
            int(table.get(f"{topic}@{TRANSACTION_GROUP}", {}).get("0", 0)) for topic in (HALF_TOPIC, OP_HALF_TOPIC)
        )
        self._read_queues(half, op, log.end_of_files)
        self._next_half, next_op = self._queue_end(HALF_TOPIC), self._queue_end(OP_HALF_TOPIC)
        self._ops = OpProgress(min(op, next_op), next_op, self._next_half)
        return log.end_of_files

    def _restore_own(self, state: dict[str, Any], position: int) -> None:
        self.undecided.restore_unnamed(state["unnamed"])
        if "pending" in state:
            for physical in state["pending"]:
                self._take_up(physical)
        else:
            self._read_queues(state["half"], state["op"], position)
        self._next_half, next_op = state["next"]
        self._ops = OpProgress(state["op"], next_op, self._next_half)

    def _read_queues(self, half: int, op: int, end: int) -> None:
        """Take up every half message from the offset `half` on that has not ended, by what is unnamed and by the op records from `op` on;
        records before `end` count."""
        ended = set(self.undecided.unnamed)
        for physical in self._positions(OP_HALF_TOPIC, op, end):
            record = self._record(physical)
            ended.update(offset for offset in named_by_body(record.body if record else b"") if offset >= half)
        for queue_offset, physical in enumerate(self._positions(HALF_TOPIC, half, end), self._first(HALF_TOPIC, half)):
            if queue_offset not in ended:
                self._take_up(physical)

    def _positions(self, topic: str, offset: int, end: int) -> Iterator[int]:
        assert self._queues is not None
        queue = self._queues.get(topic, 0)
        if queue is not None:
            for physical, _, _ in queue.scan(self._first(topic, offset), queue.max_offset):
                if physical >= end:
                    return
                yield physical

    def _first(self, topic: str, offset: int) -> int:
        """The first offset from `offset` on that the queue still has."""
        assert self._queues is not None
        queue = self._queues.get(topic, 0)
        return offset if queue is None else max(offset, queue.min_offset)

    def _queue_end(self, topic: str) -> int:
        assert self._queues is not None
        queue = self._queues.get(topic, 0)
        return 0 if queue is None else queue.max_offset

    def _take_up(self, physical: int) -> None:
        """The newest copy of an undecided half message lies there."""
        record = self._record(physical)
        if record is None or record.topic != HALF_TOPIC:
            logger.error(
                "the half message at %d cannot be read: its transaction stays undecided and is forgotten", physical
            )
            return
        facts = facts_of_half(record, record.total_size)
        known: Transaction | None
        if facts.source is not None and self.undecided.at(facts.source) is None:
            older, first_ms = self._earlier(facts)
            known = self.undecided.open(facts, older, first_ms)
        else:
            known = self.undecided.half(facts)
        if known is not None:
            self.times.add(known)

    def _earlier(self, newest: HalfFacts) -> tuple[tuple[HalfPlace, ...], int]:
        """The copies that a half message replaced, as far as the log has or names them, and when the first of them was stored."""
        older: list[HalfPlace] = []
        facts = newest
        while facts.source is not None and len(older) < COPIES_REMEMBERED_MAX:
            record = self._record(facts.source)
            if record is None or record.topic != HALF_TOPIC:
                older.insert(0, HalfPlace(facts.source, UNNUMBERED))
                break
            facts = facts_of_half(record, record.total_size)
            older.insert(0, HalfPlace(facts.physical_offset, facts.queue_offset))
        return tuple(older), facts.store_timestamp

    def _record(self, physical: int) -> Record | None:
        assert self._log is not None
        view = self._log.sound_record(physical)
        return None if view is None else decode_record(view)

    def finish_restore(self) -> None:
        """Messages that RocketMQ committed before it stopped may be in no op record yet."""
        first = self.undecided.first
        if self._restored_foreign and first is not None:
            assert self._log is not None
            for entry in LogScan(self._log, first.place.physical_offset, self._due_time):
                if entry.sys_flag & TRANSACTION_MASK == _COMMIT and entry.topic != HALF_TOPIC:
                    self.undecided.committed(entry.prepared_transaction_offset, entry.unique_key)

    # --- what is due ----------------------------------------------------------------------------------------------------

    def take_due(self, now_ms: int, limit: int) -> list[Taken]:
        """Take transactions whose check is due, the earliest first, at most `limit`. What is being decided is looked at again later: the
        write of its decision may fail."""
        taken: list[Taken] = []
        while len(taken) < limit and (known := self.times.take_due(now_ms)) is not None:
            if known.ending is not None:
                self.times.again(known, now_ms + self.rules.interval_ms)
            elif known.place.physical_offset not in self._taken:
                taken.append(Taken(known.place.physical_offset, known.size, now_ms))
                self._taken.add(known.place.physical_offset)
        return taken

    @property
    def next_due_ms(self) -> int | None:
        return self.times.next_ms

    @property
    def is_releasing(self) -> bool:
        return bool(self._taken)

    def pending_units(self) -> Iterator[tuple[int | None, int, int]]:
        for known in self.undecided:
            yield None, known.place.physical_offset, known.since_ms + self.rules.wait_ms(known)

    def clock_moved(self) -> None:
        if self.due_changed is not None:
            self.due_changed()

    # --- making way for retention (PendingOwner) ----------------------------------------------------------------------

    def lowest_needed(self) -> int | None:
        first = self.undecided.first
        return None if first is None else first.place.physical_offset

    def bytes_below(self, position: int) -> int:
        return sum(known.size for known in self._below(position))

    def take_below(self, position: int, limit: int) -> list[Taken]:
        taken: list[Taken] = []
        for known in self._below(position):
            if len(taken) == limit:
                break
            if known.place.physical_offset not in self._taken:
                taken.append(Taken(known.place.physical_offset, known.size, known.since_ms))
        self._taken.update(one.physical_offset for one in taken)
        return taken

    def put_back(self, positions: Sequence[int] | None = None) -> None:
        """What was taken there is not in the log once more: it waits as before, also where it was to be given up. None: all that is taken,
        where who checks begins anew with what the log says."""
        positions = list(self._taken) if positions is None else positions
        self._taken.difference_update(positions)
        for known in filter(None, map(self.undecided.newest_at, positions)):
            if known.ending is Ending.GIVEN_UP:
                known.ending = None
            self.times.add(known)

    def take_back(self, to: int) -> None:
        """The log was cut at `to`: transactions whose decisions lay behind it are undecided again. Nobody is attached then."""
        for known in self.undecided:
            if known.ending is not None and known.ended_at >= to:
                known.ending = None
                self.times.add(known)

    def _below(self, position: int) -> Iterator[Transaction]:
        for known in self.undecided:
            if known.place.physical_offset >= position:
                return
            yield known

"""What the log of a broker says at the end of a life, and what a broker has learnt from it.

Rules of this file
1. The log is the judge: whatever takes the place of a record names it, and nothing is named twice.
"""

from __future__ import annotations

from collections import Counter

from tests.property.master_clients import TOPIC
from tests.property.timer_broker import TimerBroker

from orbitmq.protocol.names import QUARANTINE_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType
from orbitmq.store.store import MessageStore


class Broken(AssertionError):
    """A promise was not kept."""


def judge_log(store: MessageStore) -> None:
    """Nothing waits, and nothing came early or twice. Raises Broken."""
    records: list[Record] = []
    for entry in store.scan(store.log.start):
        data = store.log.record(entry.physical_offset)
        assert data is not None
        records.append(decode_record(bytes(data)))
    replaced = Counter(
        record.prepared_transaction_offset - 1
        for record in records
        if record.prepared_transaction_offset and not record.sys_flag & TRANSACTION_MASK
    )
    if twice := [at for at, count in replaced.items() if count > 1]:
        raise Broken(f"two records take the place of those at {twice}")
    by_position = {record.physical_offset: record for record in records}
    for record in records:
        values = decode_properties(record.properties)
        is_waiting = record.topic == SCHEDULE_TOPIC or (
            record.topic == TIMER_TOPIC and Property.TIMER_DEL_UNIQKEY not in values
        )
        if is_waiting and not replaced[record.physical_offset]:
            raise Broken(f"the message at {record.physical_offset} never left")
        source = by_position.get(record.prepared_transaction_offset - 1)
        if source is not None and source.topic in (SCHEDULE_TOPIC, TIMER_TOPIC) and record.topic == TOPIC:
            said = decode_properties(source.properties)
            due_ms = int(said.get(Property.DUE_MS) or said[Property.TIMER_DELIVER_MS])
            if record.store_timestamp < due_ms:
                raise Broken(f"{record.body!r} came {due_ms - record.store_timestamp} ms early")
        if record.topic == QUARANTINE_TOPIC:
            raise Broken(f"quarantined: {values}")
    for what, names in _once(records).items():
        if again := [name for name, count in Counter(names).items() if count > 1]:
            raise Broken(f"{what} twice: {again}")


def _once(records: list[Record]) -> dict[str, list[object]]:
    """What may be in the log once."""
    runs: list[object] = []
    keys: list[object] = []
    committed: list[object] = []
    for record in records:
        values = decode_properties(record.properties)
        if Property.RUN in values:
            runs.append(values[Property.UNIQ_KEY])
        if Property.ONCE_KEY in values and not record.prepared_transaction_offset:
            keys.append((values[Property.ONCE_EPOCH], values[Property.ONCE_KEY]))
        if record.sys_flag & TRANSACTION_MASK == TransactionType.COMMIT:
            committed.append(record.prepared_transaction_offset)
    return {"runs": runs, "idempotent sends": keys, "commits": committed}


def known(node: TimerBroker) -> dict[str, object]:
    """What a broker has learnt from the log."""
    timers, levels, derived = node.timers, node.release, node.derived
    assert derived.recurrences is not None
    assert derived.transactions is not None
    memory, undecided = node.idempotence.memory, derived.transactions.undecided
    return {
        "timers": sorted(timers.pending_units()),
        "timer offsets": (list(timers.pending.offsets()), timers.pending_count, timers.next_offset),
        "timers of the index": sorted(
            (due_ms, offset)
            for due_ms, offset, _ in timers.index.due((0, -1), 1 << 60, 10_000).entries
            if timers.pending.is_pending(offset)
        ),
        "levels": (levels.state(), sorted(levels.pending_units())),
        "recurring": (sorted(derived.recurrences, key=lambda state: state.name), derived.recurrences.next_due_ms),
        "undecided": [(one.places, one.size, one.check_count, one.first_ms, one.group) for one in undecided],
        "unnamed": undecided.unnamed,
        "scopes": {
            name: [(keys.epoch, sorted(keys.items())) for keys in (scope.current, scope.previous) if keys is not None]
            for name, scope in memory._lasting.items()
        },
        "keys": (memory.key_count, memory.used_bytes),
    }

"""What records that name a source put an end to.

Rules of this file
1. A source is finished once, whatever names it again: the pending offsets decide.
2. Who was taken here is known by its log position; any other source is looked up, where the record can be of a timer message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress

from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.release import may_be_of_timer
from orbitmq.timing.timers.leaving import Leaving, LeavingTimers
from orbitmq.timing.timers.ledger import TimerLedger
from orbitmq.timing.timers.slots import NearSlots


def finish_sources(
    entries: Sequence[Dispatched], all_leaving: LeavingTimers, near: NearSlots, ledger: TimerLedger
) -> Iterator[tuple[Leaving, int, str]]:
    """Finish what these records name; for each that was pending what was known of it, its log position, and the topic of the
    record. 1.5 us each."""
    named = [
        entry for entry in entries if entry.prepared_transaction_offset > 0 and not entry.sys_flag & TRANSACTION_MASK
    ]
    sources = [entry.prepared_transaction_offset - 1 for entry in named]
    rows: list[tuple[Leaving, int, str]] = []
    slots: list[int] = []
    for entry, source, leaving in zip(named, sources, all_leaving.pop_many(sources), strict=True):
        if leaving is not None:
            if leaving.unit is not None:
                slots.append(leaving.unit.slot_ms)
            rows.append((leaving, source, entry.topic))
        elif may_be_of_timer(entry) and (queue_offset := ledger.offset_of_source(source)) is not None:
            rows.append((Leaving(queue_offset, None), source, entry.topic))
    for slot_ms, count in Counter(slots).items():
        near.finish(slot_ms, count)
    return compress(rows, ledger.finish_many([row[0].queue_offset for row in rows]))

"""Records that name a source, and the pending messages that they finish.

Rules of this file
1. A source is finished once, whatever names it again: the pending offsets decide.
2. A source that this process took for delivery or change is known by its log position. Any other is looked up in the consume queue, and
   only where the record can be one of a timer message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.release import may_be_of_timer
from orbitmq.timing.timers.facts import FinishedTimer
from orbitmq.timing.timers.leaving import Leaving, LeavingTimers
from orbitmq.timing.timers.ledger import TimerLedger

_new = tuple.__new__
"""Makes a named tuple in half the time."""


def finish_sources(
    entries: Sequence[Dispatched], all_leaving: LeavingTimers, ledger: TimerLedger
) -> Iterator[tuple[Leaving, FinishedTimer]]:
    """Finish what these records name; each that was pending, with what was known of it. 1.5 us each."""
    named = [
        entry for entry in entries if entry.prepared_transaction_offset > 0 and not entry.sys_flag & TRANSACTION_MASK
    ]
    sources = [entry.prepared_transaction_offset - 1 for entry in named]
    rows: list[tuple[Leaving, FinishedTimer]] = []
    for entry, source, leaving in zip(named, sources, all_leaving.pop_many(sources), strict=True):
        if leaving is not None:
            queue_offset, due_ms, _, real_topic = leaving
            rows.append((leaving, _new(FinishedTimer, (queue_offset, source, entry.topic, due_ms, real_topic))))
        elif may_be_of_timer(entry) and (found := ledger.offset_of_source(source)) is not None:
            rows.append((Leaving(found, None), FinishedTimer(found, source, entry.topic, None)))
    return compress(rows, ledger.finish_many([leaving.queue_offset for leaving, _ in rows]))

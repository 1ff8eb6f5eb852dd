"""What opening a directory made of its files: what a store is built from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Derived, Dispatched, DueTime
from orbitmq.store.index import IndexService
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.recovery import RecoveryReport
from orbitmq.store.reserve import Reserve
from orbitmq.store.saving import StoreSaving


class RecoveredStore(msgspec.Struct, kw_only=True):
    log: CommitLog
    queues: ConsumeQueues
    index: IndexService | None
    others: Sequence[Derived]
    """Derived structures of other layers."""
    saving: StoreSaving
    reserve: Reserve
    due_time: DueTime
    report: RecoveryReport
    confirmed_end: int
    """Up to here everything was dispatched."""
    tail: Sequence[Dispatched]
    """The records behind it."""

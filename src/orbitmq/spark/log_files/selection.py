"""Which records are rows: by topic, by the time they were stored, and whether they are messages at all.

Besides messages a log holds what brokers keep there for themselves: messages that wait for their time or for a transaction,
definitions, changes. They are rows only when asked for, by `includeInternal` or by the name of their topic. A half or rolled-back
message that still has its own topic has no place in any queue, and counts with them.

Rules of this file
1. A topic is judged once for all records of a window that bear its name.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.columns.layout import RecordLayout
from orbitmq.columns.records import topics
from orbitmq.protocol.names import is_system_topic
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType

_WITHOUT_QUEUE: Final = (TransactionType.PREPARED.value, TransactionType.ROLLBACK.value)


class RecordSelection(msgspec.Struct, frozen=True):
    """None is no limit; no `topics` and no `pattern` mean all topics."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    starting_ms: int | None = None
    ending_ms: int | None = None
    include_internal: bool = False

    def rows(self, buffer: pa.Buffer, layout: RecordLayout) -> npt.NDArray[np.bool_] | None:
        """Which records are wanted; None: all."""
        wanted = np.ones(layout.count, bool)
        if self.starting_ms is not None or self.ending_ms is not None:
            stored_ms = layout.numbers("storeTimestamp")
            if self.starting_ms is not None:
                wanted &= stored_ms >= self.starting_ms
            if self.ending_ms is not None:
                wanted &= stored_ms < self.ending_ms
        names: Any = topics(buffer, layout).dictionary_encode()
        accepted = np.array([self.takes(name) for name in names.dictionary.to_pylist()], bool)
        if not accepted.all():
            wanted &= accepted[names.indices.to_numpy()]
        if not self.include_internal:
            transaction = layout.numbers("sysFlag") & TRANSACTION_MASK
            if transaction.any():
                own = np.array([is_system_topic(name) for name in names.dictionary.to_pylist()], bool)
                wanted &= ~np.isin(transaction, _WITHOUT_QUEUE) | own[names.indices.to_numpy()]
        return None if wanted.all() else wanted

    def takes(self, topic: str) -> bool:
        if self.topics:
            return topic in self.topics
        if self.pattern is not None and not re.fullmatch(self.pattern, topic):
            return False
        return self.include_internal or not is_system_topic(topic)

"""The file `config/transactionMetrics`: how many half messages wait, by the topic of their message.

RocketMQ counts up and down while it runs and keeps the sum in this file only; its metric `rocketmq_half_messages` begins there. What holds
is in the log, so the file is written when the broker stops, for the RocketMQ that may come, and never believed.

Source: RocketMQ store format, `transactionMetrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from orbitmq.broker.table_saving import TableFile
from orbitmq.broker.transactions.undecided import Transaction
from orbitmq.errors import StoreDamagedError

TRANSACTION_METRICS_FILE: Final = "transactionMetrics"


def write_counts_of(undecided: Iterable[Transaction], file: TableFile, now_ms: int) -> None:
    """Say how many wait for each topic, under a version that only grows. A store that never had the file and has nothing undecided gets
    none. Durable on return. Raises OSError."""
    try:
        table = file.load() or {}
    except StoreDamagedError:
        table = {}
    known, version = _object(table.get("transactionCount")), _object(table.get("dataVersion"))
    counts = Counter(one.topic for one in undecided)
    if {topic: _object(each).get("count") for topic, each in known.items()} == counts:
        return
    counter = version.get("counter")
    file.save(
        {
            "dataVersion": {
                "counter": counter + 1 if isinstance(counter, int) else 1,
                "stateVersion": 0,
                "timestamp": now_ms,
            },
            "transactionCount": {
                topic: {"count": count, "timeStamp": now_ms} for topic, count in sorted(counts.items())
            },
        }
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

"""`config/transactionMetrics` as an orderly stop leaves it for RocketMQ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.transactions.conftest import COMMIT, TransactionRig

from orbitmq.broker.transactions.counts_file import TRANSACTION_METRICS_FILE


def left(tx: TransactionRig) -> dict[str, Any] | None:
    """What a stop leaves."""
    tx.reopen()
    path = tx.root / "config" / TRANSACTION_METRICS_FILE
    return json.loads(path.read_text()) if path.exists() else None


def counts(table: dict[str, Any] | None) -> dict[str, int]:
    assert table is not None
    return {topic: each["count"] for topic, each in table["transactionCount"].items()}


def test_a_stop_says_how_many_half_messages_wait_for_each_topic(tx: TransactionRig) -> None:
    sent = [tx.half(), tx.half(), tx.half("others")]
    first = left(tx)
    assert counts(first) == {"orders": 2, "others": 1}
    assert first is not None
    assert first["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": tx.clock.now_ms()}
    assert left(tx) == first, "what did not change keeps its version"
    for one in sent[1:]:
        tx.end(one, COMMIT)
    assert counts(left(tx)) == {"orders": 1}


def test_a_store_without_transactions_gets_no_file(tx: TransactionRig) -> None:
    tx.sent_ok("orders", b"x", {})
    assert left(tx) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"transactionCount":7}', '{"transactionCount":{"orders":3},"dataVersion":{"counter":"x"}}']
)
def test_a_file_that_cannot_be_used_is_written_anew(tx: TransactionRig, text: str) -> None:
    path: Path = tx.root / "config" / TRANSACTION_METRICS_FILE
    tx.half()
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert counts(left(tx)) == {"orders": 1}


def test_rocketmqs_count_that_drifted_is_corrected(tx: TransactionRig) -> None:
    path = tx.root / "config" / TRANSACTION_METRICS_FILE
    path.parent.mkdir(exist_ok=True)
    recorded = (
        '{"dataVersion":{"counter":16,"stateVersion":0,"timestamp":1795448683291},'
        '"transactionCount":{"TopicTest1234":{"count":4,"timeStamp":1795448683291}}}'
    )
    path.write_text(recorded)
    table = left(tx)
    assert table is not None
    assert (counts(table), table["dataVersion"]["counter"]) == ({}, 17)

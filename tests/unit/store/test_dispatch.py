"""Entries: what derived structures see of a record, equal whether it was just appended or read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.records import MagicCode, Record
from orbitmq.protocol.sysflag import TransactionType
from orbitmq.store.dispatch import Dispatched, dispatched_from_record


def test_an_entry_read_back_equals_the_one_appended(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    appended = [
        little.send("Topic", 1, b"x", TAGS="TagA", KEYS="a b", UNIQ_KEY="u", other="1"),
        little.send("Topic", 0, b""),
        little.send("Topic", 2, b"y", level=2, TAGS="TagA", UNIQ_KEY="v"),
        little.send("Ünicode", 0, b"z", TAGS="äöü"),
    ]
    assert list(little.store.scan(0)) == appended
    assert appended[0].tags_code == 2598919
    assert appended[1].tags_code == 0
    assert appended[2].tags_code == little.clock.now_ms() + 2_000, "a delayed message carries its due time"


@pytest.mark.parametrize(
    ("kind", "queued"),
    [
        (TransactionType.NOT, True),
        (TransactionType.PREPARED, False),
        (TransactionType.COMMIT, True),
        (TransactionType.ROLLBACK, False),
    ],
)
def test_records_of_old_transactions(kind: TransactionType, queued: bool) -> None:
    entry = Dispatched(0, 100, "Topic", 0, 0, 0, 0, None, None, int(kind), 0, b"")
    assert entry.has_queue_unit is queued
    assert entry.end_offset == 100


def test_only_delayed_records_of_the_schedule_topic_get_a_due_time() -> None:
    def code(topic: str, properties: bytes) -> int:
        record = Record(MagicCode.V1, 0, 0, 0, 0, 0, 0, 0, bytes(8), 7, bytes(8), 0, 0, b"", topic, properties)
        return dispatched_from_record(record, 0, lambda values, stored: stored + 1_000_000).tags_code

    assert code(SCHEDULE_TOPIC, b"DELAY\x013\x02TAGS\x01TagA\x02") == 1_000_007
    assert code(SCHEDULE_TOPIC, b"TAGS\x01TagA\x02") == 2598919
    assert code("Topic", b"DELAY\x013\x02TAGS\x01TagA\x02") == 2598919

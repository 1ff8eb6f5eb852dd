"""A row as a record: what only a broker may give is refused, whatever else the row has."""

from __future__ import annotations

from itertools import product

import pytest

from orbitmq.protocol.filters import tags_code
from orbitmq.protocol.names import QUARANTINE_TOPIC, TIMER_TOPIC
from orbitmq.timing.far_table.rows import FarMessage, messages_of, table_of
from orbitmq.timing.far_table.stamping import Stamp, stamped

STAMP = Stamp(
    table="t", bucket_ms=0, precision_ms=1_000, own=b"", store_host=bytes(8), body_bytes_max=99, queues={"T": 2}
)


def message(**columns: object) -> FarMessage:
    row = {"deliverTimestamp": 1_790_000_000_000, "topic": "T", "body": b"x", "msgId": "ID", **columns}
    return messages_of(table_of([row]))[0]


@pytest.mark.parametrize(("tags", "keys", "sharding"), list(product((None, "", "a"), repeat=3)))
@pytest.mark.parametrize("name", ["ORBITMQ_FAR_TABLE", "REAL_TOPIC", "TIMER_OUT_MS", "colour"])
def test_reserved_properties_are_found_beside_any_others(
    tags: str | None, keys: str | None, sharding: str | None, name: str
) -> None:
    for properties in ({name: "1"}, {"plan": "gold", name: "1"}):
        given = message(tags=tags, keys=keys, shardingKey=sharding, properties=properties)
        topic = stamped(0, given, STAMP)[1]
        assert topic == (TIMER_TOPIC if name == "colour" else QUARANTINE_TOPIC)
    plain = message(tags=tags, keys=keys, shardingKey=sharding)
    record = stamped(0, plain, STAMP)
    assert record[1] == TIMER_TOPIC
    assert record[3] == tags_code(tags)

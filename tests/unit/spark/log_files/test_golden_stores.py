"""Stores written by the Java broker give the rows that the plain decoder gives of their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from orbitmq.columns.message_columns import COLUMN_TYPES, PropertiesForm
from orbitmq.protocol.ids import encode_offset_id, pack_host
from orbitmq.protocol.names import is_system_topic
from orbitmq.spark.log_files.directory import look_at
from orbitmq.spark.log_files.log_options import log_options
from orbitmq.spark.log_files.ranges import cut
from orbitmq.spark.log_files.reading import RowRules, range_batches
from orbitmq.spark.log_files.selection import RecordSelection
from orbitmq.store.dump import dump_records
from orbitmq.store.files import OsFiles

Unpack = Callable[[str], Any]


def rows(root: Any, selection: RecordSelection, partition_bytes: int) -> list[dict[str, Any]]:
    options = msgspec.structs.replace(log_options({"path": str(root)}), selection=selection)
    rules = RowRules(options=options, names=tuple(COLUMN_TYPES), properties=PropertiesForm.MAP)
    found: list[dict[str, Any]] = []
    for part in cut(look_at(str(root)), None, None, partition_bytes):
        for batch in range_batches(part, rules):
            found += batch.to_pylist()
    return found


def plain(root: Any) -> list[dict[str, Any]]:
    return [item for item in dump_records(OsFiles(), root) if item["kind"] == "record"]


def test_every_record_of_a_store(shared_store: Unpack, store_name: str) -> None:
    root, expected = shared_store(store_name)
    assert look_at(str(root)).end == expected["commitLog"]["endOffset"]
    wanted = plain(root)
    assert len(wanted) == expected["commitLog"]["records"]
    for partition_bytes in (30_000, 1 << 30):
        found = rows(root, RecordSelection(include_internal=True), partition_bytes)
        for have, want in zip(found, wanted, strict=True):
            for name in ("topic", "queueId", "queueOffset", "sysFlag", "flag", "reconsumeTimes", "body", "bornHost"):
                assert have[name] == want[name], name
            assert have["commitLogOffset"] == want["physicalOffset"]
            assert dict(have["properties"]) == want["properties"]
            assert have["storeTimestamp"].timestamp() * 1000 == want["storeTimestamp"]
            assert have["bornTimestamp"].timestamp() * 1000 == want["bornTimestamp"]
            assert have["tags"] == want["properties"].get("TAGS")
            assert have["keys"] == want["properties"].get("KEYS")
            ip, _, port = have["storeHost"].rpartition(":")
            offset_id = encode_offset_id(pack_host(ip, int(port)), want["physicalOffset"])
            assert have["msgId"] == want["properties"].get("UNIQ_KEY", offset_id)


def test_what_is_the_brokers_own_is_left_out(shared_store: Unpack, store_name: str) -> None:
    root, _ = shared_store(store_name)
    found = [row["commitLogOffset"] for row in rows(root, RecordSelection(), 50_000)]
    assert found == [item["physicalOffset"] for item in plain(root) if not is_system_topic(item["topic"])]

"""Directories written by the Java broker are read whole, and everything in them is what RocketMQ says it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import ManualClock
from orbitmq.store.check import check_store, read_delay_offsets
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.dump import dump_checkpoint, dump_index, dump_records, dump_units
from orbitmq.store.files import OsFiles
from orbitmq.store.index import IndexService, Trust
from orbitmq.store.inspection import find_index_shape
from orbitmq.store.stat import pending_units, stat_store

Unpack = Callable[[str], Any]
FILES = OsFiles()


def records(root: Path) -> list[dict[str, Any]]:
    return [item for item in dump_records(FILES, root) if item["kind"] == "record"]


def test_every_record_in_log_order(shared_store: Unpack, store_name: str) -> None:
    root, expected = shared_store(store_name)
    found = records(root)
    assert len(found) == len(expected["messages"])
    for have, want in zip(found, expected["messages"], strict=True):
        for field in (
            "topic",
            "queueId",
            "queueOffset",
            "physicalOffset",
            "size",
            "storeTimestamp",
            "bornTimestamp",
            "bornHost",
            "sysFlag",
            "flag",
            "reconsumeTimes",
        ):
            assert have[field] == want[field], field
        common = expected["commonProperties"] if want["common"] else {}
        assert have["properties"] == {**common, **want["properties"]}
        assert len(have["body"]) == want["bodyLength"]
        assert hashlib.sha256(have["body"]).hexdigest() == want["bodySha256"]


def test_fillers_and_end_of_the_log(shared_store: Unpack, store_name: str) -> None:
    root, expected = shared_store(store_name)
    others = [item for item in dump_records(FILES, root) if item["kind"] != "record"]
    blanks = [{"offset": item["physicalOffset"], "size": item["size"]} for item in others if item["kind"] == "blank"]
    assert blanks == expected["commitLog"]["blanks"]
    assert [item["kind"] for item in others if item["kind"] != "blank"] == ["end"]
    assert others[-1]["physicalOffset"] == expected["commitLog"]["endOffset"]


def test_queues_and_their_units(shared_store: Unpack, store_name: str) -> None:
    root, expected = shared_store(store_name)
    stat = stat_store(root, FILES)
    # After a kill the files may hold fewer units than RocketMQ has after recovery, or one of the record that was cut.
    torn = {"VecC/6": 1} if store_name == "plain-torn" else {}
    found = {f"{queue.topic}/{queue.queue_id}": (queue.min_offset, queue.max_offset) for queue in stat.queues}
    assert found == {
        name: (queue["min"], queue["inConsumeQueueFiles"] + torn.get(name, 0))
        for name, queue in expected["queues"].items()
    }
    by_place = {(m["topic"], m["queueId"], m["queueOffset"]): m for m in expected["messages"]}
    for queue in stat.queues:
        for unit in dump_units(FILES, root, queue.topic, queue.queue_id, end=queue.max_offset - bool(torn)):
            message = by_place[queue.topic, queue.queue_id, unit["queueOffset"]]
            assert (unit["physicalOffset"], unit["size"]) == (message["physicalOffset"], message["size"])


def test_index_headers_and_queries(golden_store: Unpack, store_name: str) -> None:
    root, expected = golden_store(store_name)
    headers = [item for item in dump_index(FILES, root) if item["kind"] == "file"]
    for header in headers:
        del header["kind"]
    if store_name != "plain-torn":
        assert headers == expected["indexFiles"]
    shape = find_index_shape(FILES, root)
    assert shape == (100, 400)
    index = IndexService(FILES, root / "index", shape, ManualClock())
    index.load(Trust.COMPLETE)
    end = expected["commitLog"]["endOffset"]
    index.cut(end)
    for query in expected["indexQueries"]:
        found = index.query(query["topic"], query["key"], 10_000)
        assert found[: len(query["physicalOffsets"])] == query["physicalOffsets"], query["key"]
        assert len(found) == query["count"]
    index.close()


def test_checkpoint(shared_store: Unpack, store_name: str) -> None:
    root, expected = shared_store(store_name)
    found = dump_checkpoint(FILES, root)
    assert {name: found[name] for name in expected["checkpoint"]} == expected["checkpoint"]


def test_configuration_tables(shared_store: Unpack, store_name: str) -> None:
    root, expected = shared_store(store_name)

    def table(name: str) -> dict[str, Any]:
        return ConfigFile(FILES, root / "config" / name).load() or {}

    assert table("topics.json")["topicConfigTable"] == expected["topics"]
    assert table("subscriptionGroup.json")["subscriptionGroupTable"] == expected["groups"]
    assert table("consumerOffset.json").get("offsetTable", {}) == expected["consumerOffsets"]
    offsets = read_delay_offsets(FILES, root / "config" / "delayOffset.json")
    assert {str(level): offset for level, offset in offsets.items()} == expected["delayOffsets"]


def test_pending_delayed_messages(shared_store: Unpack, store_name: str) -> None:
    root, expected = shared_store(store_name)
    found = [
        (level, unit.queue_offset, unit.physical_offset, unit.tags_code) for level, unit in pending_units(root, FILES)
    ]
    wanted = [
        (entry["level"], entry["queueOffset"], entry["physicalOffset"], entry["due"])
        for entry in expected["pendingDelayLevels"]
    ]
    assert sorted(found) == sorted(wanted)
    levels = {level.level: level.pending_count for level in stat_store(root, FILES).levels if level.pending_count}
    assert sum(levels.values()) == len(wanted)


def test_check_finds_nothing_wrong(shared_store: Unpack, store_name: str) -> None:
    root, expected = shared_store(store_name)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    steps: list[tuple[int, int]] = []
    report = check_store(root, FILES, progress=lambda done, total: steps.append((done, total)))
    assert report.findings == []
    assert report.sound
    assert report.crashed == expected["abortFilePresent"]
    assert report.record_count == expected["commitLog"]["records"]
    assert report.log_end == expected["commitLog"]["endOffset"]
    assert report.queue_count == len(expected["queues"])
    assert report.index_file_count == len(list((root / "index").iterdir()))
    assert steps[-1][0] == steps[-1][1]
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_notes_of_the_torn_store(shared_store: Unpack) -> None:
    root, _ = shared_store("plain-torn")
    notes = {note.path: note.message for note in check_store(root, FILES).notes}
    assert "not stop in order" in notes["abort"]
    assert (
        "the log ends at physical offset 488389; the 215 bytes behind it are no record"
        in (notes["commitlog/00000000000000262144"])
    )
    assert notes["consumequeue"] == "8 messages have no unit yet; recovery adds them"
    assert notes["consumequeue/VecC/6"].startswith("1 units point behind the end")
    assert notes["index"].startswith("2 entries point behind the end")


def test_the_4x_property_string_without_final_separator_is_read(shared_store: Unpack) -> None:
    root, _ = shared_store("delay-4.9.7")
    assert all(record["properties"] for record in records(root))
    json.dumps([{**record, "body": record["body"].hex()} for record in records(root)])


def test_key_index_is_rebuilt_equal_from_the_log(shared_store: Unpack, tmp_path: Path) -> None:
    """Fed with the same records our index gives the entries of RocketMQ's files, byte for byte."""
    root, _ = shared_store("plain-clean")
    shape = find_index_shape(FILES, root)
    assert shape is not None
    index = IndexService(FILES, tmp_path / "ours" / "index", shape, ManualClock())
    for record in records(root):
        properties = record["properties"]
        index.apply(
            [
                Dispatched(
                    record["physicalOffset"],
                    record["size"],
                    record["topic"],
                    record["queueId"],
                    record["queueOffset"],
                    0,
                    record["storeTimestamp"],
                    properties.get("UNIQ_KEY"),
                    properties.get("KEYS"),
                    record["sysFlag"],
                    0,
                    b"",
                )
            ]
        )
    index.close()
    theirs = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    ours = [path.read_bytes() for path in sorted((tmp_path / "ours" / "index").iterdir())]
    assert ours == theirs


@pytest.mark.parametrize("name", ["delay-clean", "plain-clean"])
def test_shape_is_told_from_any_file(golden_store: Unpack, name: str) -> None:
    root, _ = golden_store(name)
    for path in sorted((root / "index").iterdir()):
        assert find_index_shape(FILES, root) == (100, 400)
        path.unlink()
    assert find_index_shape(FILES, root) is None

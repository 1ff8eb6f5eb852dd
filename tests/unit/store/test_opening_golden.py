"""Stores of the Java broker open in orbitmq, give out everything in them, and open again."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreDamagedError
from orbitmq.protocol.names import QUARANTINE_TOPIC
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import Record
from orbitmq.protocol.schedule import DEFAULT_LEVELS
from orbitmq.store.check import check_store
from orbitmq.store.checkpoint import CheckpointFile, read_checkpoint
from orbitmq.store.files import OsFiles
from orbitmq.store.opening import open_store
from orbitmq.store.recovery import LastWriter
from orbitmq.store.settings import StoreSettings
from orbitmq.store.worker import InlineWorker

Unpack = Callable[[str], Any]


def settings_of(expected: dict[str, Any]) -> StoreSettings:
    """File sizes as the `broker.conf` of the store names them."""
    keys = dict(line.split("=", 1) for line in expected["brokerConf"])
    return StoreSettings(
        mapped_file_size_commit_log=int(keys["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(keys["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=int(keys["maxHashSlotNum"]),
        max_index_num=int(keys["maxIndexNum"]),
    )


def last_moment(expected: dict[str, Any]) -> int:
    return int(max(message["storeTimestamp"] for message in expected["messages"]))


def open_golden(root: Path, expected: dict[str, Any], *, now_ms: int | None = None) -> LittleStore:
    clock = ManualClock(last_moment(expected) if now_ms is None else now_ms)
    little = LittleStore(root, clock=clock, settings=settings_of(expected), levels=DEFAULT_LEVELS)
    little.release.paused = True
    return little


def compare(little: LittleStore, expected: dict[str, Any]) -> None:
    """Every queue and every message in it, as a consumer reads them."""
    by_place = {(m["topic"], m["queueId"], m["queueOffset"]): m for m in expected["messages"]}
    ends = {}
    for queue in little.store.queues:
        ends[f"{queue.topic}/{queue.queue_id}"] = (queue.min_offset, queue.max_offset)
        records = little.records(queue.topic, queue.queue_id)
        assert len(records) == queue.max_offset - queue.min_offset
        for offset, record in enumerate(records, queue.min_offset):
            same(record, by_place[queue.topic, queue.queue_id, offset])
    assert ends == {name: (queue["min"], queue["max"]) for name, queue in expected["queues"].items()}
    for query in expected["indexQueries"]:
        found = little.store.query_by_key(query["topic"], query["key"], 10_000, 0, 1 << 62)
        assert found[: len(query["physicalOffsets"])] == query["physicalOffsets"], query["key"]
        assert len(found) == query["count"]


def same(record: Record, want: dict[str, Any]) -> None:
    assert record.physical_offset == want["physicalOffset"]
    assert record.store_timestamp == want["storeTimestamp"]
    assert hashlib.sha256(record.body).hexdigest() == want["bodySha256"]


def test_it_opens_gives_out_everything_and_opens_again(golden_store: Unpack, store_name: str) -> None:
    root, expected = golden_store(store_name)
    little = open_golden(root, expected)
    crashed = expected["abortFilePresent"]
    assert little.store.report.origin is (LastWriter.FOREIGN_CRASH if crashed else LastWriter.FOREIGN_CLEAN)
    assert little.store.report.log_end == expected["commitLog"]["endOffset"]
    compare(little, expected)
    assert (root / "abort").exists()
    little.close()
    assert not (root / "abort").exists()
    assert check_store(root, OsFiles()).findings == []
    again = open_golden(root, expected)
    assert again.store.report.origin is LastWriter.OURS
    assert again.store.report.scanned_records == 0
    compare(again, expected)
    again.kill()
    killed = open_golden(root, expected)
    compare(killed, expected)
    killed.close()


def test_pending_levels_and_those_that_were_delivered(golden_store: Unpack, store_name: str) -> None:
    """Nothing pending is lost or early; what RocketMQ delivered before its crash is not repeated where that can be told."""
    root, expected = golden_store(store_name)
    entries = expected["pendingDelayLevels"]
    undelivered = {e["uniqKey"]: (e["due"], e["topic"], e["queueId"]) for e in entries if not e.get("deliveredAt")}
    known = {e["uniqKey"] for e in entries if e.get("deliveredAt")}
    little = open_golden(root, expected)
    pending = little.release.pending_count
    assert pending >= len(undelivered)
    before = dict.fromkeys(known | set(undelivered), 0)
    for topic, queue_id in places(expected):
        for properties in little.properties(topic, queue_id):
            if (key := properties.get("UNIQ_KEY", "")) in before:
                before[key] += 1
    little.release.paused = False
    little.clock.set_wall(max([due for due, _, _ in undelivered.values()], default=little.clock.now_ms()))
    for _ in range(6):
        little.advance(1_000)
    assert little.release.pending_count == 0
    assert little.store.max_offset(QUARANTINE_TOPIC, 0) == 0
    after = dict.fromkeys(before, 0)
    for topic, queue_id in places(expected):
        for record in little.records(topic, queue_id):
            key = decode_properties(record.properties).get("UNIQ_KEY", "")
            if key in after:
                after[key] += 1
            if key in undelivered and record.prepared_transaction_offset:
                due, real_topic, real_queue = undelivered[key]
                assert (topic, queue_id) == (real_topic, real_queue)
                assert record.store_timestamp >= due
    for key in undelivered:
        assert after[key] == before[key] + 1, f"{key} was not delivered once"
    for key in known:
        assert after[key] == before[key], f"{key} was delivered by RocketMQ and again by us"
    little.close()


def places(expected: dict[str, Any]) -> list[tuple[str, int]]:
    names = (name.rsplit("/", 1) for name in expected["queues"])
    return [(topic, int(queue)) for topic, queue in names if topic != "SCHEDULE_TOPIC_XXXX"]


def test_a_torn_end_of_rocketmq_is_cut_and_reported(golden_store: Unpack) -> None:
    root, expected = golden_store("plain-torn")
    little = open_golden(root, expected)
    assert little.store.report.torn_bytes == 215
    assert little.store.report.text().endswith("cut a torn end of 215 bytes")
    little.close()


@pytest.mark.parametrize("name", ["plain-clean", "plain-crash"])
def test_a_store_of_rocketmq_damaged_in_the_middle_stays_as_it_is(golden_store: Unpack, name: str) -> None:
    root, expected = golden_store(name)
    last = [m for m in expected["messages"] if m["physicalOffset"] > 262_144][2]
    log = root / "commitlog" / "00000000000000262144"
    data = bytearray(log.read_bytes())
    data[last["physicalOffset"] - 262_144 + 88] ^= 1
    log.write_bytes(data)
    shutil.rmtree(root / "consumequeue")  # so that all of the log is scanned
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(StoreDamagedError, match=f"damaged at offset {last['physicalOffset']}"):
        open_golden_without_levels(root, expected)
    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}
    assert after == before


def open_golden_without_levels(root: Path, expected: dict[str, Any]) -> None:
    """The history of level lists is written before the store is opened; here nothing but the store may write."""
    open_store(
        root,
        settings_of(expected),
        OsFiles(),
        ManualClock(last_moment(expected)),
        notify=lambda call: call(),
        worker=InlineWorker(),
    )


@pytest.mark.parametrize("name", ["plain-clean", "delay-clean"])
def test_derived_files_can_be_made_again_from_the_log(golden_store: Unpack, name: str) -> None:
    root, expected = golden_store(name)
    theirs = {p.relative_to(root): p.read_bytes() for p in sorted((root / "consumequeue").rglob("*")) if p.is_file()}
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    little = open_golden(root, expected)
    compare(little, expected)
    little.close()
    ours = {p.relative_to(root): p.read_bytes() for p in sorted((root / "consumequeue").rglob("*")) if p.is_file()}
    assert ours == theirs, "consume queue files, byte for byte, due times included"


def test_half_a_unit_and_a_lost_page_of_units_are_made_again(golden_store: Unpack) -> None:
    """What a power failure does to the consume queues of a Java broker."""
    root, expected = golden_store("plain-crash")
    for name, begin, end in (("VecA/0", -13, None), ("VecA/1", -300, -200), ("VecA/3", -8, None)):
        topic, queue_id = name.split("/")
        last = sorted((root / "consumequeue" / topic / queue_id).iterdir())[-1]
        data = bytearray(last.read_bytes())
        used = len(data.rstrip(b"\0")) + 19
        used -= used % 20
        end_at = used + (end or 0)
        data[used + begin : end_at] = bytes(end_at - used - begin)
        last.write_bytes(data)
    little = open_golden(root, expected)
    compare(little, expected)
    assert check_store(root, OsFiles()).findings == []
    little.close()


def test_when_rocketmq_ran_in_between_its_rule_applies(golden_store: Unpack) -> None:
    root, expected = golden_store("plain-crash")
    open_golden(root, expected).close()
    again = open_golden(root, expected)
    again.kill()
    checkpoint = CheckpointFile.open(OsFiles(), root / "checkpoint")  # as RocketMQ leaves it after one more message
    value = checkpoint.value
    checkpoint.write(msgspec.structs.replace(value, physic_msg_timestamp=value.physic_msg_timestamp + 5))
    checkpoint.close()
    third = open_golden(root, expected)
    assert third.store.report.origin is LastWriter.FOREIGN_CRASH
    compare(third, expected)
    third.close()
    (root / "abort").unlink(missing_ok=True)
    checkpoint = CheckpointFile.open(OsFiles(), root / "checkpoint")
    checkpoint.write(msgspec.structs.replace(checkpoint.value, logics_msg_timestamp=1))
    checkpoint.close()
    fourth = open_golden(root, expected)
    assert fourth.store.report.origin is LastWriter.FOREIGN_CLEAN
    compare(fourth, expected)
    fourth.close()


def test_without_messages_in_between_the_store_is_still_ours(golden_store: Unpack) -> None:
    root, expected = golden_store("plain-clean")
    open_golden(root, expected).close()
    (root / "abort").write_bytes(b"")  # RocketMQ opened it and was killed at once
    again = open_golden(root, expected)
    assert again.store.report.origin is LastWriter.OURS
    again.close()


def test_the_page_of_rocketmq_never_runs_ahead(golden_store: Unpack) -> None:
    root, expected = golden_store("delay-clean")
    little = open_golden(root, expected)
    little.send(body=b"new")
    little.close()
    page = read_checkpoint(OsFiles(), root / "checkpoint")
    assert page is not None
    assert page.physic_msg_timestamp == page.logics_msg_timestamp == last_moment(expected)
    assert page.index_msg_timestamp <= page.physic_msg_timestamp

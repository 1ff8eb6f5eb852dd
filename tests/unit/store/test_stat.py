"""Figures of a store, also where retention has removed its beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orbitmq.store.files import OsFiles
from orbitmq.store.inspection import read_sequence
from orbitmq.store.stat import NO_TIME, pending_units, stat_levels, stat_store

Unpack = Callable[[str], Any]
FILES = OsFiles()


def test_counts_bytes_and_times_of_every_queue(shared_store: Unpack) -> None:
    root, expected = shared_store("plain-clean")
    stat = stat_store(root, FILES)
    assert stat.message_count == 757
    assert (stat.log_start, stat.log_end) == (0, 358_738)
    assert (stat.log_file_count, stat.log_file_bytes, stat.index_file_count) == (2, 524_288, 4)
    for queue in stat.queues:
        messages = [m for m in expected["messages"] if (m["topic"], m["queueId"]) == (queue.topic, queue.queue_id)]
        assert queue.message_count == len(messages)
        assert queue.message_bytes == sum(message["size"] for message in messages)
        assert queue.first_store_timestamp == messages[0]["storeTimestamp"]
        assert queue.last_store_timestamp == messages[-1]["storeTimestamp"]


def test_after_retention_removed_the_first_log_file(golden_store: Unpack) -> None:
    root, expected = golden_store("plain-clean")
    (root / "commitlog/00000000000000000000").unlink()
    stat = stat_store(root, FILES)
    left = [message for message in expected["messages"] if message["physicalOffset"] >= 262_144]
    assert stat.message_count == len(left)
    assert stat.log_start == 262_144
    for queue in stat.queues:
        offsets = [m["queueOffset"] for m in left if (m["topic"], m["queueId"]) == (queue.topic, queue.queue_id)]
        assert queue.min_offset == (offsets[0] if offsets else queue.max_offset)
        if not offsets:
            assert queue.first_store_timestamp == NO_TIME
            assert queue.message_count == 0


def test_levels_name_the_first_and_last_due_time(shared_store: Unpack) -> None:
    root, expected = shared_store("delay-clean")
    pending: dict[int, list[int]] = {}
    for entry in expected["pendingDelayLevels"]:
        pending.setdefault(entry["level"], []).append(entry["due"])
    for level in stat_levels(root, FILES):
        dues = pending.get(level.level, [])
        assert level.pending_count == len(dues)
        assert (level.first_due_ms, level.last_due_ms) == ((dues[0], dues[-1]) if dues else (None, None))


def test_delay_offsets_outside_their_queue_are_moved_into_it(golden_store: Unpack) -> None:
    root, _ = golden_store("delay-clean")
    (root / "config/delayOffset.json").write_text('{"offsetTable":{1:9999,18:-3}}')
    levels = {level.level: level for level in stat_levels(root, FILES)}
    assert levels[1].pending_count == 0
    assert levels[1].next_offset == levels[1].max_offset
    assert levels[18].next_offset == 0
    assert all(unit.queue_offset < levels[level].max_offset for level, unit in pending_units(root, FILES))


def test_strangers_empty_and_odd_files_of_a_sequence(golden_store: Unpack) -> None:
    root, _ = golden_store("plain-clean")
    directory = root / "commitlog"
    (directory / "00000000000000524288").touch()
    sequence = read_sequence(FILES, directory)
    assert (sequence.start, sequence.end) == (0, 524_288)
    assert [path.name for path, _ in sequence.notes] == ["00000000000000524288"]
    (directory / "00000000000000524288").write_bytes(bytes(1000))
    assert len(read_sequence(FILES, directory).problems) == 1
    assert read_sequence(FILES, root / "absent").files == []

"""Written saves beside many queues: they take many turns, and a kill in between loses nothing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.limits.store import WRITTEN_QUEUES_MAX, WRITTEN_QUEUES_PAUSE_MS, WRITTEN_SAVE_MS
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import Mark, MarkFile

COUNT = WRITTEN_QUEUES_MAX + 5
"""Queues whose units are written in two parts."""

MANY = {"mapped_file_size_commit_log": 256 * 1024}


def mark_of(little: LittleStore) -> Mark:
    found = MarkFile(OsFiles(), little.root).load(OsFiles().boot_id())
    assert found is not None
    return found


def send_to_all(little: LittleStore) -> int:
    """Log position behind a message for each queue."""
    return [little.append("Many", queue_id) for queue_id in range(COUNT)][-1].end_offset


@pytest.fixture
def little(tmp_path: Path) -> LittleStore:
    little = LittleStore(tmp_path, **MANY)
    little.worker.close()
    return little


def begin_a_save(little: LittleStore) -> int:
    end = send_to_all(little)
    little.turn()
    little.clock.advance(WRITTEN_SAVE_MS)
    little.turn()
    return end


def go_on(little: LittleStore) -> None:
    little.clock.advance(WRITTEN_QUEUES_PAUSE_MS)
    little.turn()


def test_the_positions_are_of_its_begin_and_the_confirmed_end_of_its_end(little: LittleStore) -> None:
    before = mark_of(little)
    end = begin_a_save(little)
    assert mark_of(little) == before, "units of the last queues are in memory"
    later = little.send("Many", 0)
    go_on(little)
    found = mark_of(little)
    assert set(found.positions.values()) == {end}
    assert found.end == later.end_offset
    little.clock.advance(WRITTEN_SAVE_MS)
    little.turn()
    assert set(mark_of(little).positions.values()) == {later.end_offset}, "what came meanwhile is saved after it"


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_a_kill_within_a_save_loses_nothing(tmp_path: Path, little: LittleStore, parts: int) -> None:
    begin_a_save(little)
    for _ in range(parts):
        send_to_all(little)
        go_on(little)
    little.kill()
    again = LittleStore(tmp_path, **MANY)
    for queue_id in range(COUNT):
        assert len(again.bodies("Many", queue_id)) == 1 + parts
        assert again.send("Many", queue_id).queue_offset == 1 + parts


def test_a_deletion_within_a_save_is_noted_at_once(tmp_path: Path, little: LittleStore) -> None:
    """Else a start after a kill would find other queues than the mark, and make them from the whole log."""
    begin_a_save(little)
    little.store.delete_topic("Many")
    assert mark_of(little).states["consume_queues"] == {"units": 0}
    go_on(little)
    assert mark_of(little).states["consume_queues"] == {"units": 0}
    little.kill()
    again = LittleStore(tmp_path, **MANY)
    assert again.bodies("Many", 0) == []


def test_a_write_that_finds_no_room_keeps_the_save_before_and_is_made_again(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: ConsumeQueue) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = mark_of(little)
    end = begin_a_save(little)
    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "write_tail", full)
        go_on(little)
    assert mark_of(little) == before
    assert not little.store.writable
    little.advance(1_000)
    little.advance(1_000)
    assert little.store.writable
    assert mark_of(little).end == end


def test_the_units_of_all_queues_are_counted_as_they_come(tmp_path: Path, little: LittleStore) -> None:
    def counted() -> None:
        units = sum(queue.max_offset for queue in little.store.queues)
        assert little.store.queues.state() == {"units": units}

    for number in range(30):
        little.send("Many", number % 3)
        little.send("Other", 0)
    counted()
    little.store.delete_topic("Many")
    counted()
    little.send("Many", 0)
    counted()
    little.close()
    little = LittleStore(tmp_path, **MANY)
    counted()
    little.kill()

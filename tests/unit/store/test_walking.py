"""A walk finds where the log is damaged, whatever the damage is, and says nothing of a log that is sound."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.protocol.records import BLANK_BYTES_MIN
from orbitmq.store.files import OsFile
from orbitmq.store.queues import restore_units
from orbitmq.store.walking import Walked, sound_at, walk

ALL = 1 << 40


@pytest.fixture
def little(tmp_path: Path) -> LittleStore:
    made = LittleStore(tmp_path)
    for number in range(60):
        made.send(body=bytes([number + 1]) * (200 + 41 * number))
    assert len(made.store.log.sequence.segments) > 3
    return made


def places(little: LittleStore) -> list[int]:
    return [entry.physical_offset for entry in little.store.scan(0)]


def overwrite(little: LittleStore, position: int, data: bytes) -> None:
    segment = little.store.log.sequence.find(position)
    assert segment is not None
    segment.file.pwrite(data, position - segment.base)


def test_a_sound_log_is_walked_to_its_end_over_all_files(little: LittleStore) -> None:
    log, end = little.store.log, little.store.confirm_offset
    assert walk(log, 0, end, ALL) == Walked(end)
    position, steps = 0, 0
    while position < end:
        position, problem = walk(log, position, end, 2_000)
        assert problem == ""
        steps += 1
    assert position == end
    assert steps > 3


@pytest.mark.parametrize(
    "damage", ["a bit of the body", "a page of zeros", "the size", "the magic number", "the place"]
)
def test_a_walk_ends_where_the_damage_begins(little: LittleStore, damage: str) -> None:
    log, end = little.store.log, little.store.confirm_offset
    at = places(little)[30]
    match damage:
        case "a bit of the body":
            overwrite(little, at + 120, b"\xff")
        case "a page of zeros":
            overwrite(little, at, bytes(600))
        case "the size":
            overwrite(little, at, struct.pack(">i", 77))
        case "the magic number":
            overwrite(little, at + 4, b"\x00\x00\x00\x01")
        case "the place":
            overwrite(little, at + 28, struct.pack(">q", at + 1))
    found = walk(log, 0, end, ALL)
    assert found.position == at
    assert found.problem
    assert sound_at(log, at, end) is None


def test_a_filler_that_is_damaged_is_damage(little: LittleStore) -> None:
    log, end = little.store.log, little.store.confirm_offset
    second = log.sequence.segments[1]
    last = [place for place in places(little) if place < second.base][-1]
    filler = last + log.claimed_size(last)
    assert sound_at(log, filler, end) == log.read(filler, BLANK_BYTES_MIN)
    overwrite(little, filler, b"\x01")
    assert walk(log, 0, end, ALL).position == filler


def test_what_cannot_be_read_is_damage_and_what_lies_around_it_is_not(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, end = little.store.log, little.store.confirm_offset
    at = places(little)[30]
    segment = log.sequence.find(at)
    assert segment is not None
    pread = OsFile.pread

    def failing(file: OsFile, size: int, offset: int) -> bytes:
        bad = at + 50 - segment.base
        if file.path.name == segment.path.name and offset <= bad < offset + size:
            raise OSError(errno.EIO, "Input/output error")
        return pread(file, size, offset)

    monkeypatch.setattr(OsFile, "pread", failing)
    assert walk(log, 0, end, ALL) == Walked(at, "it cannot be read: Input/output error")
    assert walk(log, at + log.claimed_size(at), end, ALL) == Walked(end)


def test_a_file_that_was_removed_has_no_damage(little: LittleStore) -> None:
    log, end = little.store.log, little.store.confirm_offset
    little.store.drop_first_segments(1)
    assert walk(log, 0, end, ALL) == Walked(end)


def test_sound_bytes_are_written_over_and_lost_units_restored(little: LittleStore) -> None:
    store, end = little.store, little.store.confirm_offset
    entry = list(store.scan(0))[10]
    at = entry.physical_offset
    sound = store.log.read(at, entry.size)
    assert sound is not None
    overwrite(little, at, bytes(entry.size))
    done: list[object] = []
    store.overwrite(at, sound, done.append)
    little.worker.close()
    assert done == [True]
    assert walk(store.log, 0, end, ALL) == Walked(end)
    queue = store.queues.get(entry.topic, entry.queue_id)
    assert queue is not None
    store.queues.write()
    unit = queue.unit(entry.queue_offset)
    assert restore_units(store.queues, [entry]) == 0, "it is there"
    segment = queue._sequence.find(entry.queue_offset * 20)
    assert segment is not None
    segment.file.pwrite(bytes(20), entry.queue_offset * 20 - segment.base)
    queue.forget_block()
    assert restore_units(store.queues, [entry]) == 1
    assert queue.unit(entry.queue_offset) == unit


def test_a_failed_sync_of_what_was_written_over_is_fatal_as_any(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = next(iter(little.store.scan(0)))
    sound = little.store.log.read(entry.physical_offset, entry.size)
    assert sound is not None

    def failing(file: OsFile) -> None:
        raise OSError(errno.EIO, "Input/output error")

    done: list[object] = []
    monkeypatch.setattr(OsFile, "datasync", failing)
    little.store.overwrite(entry.physical_offset, sound, done.append)
    little.worker.close()
    assert isinstance(done[0], OSError)
    assert little.store.is_over

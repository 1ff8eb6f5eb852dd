"""A copy grows by bytes of another log: it has the same messages, goes on from them, and a failure leaves whole records."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.store.files import OsFile
from orbitmq.store.settings import FlushDiskType


@pytest.fixture
def master(tmp_path: Path) -> LittleStore:
    little = LittleStore(tmp_path / "master")
    for number in range(40):
        little.send(queue_id=number % 3, body=bytes([number]) * (300 + 37 * number), KEYS=f"k{number}")
    return little


@pytest.fixture
def copy(tmp_path: Path, master: LittleStore) -> LittleStore:
    return LittleStore(tmp_path / "copy", clock=master.clock)


def everything(little: LittleStore) -> list[list[bytes]]:
    return [little.bodies(queue_id=queue_id) for queue_id in range(3)]


def test_frames_that_cut_records_anywhere(master: LittleStore, copy: LittleStore) -> None:
    data, chance, at = master.log_bytes(), random.Random(3), 0
    while at < len(data):
        size = chance.choice([1, 7, 100, 1_000, 9_000])
        assert copy.store.raw_end == at
        copy.store.append_raw(at, data[at : at + size])
        at = min(at + size, len(data))
    assert everything(copy) == everything(master)
    assert copy.log_bytes() == data
    assert copy.store.query_by_key("Topic", "k9", 9, 0, 1 << 62) == master.store.query_by_key(
        "Topic", "k9", 9, 0, 1 << 62
    )


def test_the_log_of_a_copy_ends_with_a_whole_record_at_any_time(
    master: LittleStore, copy: LittleStore, tmp_path: Path
) -> None:
    data = master.log_bytes()
    copy.store.append_raw(0, data[:5_000])
    end = copy.store.log.end
    assert end < 5_000 == copy.store.raw_end
    copy.kill()
    again = LittleStore(tmp_path / "copy", clock=master.clock)
    assert again.store.log.end == again.store.raw_end == end
    assert again.store.report.torn_bytes == 0
    again.store.append_raw(end, data[end:])
    assert everything(again) == everything(master)


def test_a_copy_that_takes_over_goes_on_from_what_it_has(master: LittleStore, copy: LittleStore) -> None:
    master.clock.advance(5_000)
    newest = master.send(body=b"newest")
    copy.store.append_raw(0, master.log_bytes())
    copy.clock.set_wall(copy.clock.now_ms() - 3_000)  # its clock is behind
    placed = copy.send(body=b"by the copy")
    assert placed.queue_offset == newest.queue_offset + 1
    assert placed.store_timestamp == newest.store_timestamp, "store times do not go back"
    assert copy.bodies()[-2:] == [b"newest", b"by the copy"]


def test_an_empty_copy_may_begin_at_any_file(master: LittleStore, copy: LittleStore) -> None:
    files = [segment.base for segment in master.store.log.sequence.segments]
    assert len(files) > 2
    begin = files[1]
    with pytest.raises(RecordError, match="cannot begin"):
        copy.store.append_raw(begin + 8, master.log_bytes(begin + 8))
    copy.store.append_raw(begin, master.log_bytes(begin))
    assert copy.store.log.start == begin
    for queue_id in range(3):
        first = copy.store.min_offset("Topic", queue_id)
        assert first > 0
        assert copy.bodies(queue_id=queue_id) == master.bodies(queue_id=queue_id)[first:]
    assert copy.send().queue_offset == master.store.max_offset("Topic", 0)


def test_bytes_that_do_not_follow_are_refused(master: LittleStore, copy: LittleStore) -> None:
    data = master.log_bytes()
    copy.store.append_raw(0, data[:3_000])
    for offset in (0, 2_999, 3_001, 1 << 40):
        with pytest.raises(RecordError, match="do not follow"):
            copy.store.append_raw(offset, data[3_000:])
        end = copy.store.raw_end
        assert end == copy.store.log.end, "what was half there is asked for again"
        copy.store.append_raw(end, data[end:3_000])
    copy.store.append_raw(3_000, data[3_000:])
    assert everything(copy) == everything(master)


def test_a_bad_record_is_not_written_and_those_before_it_count(master: LittleStore, copy: LittleStore) -> None:
    data = bytearray(master.log_bytes())
    data[6_000] ^= 1
    with pytest.raises(RecordError, match="no record follows"):
        copy.store.append_raw(0, bytes(data))
    end = copy.store.log.end
    assert 4_000 < end == copy.store.raw_end <= 6_000
    assert copy.log_bytes(end, end + 400) == bytes(400)
    copy.store.append_raw(end, master.log_bytes(end))
    assert everything(copy) == everything(master)


def test_a_full_disk_leaves_whole_records_that_are_in_their_queues(
    master: LittleStore, copy: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = master.log_bytes()
    written = OsFile.pwritev
    calls = 0

    def full(self: OsFile, parts: list[bytes], at: int) -> None:
        nonlocal calls
        if "commitlog" in str(self.path):
            calls += 1
            if calls == 2:
                written(self, [parts[0][: len(parts[0]) // 2]], at)
                raise OSError(errno.ENOSPC, "planned")
        written(self, parts, at)

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "pwritev", full)
        with pytest.raises(StoreUnwritableError):
            copy.store.append_raw(0, data)
    end = copy.store.log.end
    assert 0 < end == copy.store.raw_end
    assert sum(map(len, everything(copy))) == sum(1 for one in copy.store.scan(0))
    copy.advance(2_000)
    copy.store.append_raw(end, data[end:])
    assert everything(copy) == everything(master)
    assert copy.log_bytes() == data


def test_a_gap_in_a_queue_is_refused(master: LittleStore, copy: LittleStore) -> None:
    entries = list(master.store.scan(0))
    missing = next(entry for entry in entries if entry.queue_id == 1 and entry.queue_offset == 2)
    jump = next(entry for entry in entries if entry.queue_id == 1 and entry.queue_offset == 3)
    copy.store.append_raw(0, master.log_bytes(0, missing.physical_offset))
    record = bytearray(master.log_bytes(jump.physical_offset, jump.end_offset))
    record[28:36] = missing.physical_offset.to_bytes(8, "big")
    with pytest.raises(RecordError, match="number 3 of Topic/1, where 2 follows"):
        copy.store.append_raw(missing.physical_offset, bytes(record))
    copy.store.append_raw(missing.physical_offset, master.log_bytes(missing.physical_offset))
    assert everything(copy) == everything(master)


def test_a_topic_that_began_again_at_the_master_begins_again_at_the_copy(
    master: LittleStore, copy: LittleStore
) -> None:
    copy.store.append_raw(0, master.log_bytes())
    end = master.store.log.end
    master.store.delete_topic("Topic")
    master.send(body=b"anew")
    master.send(body=b"again")
    copy.store.append_raw(end, master.log_bytes(end))
    assert copy.bodies() == [b"anew", b"again"]
    assert copy.send().queue_offset == 2


def test_own_messages_make_a_cut_record_forgotten(master: LittleStore, copy: LittleStore) -> None:
    copy.store.append_raw(0, master.log_bytes(0, 2_500))
    placed = copy.send(body=b"own")
    assert copy.store.raw_end == placed.end_offset
    with pytest.raises(RecordError, match="do not follow"):
        copy.store.append_raw(2_500, master.log_bytes(2_500))


def test_a_copy_that_syncs_shows_what_is_synced(master: LittleStore, tmp_path: Path) -> None:
    copy = LittleStore(tmp_path / "copy", clock=master.clock, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    copy.store.append_raw(0, master.log_bytes())
    assert everything(copy) == [[], [], []]
    copy.worker.close()
    assert everything(copy) == everything(master)


def test_a_copy_shows_what_its_leader_has_confirmed(master: LittleStore, copy: LittleStore) -> None:
    copy.store.confirmation.hold_for_copies(0)
    copy.store.append_raw(0, master.log_bytes())
    third = list(master.store.scan(0))[2]
    copy.store.confirmation.copies_have(third.end_offset)
    assert [len(bodies) for bodies in everything(copy)] == [1, 1, 1]
    assert copy.store.truncate(third.end_offset) == 37
    assert copy.store.raw_end == third.end_offset
    copy.store.append_raw(third.end_offset, master.log_bytes(third.end_offset))
    copy.store.confirmation.copies_have(copy.store.log.end)
    assert everything(copy) == everything(master)


def test_a_copy_that_begins_late_and_confirms_late_goes_on_behind_what_it_has(
    master: LittleStore, copy: LittleStore
) -> None:
    """The first message of a queue is dispatched while later ones are in the log, and not confirmed."""
    begin = master.store.log.sequence.segments[1].base
    copy.store.confirmation.hold_for_copies(0)
    entries = list(master.store.scan(begin))
    copy.store.append_raw(begin, master.log_bytes(begin, entries[8].end_offset))
    copy.store.confirmation.copies_have(entries[2].end_offset)
    copy.store.append_raw(entries[8].end_offset, master.log_bytes(entries[8].end_offset))
    copy.store.confirmation.copies_have(copy.store.log.end)
    for queue_id in range(3):
        first = copy.store.min_offset("Topic", queue_id)
        assert copy.bodies(queue_id=queue_id) == master.bodies(queue_id=queue_id)[first:]

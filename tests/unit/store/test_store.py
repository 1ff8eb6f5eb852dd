"""The store: appending, committing, flush modes, refusals, reading, deleting, copying."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.worlds.little_store import LittleStore
from tests.worlds.raw_log import append_raw

from orbitmq.clock import ManualClock
from orbitmq.errors import RecordError, StoreDamagedError, StoreLockedError, StoreUnwritableError
from orbitmq.limits.store import RESERVE_BYTES_MAX
from orbitmq.protocol.ids import pack_host
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import OsFile, OsFiles
from orbitmq.store.index import IndexService
from orbitmq.store.message import NewMessage
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.recovery import LastWriter
from orbitmq.store.reserve import RESERVE_FILE
from orbitmq.store.settings import FlushDiskType
from orbitmq.store.worker import Lanes

SYNC = FlushDiskType.SYNC_FLUSH
OK, TIMEOUT, REFUSED = PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.SERVICE_NOT_AVAILABLE


@pytest.fixture
def little(tmp_path: Path) -> LittleStore:
    return LittleStore(tmp_path)


@pytest.fixture
def syncing(tmp_path: Path) -> LittleStore:
    return LittleStore(tmp_path, flush_disk_type=SYNC)


def fails(error: int) -> Callable[..., None]:
    def call(*args: object) -> None:
        raise OSError(error, "planned")

    return call


# --- appending ------------------------------------------------------------------------------------------------------


def test_the_golden_record_byte_for_byte(tmp_path: Path) -> None:
    """Topic TopicTest, queue 3, queue offset 7, physical offset 4096; as the Java encoder writes it."""
    little = LittleStore(tmp_path, clock=ManualClock(1_700_000_000_123))
    for _ in range(7):
        little.store.append(NewMessage("TopicTest", 3, b"", b""))
    little.store.append(NewMessage("Other", 0, bytes(4096 - little.store.log.end - 96), b""))
    little.store.commit()
    placed = little.store.append(
        NewMessage(
            "TopicTest",
            3,
            b"hello",
            b"KEYS\x01k1\x02TAGS\x01TagA\x02",
            born_timestamp=1_700_000_000_000,
            born_host=pack_host("10.0.0.1", 1234),
            store_host=pack_host("127.0.0.1", 10911),
        )
    )
    little.store.commit()
    assert (placed.physical_offset, placed.queue_offset, placed.size) == (4096, 7, 123)
    assert bytes(little.store.record_at(4096) or b"").hex() == (
        "0000007bdaa320a73610a686000000030000000000000000000000070000000000001000"
        "000000000000018bcfe568000a000001000004d20000018bcfe5687b7f00000100002a9f"
        "00000000000000000000000000000005"
        "68656c6c6f09546f7069635465737400124b455953016b310254414753015461674102"
    )


def test_a_turn_is_one_write_and_nothing_is_visible_before_it(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    real = OsFile.pwritev
    monkeypatch.setattr(OsFile, "pwritev", lambda f, parts, at: (writes.append(len(parts)), real(f, parts, at))[1])
    seen: list[int] = []
    little.store.arrival = lambda entries: seen.append(len(entries))
    placed = [little.append(body=bytes([n])) for n in range(5)]
    assert [p.queue_offset for p in placed] == [0, 1, 2, 3, 4]
    assert little.store.max_offset("Topic", 0) == 0
    assert little.statuses == []
    little.store.commit()
    assert writes == [5]
    assert seen == [5]
    assert little.statuses == [OK] * 5
    assert little.bodies() == [bytes([n]) for n in range(5)]


def test_a_batch_lies_side_by_side_with_one_time_in_one_file(little: LittleStore) -> None:
    while little.store.log.end < 15_000:
        little.send("Filler", body=bytes(900))
    placed = little.store.append_batch([little.message(body=bytes(300)) for _ in range(5)])
    little.store.commit()
    assert placed[0].physical_offset == 16_384
    assert [p.queue_offset for p in placed] == [0, 1, 2, 3, 4]
    assert len({p.store_timestamp for p in placed}) == 1
    for before, after in pairwise(placed):
        assert before.end_offset == after.physical_offset


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (NewMessage("T", 0, bytes(5000), b""), "body has 5000 bytes, the limit is 4096"),
        (NewMessage("T", 0, b"", b"x" * 32_768), "properties have 32768 bytes, the limit is 32767"),
        (NewMessage("T", 0, b"", b"", sys_flag=4), "transaction bits"),
        (NewMessage("T\0", 0, b"", b""), "a topic contains no zero character"),
        (NewMessage("T", 0, b"", b"name\x01value\0"), "do not end in a zero byte"),
    ],
)
def test_what_is_no_record_of_ours_is_refused(little: LittleStore, message: NewMessage, says: str) -> None:
    with pytest.raises(RecordError, match=says):
        little.store.append(message)
    with pytest.raises(RecordError, match=says):
        little.store.append_batch([little.message(), message])
    little.store.commit()
    assert little.store.log.end == 0, "nothing of a refused batch remains"


def test_store_timestamps_never_decrease_not_even_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    little = LittleStore(tmp_path, clock=clock)
    assert little.send().store_timestamp == 1_000_000
    clock.set_wall(995_000)
    assert little.send().store_timestamp == 1_000_000
    little.close()
    little = LittleStore(tmp_path, clock=clock)
    assert little.send().store_timestamp == 1_000_000
    little.kill()
    little = LittleStore(tmp_path, clock=clock)
    assert little.send().store_timestamp == 1_000_000


# --- flush modes ----------------------------------------------------------------------------------------------------


def test_asynchronous_flush_answers_after_the_write_and_syncs_in_the_background(little: LittleStore) -> None:
    little.send()
    assert little.statuses == [OK]
    assert little.store.unsynced_bytes > 0
    little.clock.advance(499)
    little.turn()
    assert little.worker.jobs == []
    little.clock.advance(1)
    little.turn()
    little.worker.close()
    assert little.store.unsynced_bytes == 0


def test_synchronous_flush_answers_after_the_sync_and_shows_nothing_before(syncing: LittleStore) -> None:
    syncing.send(body=b"one")
    assert syncing.statuses == []
    assert syncing.get().status.name == "NO_MATCHED_LOGIC_QUEUE" or syncing.store.max_offset("Topic", 0) == 0
    assert syncing.store.confirm_offset == 0
    syncing.worker.close()
    assert syncing.statuses == [OK]
    assert syncing.bodies() == [b"one"]
    assert syncing.store.confirm_offset == syncing.store.log.written_end


def test_group_commit_one_sync_answers_everybody_written_before_it(syncing: LittleStore) -> None:
    for _ in range(3):
        syncing.send()
    syncing.worker.step()
    assert syncing.statuses == [OK], "the sync that ran covers what was written when it began"
    assert len(syncing.worker.jobs) == 1
    syncing.worker.step()
    assert syncing.statuses == [OK] * 3
    assert syncing.worker.jobs == []


def test_a_sender_that_does_not_wait_is_answered_after_the_write(syncing: LittleStore) -> None:
    placed = syncing.store.append(syncing.message())
    on_done: list[PutStatus] = []
    syncing.store.wait_durable(placed.end_offset, False, on_done.append)
    syncing.store.commit()
    assert on_done == [OK]
    assert syncing.store.max_offset("Topic", 0) == 0, "it is still not visible before it is safe"


def test_a_late_sync_is_answered_with_a_timeout_and_the_record_stays(syncing: LittleStore) -> None:
    syncing.send(body=b"late")
    syncing.clock.advance(5_000)
    syncing.turn()
    assert syncing.statuses == [TIMEOUT]
    syncing.worker.close()
    assert syncing.statuses == [TIMEOUT]
    assert syncing.bodies() == [b"late"]


@pytest.mark.parametrize("flush", FlushDiskType)
def test_an_orderly_stop_answers_and_keeps_what_is_still_in_flight(tmp_path: Path, flush: FlushDiskType) -> None:
    class Elsewhere:
        """A worker whose results come back only after the stop, as a loop that ends brings them."""

        def submit(self, job: Callable[[], object], done: Callable[[object], None]) -> None:
            job()

        def close(self) -> None:
            return None

    little = LittleStore(tmp_path, flush_disk_type=flush)
    elsewhere = Elsewhere()
    little.store._lanes = Lanes.of(elsewhere)
    little.store._flushing._worker = little.store.durable_saves._worker = elsewhere
    little.send(body=b"last")
    little.close()
    assert little.statuses == [OK]
    again = LittleStore(tmp_path, flush_disk_type=flush)
    assert again.store.report.scanned_records == 0
    assert again.bodies() == [b"last"]


# --- trouble --------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_refused_at_once_says_so_and_heals(little: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    little.send(body=b"one")
    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "pwritev", fails(errno.ENOSPC))
        little.send(body=b"two")
    assert little.statuses == [OK, REFUSED]
    assert not little.store.writable
    assert "the disk is full" in little.store.unwritable_reason
    with pytest.raises(StoreUnwritableError, match="the disk is full"):
        little.append()
    little.advance(1_000)
    assert little.store.writable
    placed = little.send(body=b"three")
    assert placed.queue_offset == 1, "the place of the failed message is used again"
    assert little.bodies() == [b"one", b"three"]


@pytest.mark.parametrize("structure", [ConsumeQueues, IndexService])
def test_what_could_not_be_indexed_for_lack_of_space_is_indexed_later_and_in_order(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch, structure: type
) -> None:
    arrived: list[int] = []
    little.store.arrival = lambda entries: arrived.extend(entry.queue_offset for entry in entries)
    with monkeypatch.context() as patch:
        patch.setattr(structure, "apply", fails(errno.ENOSPC))
        little.send(body=b"one", KEYS="k")
    assert little.statuses == [OK], "it is in the log"
    assert arrived == []
    assert little.store.is_behind
    little.advance(1_000)
    assert arrived == [0]
    assert not little.store.is_behind
    little.send(body=b"two", KEYS="k")
    assert little.bodies() == [b"one", b"two"]
    assert len(little.store.query_by_key("Topic", "k", 9, 0, 1 << 62)) == 2


def test_what_could_not_be_applied_for_a_read_that_failed_is_applied_later(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read takes nothing away: it is no reason to stop for good, as a failed write is."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fails(errno.EIO))
        patch.setattr(
            IndexService, "apply", lambda self, entries: little.store.log.sequence.segments[0].file.pread(4, 0)
        )
        little.send(body=b"one")
    assert little.store.is_behind
    assert "cannot be read" in little.store.unwritable_reason
    assert not little.store.is_over
    little.advance(1_000)
    assert little.store.writable
    assert not little.store.is_behind
    little.send(body=b"two")
    assert little.bodies() == [b"one", b"two"]


def test_a_failed_write_stops_the_store_for_good(little: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "pwritev", fails(errno.EIO))
        little.send()
    little.advance(60_000)
    assert little.statuses == [REFUSED]
    with pytest.raises(StoreUnwritableError, match="restart the broker on a sound disk"):
        little.append()


def test_a_failed_sync_stops_acknowledging_and_names_what_is_at_risk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = LittleStore(tmp_path)
    first = little.send()
    little.advance(500)
    second = little.send()
    monkeypatch.setattr(CommitLog, "datasync", fails(errno.EIO))
    little.advance(500)
    assert not little.store.writable
    risk = f"bytes {first.end_offset} to {second.end_offset} were acknowledged unsynced"
    assert risk in little.store.unwritable_reason
    little.close()
    monkeypatch.undo()
    again = LittleStore(tmp_path)
    assert again.store.report.origin is LastWriter.OURS
    assert len(again.records()) == 2


def test_a_failed_sync_in_synchronous_mode_has_lost_nothing(
    syncing: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommitLog, "datasync", fails(errno.EIO))
    syncing.send()
    syncing.send()
    syncing.worker.close()
    assert syncing.statuses == [REFUSED, REFUSED]
    assert "at risk" not in syncing.store.unwritable_reason
    assert "acknowledged unsynced" not in syncing.store.unwritable_reason


def test_a_closed_store_takes_nothing(little: LittleStore) -> None:
    little.close()
    with pytest.raises(StoreUnwritableError, match="closed"):
        little.append()


# --- the directory --------------------------------------------------------------------------------------------------


def test_an_open_store_has_an_abort_file_and_a_lock(little: LittleStore, tmp_path: Path) -> None:
    assert (tmp_path / "abort").read_text().isdigit()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert (tmp_path / "checkpoint").stat().st_size == 4096
    little.close()
    assert not (tmp_path / "abort").exists()


def test_a_locked_store_is_not_even_read(tmp_path: Path) -> None:
    class Taken(OsFiles):
        def lock(self, path: Path) -> object:  # type: ignore[override]
            raise StoreLockedError("in use")

        def list_dir(self, path: Path) -> list[str]:
            raise AssertionError(f"read {path}")

    (tmp_path / "config").mkdir()
    with pytest.raises(StoreLockedError):
        LittleStore(tmp_path, files=Taken())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mapped_file_size_commit_log": 8192}, "configured file size is 8192 .set the file size to the one"),
        ({"mapped_file_size_consume_queue": 400}, "configured file size is 400 .set the file size to the one"),
        ({"max_index_num": 60}, "set maxHashSlotNum and maxIndexNum"),
    ],
)
def test_another_file_size_is_refused_with_the_remedy(
    little: LittleStore, tmp_path: Path, change: dict[str, int], says: str
) -> None:
    little.send(KEYS="k")
    little.close()
    with pytest.raises(StoreDamagedError, match=says):
        LittleStore(tmp_path, **change)
    again = LittleStore(tmp_path)
    assert len(again.records()) == 1


def test_an_empty_store_costs_next_to_nothing(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, mapped_file_size_commit_log=1 << 30, max_hash_slot_num=5_000_000)
    little.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != RESERVE_FILE]
    assert sum(path.stat().st_blocks * 512 for path in files) < 64 * 1024
    assert (tmp_path / RESERVE_FILE).stat().st_blocks * 512 >= RESERVE_BYTES_MAX


# --- reading and deleting -------------------------------------------------------------------------------------------


def test_damage_is_never_served(little: LittleStore, tmp_path: Path) -> None:
    placed = [little.send(body=b"%d" % n * 20) for n in range(4)]
    little.close()
    path = tmp_path / "commitlog" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[placed[2].physical_offset + 90] ^= 1
    path.write_bytes(data)
    again = LittleStore(tmp_path)
    assert again.bodies() == [b"0" * 20, b"1" * 20, b"3" * 20]
    assert again.store.reads.damaged >= 1
    assert again.store.record_at(placed[2].physical_offset) is None
    assert again.get(offset=2).status.name == "MESSAGE_WAS_REMOVING"
    assert again.get(offset=2).next_offset == 3


def test_a_deleted_topic_can_be_used_again_at_once(little: LittleStore, tmp_path: Path) -> None:
    for number in range(50):
        little.send(body=b"old%d" % number)
    little.advance(1_000)
    little.store.delete_topic("Topic")
    assert little.store.queue_ids("Topic") == []
    placed = little.send(body=b"new")
    assert placed.queue_offset == 0
    little.advance(1_000)  # the files of the old queues are removed only now
    assert little.bodies() == [b"new"]
    assert not (tmp_path / "consumequeue.removed").exists()
    little.kill()
    again = LittleStore(tmp_path)
    assert again.bodies() == [b"new"]
    again.close()
    assert LittleStore(tmp_path).bodies() == [b"new"]


def test_a_deleted_topic_stays_readable_through_a_crash_without_its_save(
    little: LittleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power fails before the deletion is durable: the old messages may be back, the new ones must be there."""
    for number in range(5):
        little.send(body=b"old%d" % number)
    monkeypatch.setattr(little.store._written_saves, "save_now", lambda: None)
    monkeypatch.setattr(little.store.durable_saves, "begin", lambda: None)
    little.store.delete_topic("Topic")
    for number in range(3):
        little.send(body=b"new%d" % number)
    little.kill()
    again = LittleStore(tmp_path)
    assert again.bodies() == [b"new0", b"new1", b"new2"]
    assert again.send().queue_offset == 3


def test_a_topic_deleted_while_its_messages_wait_for_their_sync(syncing: LittleStore) -> None:
    syncing.send(body=b"old")
    syncing.worker.close()
    syncing.send(body=b"old")
    syncing.store.delete_topic("Topic")
    syncing.send(body=b"new")
    syncing.worker.close()
    syncing.worker.close()
    assert syncing.bodies() == [b"new"]


def test_a_copy_grows_by_raw_bytes(little: LittleStore, tmp_path: Path) -> None:
    for number in range(30):
        little.send(body=bytes([number]) * 900, KEYS=f"k{number}")
    little.send(body=b"later", level=1)
    data = b"".join(
        (tmp_path / "commitlog" / name).read_bytes()
        for name in sorted(p.name for p in (tmp_path / "commitlog").iterdir())
    )[: little.store.log.end]
    copy = LittleStore(tmp_path / "copy", clock=little.clock)
    append_raw(copy.store, 0, data[:16_384])
    append_raw(copy.store, 16_384, data[16_384:])
    copy.store.commit()
    assert copy.bodies() == little.bodies()
    assert copy.store.query_by_key("Topic", "k7", 9, 0, 1 << 62) == little.store.query_by_key(
        "Topic", "k7", 9, 0, 1 << 62
    )
    assert copy.release.pending_count == 1
    assert copy.send().queue_offset == 30
    end = copy.store.log.end
    with pytest.raises(RecordError, match="no record follows"):
        append_raw(copy.store, end, b"half a record")
    assert copy.store.log.end == end


def test_messages_without_an_index(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, message_index_enable=False)
    little.send(KEYS="k")
    assert little.store.query_by_key("Topic", "k", 9, 0, 1 << 62) == []
    assert not (tmp_path / "index").exists()
    little.close()
    again = LittleStore(tmp_path)
    assert again.store.query_by_key("Topic", "k", 9, 0, 1 << 62) == [0], "it is made when it is wanted again"


def test_settings_are_values(little: LittleStore) -> None:
    assert msgspec.structs.replace(little.store.settings) == little.store.settings


def test_an_abandoned_store_is_as_after_a_kill(little: LittleStore, tmp_path: Path) -> None:
    little.send(body=b"written")
    little.append(body=b"only in memory")
    little.store.abandon()
    assert (tmp_path / "abort").exists()
    with pytest.raises(StoreUnwritableError):
        little.append()
    again = LittleStore(tmp_path)
    again.worker.close()
    assert again.bodies() == [b"written"]


class TestTwoStores:
    def test_one_directory_is_opened_once_in_a_process_and_stays_locked_for_others(self, tmp_path: Path) -> None:
        first = LittleStore(tmp_path)
        with pytest.raises(StoreLockedError):
            LittleStore(tmp_path)
        code = "import fcntl,os,sys; fcntl.lockf(os.open(sys.argv[1],os.O_RDWR),fcntl.LOCK_EX|fcntl.LOCK_NB,1,0)"
        other = [sys.executable, "-c", code, str(tmp_path / "lock")]
        assert b"BlockingIOError" in subprocess.run(other, capture_output=True, check=False).stderr
        first.send(body=b"still written")
        first.store.close()
        LittleStore(tmp_path).store.close()

    def test_one_log_under_two_roots_is_refused(self, tmp_path: Path) -> None:
        first = LittleStore(tmp_path / "one")
        with pytest.raises(StoreLockedError, match="commitlog is in use by another broker"):
            LittleStore(tmp_path / "two", store_path_commit_log=tmp_path / "one" / "commitlog")
        first.store.close()

    @pytest.mark.parametrize("name", ["consumequeue", "index"])
    def test_a_folder_that_is_a_link_to_anothers_is_refused(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "one" / name).mkdir(parents=True)
        first = LittleStore(tmp_path / "one")
        (tmp_path / "two").mkdir()
        (tmp_path / "two" / name).symlink_to(tmp_path / "one" / name)
        with pytest.raises(StoreLockedError, match=f"{name} is in use by another broker"):
            LittleStore(tmp_path / "two")
        first.store.close()

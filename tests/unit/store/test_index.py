"""The index service: rolling, look-ups over files, what each kind of crash leaves, removal."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreDamagedError
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles
from orbitmq.store.index import IndexService, Trust, file_name
from orbitmq.store.index_file import IndexFileShape

SHAPE = IndexFileShape(7, 11)  # ten entries to a file
T0 = 1_700_000_000_000


def record(n: int, unique_key: str | None = None, keys: str | None = None) -> Dispatched:
    """Record number `n`: 100 bytes, one a second."""
    return Dispatched(n * 100, 100, "T", 0, n, 0, T0 + n * 1000, unique_key, keys, 0, 0, b"")


def open_index(
    root: Path, trust: Trust = Trust.COMPLETE, state: object = None, position: int | None = None, stamp: int = 0
) -> IndexService:
    index = IndexService(OsFiles(), root / "index", SHAPE, ManualClock(T0))
    index.load(trust, state, position, index_msg_timestamp=stamp)
    return index


def feed(index: IndexService, first: int, last: int) -> None:
    """Records first..last-1, each with a unique key and the key `odd` or `even`."""
    for n in range(first, last):
        index.apply([record(n, f"U{n}", "odd" if n % 2 else "even")])
    index.write()


def expect(index: IndexService, count: int) -> None:
    """The index holds records 0..count-1, each exactly once."""
    assert index.position == count * 100
    assert index.query("T", "even", 999) == [n * 100 for n in range(0, count, 2)]
    assert index.query("T", "odd", 999) == [n * 100 for n in range(1, count, 2)]
    for n in range(count):
        assert index.query("T", f"U{n}", 9) == [n * 100]
    assert index.query("T", f"U{count}", 9) == []
    assert sum(file.count - 1 for file in index.index_files) == 2 * count


def test_an_empty_index_makes_no_files(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    index.apply([record(0), record(1)])
    index.write()
    index.begin_sync()
    index.datasync()
    assert index.position == 200
    assert index.query("T", "k", 9) == []
    assert not (tmp_path / "index").exists()
    assert index.state() == {"file": "", "count": 1, "end_timestamp": 0}


def test_files_roll_and_names_grow_although_the_clock_stands_still(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 23)
    names = OsFiles().list_dir(tmp_path / "index")
    assert len(names) == 5
    assert names[0] == file_name(T0)
    assert [file.path.name for file in index.index_files] == names
    assert [file.count for file in index.index_files] == [11, 11, 11, 11, 7]
    expect(index, 23)


def test_file_name_is_local_time_to_the_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert file_name(T0 + 7) == "20231115061320007"
        assert file_name(T0, after="20231115061320000") == "20231115061320001"
        assert file_name(T0, after="20251115061320999") == "20251115061321000"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_one_batch_may_fill_several_files_and_is_visible_before_it_is_written(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    index.apply([record(n, f"U{n}", "odd" if n % 2 else "even") for n in range(23)])
    expect(index, 23)


def test_known_records_are_skipped(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 6)
    index.apply([record(n, f"U{n}", "odd" if n % 2 else "even") for n in range(8)])
    expect(index, 8)


def test_query_limits_the_newest_and_the_time(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 23)
    assert index.query("T", "even", 3) == [1800, 2000, 2200]
    assert index.query("T", "even", 99, T0 + 4000, T0 + 8000) == [400, 600, 800]
    assert index.query("T", "even", 99, T0 + 60_000, T0 + 90_000) == []
    assert index.query("other", "even", 99) == []


def test_orderly_stop_and_start(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 9)
    index.apply([record(9)])  # without keys: only the mark knows of it
    index.begin_sync()
    index.datasync()
    index.close()
    index = open_index(tmp_path, position=1000)
    assert index.position == 1000
    feed(index, 10, 23)
    assert index.query("T", "U22", 9) == [2200]


def test_without_a_mark_the_last_record_is_fed_again_and_counted_once(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 8)
    index.close()
    index = open_index(tmp_path)
    assert index.position == 700
    feed(index, 7, 12)
    expect(index, 12)


@pytest.mark.parametrize("marked", range(1, 14))
@pytest.mark.parametrize("written", [13, 15, 17])
def test_killed_after_the_mark(tmp_path: Path, marked: int, written: int) -> None:
    index = open_index(tmp_path)
    feed(index, 0, marked)
    state, position = index.state(), index.position
    feed(index, marked, written)
    index.apply([record(written, "lost")])  # never written
    index = open_index(tmp_path, Trust.PROCESS_ENDED, state, position)
    assert index.position == max(position, (written - 1) * 100)
    feed(index, index.position // 100, 21)
    expect(index, 21)


@pytest.mark.parametrize("synced", range(14))
def test_power_failure_goes_back_to_the_synced_mark(tmp_path: Path, synced: int) -> None:
    index = open_index(tmp_path)
    feed(index, 0, synced)
    index.begin_sync()
    index.datasync()
    state, position = index.state(), index.position
    feed(index, synced, 17)
    count = state["count"]
    assert isinstance(count, int)
    for name in OsFiles().list_dir(tmp_path / "index"):  # lose pages behind the mark, keep slots that point to them
        path = tmp_path / "index" / name
        if name == state["file"]:
            data = bytearray(path.read_bytes())
            first_lost = SHAPE.entries_at + count * 20
            data[first_lost:] = bytes(len(data) - first_lost)
            path.write_bytes(data)
        elif name > str(state["file"]):
            path.write_bytes(b"\xee" * 17)
    index = open_index(tmp_path, Trust.POWER_FAILED, state, position)
    assert index.position == position
    feed(index, synced, 21)
    expect(index, 21)


def test_power_failure_without_a_mark_falls_back_to_the_rule_of_rocketmq(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 8)
    index = open_index(tmp_path, Trust.POWER_FAILED)
    assert index.position == 0
    assert len(index.dropped) == 2
    assert OsFiles().list_dir(tmp_path / "index") == []


def test_foreign_crash_drops_files_newer_than_the_checkpoint(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 23)
    stamp = index.index_files[1].end_timestamp
    index = open_index(tmp_path, Trust.FOREIGN_CRASH, stamp=stamp)
    assert len(index.index_files) == 2
    assert len(index.dropped) == 3
    assert index.position == index.index_files[1].end_offset == 900
    feed(index, 9, 23)
    expect(index, 23)


def test_a_file_that_ends_behind_the_checkpoint_by_any_time_is_made_again(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 23)
    stamp = index.index_files[1].end_timestamp - 1
    index = open_index(tmp_path, Trust.FOREIGN_CRASH, stamp=stamp)
    assert len(index.index_files) == 1
    feed(index, 0, 23)
    expect(index, 23)


def test_a_record_whose_keys_lie_in_two_files_is_completed_without_repeats(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 4)
    index.apply([record(4, "U4", "even a b c d")])  # entries 9 to 14, six of them, over two files
    index.write()
    assert [file.count for file in index.index_files] == [11, 5]
    index = open_index(tmp_path)
    index.apply([record(4, "U4", "even a b c d")])
    assert [file.count for file in index.index_files] == [11, 5]
    for key in ("U4", "a", "b", "c", "d"):
        assert index.query("T", key, 9) == [400]


def test_durable_full_timestamp_follows_full_synced_files(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 8)
    assert index.durable_full_timestamp == 0
    index.begin_sync()
    index.datasync()
    assert index.durable_full_timestamp == T0 + 4000
    feed(index, 8, 12)
    assert index.durable_full_timestamp == T0 + 4000


def test_expired_files_are_handed_out_but_never_the_newest_or_an_unsynced_one(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 23)
    assert index.take_expired(10_000) == []
    index.begin_sync()
    index.datasync()
    assert [path.name for path in index.take_expired(901)] == OsFiles().list_dir(tmp_path / "index")[:2]
    assert len(index.take_expired(10_000)) == 2
    assert len(index.index_files) == 1
    assert index.query("T", "U22", 9) == [2200]
    assert index.query("T", "U1", 9) == []


@pytest.mark.parametrize("end", [0, 1, 4, 5, 6, 10, 12, 13])
def test_cut_forgets_the_lost_tail_of_the_log(tmp_path: Path, end: int) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 13)
    index.cut(end * 100)
    expect(index, end)
    feed(index, end, 20)
    expect(index, 20)


def test_strangers_are_left_alone_and_an_unsized_last_file_is_removed(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 3)
    index.close()
    (tmp_path / "index" / "notes.txt").write_text("x")
    (tmp_path / "index" / "29991231235959999").touch()
    index = open_index(tmp_path)
    assert index.strangers == ["notes.txt"]
    assert not (tmp_path / "index" / "29991231235959999").exists()
    assert index.query("T", "U2", 9) == [200]


def test_a_file_of_another_shape_refuses_the_store(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    feed(index, 0, 3)
    index.close()
    shutil.copy(index_path(tmp_path), tmp_path / "index" / "20990101000000000")
    (tmp_path / "index" / "20990101000000000").write_bytes(b"x" * 99)
    with pytest.raises(StoreDamagedError, match="maxIndexNum"):
        open_index(tmp_path)


def index_path(root: Path) -> Path:
    return next((root / "index").iterdir())


def test_close_writes_what_was_applied(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    index.apply([record(0, "U0", "even")])
    index.close()
    index = open_index(tmp_path, position=100)
    expect(index, 1)

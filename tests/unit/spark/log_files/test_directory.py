"""Where a log ends: by the mark of orbitmq where it can be believed, else behind the last sound record."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from orbitmq.errors import ConfigurationError, StoreDamagedError
from orbitmq.spark.log_files.chain import find_record
from orbitmq.spark.log_files.directory import look_at
from orbitmq.spark.log_files.places import OpenFile, place_at
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import Mark, MarkFile

from .little_log import LittleLog

PAGE = Checkpoint(physic_msg_timestamp=5)


def filled(root: Path, count: int = 20) -> LittleLog:
    log = LittleLog(root)
    for number in range(count):
        log.add(b"x" * (number * 37 % 500))
    return log


def marked(root: Path, end: int, *, synced: bool = True, boot: str | None = None, page: Checkpoint = PAGE) -> None:
    (root / "checkpoint").write_bytes(PAGE.encode())
    file = MarkFile(OsFiles(), root)
    mark = Mark(
        serial=file.serial + 1,
        boot=OsFiles().boot_id() if boot is None else boot,
        end=end,
        positions={},
        checkpoints=[page.digest()],
    )
    (file.save_synced if synced else file.save_written)(mark)
    file.close()


def test_without_a_mark_the_log_ends_behind_its_last_record(tmp_path: Path) -> None:
    log = filled(tmp_path)
    for empty_files in (0, 2):
        log.write(empty_files=empty_files)
        assert look_at(str(tmp_path)).end == log.end
        assert look_at(str(tmp_path / "commitlog")).end == log.end


@pytest.mark.parametrize("cut_bytes", [1, 4, 9, 90, 130])
def test_an_unfinished_last_record_does_not_count(tmp_path: Path, cut_bytes: int) -> None:
    log = filled(tmp_path)
    last = log.starts[-1]
    del log.data[-cut_bytes:]
    log.write()
    assert look_at(str(tmp_path)).end == last


def test_stale_records_behind_the_end_do_not_count_and_damage_does_not_end_the_log(tmp_path: Path) -> None:
    log = LittleLog(tmp_path)
    for _ in range(5):
        log.add(stored_ms=2000)
    torn = log.end
    log.add(b"torn away", stored_ms=2000)
    log.data[torn : torn + 20] = bytes(20)
    log.add(stored_ms=1000)
    log.write()
    assert look_at(str(tmp_path)).end == torn
    log.add(stored_ms=2000)
    log.write()
    assert look_at(str(tmp_path)).end == log.end


@pytest.mark.parametrize("zeros", [0, 2])
def test_a_record_behind_a_hole_is_found(tmp_path: Path, zeros: int) -> None:
    """`zeros`: so many bytes of the record, of its size, lie in the hole."""
    log = LittleLog(tmp_path, file_bytes=8 << 20)
    log.add(b"before")
    end, begin = log.end, (4 << 20) - zeros
    record = log.record_at(begin)
    assert not any(record[:zeros])
    [path] = log.paths()
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(log.data)
        file.seek(begin + zeros)
        file.write(record[zeros:])
        file.truncate(log.file_bytes)
    assert look_at(str(tmp_path)).end == begin + len(record)
    with path.open("r+b") as file:
        file.truncate(end)
        file.truncate(log.file_bytes)
    assert look_at(str(tmp_path)).end == end


def test_a_search_passes_over_what_was_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(b"x")
        file.truncate(64 << 20)
    read: list[int] = []
    plain = OpenFile.read
    monkeypatch.setattr(OpenFile, "read", lambda self, at, size: (read.append(size), plain(self, at, size))[1])
    with place_at(str(path)).opened() as opened:
        if opened.behind_hole(32 << 20, 64 << 20) == 32 << 20:
            pytest.skip("this file system does not say where a file has holes")
        assert opened.behind_hole(0, 64 << 20) == 0
        assert opened.behind_hole(32 << 20, 64 << 20) == 64 << 20
        assert find_record(opened, 0, 0, 64 << 20) == 64 << 20
    assert sum(read) < 1 << 20


def test_a_file_elsewhere_is_searched_byte_by_byte(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    log.write()
    [path] = log.paths()
    with path.open("rb") as handle:
        opened = OpenFile(pa.PythonFile(handle), str(path))
        assert opened.behind_hole(100, 200) == 100
        assert find_record(opened, 0, 1, log.file_bytes) == log.starts[1]
        assert find_record(opened, 0, log.starts[2] + 1, log.file_bytes) == log.file_bytes


def test_the_mark_says_the_end(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.write()
    marked(tmp_path, log.starts[7])
    assert look_at(str(tmp_path)).end == log.starts[7]
    assert look_at(str(tmp_path / "commitlog")).end == log.starts[7]


def test_a_written_mark_counts_in_its_boot_only(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.write()
    marked(tmp_path, log.starts[7], synced=False)
    assert look_at(str(tmp_path)).end == log.starts[7]
    marked(tmp_path, log.starts[9], synced=False, boot="another")
    assert look_at(str(tmp_path)).end == log.end


def test_a_mark_older_than_the_checkpoint_does_not_count(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.write()
    marked(tmp_path, log.starts[7], page=Checkpoint(physic_msg_timestamp=4))
    assert look_at(str(tmp_path)).end == log.end


def test_files_that_are_missing(tmp_path: Path) -> None:
    log = filled(tmp_path, 1500)
    log.write()
    marked(tmp_path, log.end)
    log.paths()[-1].unlink()
    with pytest.raises(StoreDamagedError, match=f"the log reached {log.end}"):
        look_at(str(tmp_path))
    log.paths()[1].unlink()
    with pytest.raises(StoreDamagedError, match="does not follow"):
        look_at(str(tmp_path))


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no directory"):
        look_at(str(tmp_path / "nothing"))
    with pytest.raises(ConfigurationError, match="holds no commit log"):
        look_at(str(tmp_path))
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ConfigurationError, match="holds no commit log"):
        look_at(str(tmp_path))
    with pytest.raises(ConfigurationError, match="no place that pyarrow reads"):
        look_at("gopher://somewhere/store")


def test_a_stranger_among_the_files(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.write()
    (tmp_path / "commitlog" / "copy.tmp").write_bytes(b"x")
    with pytest.raises(StoreDamagedError, match=r"copy\.tmp does not belong here"):
        look_at(str(tmp_path))


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert look_at(str(tmp_path)) == ((), 0)
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(b"")
    assert look_at(str(tmp_path)) == ((), 0)
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(1000))
    assert look_at(str(tmp_path)).end == 0

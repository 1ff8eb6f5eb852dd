"""What is asked of a store that is copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.errors import StoreError
from orbitmq.server.backup.source import NO_BOOT, SourceStore, units_end
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES
from orbitmq.store.files import OsFiles

FILES = OsFiles()


def source_of(root: Path) -> SourceStore:
    return SourceStore(FILES, root, None)


def test_the_moment_of_a_store_that_is_served(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    for _ in range(20):
        little.send()
    little.advance(300)
    moment = source_of(tmp_path).moment()
    assert moment.queues_position == moment.mark.end == little.store.log.written_end
    assert (moment.mark.boot, moment.mark.clean) == (NO_BOOT, False)
    assert moment.mark.checkpoints == [moment.page.digest()]
    little.close()


def test_the_end_of_the_log_is_behind_the_last_whole_record(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.send(body=b"first")
    little.advance(300)
    confirmed = source_of(tmp_path).moment().mark.end
    for _ in range(300):
        little.send(body=b"x" * 100)
    source = source_of(tmp_path)
    assert source.moment().mark.end == confirmed, "the mark is 200 ms behind"
    end = little.store.log.written_end
    assert source.log_end(confirmed) == end
    segment = little.store.log.sequence.find(end)
    assert segment is not None
    segment.file.pwrite(b"\0\0\0\x80\xda\xa3\x20\xa7 half a record", end - segment.base)
    assert source.log_end(confirmed) == end
    little.kill()


def test_a_store_without_a_mark_that_counts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is gone"):
        source_of(tmp_path / "nowhere").moment()
    with pytest.raises(StoreError, match="no recovery mark that counts"):
        source_of(tmp_path).moment()
    little = LittleStore(tmp_path)
    little.send()
    little.close()
    page = bytearray((tmp_path / "checkpoint").read_bytes())
    page[7] ^= 1
    (tmp_path / "checkpoint").write_bytes(page)
    with pytest.raises(StoreError, match="RocketMQ wrote it last"):
        source_of(tmp_path).moment()


@pytest.mark.parametrize(
    ("limit", "count", "is_all"), [(0, 1, False), (100, 2, False), (299, 3, False), (300, 4, True), (9999, 4, True)]
)
def test_units_count_up_to_the_mark(tmp_path: Path, limit: int, count: int, is_all: bool) -> None:
    file = FILES.open(tmp_path / "units", create=True)
    file.truncate(UNIT_BYTES * 10)
    file.pwrite(UNIT.pack(0, FILLER_SIZE, 0), 0)
    for number in range(3):
        file.pwrite(UNIT.pack(number * 100, 100, 7), UNIT_BYTES * (number + 1))
    assert units_end(file, UNIT_BYTES * 10, limit) == (UNIT_BYTES * count, is_all)

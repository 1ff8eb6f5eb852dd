"""A bounded set of open files: given back, opened again, and never closed under somebody who uses one."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest

from orbitmq.limits.store import QUEUE_BLOCKS_MAX
from orbitmq.store.consume_queue import Blocks, ConsumeQueue
from orbitmq.store.files import File, OsFile, OsFiles
from orbitmq.store.open_files import BoundedFiles
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.segments import SegmentSequence

SIZE = 4096


def descriptors(directory: Path) -> list[str]:
    """Names of the files below a directory that this process has open, by descriptor or mapping."""
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are wanted
        try:
            target = Path(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115
        except OSError:  # the directory that is being listed
            continue
        if directory in target.parents:
            found.append(target.name)
    return sorted(found)


def made(files: BoundedFiles, directory: Path, count: int, *, keep_unsynced: bool = False) -> list[File]:
    made = []
    for number in range(count):
        file = files.open(directory / f"{number:02d}", create=True, keep_unsynced=keep_unsynced)
        file.truncate(SIZE)
        file.pwrite(bytes([number]), 0)
        made.append(file)
    return made


def test_the_file_used_least_recently_is_given_back_and_opened_again(tmp_path: Path) -> None:
    files = BoundedFiles(OsFiles(), 3, 2)
    opened = made(files, tmp_path, 3)
    assert opened[0].pread(1, 0) == b"\0"
    opened += [files.open(tmp_path / "03", create=True)]
    assert descriptors(tmp_path) == ["00", "02", "03"]
    assert opened[1].pread(1, 0) == b"\1"
    assert descriptors(tmp_path) == ["00", "01", "03"]
    assert (len(files._open), files.opened_count) == (3, 5)
    for file in opened:
        file.close()
    assert descriptors(tmp_path) == []
    with pytest.raises(OSError, match="was closed"):
        opened[0].pread(1, 0)


def test_mappings_are_bounded_and_a_view_that_is_held_stays(tmp_path: Path) -> None:
    files = BoundedFiles(OsFiles(), 1, 2)
    opened = made(files, tmp_path, 4)
    held = opened[0].view()
    for _ in range(2):
        assert [file.view()[0] for file in opened] == [0, 1, 2, 3]
    assert len(files._mapped) == 2
    assert descriptors(tmp_path) == ["00", "02", "03", "03"], "one open, two mapped, one held"
    opened[0].pwrite(b"new", 0)
    assert bytes(held[:3]) == b"new"
    assert opened[3].view() is opened[3].view()
    del held
    assert descriptors(tmp_path) == ["00", "02", "03"]


def test_what_must_not_lose_an_error_is_kept_until_it_is_synced(tmp_path: Path) -> None:
    files = BoundedFiles(OsFiles(), 2, 1)
    log = files.open(tmp_path / "log", create=True, keep_unsynced=True)
    log.pwrite(b"x", 0)
    others = made(files, tmp_path, 3)
    assert "log" in descriptors(tmp_path)
    log.datasync()
    for file in others:
        file.size()
    assert "log" not in descriptors(tmp_path)
    log.pwrite(b"y", 0)
    assert "log" in descriptors(tmp_path)


def test_a_failed_sync_leaves_the_file_unsynced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = BoundedFiles(OsFiles(), 1, 1)
    log = files.open(tmp_path / "log", create=True, keep_unsynced=True)
    log.pwrite(b"x", 0)

    def fails(_: OsFile) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "datasync", fails)
        with pytest.raises(OSError, match="Input/output"):
            log.datasync()
    made(files, tmp_path, 2)
    assert "log" in descriptors(tmp_path)


def test_a_file_is_not_closed_under_another_thread_that_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number could belong to another file by the time the call gets to the system."""
    files = BoundedFiles(OsFiles(), 1, 1)
    (used,) = made(files, tmp_path, 1)
    began, goes_on = threading.Event(), threading.Event()
    real, found = OsFile.pread, []

    def slow(self: OsFile, size: int, offset: int) -> bytes:
        if self.path == used.path and not began.is_set():
            began.set()
            assert goes_on.wait(10)
        return real(self, size, offset)

    monkeypatch.setattr(OsFile, "pread", slow)
    thread = threading.Thread(target=lambda: found.append(used.pread(1, 0)))
    thread.start()
    assert began.wait(10)
    other = files.open(tmp_path / "other", create=True)
    other.pwrite(b"no", 0)
    assert descriptors(tmp_path) == ["00", "other"]
    goes_on.set()
    thread.join()
    assert found == [b"\0"]
    assert descriptors(tmp_path) == ["other"]


def test_many_threads_and_few_places(tmp_path: Path) -> None:
    files = BoundedFiles(OsFiles(), 2, 2)
    opened = made(files, tmp_path, 8)
    wrong: list[object] = []

    def use(first: int) -> None:
        try:
            for step in range(400):
                number = (first + step * 3) % len(opened)
                file = opened[number]
                if file.pread(1, 0) != bytes([number]) or file.view()[0] != number:
                    wrong.append(number)
                if step % 50 == 0:
                    file.datasync()
        except OSError as error:
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    gc.collect()
    assert len(descriptors(tmp_path)) <= 4


def test_a_store_with_more_queues_than_descriptors(tmp_path: Path) -> None:
    """Today's fault: two descriptors and a mapping for each message queue, never given back."""
    files = BoundedFiles(OsFiles(), 4, 2)
    queues = ConsumeQueues(files, tmp_path, 20 * 100)
    for offset in range(3):
        for number in range(40):
            queue = queues.for_append("T", number)
            queue.put(offset, number * 1000 + offset * 10, 10, 0)
            queue.write_tail()
        assert len(descriptors(tmp_path)) <= 4
    for queue in queues:
        queue.datasync()
    for number, queue in enumerate(queues):
        assert len(queue.units(0, 32)) == 60
        assert queue.unit(2) == (number * 1000 + 20, 10, 0)
    assert len(descriptors(tmp_path)) <= 4, "reading maps nothing"
    again = ConsumeQueues(files, tmp_path, 20 * 100)
    again.load(1 << 20)
    assert {queue.max_offset for queue in again} == {3}
    assert len(descriptors(tmp_path)) <= 4


def test_log_files_beyond_the_bound_are_read(tmp_path: Path) -> None:
    files = BoundedFiles(OsFiles(), 2, 2)
    found = SegmentSequence(files, tmp_path, SIZE, keep_unsynced=True)
    for number in range(6):
        segment = found.grow()
        segment.file.pwrite(bytes([number + 1]), 0)
        segment.dirty = True
        found.datasync()
    for _ in range(2):
        assert [segment.view[0] for segment in found] == [1, 2, 3, 4, 5, 6]
        assert [found.read(segment.base, 1)[0] for segment in found] == [1, 2, 3, 4, 5, 6]
    assert len(descriptors(tmp_path)) <= 4


def test_blocks_of_units_are_kept_for_the_queues_read_last(tmp_path: Path) -> None:
    blocks = Blocks()
    read: list[ConsumeQueue] = []
    for number in range(QUEUE_BLOCKS_MAX + 1):
        queue = ConsumeQueue(OsFiles(), tmp_path / str(number), 20 * 8, "T", number, blocks)
        for offset in range(4):
            queue.put(offset, offset * 10, 10, 0)
        queue.write_tail()
        assert len(queue.units(0, 2)) == 40
        read.append(queue)
    assert read[0]._block == b""
    assert len(read[1]._block) == len(read[-1]._block) == 80
    last = read[-1]
    assert last.units(2, 2) == last._block[40:]
    last.cut(20)
    assert len(last.units(0, 4)) == 40, "a block does not outlive a cut"
    for queue in read:
        queue.close()


@pytest.mark.parametrize(("open_max", "mapped_max"), [(0, 1), (1, 0)])
def test_no_room_at_all(open_max: int, mapped_max: int) -> None:
    with pytest.raises(ValueError, match="too few"):
        BoundedFiles(OsFiles(), open_max, mapped_max)

"""All consume queues together: which exist, what waits in memory, what a deletion leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.faults import RecordingFiles

from orbitmq.errors import StoreDamagedError
from orbitmq.store import queues as queues_module
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles
from orbitmq.store.queues import ConsumeQueues


def queues(root: Path) -> ConsumeQueues:
    return ConsumeQueues(OsFiles(), root / "consumequeue", 800)


def entry(number: int, topic: str = "T", queue_id: int = 0, *, sys_flag: int = 0, at: int | None = None) -> Dispatched:
    physical = number * 100 if at is None else at
    return Dispatched(physical, 100, topic, queue_id, number, 0, 0, None, None, sys_flag, 0, b"")


def test_asking_creates_no_queue(tmp_path: Path) -> None:
    found = queues(tmp_path)
    assert found.get("T", 0) is None
    found.apply([entry(0, queue_id=3), entry(0, queue_id=1, at=100)])
    assert found.ids_of("T") == [1, 3]
    assert not (tmp_path / "consumequeue").exists(), "units wait in memory"
    found.write()
    assert sorted(path.name for path in (tmp_path / "consumequeue" / "T").iterdir()) == ["1", "3"]


def test_waiting_units_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues_module, "QUEUE_TAILS_BYTES_MAX", 200)
    found = queues(tmp_path)
    found.apply([entry(n) for n in range(9)])
    assert not (tmp_path / "consumequeue").exists()
    found.apply([entry(9)])
    assert (tmp_path / "consumequeue").exists()


def test_beyond_the_bound_those_that_wait_longest_are_written_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues_module, "QUEUE_TAILS_BYTES_MAX", 200)
    found = queues(tmp_path)
    found.apply([entry(0, queue_id=n, at=n * 100) for n in range(10)])
    assert [queue.queue_id for queue in found if not queue.tail_bytes] == [0]
    found.apply([entry(1, queue_id=0, at=1_000), entry(1, queue_id=5, at=1_100)])
    assert [queue.queue_id for queue in found if not queue.tail_bytes] == [1, 2]
    found.forget_topic("T", 1_200)
    found.apply([entry(0, "U", queue_id=n, at=1_200 + n * 100) for n in range(9)])
    assert all(queue.tail_bytes for queue in found), "queues that went take no room"


def test_records_of_transactions_without_a_place_are_left_out(tmp_path: Path) -> None:
    found = queues(tmp_path)
    found.apply([entry(0, sys_flag=0x4), entry(0, sys_flag=0x8), entry(0, sys_flag=0xC)])
    queue = found.get("T", 0)
    assert queue is not None
    assert queue.max_offset == 1


def test_what_is_known_is_counted_and_ignored(tmp_path: Path) -> None:
    found = queues(tmp_path)
    found.apply([entry(0), entry(1), entry(1)])
    assert found.state() == {"units": 2}


def test_what_is_known_in_part_is_filled_up(tmp_path: Path) -> None:
    found = queues(tmp_path)
    every = [entry(0), entry(0, queue_id=1, at=100), entry(1, at=200), entry(2, at=300)]
    found.apply(every[:2])
    found.apply(every)
    assert found.state() == {"units": 4}
    assert [list(found.for_append("T", queue_id).scan(0, 9)) for queue_id in (0, 1)] == [
        [(0, 100, 0), (200, 100, 0), (300, 100, 0)],
        [(100, 100, 0)],
    ]


def test_a_queue_that_begins_again_inside_a_batch_has_what_came_last(tmp_path: Path) -> None:
    found = queues(tmp_path)
    found.apply([entry(0, at=0), entry(1, at=100), entry(0, at=200), entry(0, queue_id=1, at=300), entry(1, at=400)])
    assert found.state() == {"units": 3}
    assert list(found.for_append("T", 0).scan(0, 9)) == [(200, 100, 0), (400, 100, 0)]


def test_a_directory_that_is_no_queue_refuses_the_store(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "T" / "one").mkdir(parents=True)
    with pytest.raises(StoreDamagedError, match="is not the number of a queue"):
        queues(tmp_path).load(0)


def test_a_sync_covers_what_was_written_before_it_began(tmp_path: Path) -> None:
    found = queues(tmp_path)
    found.apply([entry(0), entry(0, "U", at=100)])
    found.write()
    found.begin_sync()
    found.forget_topic("U", 1_000)  # its files move away while the worker has them on its list
    found.datasync()
    again = queues(tmp_path)
    again.load(1 << 40)
    assert again.ids_of("T") == [0]
    assert again.ids_of("U") == []


def test_a_deleted_topic_begins_anew_behind_its_end(tmp_path: Path) -> None:
    found = queues(tmp_path)
    found.apply([entry(0), entry(1)])
    found.write()
    (old,) = found.forget_topic("T", 500)
    assert old.max_offset == 2
    found.apply([entry(2), entry(0, "U", at=300)])  # was appended before the deletion
    assert found.ids_of("T") == []
    found.apply([entry(0, at=600)])
    queue = found.get("T", 0)
    assert queue is not None
    assert queue.max_offset == 1
    found.write()
    assert len(list((tmp_path / "consumequeue.removed").iterdir())) == 1
    assert found.forget_topic("Unknown", 700) == []


def test_after_a_deletion_the_next_sync_makes_the_gone_name_durable(tmp_path: Path) -> None:
    """Else the old queue of a topic that is used again could come back under the new one."""
    files = RecordingFiles(OsFiles(), tmp_path)
    found = ConsumeQueues(files, tmp_path / "consumequeue", 800)
    found.apply([entry(0)])
    found.write()
    found.begin_sync()
    found.datasync()
    found.forget_topic("T", 100)
    before = len(files.calls)
    found.begin_sync()
    found.datasync()
    synced = {call.path for call in files.calls[before:] if call.kind == "sync_dir"}
    assert synced == {tmp_path / "consumequeue", found.removed_directory}
    before = len(files.calls)
    found.begin_sync()
    found.datasync()
    assert not [call for call in files.calls[before:] if call.kind == "sync_dir"], "once is enough"

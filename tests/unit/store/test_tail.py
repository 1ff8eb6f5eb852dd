"""What lies behind the confirmed offset: kept and unseen over stops of any kind, confirmed later, or cut without a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.store.durability import PutStatus
from orbitmq.store.files import OsFile
from orbitmq.store.settings import FlushDiskType

STOPS = [LittleStore.close, LittleStore.kill]


def with_tail(root: Path, confirmed: int = 3, unconfirmed: int = 2) -> LittleStore:
    """A store that has some messages, then some that no copy has."""
    little = LittleStore(root)
    for number in range(confirmed):
        little.send(body=b"kept %d" % number, KEYS="k")
    little.advance(1_000)
    little.store.confirmation.hold_for_copies(little.store.confirm_offset)
    for number in range(unconfirmed):
        little.send(body=b"tail %d" % number, KEYS="k")
    return little


@pytest.mark.parametrize("stop", STOPS)
def test_nobody_sees_the_tail_after_a_start(tmp_path: Path, stop: Callable[[LittleStore], None]) -> None:
    before = with_tail(tmp_path)
    confirmed, end = before.store.confirm_offset, before.store.log.end
    stop(before)
    after = LittleStore(tmp_path, confirms_tail=False)
    assert (after.store.confirm_offset, after.store.log.end) == (confirmed, end)
    assert after.bodies() == [b"kept 0", b"kept 1", b"kept 2"]
    assert len(after.store.query_by_key("Topic", "k", 9, 0, 1 << 62)) == 3
    after.store.confirmation.look_again()  # no copy is waited for: the tail counts
    assert after.bodies()[3:] == [b"tail 0", b"tail 1"]
    assert len(after.store.query_by_key("Topic", "k", 9, 0, 1 << 62)) == 5


@pytest.mark.parametrize("stop", STOPS)
def test_the_tail_keeps_its_places_in_the_queues(tmp_path: Path, stop: Callable[[LittleStore], None]) -> None:
    stop(with_tail(tmp_path))
    after = LittleStore(tmp_path, confirms_tail=False)
    after.store.confirmation.hold_for_copies(after.store.confirm_offset)
    placed = after.send(body=b"new")
    assert placed.queue_offset == 5
    after.store.confirmation.copies_have(placed.end_offset)
    assert after.bodies()[3:] == [b"tail 0", b"tail 1", b"new"]


@pytest.mark.parametrize("stop", STOPS)
def test_a_tail_survives_two_stops(tmp_path: Path, stop: Callable[[LittleStore], None]) -> None:
    stop(with_tail(tmp_path))
    middle = LittleStore(tmp_path, confirms_tail=False)
    middle.store.confirmation.hold_for_copies(middle.store.confirm_offset)
    middle.advance(10_000)
    stop(middle)
    after = LittleStore(tmp_path, confirms_tail=False)
    assert after.bodies() == [b"kept 0", b"kept 1", b"kept 2"]
    assert len(list(after.store.confirmation.tail)) == 2


def test_a_store_alone_counts_everything_that_it_finds(tmp_path: Path) -> None:
    with_tail(tmp_path).close()
    assert LittleStore(tmp_path).bodies()[3:] == [b"tail 0", b"tail 1"]


def test_removed_consume_queues_are_made_without_the_tail(tmp_path: Path) -> None:
    with_tail(tmp_path).close()
    for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    after = LittleStore(tmp_path, confirms_tail=False)
    assert after.bodies() == [b"kept 0", b"kept 1", b"kept 2"]
    assert [entry.queue_offset for entry in after.store.confirmation.tail] == [3, 4]


def test_what_timers_saved_may_be_ahead_of_what_the_mark_confirms(tmp_path: Path) -> None:
    """A process that is killed between the two: what they know was confirmed."""
    before = LittleStore(tmp_path)
    before.store.confirmation.hold_for_copies(0)
    before.send(body=b"timed", after_ms=5_000)
    before.store.confirmation.copies_have(before.store.log.end)
    before.timers.write()
    before.kill()
    after = LittleStore(tmp_path, clock=before.clock, confirms_tail=False)
    assert after.store.confirm_offset == after.store.log.end
    after.store.confirmation.hold_for_copies(after.store.confirm_offset)
    after.pass_time(6_000)
    after.store.confirmation.copies_have(after.store.log.end)
    assert after.bodies() == [b"timed"]


# --- cutting ---------------------------------------------------------------------------------------------------------


def test_a_cut_leaves_no_trace(tmp_path: Path) -> None:
    little = with_tail(tmp_path)
    confirmed = little.store.confirm_offset
    assert little.store.truncate(confirmed) == 2
    assert little.statuses[3:] == [PutStatus.UNKNOWN] * 2
    assert little.store.log.end == confirmed
    assert little.log_bytes(confirmed, confirmed + 500) == bytes(500)
    placed = little.send(body=b"instead")
    assert (placed.queue_offset, placed.physical_offset) == (3, confirmed)
    little.store.confirmation.copies_have(placed.end_offset)
    assert little.bodies()[3:] == [b"instead"]
    little.kill()
    assert LittleStore(tmp_path).bodies()[3:] == [b"instead"]


def test_a_cut_may_leave_some_of_the_tail(tmp_path: Path) -> None:
    little = with_tail(tmp_path, unconfirmed=3)
    second = list(little.store.confirmation.tail)[1]
    little.store.truncate(second.physical_offset)
    little.store.confirmation.copies_have(second.physical_offset)
    assert little.bodies()[3:] == [b"tail 0"]
    assert little.statuses[3:] == [PutStatus.UNKNOWN, PutStatus.UNKNOWN, PutStatus.PUT_OK]


def test_a_cut_takes_what_was_appended_in_the_same_turn(tmp_path: Path) -> None:
    little = with_tail(tmp_path, unconfirmed=0)
    little.append(body=b"not written")
    assert little.store.truncate(little.store.confirm_offset) == 1
    assert little.statuses[3:] == [PutStatus.UNKNOWN]
    assert little.send(body=b"instead").queue_offset == 3


def test_what_is_confirmed_cannot_be_cut_nor_can_a_record_be_halved(tmp_path: Path) -> None:
    little = with_tail(tmp_path)
    end, confirmed = little.store.log.end, little.store.confirm_offset
    with pytest.raises(ValueError, match="confirmed up to"):
        little.store.truncate(confirmed - 1)
    with pytest.raises(ValueError, match="inside a record"):
        little.store.truncate(confirmed + 5)
    assert little.store.log.end == end
    little.store.confirmation.copies_have(end)
    assert len(little.bodies()) == 5


def test_a_cut_over_several_files(tmp_path: Path) -> None:
    little = with_tail(tmp_path, unconfirmed=0)
    confirmed = little.store.confirm_offset
    for _ in range(12):
        little.send(body=bytes(4_000))
    files = len(little.store.log.sequence.segments)
    assert files > 2
    assert little.store.truncate(confirmed) == 12
    for number in range(12):
        placed = little.send(body=bytes([number]) * 4_000)
    little.store.confirmation.copies_have(placed.end_offset)
    assert [body[0] for body in little.bodies()[3:]] == list(range(12))
    little.close()
    assert len(LittleStore(tmp_path).bodies()) == 15


def test_a_cut_that_cannot_be_written_is_made_before_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = with_tail(tmp_path)
    confirmed = little.store.confirm_offset

    def refused(*args: object) -> None:
        raise OSError(5, "planned")

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "punch", refused)
        assert little.store.truncate(confirmed) == 2
        assert little.log_bytes(confirmed, confirmed + 8) != bytes(8), "planted: the cut did not reach the file"
    placed = little.send(body=b"x")
    assert little.log_bytes(placed.end_offset, placed.end_offset + 200) == bytes(200)


def test_a_sync_that_began_before_a_cut_says_nothing_of_what_comes_after(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    little.send(body=b"one")
    end = little.store.log.end
    little.store.truncate(0)
    assert little.statuses == [PutStatus.UNKNOWN]
    little.append(body=b"two, and longer than the first one was")
    jobs, little.worker.jobs = little.worker.jobs, []
    little.store.commit()
    later, little.worker.jobs = little.worker.jobs, jobs
    little.worker.step()  # the sync of the first message
    assert little.store.log.synced_end == 0 < end
    assert (little.statuses, little.bodies()) == ([PutStatus.UNKNOWN], [])
    little.worker.jobs += later
    little.worker.close()
    assert little.bodies() == [b"two, and longer than the first one was"]


def test_who_waits_for_the_log_alone_waits_for_the_cut_at_most(tmp_path: Path) -> None:
    little = with_tail(tmp_path)
    confirmed = little.store.confirm_offset
    told: list[bool] = []
    little.store._flushing.when_synced(told.append)
    jobs, little.worker.jobs = little.worker.jobs, []
    little.store.truncate(confirmed)
    little.worker.jobs = jobs
    little.worker.close()
    assert told == [True]
    assert not little.store.unsynced_bytes


def test_a_deleted_topic_does_not_take_later_messages_with_it_after_a_cut(tmp_path: Path) -> None:
    little = with_tail(tmp_path)
    little.store.delete_topic("Topic")
    little.store.truncate(little.store.confirm_offset)
    placed = little.send(body=b"after")
    assert placed.queue_offset == 0
    little.store.confirmation.copies_have(placed.end_offset)
    assert little.bodies() == [b"after"]


def test_a_topic_that_began_again_behind_the_cut_goes_on_where_it_was(tmp_path: Path) -> None:
    master = LittleStore(tmp_path / "master")
    for _ in range(3):
        master.send(body=b"old")
    end = master.store.log.end
    master.store.delete_topic("Topic")
    master.send(body=b"anew")
    copy = LittleStore(tmp_path / "copy", clock=master.clock)
    copy.store.append_raw(0, master.log_bytes(0, end))
    copy.store.confirmation.hold_for_copies(end)
    copy.store.append_raw(end, master.log_bytes(end))
    copy.store.truncate(end)
    assert copy.send(body=b"instead").queue_offset == 3


def test_a_cut_at_the_end_of_a_file_keeps_or_takes_the_filler_whole(tmp_path: Path) -> None:
    for case, keep_filler in enumerate((False, True)):
        little = with_tail(tmp_path / str(case), unconfirmed=0)
        last = little.send(body=bytes(4_000))
        while (beyond := little.send(body=bytes(4_000))).physical_offset == last.end_offset:
            last = beyond
        with pytest.raises(ValueError, match="inside a record or the end of a file"):
            little.store.truncate(last.end_offset + 8)
        little.store.truncate(beyond.physical_offset if keep_filler else last.end_offset)
        placed = little.send(body=b"small")
        assert placed.physical_offset == (beyond.physical_offset if keep_filler else last.end_offset)
        little.store.confirmation.copies_have(placed.end_offset)
        bodies = little.bodies()
        little.kill()
        assert LittleStore(tmp_path / str(case)).bodies() == bodies

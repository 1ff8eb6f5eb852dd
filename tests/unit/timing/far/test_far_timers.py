"""From the far topic to the files and into the wheel's topic."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.worlds.little_far import DAY_MS, HOUR_MS, LittleFar
from tests.worlds.raw_log import append_raw

from orbitmq.errors import StoreDamagedError, StoreUnwritableError
from orbitmq.protocol.names import FAR_TIMER_TOPIC, QUARANTINE_TOPIC, TIMER_CHANGES_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.store.durability import PutStatus
from orbitmq.store.settings import FlushDiskType
from orbitmq.timing.far import arrow_tier
from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.changes import FarFile, recall_message
from orbitmq.timing.far.far_timers import FarStatus
from orbitmq.timing.far.loads import Load
from orbitmq.timing.far.queries import FarPage
from orbitmq.timing.far.tier import Compaction, FarQuery, FileView
from orbitmq.timing.restoring import rewritten_message
from orbitmq.timing.rewriting import Taken
from orbitmq.timing.timers.delivered_records import deliver_record, stored_due_ms

OpenFar = Callable[..., LittleFar]


def land(far: LittleFar) -> None:
    far.advance(11 * 60_000)
    assert not len(far.far.held.buffered)


def publish(far: LittleFar) -> None:
    while not (far.far.keeper is not None and far.far.keeper.is_published):
        far.advance(10_000)


def files(far: LittleFar) -> list[str]:
    return sorted(far.far.held.files.by_name)


def left_out(far: LittleFar, **query: int) -> int:
    """How many messages a page says it cannot show."""
    answers: list[FarPage | Exception] = []
    far.far.find(FarQuery(**query), answers.append)
    far.work()
    [page] = answers
    assert isinstance(page, FarPage)
    return page.left_out


def test_a_message_beyond_the_horizon_is_accepted(open_far: OpenFar) -> None:
    far = open_far()
    now = far.clock.now_ms()
    assert not far.far.accepts(now + 3 * DAY_MS, now)
    assert not far.far.accepts(now + 3 * DAY_MS + HOUR_MS, now), "it would come back with the next promotion"
    assert far.far.accepts(now + 3 * DAY_MS + HOUR_MS + 1, now)


def test_without_a_tier_nothing_is_accepted(open_far: OpenFar) -> None:
    far = open_far(tier=None)
    assert not far.far.accepts(far.clock.now_ms() + 365 * DAY_MS, far.clock.now_ms())


def test_a_message_lands_in_a_file_and_comes_back_three_days_before_it_is_due(open_far: OpenFar) -> None:
    far = open_far()
    due_ms = far.clock.now_ms() + 30 * DAY_MS
    placed = far.send(due_ms, b"invoice", TAGS="t", KEYS="k", UNIQ_KEY="U")
    land(far)
    assert len(files(far)) == 1
    far.advance(27 * DAY_MS - 2 * HOUR_MS)
    assert far.wheel() == []
    far.advance(3 * HOUR_MS)
    [record] = far.records(TIMER_TOPIC)
    properties = decode_properties(record.properties)
    assert record.body == b"invoice"
    assert record.prepared_transaction_offset == placed.physical_offset + 1
    assert properties[Property.TIMER_OUT_MS] == str((due_ms - 1) // 1_000 * 1_000)
    assert properties[Property.DUE_MS] == str(due_ms)
    assert stored_due_ms(record.properties, 1_000) == due_ms, "found where the wheel looks first"
    delivered = decode_properties(deliver_record(record).properties)
    assert Property.FAR not in delivered
    assert (properties["TAGS"], properties["KEYS"], properties["UNIQ_KEY"]) == ("t", "k", "U")
    assert far.far.held.pending_count == 0
    assert files(far) == []


@pytest.mark.parametrize("rounds", range(12))
def test_a_step_that_was_under_way_when_the_tier_was_detached_comes_to_nothing(open_far: OpenFar, rounds: int) -> None:
    far = open_far()
    due_ms = far.clock.now_ms() + 30 * DAY_MS
    far.send(due_ms, b"invoice")
    land(far)
    far.clock.advance(28 * DAY_MS)
    for _ in range(rounds):
        far.step()
    far.far.detach()
    far.far.detach()
    before = far.wheel()
    for _ in range(20):
        far.step()
        far.clock.advance(1)
    assert far.wheel() == before
    assert not far.far.is_releasing
    far.far.attach(far.store)
    far.far.attach(far.store)
    far.work()
    assert far.wheel() == [(due_ms, b"invoice")]
    assert far.far.held.pending_count == 0


def knowledge(far: LittleFar) -> dict[str, Any]:
    """What the log says of the tier. Damage and garbage are learnt elsewhere."""
    saved = msgspec.to_builtins(far.far.held.saved(0, ""))
    return {name: saved[name] for name in saved if name not in ("serial", "store")}


def test_a_copy_of_the_log_knows_where_everything_is_and_moves_nothing(open_far: OpenFar, tmp_path: Path) -> None:
    """Through landing, recall, compaction and promotion."""
    far = open_far(mapped_file_size_commit_log=1 << 20)
    copy = LittleFar(tmp_path / "copy", far.tier, clock=far.clock, mapped_file_size_commit_log=1 << 20)
    copy.far.detach()

    def replicate() -> None:
        begin, end = copy.store.log.end, far.store.log.end
        data = far.store.log.read(begin, end - begin) if end > begin else None
        if data is not None:
            append_raw(copy.store, begin, bytes(data))
        for _ in range(5):
            copy.step()
        assert knowledge(copy) == knowledge(far)
        assert copy.store.log.end == far.store.log.end
        assert not copy.far_worker.jobs

    start_ms = far.clock.now_ms()
    for number in range(6):
        far.send(start_ms + (10 + 30 * number) * DAY_MS, b"%d" % number, UNIQ_KEY=f"K{number}")
        replicate()
    land(far)
    replicate()
    recalled = far.find_again("K3")
    assert recalled is not None
    far.recall(recalled)
    replicate()
    far.far.compact()
    far.work()
    replicate()
    for _ in range(8):
        far.advance(20 * DAY_MS)
        replicate()
    assert [body for _, body in far.wheel()] == [b"0", b"1", b"2", b"4", b"5"]
    for _ in range(2):
        far.clock.advance(DAY_MS)
        copy.store.save_durably(lambda durable: None)
        for _ in range(20):
            copy.step()
    assert not copy.far.held._recent, "what was finished long ago is forgotten, though nobody looks after the tier here"
    copy.close()


def test_a_recall_behind_a_cut_of_the_log_never_was(open_far: OpenFar) -> None:
    far = open_far(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    far.send(far.clock.now_ms() + 30 * DAY_MS, b"invoice", UNIQ_KEY="K")
    far.work()
    (found,) = far.find(message_id="K", bodies=True)
    cut_at = far.store.log.end
    statuses: list[PutStatus] = []
    far.far.change(found.record, [recall_message(found.record)], wait=True, on_done=statuses.append)
    far.store.commit()
    far.far.detach()
    assert far.far.status(found.source) is FarStatus.LEAVING, "kept until the log says more"
    far.far.take_back(far.store.log.end)
    assert far.far.status(found.source) is FarStatus.LEAVING
    far.far.take_back(cut_at)
    assert far.far.status(found.source) is FarStatus.PENDING
    assert not far.far.is_releasing


def test_who_is_detached_takes_no_change_and_no_load(open_far: OpenFar) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 30 * DAY_MS, b"invoice", UNIQ_KEY="K")
    far.work()
    (found,) = far.find(message_id="K", bodies=True)
    far.far.detach()
    end = far.store.log.end
    with pytest.raises(StoreUnwritableError, match="ask the master"):
        far.far.change(found.record, [recall_message(found.record)], wait=False, on_done=lambda status: None)
    with pytest.raises(StoreUnwritableError, match="ask the master"):
        far.far.load(Load("job", "0" * 16, far.clock.now_ms(), far.far.split_ms(), []))
    assert far.store.log.end == end
    assert far.far.status(found.source) is FarStatus.PENDING
    assert far.find(message_id="K"), "what waits is found all the same"


def test_t2_t3_ten_years_cost_one_move(open_far: OpenFar) -> None:
    far = open_far()
    due_ms = far.clock.now_ms() + 3_650 * DAY_MS
    far.send(due_ms)
    land(far)
    end = far.store.log.end
    for _ in range(365):
        far.clock.advance(9 * DAY_MS)
        far.work()
    assert far.store.log.end == end, "nothing was written in nine years"
    far.advance(363 * DAY_MS)
    assert [due for due, _ in far.wheel()] == [due_ms]


def test_messages_of_one_file_leave_it_as_they_come_near(open_far: OpenFar) -> None:
    far = open_far()
    start = far.clock.now_ms()
    for day in (40, 10, 20, 30):
        far.send(start + day * DAY_MS, b"%d" % day)
    land(far)
    far.advance(28 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"10", b"20", b"30"]
    [file] = far.far.held.files.by_name.values()
    assert (file.taken, file.rows) == (3, 4)


def test_equal_due_times_keep_the_order_of_sending_over_files(open_far: OpenFar) -> None:
    far = open_far()
    due_ms = far.clock.now_ms() + 10 * DAY_MS
    for number in range(6):
        far.send(due_ms, b"%d" % number)
        if number % 2:
            land(far)
    far.advance(8 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_more_messages_than_a_batch_are_promoted_in_slices(open_far: OpenFar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.timing.far.keeper.FAR_PROMOTION_ROWS_MAX", 7)
    monkeypatch.setattr("orbitmq.timing.far.outcomes.FAR_SLICE_ROWS", 3)
    far = open_far()
    due_ms = far.clock.now_ms() + 10 * DAY_MS
    for number in range(25):
        far.send(due_ms + number, b"%d" % number)
    land(far)
    far.advance(8 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"%d" % number for number in range(25)]


def test_what_came_by_a_clock_that_was_ahead_lands_as_everything_else(open_far: OpenFar) -> None:
    far = open_far()
    now_ms = far.clock.now_ms()
    far.clock.set_wall(now_ms + 1_000 * DAY_MS)
    far.send(now_ms + 2_000 * DAY_MS, b"x")
    far.clock.set_wall(now_ms)
    far.advance(DAY_MS)
    assert len(files(far)) == 1


def test_what_no_file_holds_is_promoted_from_the_log(open_far: OpenFar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.timing.far.plan.FAR_LANDING_AGE_MS", 1_000 * DAY_MS)
    far = open_far()
    far.send(far.clock.now_ms() + 10 * DAY_MS, b"later")
    far.send(far.clock.now_ms() + 9 * DAY_MS, b"sooner")
    far.advance(8 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"sooner", b"later"]
    assert files(far) == []


def test_a_recalled_message_does_not_come_back(open_far: OpenFar) -> None:
    far = open_far()
    due_ms = far.clock.now_ms() + 10 * DAY_MS
    for number in range(4):
        far.send(due_ms + number, b"%d" % number, UNIQ_KEY=f"U{number}", KEYS="order")
    [first] = far.find(topic="Topic", message_id="U0")
    assert far.recall(first) is PutStatus.PUT_OK, "before it has landed"
    land(far)
    [second] = far.find(topic="Topic", message_id="U1")
    assert far.recall(second) is PutStatus.PUT_OK, "after it has landed"
    assert far.recall(second) is None
    assert [found.message_id for found in far.find(key="order")] == ["U2", "U3"]
    assert far.far.counts().by_topic == {"Topic": 2}
    far.advance(8 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"2", b"3"]
    assert far.far.held.tombstones == {}


class InterruptedTier(ArrowTier):
    """Something happens while a file is written."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.meanwhile: Callable[[], object] = lambda: None
        """Called once, when the file is there and the answer is not."""

    def land(self, name: str, records: bytes) -> FarFile:
        file = super().land(name, records)
        self._interrupt()
        return file

    def compact(self, files: list[FileView], dead: list[int], serial: int, tests_records: bool) -> Compaction:
        result = super().compact(files, dead, serial, tests_records)
        self._interrupt()
        return result

    def _interrupt(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()


def test_a_store_of_which_only_the_log_is_left_knows_its_far_messages(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 30 * DAY_MS, b"gone", UNIQ_KEY="A")
    far.send(far.clock.now_ms() + 30 * DAY_MS, b"kept", UNIQ_KEY="B")
    far.recall(far.find(message_id="A")[0])
    far.close()
    for path in (tmp_path / "store").iterdir():
        if path.name != "commitlog":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    far = open_far(clock=far.clock)
    assert [found.record.body for found in far.find(topic="Topic", bodies=True)] == [b"kept"]
    far.advance(31 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"kept"]


def test_a_recall_is_found_by_the_message_id_that_its_record_carries(open_far: OpenFar) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 30 * DAY_MS, b"x", UNIQ_KEY="U")
    assert far.recall(far.find(message_id="U")[0]) is PutStatus.PUT_OK
    [change] = far.records(TIMER_CHANGES_TOPIC)
    assert decode_properties(change.properties)[Property.UNIQ_KEY] == "U", (
        "a key index made from the log has it from here"
    )


def test_a_message_recalled_while_its_file_is_written_does_not_come_back(open_far: OpenFar, tmp_path: Path) -> None:
    tier = InterruptedTier(str(tmp_path / "far"))
    far = open_far(tier=tier)
    far.send(far.clock.now_ms() + 10 * DAY_MS, b"a", UNIQ_KEY="A")
    far.send(far.clock.now_ms() + 10 * DAY_MS, b"b", UNIQ_KEY="B")
    [found] = far.find(message_id="A", bodies=True)
    tier.meanwhile = lambda: far.recall(found)
    land(far)
    assert list(far.far.held.tombstones) == [found.source]
    far.advance(8 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"b"]


def test_a_message_recalled_while_its_file_is_written_anew_does_not_come_back(
    open_far: OpenFar, tmp_path: Path
) -> None:
    tier = InterruptedTier(str(tmp_path / "far"))
    far = open_far(tier=tier)
    for key in "AB":
        far.send(far.clock.now_ms() + 10 * DAY_MS, key.encode(), UNIQ_KEY=key)
    land(far)
    [found] = far.find(message_id="A")
    tier.meanwhile = lambda: far.recall(found)
    assert far.far.keeper is not None
    far.far.keeper.request_compaction()
    far.advance(60_000)
    assert list(far.far.held.tombstones) == [found.source]
    far.advance(8 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"B"]


def test_a_message_is_rescheduled_near_far_and_far_again(open_far: OpenFar) -> None:
    far = open_far()
    start = far.clock.now_ms()
    far.send(start + 30 * DAY_MS, b"body", UNIQ_KEY="A")
    land(far)
    [found] = far.find(message_id="A", bodies=True)
    assert far.reschedule(found, start + 60 * DAY_MS) is PutStatus.PUT_OK
    land(far)
    far.advance(29 * DAY_MS)
    assert far.wheel() == []
    [found] = far.find(message_id="A", bodies=True)
    assert found.deliver_ms == start + 60 * DAY_MS
    assert far.reschedule(found, far.clock.now_ms() + HOUR_MS) is PutStatus.PUT_OK
    assert [(due, body) for due, body in far.wheel()] == [(far.clock.now_ms() + HOUR_MS, b"body")]
    far.advance(60 * DAY_MS)
    assert len(far.wheel()) == 1


def test_a_page_goes_on_where_the_last_one_ended(open_far: OpenFar) -> None:
    far = open_far()
    start = far.clock.now_ms() + 10 * DAY_MS
    for number in range(10):
        far.send(start + 9 - number, b"", UNIQ_KEY=f"U{number}", KEYS=f"order-{number} all")
        if number == 5:
            land(far)
    first = far.find(limit=4)
    assert [found.message_id for found in first] == ["U9", "U8", "U7", "U6"]
    second = far.find(limit=4, after=(first[-1].deliver_ms, first[-1].source))
    assert [found.message_id for found in second] == ["U5", "U4", "U3", "U2"]
    assert [found.deliver_ms - start for found in far.find(from_ms=start + 2, until_ms=start + 5)] == [2, 3, 4]
    assert [found.keys for found in far.find(key_prefix="order-3")] == ["order-3 all"]
    assert len(far.find(key="all", topic="Topic")) == 10
    assert far.find(topic="Other") == []


def test_counts_per_topic_and_day(open_far: OpenFar) -> None:
    far = open_far()
    start = (far.clock.now_ms() // DAY_MS + 10) * DAY_MS
    far.send(start)
    far.send(start + DAY_MS - 1, topic="Other")
    far.send(start + DAY_MS)
    land(far)
    counts = far.far.counts()
    assert counts.pending == 3
    assert counts.by_topic == {"Topic": 2, "Other": 1}
    assert counts.by_day == {start // DAY_MS: 2, start // DAY_MS + 1: 1}
    assert counts.next_deliver_ms == start


# --- ends and starts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "kill"])
def test_everything_is_known_after_a_restart(open_far: OpenFar, end: str) -> None:
    far = open_far()
    start = far.clock.now_ms()
    far.send(start + 10 * DAY_MS, b"landed", UNIQ_KEY="A")
    far.send(start + 11 * DAY_MS, b"recalled", UNIQ_KEY="B")
    land(far)
    far.send(start + 12 * DAY_MS, b"in the log", UNIQ_KEY="C")
    far.recall(far.find(message_id="B")[0])
    counts = far.far.counts()
    getattr(far, end)()
    again = open_far(clock=far.clock)
    assert again.far.counts() == counts
    assert [found.message_id for found in again.find()] == ["A", "C"]
    again.advance(20 * DAY_MS)
    assert [body for _, body in again.wheel()] == [b"landed", b"in the log"]


def test_files_left_by_a_step_without_an_end_are_removed(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 10 * DAY_MS)
    land(far)
    far.advance(10_000)
    far.close()
    orphan = tmp_path / "far" / "landing" / "00000000000000000007-00000000000000000009.parquet"
    orphan.write_bytes(b"half")
    again = open_far(clock=far.clock)
    again.advance(8 * DAY_MS)
    assert not orphan.exists()
    assert len(again.wheel()) == 1


def test_a_damaged_state_file_stops_the_start_and_the_copy_in_the_tier_heals_it(
    open_far: OpenFar, tmp_path: Path
) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 10 * DAY_MS)
    land(far)
    far.advance(60_000)
    far.close()
    state = tmp_path / "store" / "orbitmq.far"
    state.write_bytes(state.read_bytes().replace(b'"files"', b'"filet"'))
    with pytest.raises(StoreDamagedError, match=r"manifest\.json"):
        open_far(clock=far.clock)
    state.write_bytes((tmp_path / "far" / "manifest.json").read_bytes())
    again = open_far(clock=far.clock)
    again.advance(8 * DAY_MS)
    assert len(again.wheel()) == 1


def test_two_stores_cannot_share_a_directory(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 10 * DAY_MS)
    land(far)
    far.advance(60_000)
    other = LittleFar(tmp_path / "other", ArrowTier(str(tmp_path / "far")), clock=far.clock)
    other.send(far.clock.now_ms() + 10 * DAY_MS)
    other.advance(11 * 60_000)
    assert other.far.keeper is not None
    assert "belongs to another store" in (other.far.keeper.trouble or "")
    other.advance(8 * DAY_MS)
    assert len(other.wheel()) == 1, "it is promoted from the log all the same"


# --- the log ------------------------------------------------------------------------------------------------------------


def test_the_log_may_go_once_a_file_holds_what_it_held(open_far: OpenFar) -> None:
    far = open_far()
    placed = far.send(far.clock.now_ms() + 10 * DAY_MS)
    assert far.far.lowest_needed() == placed.physical_offset
    assert far.far.bytes_below(far.store.log.end) == placed.size
    assert far.far.bytes_below(placed.physical_offset) == 0
    land(far)
    far.advance(10_000)
    assert far.far.lowest_needed() is None
    assert far.far.bytes_below(far.store.log.end) == 0


def test_a_message_put_again_at_the_end_of_the_log_is_the_same_message(open_far: OpenFar) -> None:
    far = open_far()
    due_ms = far.clock.now_ms() + 10 * DAY_MS
    placed = far.send(due_ms, b"old", UNIQ_KEY="A")
    end = far.store.log.end
    assert far.far.take_below(end, 10) == [Taken(placed.physical_offset, placed.size, due_ms)]
    assert far.far.take_below(end, 10) == [], "it is being moved"
    [found] = far.find(message_id="A")
    assert far.recall(found) is None, "and cannot be changed meanwhile"
    (record,) = far.records(FAR_TIMER_TOPIC)
    far.store.append(rewritten_message(record, due_ms), accepted=True)
    far.store.commit()
    assert far.far.bytes_below(end) == 0
    assert far.far.counts().pending == 1
    land(far)
    far.advance(8 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"old"]


def test_a_message_that_was_not_moved_is_pending_where_it_was(open_far: OpenFar) -> None:
    far = open_far()
    placed = far.send(far.clock.now_ms() + 10 * DAY_MS, UNIQ_KEY="A")
    far.far.take_below(far.store.log.end, 10)
    far.far.put_back([placed.physical_offset])
    assert far.recall(far.find(message_id="A")[0]) is PutStatus.PUT_OK


def test_an_unsaved_change_keeps_the_log(open_far: OpenFar) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 10 * DAY_MS, UNIQ_KEY="A")
    land(far)
    publish(far)
    before = far.store.log.end
    far.recall(far.find(message_id="A")[0])
    needed = far.far.lowest_needed()
    assert needed is not None
    assert needed <= before
    far.advance(10_000)
    assert far.far.lowest_needed() is None


# --- compaction ---------------------------------------------------------------------------------------------------------


def test_landing_files_are_put_into_days(open_far: OpenFar, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("orbitmq.timing.far.plan.FAR_LANDING_FILES_MAX", 3)
    monkeypatch.setattr("orbitmq.timing.far.arrow_tier.FAR_DAY_ROWS_MIN", 2)
    far = open_far()
    start = far.clock.now_ms()
    for number in range(3):
        far.send(start + 10 * DAY_MS + number, b"%d" % number)
        far.send(start + (20 + number) * DAY_MS, b"single", UNIQ_KEY=f"U{number}")
        land(far)
    far.recall(far.find(message_id="U1")[0])
    far.advance(5 * 60_000)
    assert [name.partition("/")[0] for name in files(far)] == ["days", "landing"]
    far.advance(60_000)
    assert sorted(path.name for path in (tmp_path / "far" / "days").iterdir()) == [
        name.split("/")[1] for name in files(far) if name.startswith("days")
    ]
    far.advance(25 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"0", b"1", b"2", b"single", b"single"]
    assert far.far.held.pending_count == 0


def test_many_recalls_make_files_without_them(open_far: OpenFar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.timing.far.plan.FAR_TOMBSTONES_MAX", 3)
    far = open_far()
    for number in range(6):
        far.send(far.clock.now_ms() + (10 + number) * DAY_MS, b"%d" % number)
    land(far)
    for found in far.find(limit=3):
        far.recall(found)
    far.advance(5 * 60_000)
    assert far.far.held.tombstones == {}
    assert [file.rows for file in far.far.held.files.by_name.values()] == [3]
    far.advance(20 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"3", b"4", b"5"]


def test_the_whole_tier_can_be_moved_into_the_wheel(open_far: OpenFar) -> None:
    far = open_far()
    start = far.clock.now_ms()
    for year in (1, 10, 100):
        far.send(start + year * 365 * DAY_MS, b"%d" % year)
        land(far)
    far.send(start + 20 * DAY_MS, b"in the log")
    far.far.restore_all()
    far.advance(60_000)
    assert sorted(body for _, body in far.wheel()) == [b"1", b"10", b"100", b"in the log"]
    assert far.far.counts().pending == 0
    assert not far.far.accepts(start + 365 * DAY_MS, start), "and nothing new is taken in"


def test_a_step_ends_with_its_own_record_and_not_with_the_one_before(open_far: OpenFar) -> None:
    """What was applied up to where the record begins does not contain it: the next step would repeat this one."""
    far = open_far()
    keeper = far.far.keeper
    assert keeper is not None
    far.work()
    keeper._busy, keeper._awaiting = True, 1_000  # a step that ends with the record at 1,000
    keeper.applied(1_000, [])
    assert (keeper._busy, keeper._awaiting) == (True, 1_000)
    keeper.applied(1_001, [])
    assert (keeper._busy, keeper._awaiting) == (False, None)


# --- failures -----------------------------------------------------------------------------------------------------------


def test_a_damaged_file_is_left_out_and_the_rest_goes_on(open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far()
    start = far.clock.now_ms()
    far.send(start + 10 * DAY_MS, b"lost")
    land(far)
    far.send(start + 11 * DAY_MS, b"kept")
    land(far)
    far.close()
    [bad, _] = files(far)
    path = tmp_path / "far" / bad
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(200) + whole[204:])
    again = open_far(clock=far.clock)
    again.advance(10 * DAY_MS)
    assert [body for _, body in again.wheel()] == [b"kept"]
    assert again.far.keeper is not None
    assert list(again.far.held.files.unreadable) == [bad]
    assert again.far.counts().pending == 1, "it still waits"
    assert left_out(again) == 1
    assert left_out(again, from_ms=start + 10 * DAY_MS + 1) == left_out(again, until_ms=start + 10 * DAY_MS) == 0
    again.close()
    path.write_bytes(whole)
    healed = open_far(clock=far.clock)
    healed.advance(HOUR_MS)
    assert [body for _, body in healed.wheel()] == [b"kept", b"lost"]
    assert left_out(healed) == 0


@pytest.fixture
def cut_day(open_far: OpenFar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[LittleFar, Path, bytes]:
    """Twelve messages in three row groups, a byte of the second one flipped; the file, and what it was."""
    monkeypatch.setattr(arrow_tier, "FAR_ROW_GROUP_ROWS", 4)
    far = open_far()
    for number in range(12):
        far.send(
            far.clock.now_ms() + 10 * DAY_MS + number, b"body %d" % number, UNIQ_KEY=f"U{number}", KEYS=f"k{number}"
        )
    land(far)
    far.close()
    [name] = files(far)
    path = tmp_path / "far" / name
    whole = path.read_bytes()
    group = pq.ParquetFile(path).metadata.row_group(1)
    body = next(group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == "body")
    flipped = bytearray(whole)
    flipped[body.data_page_offset + body.total_compressed_size - 3] ^= 1
    path.write_bytes(flipped)
    return open_far(clock=far.clock), path, whole


ODD = [b"body %d" % number for number in (0, 1, 2, 3, 8, 9, 10, 11)]


def test_a_damaged_row_group_withholds_no_other_message_of_its_file(cut_day: tuple[LittleFar, Path, bytes]) -> None:
    far, path, _ = cut_day
    far.advance(9 * DAY_MS)
    assert [body for _, body in far.wheel()] == ODD
    assert (far.far.counts().pending, left_out(far), path.exists()) == (4, 4, True)
    assert far.far.keeper is not None
    assert list(far.far.held.files.reasons()) == far.far.damaged_files
    far.close()


def test_writing_files_anew_takes_what_can_be_read_of_a_damaged_one(cut_day: tuple[LittleFar, Path, bytes]) -> None:
    far, path, _ = cut_day
    far.send(far.clock.now_ms() + 11 * DAY_MS, b"sound")
    far.far.compact()
    publish(far)
    assert far.far.damaged_files == [path.relative_to(path.parents[1]).as_posix()]
    assert (far.far.counts().pending, left_out(far), len(files(far))) == (13, 4, 2)
    far.advance(10 * DAY_MS)
    assert [body for _, body in far.wheel()] == [*ODD, b"sound"]
    far.close()


def test_damage_that_cannot_be_looked_into_holds_up_no_other_file(
    open_far: OpenFar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compact(*_: object) -> Compaction:
        raise MemoryError("planted")

    far = open_far()
    start = far.clock.now_ms()
    far.send(start + 10 * DAY_MS, b"lost")
    land(far)
    far.send(start + 11 * DAY_MS, b"kept")
    land(far)
    far.close()
    bad = tmp_path / "far" / files(far)[0]
    bad.write_bytes(b"nonsense" * 100)
    monkeypatch.setattr(ArrowTier, "compact", compact)
    again = open_far(clock=far.clock)
    again.advance(10 * DAY_MS)
    assert [body for _, body in again.wheel()] == [b"kept"]
    again.close()


def test_repair_puts_what_cannot_be_read_into_quarantine(cut_day: tuple[LittleFar, Path, bytes]) -> None:
    far, path, _ = cut_day
    far.advance(9 * DAY_MS)
    far.far.repair()
    far.advance(HOUR_MS)
    assert far.far.counts().pending == 0
    assert far.far.damaged_files == []
    kept = [decode_properties(record.properties) for record in far.records(QUARANTINE_TOPIC)]
    assert [values["REAL_TOPIC"] for values in kept] == ["Topic"] * 4
    assert path.name not in str(files(far))
    assert [body for _, body in far.wheel()] == ODD
    far.close()


def test_a_sound_copy_in_its_place_is_repaired_without_loss(
    cut_day: tuple[LittleFar, Path, bytes], open_far: OpenFar
) -> None:
    far, path, whole = cut_day
    far.find(topic="Topic", bodies=True)
    far.advance(HOUR_MS)
    assert far.far.damaged_files
    far.close()
    path.write_bytes(whole)
    far = open_far(clock=far.clock)
    far.advance(HOUR_MS)
    assert far.far.damaged_files == []
    far.advance(9 * DAY_MS)
    assert sorted(body for _, body in far.wheel()) == sorted(b"body %d" % number for number in range(12))
    assert far.records(QUARANTINE_TOPIC) == []
    far.close()


def test_a_reading_that_began_before_the_repair_was_asked_for_gives_nothing_up(
    cut_day: tuple[LittleFar, Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sound copy was put in its place while the damaged file was still being read."""
    far, path, whole = cut_day
    compact, repaired = ArrowTier.compact, list[bool]()

    def slow(tier: ArrowTier, *given: Any) -> Compaction:
        found = compact(tier, *given)
        if not repaired:
            repaired.append(True)
            path.write_bytes(whole)
            far.far.repair()
        return found

    monkeypatch.setattr(ArrowTier, "compact", slow)
    far.advance(9 * DAY_MS)
    assert repaired
    assert far.far.damaged_files == []
    assert sorted(body for _, body in far.wheel()) == sorted(b"body %d" % number for number in range(12))
    assert far.records(QUARANTINE_TOPIC) == []
    far.close()


def test_a_tier_out_of_reach_keeps_messages_in_the_log(open_far: OpenFar, tmp_path: Path) -> None:
    (tmp_path / "far").write_bytes(b"no directory")
    far = open_far()
    placed = far.send(far.clock.now_ms() + 10 * DAY_MS)
    far.advance(HOUR_MS)
    assert far.far.keeper is not None
    assert far.far.keeper.trouble is not None
    assert far.far.lowest_needed() == placed.physical_offset
    (tmp_path / "far").unlink()
    far.advance(HOUR_MS)
    assert far.far.keeper.trouble is None
    assert len(files(far)) == 1


def test_look_ups_by_key_open_one_index_of_many_days(
    open_far: OpenFar, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("orbitmq.timing.far.arrow_tier.FAR_DAY_ROWS_MIN", 1)
    far = open_far()
    start = far.clock.now_ms()
    for day in range(30):
        far.send(start + (10 + day) * DAY_MS, UNIQ_KEY=f"U{day}", KEYS=f"order-{day} all")
    land(far)
    far.far.compact()
    far.advance(5 * HOUR_MS)
    assert len(files(far)) == 30
    [index] = (tmp_path / "far" / "keys").iterdir()
    assert index.name == files(far)[0].replace("/", "~")
    assert [found.message_id for found in far.find(message_id="U7")] == ["U7"]
    assert [found.message_id for found in far.find(key="all", limit=3, from_ms=start + 12 * DAY_MS)] == [
        "U2",
        "U3",
        "U4",
    ]
    assert [found.message_id for found in far.find(key_prefix="order-2", limit=2)] == ["U2", "U20"]
    far.advance(20 * DAY_MS)
    assert index.exists(), "some of its files are still there"
    assert [found.message_id for found in far.find(key="all")] == [f"U{day}" for day in range(14, 30)]
    far.advance(30 * DAY_MS)
    assert not index.exists()


def test_few_messages_of_many_days_do_not_stay_together_for_ever(
    open_far: OpenFar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.timing.far.arrow_tier.FAR_LANDING_REST_BYTES_MAX", 1_000)
    far = open_far()
    for day in range(8):
        for _ in range(3 if day % 2 else 1):
            far.send(far.clock.now_ms() + (10 + day) * DAY_MS)
    land(far)
    far.far.compact()
    far.advance(5 * HOUR_MS)
    assert [name.partition("/")[0] for name in files(far)] == ["days"] * 4 + ["landing"]


def test_a_damaged_index_costs_time_and_is_written_anew(
    open_far: OpenFar, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    far = open_far()
    start = far.clock.now_ms()
    for number in range(4):
        far.send(start + (10 + number) * DAY_MS, b"%d" % number, UNIQ_KEY=f"U{number}", KEYS="all")
    land(far)
    [index] = (tmp_path / "far" / "keys").iterdir()
    index.write_bytes(b"PAR1 no index PAR1")
    assert [found.message_id for found in far.find(message_id="U2")] == ["U2"]
    assert [found.message_id for found in far.find(key="all", limit=2)] == ["U0", "U1"]
    assert caplog.text.count("look-ups by key read its files") == 1
    for _ in range(5):
        far.advance(60_000)
    assert far.far.keeper is not None
    assert far.far.held.files.unreadable == {}
    assert not index.exists()
    assert [found.message_id for found in far.find(key_prefix="a")] == ["U0", "U1", "U2", "U3"]
    far.advance(20 * DAY_MS)
    assert len(far.wheel()) == 4


def test_a_key_that_is_too_long_for_the_bounds_of_an_index_is_found(open_far: OpenFar) -> None:
    far = open_far()
    long = "k" * 9_000
    far.send(far.clock.now_ms() + 10 * DAY_MS, UNIQ_KEY="A", KEYS=long)
    far.send(far.clock.now_ms() + 10 * DAY_MS, UNIQ_KEY="B", KEYS="short")
    land(far)
    assert [found.message_id for found in far.find(key=long)] == ["A"]
    assert [found.message_id for found in far.find(key="short")] == ["B"]


# --- questions while files are written ----------------------------------------------------------------------------------


def test_a_page_does_not_wait_for_a_compaction(open_far: OpenFar, tmp_path: Path) -> None:
    second = ArrowTier(str(tmp_path / "far"))
    far = open_far(second_tier=second)
    for key in "AB":
        far.send(far.clock.now_ms() + 10 * DAY_MS, key.encode(), UNIQ_KEY=key)
    land(far)
    publish(far)
    far.far.compact()
    while not far.far_worker.jobs:
        far.store.run_due(far.clock.monotonic_ns())
    answers: list[object] = []
    far.far.find(FarQuery(key=None, message_id="A"), answers.append)
    while far.second_worker.step() or far.worker.step():
        pass
    assert far.far_worker.jobs, "the files are still being written"
    (page,) = answers
    assert isinstance(page, FarPage)
    assert [record.message_id for record in page.records] == ["A"]
    far.advance(HOUR_MS)
    assert [found.message_id for found in far.find(message_id="B")] == ["B"], "and afterwards the first one answers"


def test_a_file_that_goes_while_it_is_read_is_not_missed(open_far: OpenFar, tmp_path: Path) -> None:
    """The second helper is asked about files that are written anew and removed before it looks."""
    far = open_far(second_tier=ArrowTier(str(tmp_path / "far")))
    for number in range(3):
        far.send(far.clock.now_ms() + (10 + number) * DAY_MS, UNIQ_KEY=f"U{number}")
    land(far)
    publish(far)
    before = files(far)
    far.far.compact()
    while not far.far_worker.jobs:
        far.store.run_due(far.clock.monotonic_ns())
    answers: list[object] = []
    far.far.find(FarQuery(), answers.append)
    (job,), far.second_worker.jobs = far.second_worker.jobs, []
    for _ in range(5):
        far.advance(60_000)
    assert not set(before) & set(files(far))
    assert not (tmp_path / "far" / before[0]).exists()
    far.second_worker.jobs.append(job)
    far.work()
    (page,) = answers
    assert isinstance(page, FarPage)
    assert [record.message_id for record in page.records] == ["U0", "U1", "U2"]
    assert far.far.keeper is not None
    assert far.far.held.files.unreadable == {}

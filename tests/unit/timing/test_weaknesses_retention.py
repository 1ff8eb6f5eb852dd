"""Pending messages and retention: T4 and A9, what RocketMQ loses when it removes log files by age or by disk use.

A pending message is put again at the tail of the log before its file goes: once, with its own due time, its identity and
its properties, and nobody sees it early or twice.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreUnwritableError
from orbitmq.limits.timers import RELEASE_BATCH_BYTES_MAX, RELEASE_BATCH_MAX
from orbitmq.protocol.names import QUARANTINE_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, without_property
from orbitmq.store.files import DiskUsage, OsFiles
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.settings import FlushDiskType
from orbitmq.store.store import MessageStore
from orbitmq.testing import EmbeddedBroker
from orbitmq.timing.levels.runs import RUNS_MAX
from orbitmq.timing.restoring import source_of
from orbitmq.timing.rewriting import Rewriting

Reopen = Callable[..., LittleStore]

HOUR_MS = 3_600_000
GIB = 1 << 30
LEVELS = "1s 2s 2h"


class Disk(OsFiles):
    """The operating system's files on a disk of 10 GiB whose use the test decides; every file is as old as it says."""

    def __init__(self) -> None:
        self.total_bytes = 10 * GIB
        self.free_bytes = 9 * GIB
        self.modified = 0

    def disk_usage(self, path: Path) -> DiskUsage:
        return DiskUsage(self.total_bytes, self.total_bytes - self.free_bytes, self.free_bytes)

    def modified_ms(self, path: Path) -> int:
        return self.modified


class Kept:
    """A little store whose files are looked after."""

    def __init__(self, little: LittleStore) -> None:
        self.little = little
        self.store = little.store
        self.rewriting = Rewriting(little.clock, [little.release, little.timers])
        self.rewriting.attach(little.store)
        self.housekeeping = Housekeeping(little.store, little.root, little.files, little.clock, rewriter=self.rewriting)

    @property
    def files(self) -> list[int]:
        """First bytes of the commit log files that are there."""
        return sorted(int(path.name) for path in (self.little.root / "commitlog").iterdir())

    def fill(self, files: int) -> None:
        """Ordinary messages until the log has so many files more."""
        wanted = len(self.store.log.sequence.segments) + files
        while len(self.store.log.sequence.segments) < wanted:
            self.little.send("Filler", body=bytes(1000))

    def clean(self) -> None:
        """Ask for what has expired, and let everything there is to do be done within a second."""
        self.housekeeping.request()
        for _ in range(10):
            self.little.advance(100)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def kept(open_again: Reopen, disk: Disk) -> Kept:
    return Kept(open_again(levels=LEVELS, files=disk))


def deliver(kept: Kept, ms: int = 2 * HOUR_MS) -> list[bytes]:
    kept.little.advance(ms)
    for _ in range(20):
        kept.little.advance(10)
    return kept.little.bodies()


def test_t04_a_pending_message_outlives_the_file_it_was_stored_in(kept: Kept) -> None:
    kept.little.send(body=b"later", level=3, KEYS="k", TAGS="t", UNIQ_KEY="U1", colour="blue")
    due_ms = kept.little.clock.now_ms() + 2 * HOUR_MS
    (before,) = kept.little.records(SCHEDULE_TOPIC, 2)
    kept.fill(3)
    kept.clean()
    assert kept.files == [3 * 16_384], "all files but the one that is written have gone"
    (again,) = kept.little.records(SCHEDULE_TOPIC, 2)
    assert again.physical_offset > before.physical_offset
    assert again.prepared_transaction_offset == source_of(before.physical_offset)
    assert (again.body, again.properties, again.born_timestamp) == (
        before.body,
        before.properties,
        before.born_timestamp,
    )
    assert kept.little.release.pending_count == 1
    assert kept.little.release.next_due_ms == due_ms
    kept.little.advance(due_ms - 1 - kept.little.clock.now_ms())
    assert kept.little.bodies() == [], "never early"
    kept.little.advance(1)
    assert kept.little.bodies() == [b"later"], "and at its own due time"
    (properties,) = kept.little.properties()
    expected = decode_properties(without_property(before.properties, Property.DUE_MS.encode()))
    assert properties == expected
    assert deliver(kept) == [b"later"]
    assert kept.rewriting.rewritten_count == 1


def test_t04_a_timer_outlives_the_file_it_was_stored_in(kept: Kept) -> None:
    little = kept.little
    little.send(body=b"later", after_ms=HOUR_MS + 123, KEYS="k", UNIQ_KEY="U1")
    due_ms = little.clock.now_ms() + HOUR_MS + 123
    (before,) = little.records(TIMER_TOPIC)
    kept.fill(3)
    kept.clean()
    assert kept.files == [3 * 16_384]
    (again,) = little.records(TIMER_TOPIC)
    assert again.prepared_transaction_offset == source_of(before.physical_offset)
    assert (again.body, again.properties, again.queue_offset) == (before.body, before.properties, 1)
    assert little.timers.pending_count == 1
    little.advance(due_ms - 1 - little.clock.now_ms())
    assert little.bodies() == [], "never early"
    little.advance(1)
    assert little.bodies() == [b"later"]
    assert deliver(kept) == [b"later"]
    assert kept.rewriting.rewritten_count == 1


def test_t04_timers_and_levels_of_one_file_are_moved_together(kept: Kept) -> None:
    little = kept.little
    for number in range(12):
        if number % 3 == 0:
            little.send(body=b"%d" % number, level=3)
        else:
            little.send(body=b"%d" % number, after_ms=HOUR_MS - number)
    kept.fill(3)
    kept.clean()
    assert 0 not in kept.files
    assert kept.rewriting.rewritten_count == 12
    timers = [b"%d" % number for number in reversed(range(12)) if number % 3]
    assert deliver(kept, HOUR_MS) == timers, "in the order of due times"
    assert deliver(kept) == [*timers, b"0", b"3", b"6", b"9"]


def test_t04_it_is_moved_as_often_as_its_files_go_and_still_comes_once(kept: Kept) -> None:
    kept.little.send(body=b"later", level=3)
    for _ in range(5):
        kept.fill(2)
        kept.clean()
        assert len(kept.files) == 1
        assert kept.little.release.pending_count == 1
    assert kept.rewriting.rewritten_count == 5
    assert deliver(kept) == [b"later"]


def test_t04_order_within_a_level_stays_and_a_batch_is_one_run(kept: Kept) -> None:
    for number in range(20):
        kept.little.send(body=b"%d" % number, level=3)
        kept.little.clock.advance(7)
    kept.fill(3)
    kept.little.send(body=b"new", level=3)
    kept.clean()
    assert len(kept.files) == 1
    assert len(kept.little.release._levels[3].intervals(100)) == 2, "the newer message, and those that were put again"
    assert deliver(kept) == [b"%d" % number for number in range(20)] + [b"new"]


def test_t04_large_pending_messages_are_moved_in_slices_of_bytes(open_again: Reopen, disk: Disk) -> None:
    kept = Kept(open_again(levels=LEVELS, files=disk, mapped_file_size_commit_log=64 << 20, max_message_size=4 << 20))
    for number in range(6):
        kept.little.append(body=b"%d" % number + bytes(RELEASE_BATCH_BYTES_MAX // 4), level=3)
        kept.little.append(body=b"%d" % number + bytes(RELEASE_BATCH_BYTES_MAX // 4), after_ms=50_000)
    kept.store.commit()
    kept.rewriting.rewrite_below(kept.store.log.end, lambda complete: None)
    seen = []
    for _ in range(20):
        kept.little.turn()
        kept.little.worker.close()
        kept.store.commit()
        seen.append(kept.rewriting.rewritten_count)
        kept.little.clock.advance(20)
    assert max(after - before for before, after in pairwise([0, *seen])) == 3
    assert seen[-1] == 12
    assert len(deliver(kept)) == 12


def test_t04_many_pending_messages_are_moved_in_slices_and_senders_are_served_between(
    open_again: Reopen, disk: Disk
) -> None:
    kept = Kept(open_again(levels=LEVELS, files=disk, mapped_file_size_commit_log=256 * 1024))
    count = RELEASE_BATCH_MAX * 2 + 5
    for number in range(count):
        kept.little.append(body=b"%d" % number, level=3)
    kept.store.commit()
    kept.fill(2)
    kept.housekeeping.request()
    kept.little.advance(0)
    assert kept.rewriting.rewritten_count == RELEASE_BATCH_MAX
    kept.little.send(body=b"sender")
    for _ in range(10):
        kept.little.advance(50)
    assert kept.rewriting.rewritten_count == count
    assert 0 not in kept.files
    assert sorted(deliver(kept)) == sorted([b"sender", *(b"%d" % number for number in range(count))])


def test_t04_what_falls_due_while_it_is_being_moved_comes_once(kept: Kept) -> None:
    kept.little.send(body=b"later", level=3)
    kept.fill(3)
    kept.little.clock.advance(2 * HOUR_MS - 1)
    kept.rewriting.rewrite_below(16_384, lambda complete: None)
    kept.little.clock.advance(1)
    kept.little.turn()
    assert kept.little.bodies() == [], "it is being read, to be put again"
    assert kept.little.release.is_releasing
    assert deliver(kept, 0) == [b"later"]
    assert deliver(kept) == [b"later"]


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_t04_a_file_goes_only_after_what_replaced_its_messages_is_durable(
    open_again: Reopen, disk: Disk, flush: FlushDiskType
) -> None:
    kept = Kept(open_again(levels=LEVELS, files=disk, flush_disk_type=flush))
    kept.little.send(body=b"later", level=3)
    kept.little.worker.close()
    kept.fill(3)
    kept.housekeeping.request()
    synced_when_it_went = None
    for _ in range(200):
        kept.little.clock.advance(10)
        kept.little.turn()
        kept.little.worker.step()
        if 0 not in kept.files:
            synced_when_it_went = kept.store.log.synced_end
            break
    unit = kept.store.queues.get(SCHEDULE_TOPIC, 2).kept_unit(1)  # type: ignore[union-attr]
    assert unit is not None
    assert synced_when_it_went is not None
    assert synced_when_it_went >= unit[0] + unit[1]


class LaggingCopies:
    """A store that is confirmed up to where its copies are."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.confirm_offset = store.confirm_offset

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_t04_a_file_goes_only_after_the_copies_have_what_replaced_its_messages(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.little.send(body=b"later", level=3)
    kept.fill(3)
    copies = kept.housekeeping._store = LaggingCopies(kept.store)  # type: ignore[assignment]
    kept.clean()
    assert kept.rewriting.rewritten_count == 1
    for _ in range(3):
        kept.clean()
        assert 0 in kept.files, "synced here, and nowhere else"
    assert "not confirmed by the copies yet" in caplog.text
    copies.confirm_offset = kept.store.log.end  # type: ignore[attr-defined]
    kept.clean()
    assert 0 not in kept.files
    assert deliver(kept) == [b"later"]


def test_t04_a_kill_in_the_middle_neither_loses_nor_repeats(kept: Kept, open_again: Reopen, disk: Disk) -> None:
    kept.little.send(body=b"later", level=3)
    kept.fill(3)
    kept.rewriting.rewrite_below(16_384, lambda complete: None)
    kept.little.worker.close()  # read and appended; nothing is saved after that
    assert kept.rewriting.rewritten_count == 1
    kept.little.kill()
    again = Kept(open_again(levels=LEVELS, files=disk))
    assert again.little.release.pending_count == 1
    again.clean()
    assert 0 not in again.files
    assert deliver(again) == [b"later"]
    again.little.close()
    last = open_again(levels=LEVELS, files=disk)
    last.advance(2 * HOUR_MS)
    assert last.bodies() == [b"later"]


def test_t04_a_store_that_takes_nothing_is_waited_for(kept: Kept) -> None:
    kept.little.send(body=b"later", level=3)
    kept.fill(3)
    kept.store._writability.stop("space", "the disk is full")
    ended: list[bool] = []
    kept.rewriting.rewrite_below(16_384, ended.append)
    kept.little.advance(0)
    assert kept.rewriting.rewritten_count == 0
    assert kept.rewriting.is_busy
    kept.store.allow("space")
    for _ in range(3):
        kept.little.advance(1_000)
    assert ended == [True]
    assert deliver(kept) == [b"later"]


def test_t04_a_record_that_cannot_be_read_goes_to_quarantine_and_its_file_goes(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    placed = kept.little.send(body=b"damaged", level=3)
    kept.little.send(body=b"sound", level=3)
    kept.fill(3)
    kept.store.log.sequence.segments[0].file.pwrite(b"\xff" * 4, placed.physical_offset + 4)
    kept.clean()
    assert 0 not in kept.files
    assert len(kept.little.records(QUARANTINE_TOPIC)) == 1
    assert kept.rewriting.quarantined_count == 1
    assert "goes to quarantine: its record in the commit log is damaged or gone" in caplog.text
    assert deliver(kept) == [b"sound"]


def test_t04_a_crowded_disk_moves_them_while_senders_are_refused(kept: Kept, disk: Disk) -> None:
    disk.modified = 1 << 60  # nothing has expired
    kept.little.send(body=b"later", level=3)
    kept.fill(3)
    disk.free_bytes = GIB // 2  # 95 % used: full
    kept.housekeeping.look()
    kept.little.worker.close()
    with pytest.raises(StoreUnwritableError, match="the disk is full"):
        kept.little.append()
    for _ in range(20):
        kept.little.advance(1_000)
    assert len(kept.files) == 1
    assert kept.rewriting.rewritten_count == 1
    disk.free_bytes = 9 * GIB
    kept.little.advance(10_000)
    assert kept.store.writable
    assert deliver(kept) == [b"later"]


def test_t04_where_nearly_everything_is_pending_nothing_goes_and_sends_are_refused(kept: Kept, disk: Disk) -> None:
    disk.modified = 1 << 60
    while len(kept.store.log.sequence.segments) < 3:
        kept.little.send(body=bytes(1000), level=3)
    pending = kept.little.release.pending_count
    disk.free_bytes = 3 * GIB // 2 - 200 * 1024 * 1024  # above 85 %: files are forced out
    kept.housekeeping.look()
    kept.little.worker.close()
    with pytest.raises(StoreUnwritableError, match="hold messages still to be delivered"):
        kept.little.append()
    assert len(kept.files) == 3
    assert kept.rewriting.rewritten_count == 0
    assert len(deliver(kept)) == pending, "what is pending is delivered: that is what frees the files"
    kept.little.advance(10_000)
    assert kept.store.writable


def test_t04_sends_may_not_use_the_reserve_and_what_is_pending_may(open_again: Reopen, disk: Disk) -> None:
    kept = Kept(open_again(levels=LEVELS, files=disk))
    kept.little.send(body=b"later", level=1)
    disk.total_bytes, disk.free_bytes = 100_000, 16_383  # less than one file, and not full by the percents
    disk.modified = 1 << 60
    kept.housekeeping.look()
    kept.little.worker.close()
    with pytest.raises(StoreUnwritableError, match="kept for messages that are still to be delivered"):
        kept.little.append()
    assert deliver(kept, 1_000) == [b"later"]


def test_t04_a_level_with_many_runs_waits_so_that_no_message_comes_late(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    clock = kept.little.clock
    for _ in range(RUNS_MAX // 2 + 1):  # each message is due before the one stored before it
        kept.little.send(body=b"x", level=3)
        clock.set_wall(clock.now_ms() - 10)
    kept.fill(3)
    with caplog.at_level(logging.INFO):
        kept.clean()
    assert kept.rewriting.rewritten_count == 0
    assert 0 in kept.files
    assert len(deliver(kept)) == RUNS_MAX // 2 + 1
    assert kept.little.release.squeezed_count == 0
    kept.clean()
    assert 0 not in kept.files


def test_t04_a_message_of_rocketmq_keeps_the_due_time_its_queue_names(
    kept: Kept, clock: ManualClock, open_again: Reopen, disk: Disk
) -> None:
    message = kept.little.message(body=b"theirs", level=3)
    message.properties = without_property(message.properties, Property.DUE_MS.encode())
    kept.store.append(message)
    kept.store.commit()
    due_ms = message.tags_code
    kept.fill(3)
    clock.advance(HOUR_MS)
    kept.clean()
    assert kept.rewriting.rewritten_count == 1
    kept.little.close()
    again = Kept(open_again(levels=LEVELS, files=disk))
    assert again.little.release.next_due_ms == due_ms
    again.little.advance(due_ms - clock.now_ms())
    assert again.little.bodies() == [b"theirs"]


async def cleaned(broker: EmbeddedBroker) -> None:
    """Ask for what has expired until one log file is left."""
    process = broker._server._process
    assert process is not None
    role = process.broker
    assert role is not None

    def one_is_left() -> bool:
        role.housekeeping.request()
        process.clock_moved()
        return len(role.store.log.sequence.segments) == 1

    await broker.run_until(one_is_left, within=timedelta(0))
    assert role.store.log.start > 0


HOUSE = {"fileReservedTime": "0", "mappedFileSizeCommitLog": "65536", "maxMessageSize": "16384"}
"""Everything expires at once, and files are full after a few messages."""

TRAFFIC = random.Random(1).randbytes(8192)
"""Not to be compressed by the client."""


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("days", [2.9, 10])
async def test_t04_timers_outlive_files_and_come_once(days: float, crash: bool) -> None:
    """The wheel reaches three days. What is further away is in the far tier, or rolls where that is not installed."""
    async with EmbeddedBroker(settings=HOUSE) as broker, broker.connect() as mq:
        start = broker.now
        soon, late = start + timedelta(hours=5, milliseconds=7), start + timedelta(days=days, milliseconds=123)
        await mq.send("orders", b"late", at=late, key="k")
        await mq.send("orders", b"soon", at=soon)
        delivered: set[tuple[bytes, int, int, int]] = set()
        while broker.now < late - timedelta(hours=20):
            for _ in range(20):
                await mq.send("traffic", TRAFFIC)
            await broker.advance(timedelta(hours=20))
            delivered |= {
                (one.body, one.store_timestamp, one.queue.queue_id, one.queue_offset)
                for one in await broker.messages("orders")
            }
            await cleaned(broker)  # takes what was delivered as well
            if crash:
                await broker.crash()
        assert [one[:2] for one in delivered] == [(b"soon", int(soon.timestamp() * 1000))]
        assert len(await broker.pending("orders")) == 1
        await broker.advance(late - broker.now - timedelta(milliseconds=1))
        assert await broker.messages("orders") == [], "never early"
        await broker.advance(timedelta(days=3))
        (message,) = await broker.messages("orders")
        assert (message.body, message.keys) == (b"late", ("k",))
        assert message.store_timestamp == int(late.timestamp() * 1000)


@pytest.mark.parametrize("crash", [False, True])
async def test_t04_in_a_whole_broker_days_pass_and_files_go(crash: bool) -> None:
    async with EmbeddedBroker(settings=HOUSE) as broker, broker.connect() as mq:
        start = broker.now
        await mq.send("orders", b"unpaid", delay_level=18)  # 2 hours
        for _ in range(3):
            for _ in range(20):
                await mq.send("traffic", TRAFFIC)
            await broker.advance(timedelta(minutes=30))
            await cleaned(broker)
            if crash:
                await broker.crash()
        assert [message.body for message in await broker.messages("orders")] == []
        await broker.advance(timedelta(minutes=30))
        (message,) = await broker.messages("orders")
        assert message.body == b"unpaid"
        assert message.store_timestamp >= int((start + timedelta(hours=2)).timestamp() * 1000)
        await broker.advance(timedelta(days=3))
        assert len(await broker.messages("orders")) == 1

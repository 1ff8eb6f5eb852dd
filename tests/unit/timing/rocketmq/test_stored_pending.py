"""Checks and figures of a directory say what the broker itself would say, however it ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LITTLE_WHEEL, LittleStore

from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store.check import check_store
from orbitmq.store.files import OsFiles
from orbitmq.store.inspection import StoredQueue, read_sequence
from orbitmq.timing.rocketmq.check import check_timers
from orbitmq.timing.rocketmq.log import UNIT_BYTES
from orbitmq.timing.rocketmq.stat import stat_timers
from orbitmq.timing.rocketmq.stored_pending import stored_pending
from orbitmq.timing.rocketmq.wheel import SLOT_COUNT
from orbitmq.timing.timers.changes import recall

Reopen = Callable[..., LittleStore]
FILES = OsFiles()


@pytest.fixture
def little(open_again: Reopen) -> LittleStore:
    """With a wheel of full length, as the tools expect it."""
    return open_again(wheel={**LITTLE_WHEEL, "slot_count": SLOT_COUNT})


def lived(little: LittleStore) -> int:
    """Messages that were delivered and recalled before and after the last save; how many are pending."""
    for number in range(40):
        little.send(body=b"%d" % number, after_ms=2_000 + number * 400)
    little.advance(6_000)
    for offset in (20, 25, 39):
        record = little.timers.read(offset)
        assert record is not None
        little.timers.change(
            record, recall(record.record, little.clock.now_ms()), wait=False, on_done=lambda status: None
        )
    little.store.commit()
    little.advance(3_000)
    little.send(body=b"late", after_ms=60_000)
    return little.timers.pending_count


def findings(root: Path) -> list[str]:
    return [str(finding) for finding in check_store(root, FILES, timers=check_timers).findings]


def pending_of(root: Path) -> list[int] | None:
    queue = StoredQueue(FILES, root / "consumequeue" / TIMER_TOPIC / "0", TIMER_TOPIC, 0)
    found = stored_pending(FILES, root, read_sequence(FILES, root / "commitlog"), queue)
    return None if found is None else list(found.positions)


def left_to_rocketmq(little: LittleStore) -> None:
    """An orderly stop; what waits is handed over."""
    little.close()


@pytest.mark.parametrize(
    "ending", ["killed", "closed", "killed, and its journal lost", "killed, and its journal damaged"]
)
def test_figures_are_those_of_the_broker(little: LittleStore, tmp_path: Path, ending: str) -> None:
    count = lived(little)
    expected = [little.timers.read(offset).physical_offset for offset in little.timers.pending.offsets()]  # type: ignore[union-attr]
    if ending == "closed":
        left_to_rocketmq(little)
    else:
        little.kill()
    if ending.endswith("lost"):
        (tmp_path / "orbitmq.timers").unlink()
    elif ending.endswith("damaged"):
        (tmp_path / "orbitmq.timers").write_bytes(b"ORBTIME2" + bytes(100))
    assert pending_of(tmp_path) == expected
    stat = stat_timers(tmp_path, FILES, little.clock.now_ms())
    assert stat is not None
    assert stat.pending_count == count
    assert stat.cancelled_count == 0
    assert findings(tmp_path) == []


def test_figures_of_a_broker_that_was_killed_before_its_first_save(little: LittleStore, tmp_path: Path) -> None:
    little.send(body=b"plain")
    for number in range(3):
        little.send(body=b"%d" % number, after_ms=60_000)
    little.kill()
    assert not (tmp_path / "orbitmq.timers").exists()
    stat = stat_timers(tmp_path, FILES, little.clock.now_ms())
    assert stat is not None
    assert (stat.pending_count, stat.overdue_count) == (3, 0)


def test_figures_of_a_broker_that_was_killed_between_journal_and_queue(little: LittleStore, tmp_path: Path) -> None:
    little.send(body=b"plain")
    for number in range(3):
        little.send(body=b"%d" % number, after_ms=60_000)
    little.timers.write()
    little.kill()
    assert (tmp_path / "orbitmq.timers").exists()
    assert not (tmp_path / "consumequeue" / TIMER_TOPIC).exists()
    stat = stat_timers(tmp_path, FILES, little.clock.now_ms())
    assert stat is not None
    assert (stat.pending_count, stat.overdue_count) == (3, 0)


def test_a_store_that_rocketmq_wrote_last_is_judged_by_its_units(little: LittleStore, tmp_path: Path) -> None:
    lived(little)
    left_to_rocketmq(little)
    data = bytearray((tmp_path / "checkpoint").read_bytes())
    data[7] ^= 1  # any other time than ours
    (tmp_path / "checkpoint").write_bytes(data)
    assert pending_of(tmp_path) is None
    assert stat_timers(tmp_path, FILES, little.clock.now_ms()) is not None


def test_without_a_journal_the_units_count(little: LittleStore, tmp_path: Path) -> None:
    lived(little)
    little.close()
    (tmp_path / "orbitmq.timers").unlink()
    assert pending_of(tmp_path) is None


def test_a_pending_message_whose_unit_leads_elsewhere_is_found(little: LittleStore, tmp_path: Path) -> None:
    for number in range(6):
        little.send(body=b"%d" % number, after_ms=60_000 + number)
    little.advance(6_000)
    left_to_rocketmq(little)
    path = tmp_path / "timerlog" / f"{0:020d}"
    sound = path.read_bytes()
    for bit in range(8):
        data = bytearray(sound)
        data[2 * UNIT_BYTES + 35] ^= 1 << bit
        path.write_bytes(data)
        assert any("is pending, and no unit that waits leads to it" in one for one in findings(tmp_path))
    path.write_bytes(sound)
    assert findings(tmp_path) == []


@pytest.mark.parametrize("byte", range(UNIT_BYTES))
def test_every_bit_of_a_unit_that_matters_is_found(little: LittleStore, tmp_path: Path, byte: int) -> None:
    """Write clock and delay only matter as their sum; the due time has to lie in its slot."""
    for number in range(6):
        little.send(body=b"%d" % number, after_ms=60_000 + number)
    little.advance(6_000)
    left_to_rocketmq(little)
    path = tmp_path / "timerlog" / f"{0:020d}"
    sound = path.read_bytes()
    for bit in range(8):
        data = bytearray(sound)
        data[3 * UNIT_BYTES + byte] ^= 1 << bit
        path.write_bytes(data)
        is_due_in_slot = byte >= 50
        assert findings(tmp_path) or is_due_in_slot, f"bit {bit}"


def test_a_wheel_of_nothing_is_found(little: LittleStore, tmp_path: Path) -> None:
    for number in range(6):
        little.send(body=b"%d" % number, after_ms=60_000 + number * 1_000)
    little.advance(6_000)
    left_to_rocketmq(little)
    data = bytearray((tmp_path / "timerwheel").read_bytes())
    place = len(data.rstrip(b"\0")) // 32 * 32
    data[place : place + 32] = bytes(32)
    (tmp_path / "timerwheel").write_bytes(data)
    assert findings(tmp_path)

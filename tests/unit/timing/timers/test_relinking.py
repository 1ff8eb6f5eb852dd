"""Everything that is pending is linked anew in slices, while the broker works: nothing comes twice, nothing early, nothing is lost."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import SMALL_TIMERS, LittleStore

from orbitmq.clock import ManualClock
from orbitmq.timing.timers import recovery, relinking
from orbitmq.timing.timers.changes import recall
from orbitmq.timing.timers.settings import TimerSettings

Reopen = Callable[..., LittleStore]
COUNT = 60
OTHER = TimerSettings(precision_ms=250, log_file_bytes=SMALL_TIMERS.log_file_bytes, slot_count=SMALL_TIMERS.slot_count)


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "LINK_AT_ONCE_MAX", 5)
    monkeypatch.setattr(relinking, "SLICE_RECORDS", 4)


def settle(little: LittleStore) -> None:
    for _ in range(500):
        little.turn()
        little.worker.close()
        next_ns = little.store.deadlines.next_ns
        if next_ns is None or next_ns > little.clock.monotonic_ns():
            return


def filled(little: LittleStore) -> set[bytes]:
    for number in range(COUNT):
        little.send(body=b"%d" % number, after_ms=8_000 + number * 300)
    for offset in (3, 17, 40):
        record = little.timers.read(offset)
        assert record is not None
        little.timers.change(
            record, recall(record.record, little.clock.now_ms()), wait=False, on_done=lambda status: None
        )
    little.store.commit()
    little.clock.advance(6_000)
    settle(little)
    return {b"%d" % number for number in range(COUNT)} - {b"3", b"17", b"40"}


def play(little: LittleStore, wanted: set[bytes]) -> None:
    for _ in range(80):
        little.clock.advance(500)
        settle(little)
    assert sorted(little.bodies()) == sorted(wanted)
    assert little.timers.pending_count == 0
    for record, properties in zip(little.records(), little.properties(), strict=True):
        assert record.store_timestamp >= int(properties["TIMER_DELIVER_MS"])


def test_another_precision_is_taken_up_in_slices(
    little: LittleStore, open_again: Reopen, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = filled(little)
    little.close()
    with caplog.at_level(logging.WARNING):
        again = open_again(timers=OTHER)
        assert "were linked again" not in caplog.text
        again.turn()
        again.send(body=b"new", after_ms=1_000)
        play(again, wanted | {b"new"})
    assert f"{COUNT - 3} timers were linked again" in caplog.text
    late = [
        record.store_timestamp - int(properties["TIMER_DELIVER_MS"])
        for record, properties in zip(again.records(), again.properties(), strict=True)
    ]
    assert max(late) < 500


def test_counts_are_right_while_records_are_linked(little: LittleStore, open_again: Reopen) -> None:
    filled(little)
    little.close()
    again = open_again(timers=OTHER)
    again.turn()
    assert again.timers.pending_count == COUNT - 3
    assert again.timers.linked_count == 0


@pytest.mark.parametrize("turns", range(1, 20, 3))
def test_a_kill_meanwhile_begins_anew(
    little: LittleStore, open_again: Reopen, turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = filled(little)
    little.close()
    again = open_again(timers=OTHER)
    for _ in range(turns):
        again.turn()
    again.send(body=b"new", after_ms=1_000)
    unfinished = again.timers._recovery.relinking is not None
    again.kill()
    with caplog.at_level(logging.WARNING):
        third = open_again(timers=OTHER)
    assert ("that begins anew" in caplog.text) is unfinished
    play(third, wanted | {b"new"})


@pytest.mark.parametrize("turns", [1, 5, 30])
def test_a_stop_meanwhile_begins_anew(little: LittleStore, open_again: Reopen, turns: int) -> None:
    wanted = filled(little)
    little.close()
    again = open_again(timers=OTHER)
    for _ in range(turns):
        again.turn()
    is_finished = again.timers._recovery.relinking is None
    again.close()
    linked = again.timers.checkpoint().last_timer_queue_offset
    assert linked == COUNT + 3 if is_finished else linked < COUNT
    play(open_again(timers=OTHER), wanted)


def test_a_damaged_timer_log_is_made_again_in_slices(little: LittleStore, open_again: Reopen, tmp_path: Path) -> None:
    wanted = filled(little)
    little.close()
    path = tmp_path / "timerlog" / f"{0:020d}"
    path.write_bytes(bytes(path.stat().st_size))
    again = open_again()
    assert again.timers._recovery.relinking is not None
    play(again, wanted)


def test_a_full_disk_only_delays_it(
    little: LittleStore, open_again: Reopen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = filled(little)
    little.close()
    again = open_again(timers=OTHER)
    again.turn()
    link = again.timers._ledger.files.link

    def fails(*_: object, **__: object) -> list[int]:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(again.timers._ledger.files, "link", fails)
    again.clock.advance(100)
    settle(again)
    assert "could not be linked again" in caplog.text
    monkeypatch.setattr(again.timers._ledger.files, "link", link)
    play(again, wanted)


@pytest.mark.parametrize("seed", range(6))
def test_anything_may_happen_meanwhile(tmp_path: Path, seed: int) -> None:
    """New messages, recalls, time, kills and other precisions in any order."""
    chance = random.Random(seed)
    clock = ManualClock()
    little, wanted = LittleStore(tmp_path, clock=clock), set[bytes]()
    for number in range(120):
        match chance.randrange(8):
            case 0:
                little.kill()
                little = LittleStore(tmp_path, clock=clock, timers=chance.choice([OTHER, SMALL_TIMERS]))
            case 1:
                offset = next(little.timers.pending.offsets(chance.randrange(number + 1)), None)
                record = None if offset is None else little.timers.read(offset)
                if record is not None and little.timers.state_of(record.queue_offset).value == "pending":
                    little.timers.change(
                        record, recall(record.record, clock.now_ms()), wait=False, on_done=lambda _: None
                    )
                    little.store.commit()
                    wanted.discard(bytes(record.record.body))
            case 2:
                clock.advance(chance.randrange(1_500))
                little.turn()
            case 3:
                settle(little)
            case _:
                little.send(body=b"%d" % number, after_ms=chance.randrange(100, 20_000))
                wanted.add(b"%d" % number)
    play(little, wanted)

"""A journal that lost its end tells of a time before retention took the records that finished its timers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import QUARANTINE_TOPIC, TIMER_TOPIC
from orbitmq.timing.timers.pending_journal import JOURNAL_FILE


@pytest.mark.parametrize("starts", [1, 2])
def test_nothing_is_pending_again_whose_delivery_is_gone(tmp_path: Path, clock: ManualClock, starts: int) -> None:
    little = LittleStore(tmp_path, clock=clock)
    for _ in range(5):
        little.append(after_ms=1_000)
    little.store.commit()
    little.timers.write()
    old_bytes = (tmp_path / JOURNAL_FILE).stat().st_size
    little.advance(2_000)
    assert len(little.bodies()) == 5
    while len(little.store.log.sequence.segments) < 3:
        little.send(body=bytes(1_000))
    little.send(body=b"kept", after_ms=60_000)
    little.store.remove_paths(little.store.drop_first_segments(2))
    little.advance(6_000)
    little.kill()
    with open(tmp_path / JOURNAL_FILE, "r+b") as file:
        file.truncate(old_bytes)
    little = LittleStore(tmp_path, clock=clock)
    for _ in range(starts - 1):
        assert little.timers.pending_count == 1
        little.kill()
        little = LittleStore(tmp_path, clock=clock)
    assert little.timers.pending_count == 1
    little.advance(60_000)
    assert little.bodies()[-1] == b"kept"
    assert little.records(QUARANTINE_TOPIC) == []
    little.close()


def test_nothing_is_pending_again_that_retention_took_after_its_delivery(tmp_path: Path, clock: ManualClock) -> None:
    """The deliveries are in the log, and name places that no queue tells any more: so many that a file of their queue goes too."""
    little = LittleStore(tmp_path, clock=clock)
    for _ in range(45):
        little.append(after_ms=60_000)
    little.send(body=b"kept", after_ms=120_000)
    while len(little.store.log.sequence.segments) < 3:
        little.send(body=bytes(1_000))
    little.send(body=b"later", after_ms=180_000)
    little.timers.write()
    old_bytes = (tmp_path / JOURNAL_FILE).stat().st_size
    little.advance(60_000)
    little.advance(60_000)
    assert little.timers.pending_count == 1
    little.store.remove_paths(little.store.drop_first_segments(2))
    little.advance(6_000)
    little.kill()
    with open(tmp_path / JOURNAL_FILE, "r+b") as file:
        file.truncate(old_bytes)
    little = LittleStore(tmp_path, clock=clock)
    assert little.timers.pending_count == 1
    assert little.timers.lowest_needed() == little.store.queues.get(TIMER_TOPIC, 0).unit(46)[0]
    little.advance(60_000)
    assert little.bodies()[-1] == b"later"
    assert little.records(QUARANTINE_TOPIC) == []
    little.close()

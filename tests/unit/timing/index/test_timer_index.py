"""The index of a store at work: questions beside sends, and what happens when it fails."""

from __future__ import annotations

import logging
from pathlib import Path
from unittest import mock

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.errors import TimerIndexIncompleteError
from orbitmq.timing.index import gathering, timer_index
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.index.timer_index import TimerIndex

MINUTE_MS = 60_000


def index_of(little: LittleStore) -> TimerIndex:
    assert little.timer_index is not None
    return little.timer_index


def test_topics_that_begin_while_all_is_counted_are_counted(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, index=IndexShape())
    for number in range(40):
        little.append(f"topic{number % 4}", after_ms=MINUTE_MS)
    little.turn()
    index = index_of(little)
    with mock.patch.object(gathering, "CHUNK", 10):
        index._counting.again()
        walk = index._counting.walk()
        next(walk)  # in the middle of the first piece
        for number in range(30):
            little.append(f"new{number}", after_ms=MINUTE_MS)
        little.turn()
        for _ in walk:
            pass
    counted = index.counts()
    assert counted.pending == 70
    assert counted.by_topic["new29"] == 1
    little.close()


def test_an_index_that_fails_stops_neither_sends_nor_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = LittleStore(tmp_path, index=IndexShape(capacity=4, carried=0))
    monkeypatch.setattr(timer_index, "ARRIVALS_PER_STEP", 1)
    with mock.patch.object(timer_index, "seal", side_effect=IndexError("planned")), caplog.at_level(logging.ERROR):
        for _ in range(6):
            little.send("Topic", after_ms=MINUTE_MS)
    assert "the timer index failed" in caplog.text
    with pytest.raises(TimerIndexIncompleteError):
        index_of(little).counts()
    little.advance(timer_index.RETRY_NS // 1_000_000)
    index_of(little).work_off()
    assert index_of(little).counts().pending == 6
    assert len(index_of(little).parts.runs) == 1
    little.close()

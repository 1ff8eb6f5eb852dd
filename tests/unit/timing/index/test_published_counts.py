"""The counts that a RocketMQ broker finds in `config/timermetrics` when it takes a store over."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.faults import RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.store.files import OsFiles
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.index.published_counts import EVERY_MS, PublishedCounts
from orbitmq.timing.timer_files.metrics import TIMER_METRICS_FILE, TimerMetricsFile

FILES = OsFiles()
MINUTE_MS = 60_000


def counts_in(root: Path) -> dict[str, int]:
    table = TimerMetricsFile(FILES, root / "config" / TIMER_METRICS_FILE).load()
    return {topic: count.count for topic, count in table.timing_count.items()}


def hand_over(little: LittleStore) -> None:
    assert little.timer_index is not None
    little.timers.hand_over()
    little.timer_index.hand_over()
    little.store.close()


def test_a_stop_leaves_what_is_pending_by_topic(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, index=IndexShape())
    for _ in range(3):
        little.send("A", after_ms=10 * MINUTE_MS)
    little.send("B", after_ms=1_000)
    little.send("B", after_ms=10 * MINUTE_MS)
    little.advance(2_000)
    hand_over(little)
    assert counts_in(tmp_path) == {"A": 3, "B": 1}


def test_a_store_without_timers_gets_no_file(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, index=IndexShape())
    little.send("A")
    hand_over(little)
    assert not (tmp_path / "config" / TIMER_METRICS_FILE).exists()


def test_saves_write_it_too_but_not_each_of_them(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, index=IndexShape())
    little.send("A", after_ms=100 * MINUTE_MS)
    little.advance(EVERY_MS + 10_000)
    little.send("A", after_ms=100 * MINUTE_MS)
    little.advance(10_000)
    first = counts_in(tmp_path)
    little.send("A", after_ms=100 * MINUTE_MS)
    little.advance(10_000)
    assert counts_in(tmp_path) == first
    little.advance(EVERY_MS)
    little.send("A", after_ms=100 * MINUTE_MS)
    little.advance(10_000)
    assert counts_in(tmp_path) == {"A": 4}
    little.close()


def test_the_form_is_rocketmqs(tmp_path: Path, shared_store: Callable[[str], Any]) -> None:
    """Members and their order as in a file that RocketMQ wrote; the version goes on from it."""
    root, _ = shared_store("timer-clean")
    written = (root / "config" / TIMER_METRICS_FILE).read_bytes()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / TIMER_METRICS_FILE).write_bytes(written)
    theirs = json.loads(written)
    published = PublishedCounts(FILES, tmp_path)
    published.load()
    kept = {topic: count["count"] for topic, count in theirs["timingCount"].items()}
    published.note(kept, 5)
    published.save()
    assert (tmp_path / "config" / TIMER_METRICS_FILE).read_bytes() == written, "nothing is news"

    published.note({"VecT": kept["VecT"] + 7, "VecA": kept["VecA"]}, 1_800_000_000_000)
    published.save()
    ours = json.loads((tmp_path / "config" / TIMER_METRICS_FILE).read_bytes())
    assert list(ours) == list(theirs)
    assert list(ours["dataVersion"]) == list(theirs["dataVersion"])
    assert ours["dataVersion"]["counter"] == theirs["dataVersion"]["counter"] + 1
    assert ours["timingCount"]["VecT"] == {"count": kept["VecT"] + 7, "timeStamp": 1_800_000_000_000}
    assert ours["timingCount"]["VecA"] == theirs["timingCount"]["VecA"], "its time is that of its last change"


def test_a_file_that_cannot_be_read_is_written_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / TIMER_METRICS_FILE).write_bytes(b'{"timingCount":[1]}')
    published = PublishedCounts(FILES, tmp_path)
    with caplog.at_level(logging.WARNING):
        published.load()
    assert "written anew" in caplog.text
    published.note({"A": 1}, 5)
    published.save()
    assert counts_in(tmp_path) == {"A": 1}


def test_a_full_disk_is_reported_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    full = [True]
    files = RecordingFiles(FILES, tmp_path, plan=lambda _: OSError(28, "full") if full[0] else None)
    published = PublishedCounts(files, tmp_path)
    published.note({"A": 1}, 5)
    with caplog.at_level(logging.WARNING):
        published.save()
    assert "not saved" in caplog.text
    full[0] = False
    published.note({"A": 1}, 6)
    published.save()
    assert counts_in(tmp_path) == {"A": 1}

"""`config/timercheck` and `config/timermetrics`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.faults import RecordingFiles

from orbitmq.errors import StoreDamagedError
from orbitmq.protocol.remoting.bodies import TimerMetrics
from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq.checkpoint import TimerCheckpoint, read_timer_checkpoint, write_timer_checkpoint
from orbitmq.timing.rocketmq.metrics import encode_metrics, read_metrics, save_metrics

FILES = OsFiles()
TIMER_STORES = ("timer-clean", "timer-crash", "timer-far")
VALUE = TimerCheckpoint(1_795_265_902_000, 36_400, 744, 743, 0, 1_795_265_902_846, 28)


@pytest.mark.parametrize("name", TIMER_STORES)
def test_the_checkpoint_of_rocketmq(shared_store: Callable[[str], Any], name: str) -> None:
    root, expected = shared_store(name)
    path = root / "config" / "timercheck"
    value = read_timer_checkpoint(FILES, path)
    assert value is not None
    assert {
        "lastReadTimeMs": value.last_read_time_ms,
        "lastTimerLogFlushPos": value.last_timer_log_flush_pos,
        "lastTimerQueueOffset": value.last_timer_queue_offset,
        "masterTimerQueueOffset": value.master_timer_queue_offset,
        "stateVersion": value.state_version,
        "timestamp": value.timestamp,
        "counter": value.counter,
    } == expected["timerCheckpoint"]
    assert value.encode().ljust(4096, b"\0") == path.read_bytes()


def test_a_checkpoint_is_a_page_that_is_written_in_place(tmp_path: Path) -> None:
    files = RecordingFiles(FILES, tmp_path)
    path = tmp_path / "config" / "timercheck"
    write_timer_checkpoint(files, path, TimerCheckpoint(5))
    assert len(path.read_bytes()) == 4096
    write_timer_checkpoint(files, path, VALUE)
    assert [call.size for call in files.calls if call.kind == "write"] == [4096, 56]
    assert read_timer_checkpoint(FILES, path) == VALUE
    assert len(path.read_bytes()) == 4096
    assert TimerCheckpoint.decode(VALUE.encode()) == VALUE


def test_a_short_checkpoint_reads_as_zeros_and_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    path.write_bytes(VALUE.encode()[:20])
    assert read_timer_checkpoint(FILES, path) == TimerCheckpoint(1_795_265_902_000, 36_400, 0)
    write_timer_checkpoint(FILES, path, VALUE)
    assert path.read_bytes() == VALUE.encode().ljust(4096, b"\0")
    assert read_timer_checkpoint(FILES, tmp_path / "none") is None


@pytest.mark.parametrize("name", TIMER_STORES)
def test_the_metrics_of_rocketmq(shared_store: Callable[[str], Any], name: str) -> None:
    root, _ = shared_store(name)
    path = root / "config" / "timermetrics"
    metrics = read_metrics(FILES, path)
    assert metrics.timing_count.keys() == {"VecA", "VecT"}
    assert encode_metrics(metrics) == path.read_bytes()


def test_metrics_are_saved_whole_with_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "config" / "timermetrics"
    assert read_metrics(FILES, path) == TimerMetrics()
    first = TimerMetrics.from_value({"timingCount": {"T\u00e9": {"count": 3, "timeStamp": 5}}})
    save_metrics(FILES, path, first)
    assert path.read_bytes().isascii()
    assert read_metrics(FILES, path) == first
    save_metrics(FILES, path, TimerMetrics())
    assert read_metrics(FILES, path) == TimerMetrics()
    path.write_bytes(b"{")
    assert read_metrics(FILES, path) == first


def test_metrics_of_another_shape_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "timermetrics"
    path.write_bytes(b'{"timingCount":[1]}')
    with pytest.raises(StoreDamagedError, match="counts by topic"):
        read_metrics(FILES, path)

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
from orbitmq.timing.timer_files.checkpoint import TimerCheckpoint, TimerCheckpointFile, read_timer_checkpoint
from orbitmq.timing.timer_files.metrics import TimerMetricsFile, encode_metrics

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


def test_a_checkpoint_is_written_in_place_and_found_again(tmp_path: Path) -> None:
    files = RecordingFiles(FILES, tmp_path)
    path = tmp_path / "timercheck"
    file = TimerCheckpointFile.open(files, path)
    assert file.value == TimerCheckpoint()
    assert path.read_bytes() == bytes(4096)
    file.write(VALUE)
    file.sync()
    calls = len(files.calls)
    file.write(VALUE)
    assert len(files.calls) == calls
    file.close()
    assert TimerCheckpointFile.open(files, path).value == VALUE
    assert len(VALUE.encode()) == 56
    assert TimerCheckpoint.decode(VALUE.encode()) == VALUE


def test_a_short_checkpoint_is_completed_with_zeros(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    path.write_bytes(VALUE.encode()[:20])
    assert read_timer_checkpoint(FILES, path) == TimerCheckpoint(1_795_265_902_000, 36_400, 0)
    TimerCheckpointFile.open(FILES, path).close()
    assert len(path.read_bytes()) == 4096
    assert read_timer_checkpoint(FILES, tmp_path / "none") is None


def test_a_failed_open_leaves_no_descriptor_and_the_error(tmp_path: Path) -> None:
    files = RecordingFiles(FILES, tmp_path, plan=lambda call: OSError(28, "full") if call.kind == "write" else None)
    with pytest.raises(OSError, match="full"):
        TimerCheckpointFile.open(files, tmp_path / "timercheck")


@pytest.mark.parametrize("name", TIMER_STORES)
def test_the_metrics_of_rocketmq(shared_store: Callable[[str], Any], name: str) -> None:
    root, _ = shared_store(name)
    path = root / "config" / "timermetrics"
    metrics = TimerMetricsFile(FILES, path).load()
    assert metrics.timing_count.keys() == {"VecA", "VecT"}
    assert encode_metrics(metrics) == path.read_bytes()


def test_metrics_are_saved_whole_with_a_backup(tmp_path: Path) -> None:
    file = TimerMetricsFile(FILES, tmp_path / "config" / "timermetrics")
    assert file.load() == TimerMetrics()
    first = TimerMetrics.from_value({"timingCount": {"T\u00e9": {"count": 3, "timeStamp": 5}}})
    file.save(first)
    assert (tmp_path / "config" / "timermetrics").read_bytes().isascii()
    assert file.load() == first
    file.save(TimerMetrics())
    assert file.load() == TimerMetrics()
    (tmp_path / "config" / "timermetrics").write_bytes(b"{")
    assert file.load() == first


def test_metrics_of_another_shape_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "timermetrics"
    path.write_bytes(b'{"timingCount":[1]}')
    with pytest.raises(StoreDamagedError, match="counts by topic"):
        TimerMetricsFile(FILES, path).load()

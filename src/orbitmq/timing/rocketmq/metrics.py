"""The file `config/timermetrics`: how many timer messages wait, by real topic.

RocketMQ adds one when a message is linked and takes one off when its slot is read, keeps the sum in this file only, and
lets it drift (cancellations that met nothing, crashes). What is read here is therefore what RocketMQ last believed;
the exact numbers come from the timer log.

Rules of this file
1. Compact JSON in RocketMQ's order of members, ASCII only; topics keep their order.
2. Saving is atomic and durable, and the previous content stays in `timermetrics.bak`. A file that cannot be read is an
   error, never empty; missing is empty.

Source: RocketMQ store format, `timermetrics`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orbitmq.errors import ProtocolError, StoreDamagedError
from orbitmq.protocol.remoting.bodies import DataVersion, TimerCount, TimerMetrics
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import Files

logger = logging.getLogger("orbitmq.timing")

TIMER_METRICS_FILE: Final = "timermetrics"


def read_metrics(files: Files, path: Path) -> TimerMetrics:
    """Counts as last saved, from the backup when the file itself cannot be read; raises StoreDamagedError."""
    try:
        return TimerMetrics.from_value(ConfigFile(files, path).load() or {})
    except ProtocolError as error:
        raise StoreDamagedError(
            f"{path} does not hold counts by topic: {error}",
            remedy="move it away; the counts are made again from the timer log",
        ) from error


def save_metrics(files: Files, path: Path, metrics: TimerMetrics) -> None:
    """Replace the table; durable on return. Blocks. Raises OSError."""
    files.make_dirs(path.parent)
    files.write_atomic(path, encode_metrics(metrics), backup=True)


def encode_metrics(metrics: TimerMetrics) -> bytes:
    """The file's content."""
    version = metrics.data_version
    table = {
        "dataVersion": {
            "counter": version.counter,
            "stateVersion": version.state_version,
            "timestamp": version.timestamp,
        },
        "timingCount": {
            topic: {"count": count.count, "timeStamp": count.time_stamp}
            for topic, count in metrics.timing_count.items()
        },
    }
    return json.dumps(table, separators=(",", ":")).encode()


def write_counts(files: Files, path: Path, by_topic: Mapping[str, int], now_ms: int) -> None:
    """Say how many messages wait for each topic, under a version that only ever grows; a store that never had a file and has nothing
    waiting gets none. Durable on return. Raises OSError."""
    try:
        known = read_metrics(files, path)
    except StoreDamagedError as error:
        logger.warning("%s; it is written anew", error)
        known = TimerMetrics()
    counts = known.timing_count
    if {topic: count.count for topic, count in counts.items()} == dict(by_topic):
        return
    new = {
        topic: counts[topic]
        if topic in counts and counts[topic].count == count
        else TimerCount(count=count, time_stamp=now_ms)
        for topic, count in sorted(by_topic.items())
    }
    version = known.data_version
    save_metrics(
        files,
        path,
        TimerMetrics(
            timing_count=new,
            data_version=DataVersion(
                counter=version.counter + 1, state_version=version.state_version, timestamp=now_ms
            ),
        ),
    )

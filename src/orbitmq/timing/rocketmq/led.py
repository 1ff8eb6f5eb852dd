"""That a master of RocketMQ has led this store, and what it delivered.

Records of RocketMQ name no source, so a copy of its log does not learn from them what they deliver. While it follows, the master says how
far it has come, some seconds late (`delay levels`, `timer checkpoint`); what it delivered since then is looked for in the log when this
broker takes over.

Rules of this file
1. The file `orbitmq.led` is there before anything is believed of such a master, and goes when what it delivered was looked for.
2. A repeat is better than a loss: a delivery counts when it is in this log, and is known by unique key, topic and queue
   (`deliveries_by_rocketmq`, `delivered_by_rocketmq`).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import no_levels
from orbitmq.store.files import Files
from orbitmq.store.recovery import LogScan
from orbitmq.timing.levels.offsets import deliveries_by_rocketmq
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.rocketmq.taking_over import delivered_by_rocketmq
from orbitmq.timing.timers.timers import Timers

logger = logging.getLogger("orbitmq.timing")

LED_FILE: Final = "orbitmq.led"


class LedByRocketMQ:
    """Of one store. `is_so` from the first word of such a master on, until `settle`."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._path = root / LED_FILE
        self.is_so = files.exists(self._path)

    def note(self) -> None:
        """Durable on return. Raises OSError."""
        if not self.is_so:
            self._files.write_atomic(self._path, b"a master of RocketMQ wrote this log\n")
            self.is_so = True

    def settle(self, log: CommitLog, levels: LevelRelease, timers: Timers | None) -> int:
        """This broker takes over, and everything in the log has been applied: finish what RocketMQ delivered; how many were found. Nothing
        is late that is due after the newest record, so only what was due before it is looked for: 20 us each, and the log is read from the
        oldest of it on. Raises OSError."""
        if not self.is_so:
            return 0
        newest_ms = log.last_store_timestamp
        waiting = [physical for _, physical, due_ms in levels.pending_units() if due_ms <= newest_ms]
        units = {} if timers is None else {unit[1]: unit for unit in timers.due_before(newest_ms + 1)}
        count = 0
        if waiting:
            found = deliveries_by_rocketmq(log, sorted(waiting), LogScan(log, min(waiting), no_levels))
            levels.delivered_sources(found)
            count += len(found)
        if timers is not None and units:
            found = delivered_by_rocketmq(log, dict.fromkeys(units, False), LogScan(log, min(units), no_levels))
            count += timers.delivered_elsewhere(units[physical] for physical in found)
        if count:
            logger.info("%d delayed messages were delivered by the master that this broker copied", count)
        self._files.remove(self._path)
        self._files.sync_dir(self._path.parent)
        self.is_so = False
        return count

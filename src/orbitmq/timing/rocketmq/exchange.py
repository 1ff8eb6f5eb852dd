"""The timer files of one store, taken over from RocketMQ or left to it: what the timers are given as their `Exchange`.

Rules of this file
1. In between the files say nothing and the fence is up.
2. Towards the disk of a hand-over: timer log, wheel behind its fence, checkpoint, directories; the fence comes down last.

Source: RocketMQ timer store.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from orbitmq.store.files import Files
from orbitmq.timing.due_time import roll_window
from orbitmq.timing.rocketmq import fence
from orbitmq.timing.rocketmq.checkpoint import (
    TIMER_CHECKPOINT_FILE,
    TimerCheckpoint,
    read_timer_checkpoint,
    write_timer_checkpoint,
)
from orbitmq.timing.rocketmq.handing_over import Slots, Written, write_timer_files
from orbitmq.timing.rocketmq.log import FILE_BYTES, LOG_DIRECTORY
from orbitmq.timing.rocketmq.metrics import TIMER_METRICS_FILE, write_counts
from orbitmq.timing.rocketmq.taking_over import TakeOver
from orbitmq.timing.rocketmq.wheel import SLOT_COUNT, WHEEL_FILE
from orbitmq.timing.timers.exchange import HandOver, TakenOver


class TimerExchange:
    """Times are wall-clock ms."""

    def __init__(
        self,
        files: Files,
        root: Path,
        precision_ms: int,
        roll_window_slots: int,
        slot_count: int = SLOT_COUNT,
        log_file_bytes: int = FILE_BYTES,
    ) -> None:
        self._files = files
        self._root = root
        self._precision_ms = precision_ms
        self._window_slots = min(roll_window(roll_window_slots), slot_count // 2 - 1)
        self._slot_count = slot_count
        self._log_file_bytes = log_file_bytes
        self._is_handed_over = False

    @property
    def exists(self) -> bool:
        """Whether the store has timer files, be it a fence."""
        return self._files.exists(self._root / WHEEL_FILE) or bool(self._files.list_dir(self._root / LOG_DIRECTORY))

    @property
    def is_fenced(self) -> bool:
        """Whether RocketMQ refuses the store."""
        return fence.is_fenced(self._files, self._root)

    def raise_fence(self) -> None:
        """See `fence.raise_fence`."""
        self._is_handed_over = False
        fence.raise_fence(self._files, self._root)

    def lower_fence(self) -> None:
        """Let RocketMQ start. Raises OSError, and RuntimeError when the last `hand_over` did not come to its end."""
        if not self._is_handed_over:
            raise RuntimeError(
                f"the timer files of {self._root} do not say what waits: hand_over comes before lower_fence"
            )
        fence.lower_fence(self._files, self._root)

    # --- taking over --------------------------------------------------------------------------------------------------

    def take_over(self, store: TakenOver) -> None:
        """See `taking_over`."""
        TakeOver(store, self._checkpoint(), self._files, self._root / LOG_DIRECTORY).run()

    def settle_take_over(self, first_pending: int, now_ms: int) -> None:
        """What was taken over is durable elsewhere. Behind the fence, everything from queue offset `first_pending` on counts as not
        linked; then the timer log goes. Raises OSError; what a crash leaves goes with the next `hand_over`."""
        self.raise_fence()
        self._write_checkpoint(Written(0, self._floor(now_ms)), first_pending, now_ms)
        self._remove_log()

    # --- handing over -------------------------------------------------------------------------------------------------

    def hand_over(self, what: HandOver) -> None:
        """Make the files say what waits, behind the fence. Where no record of the timer topic is kept nothing can wait: then there are no
        files but the fence. Raises OSError."""
        self.raise_fence()
        self._remove_log()
        try:
            self._hand_over(what)
        except OSError:
            with contextlib.suppress(OSError):  # what is told is why it failed
                self._take_back()
            raise

    def _take_back(self) -> None:
        """Give the room of what was begun to what has to be saved."""
        self._remove_log()
        file = self._files.open(self._root / WHEEL_FILE)
        try:
            file.truncate(fence.FENCE_BYTES)
        finally:
            file.close()

    def _hand_over(self, what: HandOver) -> None:
        now_ms = self._floor(what.now_ms)
        if what.newest is None:
            if any(piece.places for piece in what.pending):
                raise ValueError("messages wait, and no record of the timer topic is kept")
            written = Written(0, now_ms)
        else:
            oldest_ms = now_ms - self._slot_count // 4 * self._precision_ms
            slots = Slots(self._precision_ms, now_ms, oldest_ms, self._window_slots)
            written = write_timer_files(self._files, self._root, slots, self._slot_count, self._log_file_bytes, what)
        self._write_checkpoint(written, what.next_offset, what.now_ms)
        write_counts(self._files, self._root / "config" / TIMER_METRICS_FILE, what.by_topic, what.now_ms)
        self._files.sync_dir(self._root)
        self._is_handed_over = True

    # --- files --------------------------------------------------------------------------------------------------------

    def _floor(self, time_ms: int) -> int:
        return time_ms - time_ms % self._precision_ms

    def _checkpoint(self) -> TimerCheckpoint:
        path = self._root / "config" / TIMER_CHECKPOINT_FILE
        return read_timer_checkpoint(self._files, path) or TimerCheckpoint()

    def _write_checkpoint(self, written: Written, next_offset: int, now_ms: int) -> None:
        """`next_offset`: records of the timer topic before it are linked."""
        counter = self._checkpoint().counter + 1
        value = TimerCheckpoint(written.read_ms, written.log_end, next_offset, next_offset, 0, now_ms, counter)
        write_timer_checkpoint(self._files, self._root / "config" / TIMER_CHECKPOINT_FILE, value)

    def _remove_log(self) -> None:
        directory = self._root / LOG_DIRECTORY
        if self._files.exists(directory):
            self._files.remove_tree(directory)
            self._files.sync_dir(self._root)

"""What a backup has of a store, by the names of files.

Copied are the log, what is derived of it as far as the recovery mark vouches for it, and what nobody could derive. Made anew are mark
and checkpoint, which have to fit each other, `abort`, since a backup is like a store after a power failure, and the fence before the
timer files of RocketMQ. Left out is what a start makes by itself, and what belongs to RocketMQ's wheel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from orbitmq.broker.idempotence.journal import JOURNAL_FILE as SENT_KEYS_FILE
from orbitmq.broker.table_records.identity import IDENTITY_FILE
from orbitmq.store.known_queues import QUEUES_FILE as KNOWN_QUEUES_FILE
from orbitmq.store.mark import MARK_FILE
from orbitmq.store.reserve import RESERVE_FILE
from orbitmq.store.saving import ABORT_FILE, CHECKPOINT_FILE, LOCK_FILE
from orbitmq.timing.far.state_file import STATE_FILE
from orbitmq.timing.index.directory import INDEX_DIRECTORY
from orbitmq.timing.rocketmq.checkpoint import TIMER_CHECKPOINT_FILE
from orbitmq.timing.rocketmq.led import LED_FILE
from orbitmq.timing.rocketmq.metrics import TIMER_METRICS_FILE
from orbitmq.timing.rocketmq.wheel import WHEEL_FILE
from orbitmq.timing.timers.pending_journal import JOURNAL_FILE as PENDING_FILE

LOG: Final = "commitlog"
QUEUES: Final = "consumequeue"
INDEX: Final = "index"
FAR: Final = "far"

WHOLE_FILES: Final = (IDENTITY_FILE, LED_FILE, SENT_KEYS_FILE, PENDING_FILE)
WHOLE_FOLDERS: Final = ("config", "tls", "namesrv")
"""Tables and settings, keys and certificates, files of a name server in the same process."""

_EXCHANGE: Final = (TIMER_CHECKPOINT_FILE, TIMER_METRICS_FILE)
_KNOWN: Final = frozenset({
    LOG, QUEUES, INDEX, FAR, STATE_FILE, INDEX_DIRECTORY, *WHOLE_FILES, *WHOLE_FOLDERS,
    MARK_FILE, CHECKPOINT_FILE, ABORT_FILE, LOCK_FILE, KNOWN_QUEUES_FILE, RESERVE_FILE, WHEEL_FILE, "timerlog", "aside",
    "consumequeue.removed",
})  # fmt: skip


def is_copied(name: str) -> bool:
    """Whether a file of that name in one of `WHOLE_FOLDERS` is: not what is just being written, nor what is for RocketMQ alone."""
    return not name.endswith(".tmp") and name.removesuffix(".bak") not in _EXCHANGE


def strangers(names: Iterable[str]) -> list[str]:
    """Names in the root of a store that a backup knows nothing of."""
    return sorted(name for name in names if name not in _KNOWN and not name.endswith(".tmp"))


def is_text(path: str) -> bool:
    """Whether a manifest can hold it: a name may be any bytes, and none that anybody of ours chose is no UTF-8."""
    return shown(path) == path


def shown(name: str) -> str:
    """A name as text that can be written anywhere."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def without_gap(bases: Iterable[int], size: int) -> list[int]:
    """Of files of one size that begin at these positions, ascending, the newest that follow each other: retention removes the oldest while
    they are copied."""
    kept: list[int] = []
    for base in sorted(bases, reverse=True):
        if kept and kept[-1] != base + size:
            break
        kept.append(base)
    return kept[::-1]

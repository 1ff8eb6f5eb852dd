"""Looking after an archive, without Spark: merging small files, giving space back, deleting the rows of a key, and counting.

Rules of this file
1. delta-rs does the work, in one commit, and its own check keeps what runs at the same time apart, but for two compactions; a batch of a
   run is not disturbed by it.
2. What the files of an archive under way may need is never removed: nothing younger than the longest batch.
3. On a local disk new files and versions are synced before anything is said to be done.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.fs as fs

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import ARCHIVE_BATCH_MS_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.durable import held, sync, write_failures
from orbitmq.spark.pipelines.archiving.delta_log import DeltaLog
from orbitmq.spark.pipelines.archiving.reached import Reached, reached_of
from orbitmq.spark.pipelines.archiving.storage import check_writable, table_place
from orbitmq.spark.pipelines.archiving.table import check_columns, check_protocol, form_of, opened, table_failures
from orbitmq.spark.pipelines.archiving.tasks import QUARANTINE
from orbitmq.units import HOUR_MS

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from orbitmq.spark.log_files.places import FilePlace

_CLOCK: Final = SystemClock()
_COUNTS: Final = (
    'SELECT topic, "brokerName" AS broker, "queueId" AS queue, count(*) AS rows, count(DISTINCT "queueOffset") AS places, '
    'min("queueOffset") AS first, max("queueOffset") AS last FROM archive GROUP BY topic, "brokerName", "queueId"'
)
_COMPACTING: Final = "_compacting"
"""Below the archive: a directory that one compaction at a time holds. Of two delta-rs commits both, and every row is there twice."""
COUNTED: Final = ("topic", "brokerName", "queueId", "queueOffset")
"""Columns that an archive needs to be counted."""


class QueueCount(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One queue of an archive. next: the first offset that is not archived; None where the archive is of logs, which know positions.
    missing: offsets between the first row and `next` without a row or a line of the quarantine; filters and losses that were allowed leave
    some. twice: rows whose place another one has, which is never right."""

    topic: str
    broker: str
    queue: int
    first: int
    next: int | None
    rows: int
    quarantined: int
    missing: int
    twice: int


def compact(place: str) -> dict[str, int]:
    """Small files of a day become larger ones; how many were read and written. Old ones stay for earlier versions, until `vacuum`.
    StoreLockedError where another one compacts it on this machine."""
    table = _writable(place)
    with held(table_place(place).under(_COMPACTING)):
        before = table.version()
        with table_failures(place):
            table.update_incremental()
            done = table.optimize.compact()
        settle(place, before)
    return {"files_before": done["numFilesRemoved"], "files_after": done["numFilesAdded"]}


def delete_key(place: str, key: str, topic: str | None = None) -> int:
    """Rows that have the key, of one topic or of all; how many. Earlier versions have them until `vacuum` takes their files."""
    if not key or key.split() != [key]:
        raise ConfigurationError(f"{key!r} is no key", remedy="a key has no blanks")
    table = _writable(place)
    check_columns(place, _names(table), ("keys",), "deleting by key")
    which = f"array_has(string_to_array(keys, ' '), {_quoted(key)})"
    if topic is not None:
        which += f" AND topic = {_quoted(topic)}"
    before = table.version()
    with table_failures(place):
        done = table.delete(which)
    settle(place, before)
    return int(done.get("num_deleted_rows", 0))


def vacuum(place: str, older_than_ms: int, *, dry_run: bool = False) -> list[str]:
    """Remove files that no version of that age needs, those of attempts that were never committed among them; their names.

    Versions before then cannot be read any more. ConfigurationError for less than a batch may take, and for a table that may have deletion
    vectors.
    """
    if older_than_ms < ARCHIVE_BATCH_MS_MAX:
        raise ConfigurationError(
            f"a run may be about to commit files that are {older_than_ms / HOUR_MS:g} hours old",
            remedy=f"keep at least {ARCHIVE_BATCH_MS_MAX // HOUR_MS} hours",
        )
    table = _writable(place)
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise ConfigurationError(
            f"another engine may delete rows of {place} by deletion vectors, whose files delta-rs takes for those that nobody needs",
            remedy="vacuum it with that engine, or drop the feature deletionVectors there",
        )
    before = table.version()
    with table_failures(place):
        removed = table.vacuum(
            -(-older_than_ms // HOUR_MS), dry_run=dry_run, enforce_retention_duration=False, full=True
        )
        if not dry_run:
            table.cleanup_metadata()
    root = table_place(place)
    for file in _unnamed(root, _reached(place, table), _CLOCK.now_ms() - older_than_ms):
        removed.append(file)
        if not dry_run:
            with write_failures(root.under(file).name):
                root.file_system.delete_file(root.under(file).path)
    settle(place, before)
    return sorted(removed)


def counts(place: str) -> list[QueueCount]:
    """Offsets against rows of every queue, in order. Every row's place is looked at once."""
    from deltalake import QueryBuilder

    table = opened(place)
    form_of(table, place)
    check_columns(place, _names(table), COUNTED, "counting")
    with table_failures(place):
        found = pa.table(QueryBuilder().register("archive", table).execute(_COUNTS).read_all()).to_pylist()
    reached = _reached(place, table)
    broken = _broken(table_place(place), reached)
    return sorted(_counted(row, reached, broken) for row in found)


def _counted(row: dict[str, Any], reached: Reached, broken: Counter[MessageQueue]) -> QueueCount:
    queue = MessageQueue(row["topic"], row["broker"] or "", row["queue"])
    following = reached.queues.get(queue)
    end = row["last"] + 1 if following is None else following
    return QueueCount(
        topic=queue.topic,
        broker=queue.broker_name,
        queue=queue.queue_id,
        first=row["first"],
        next=following,
        rows=row["rows"],
        quarantined=broken[queue],
        missing=max(0, end - row["first"] - row["places"] - broken[queue]),
        twice=row["rows"] - row["places"],
    )


def _broken(root: FilePlace, reached: Reached) -> Counter[MessageQueue]:
    """Lines of the quarantine by queue; those of a log say no queue."""
    found: Counter[MessageQueue] = Counter()
    for file in reached.quarantined:
        for line in (root.under(file).content() or b"").splitlines():
            said = json.loads(line)
            if "queueOffset" in said:
                found[MessageQueue(said["topic"], said["brokerName"], said["queueId"])] += 1
    return found


def _unnamed(root: FilePlace, reached: Reached, before_ms: int) -> list[str]:
    """Files of the quarantine that belong to no commit and are older than that."""
    selector = fs.FileSelector(root.under(QUARANTINE).path, allow_not_found=True)
    with write_failures(root.under(QUARANTINE).name):
        return [
            name
            for info in root.file_system.get_file_info(selector)
            if (name := f"{QUARANTINE}/{info.base_name}") not in reached.quarantined
            and info.mtime_ns // 1_000_000 < before_ms
        ]


def _names(table: DeltaTable) -> list[str]:
    return [field.name for field in table.schema().fields]


def _writable(place: str) -> DeltaTable:
    check_writable(place)
    table = opened(place)
    form_of(table, place)
    check_protocol(table, place)
    return table


def _reached(place: str, table: DeltaTable) -> Reached:
    return reached_of(DeltaLog(table_place(place)).applications(table.version()))


def settle(place: str, before: int) -> None:
    """What was committed behind that version outlives a power cut on return."""
    root = table_place(place)
    log = DeltaLog(root)
    for version in range(before + 1, opened(place).version() + 1):
        for action in log.actions(version) or ():
            if action.added is not None:
                sync(root.under(action.added.path))
        log.sync(version)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

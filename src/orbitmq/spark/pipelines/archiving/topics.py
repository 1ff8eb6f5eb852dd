"""What is new in topics of a cluster: from where the archive stands in each queue to where the queue ends now.

Rules of this file
1. Ranges of a queue come in order, so an archive that stops between two batches stands at one offset in every queue.
2. What the archive has not and the queue has no more is a loss: an error, or counted where that is allowed.
3. A queue that began anew is always an error: its offsets are in the archive already.
4. Where a queue begins behind its oldest message, as `since` says, that place is noted before its first range: the next run, whatever it
   is told, goes on there.
"""

from __future__ import annotations

from orbitmq.errors import DataLostError
from orbitmq.spark.options import ReadOptions, read_options
from orbitmq.spark.pipelines.archiving.reached import Reached, queue_application
from orbitmq.spark.pipelines.archiving.settings import ArchiveSettings
from orbitmq.spark.pipelines.archiving.tasks import ArchivePlan, QueueWork, TaskPiece
from orbitmq.spark.reading.cluster import cluster_of
from orbitmq.spark.reading.fetching import Fetch, loss_text, report
from orbitmq.spark.reading.offsets import Offsets, losses
from orbitmq.spark.reading.plan import QueueRange, partitions
from orbitmq.spark.reading.retrying import Retrying
from orbitmq.spark.reading.starting import extents_of, resolve, topics_of


class Topics:
    """Topics of a cluster, by name or by pattern."""

    def __init__(self, settings: ArchiveSettings, columns: tuple[str, ...]) -> None:
        """columns: of the files. Raises ConfigurationError."""
        self._options: ReadOptions = read_options(settings.read, streaming=False)
        self._rows = settings.rows_per_file
        self._fetch = Fetch(
            options=self._options,
            names=tuple(dict.fromkeys((*columns, "storeTimestamp"))),
            properties=settings.properties,
        )

    def plan(self, reached: Reached) -> ArchivePlan:
        """What is there now and not in the archive."""
        options = self._options
        doing = f"planning an archive of {options.subscribed} (name server {';'.join(options.name_servers)})"
        found, lost, behind = Retrying(options.retry_timeout_ms).run(doing, lambda: self._ranges(reached))
        pieces = [
            TaskPiece(
                QueueWork(fetch=self._fetch, ranges=part), {queue_application(piece.queue): piece.end for piece in part}
            )
            for part in partitions(found, max_rows=self._rows)
        ]
        return ArchivePlan(
            pieces,
            rows=sum(piece.count for piece in found),
            missing=lost,
            begins={queue_application(queue): offset for queue, offset in behind.items()},
        )

    def _ranges(self, reached: Reached) -> tuple[list[QueueRange], int, Offsets]:
        options = self._options
        cluster = cluster_of(options.name_servers, options.pull_timeout_ms, options.connect)
        topics = topics_of(cluster, options.subscribed)
        extents = extents_of(cluster, options.subscribed, topics)
        places = {queue: offset for queue, offset in reached.queues.items() if queue.topic in topics}
        lost = 0
        behind: Offsets = {}
        for loss in losses(places, extents):
            if loss.present is not None and loss.begin > loss.present.high:
                raise DataLostError(
                    f"{loss_text(loss)}: the queue began anew, and its offsets are in the archive already",
                    may_return=True,
                    remedy="archive the new queue into another directory",
                )
            report(loss_text(loss), fail=options.fail_on_data_loss, may_return=loss.present is None)
            if loss.present is not None:
                lost += loss.present.low - loss.begin
                places[loss.queue] = behind[loss.queue] = loss.present.low
        fresh = {queue: extent for queue, extent in extents.items() if queue not in places}
        first = resolve(cluster, options.starting, fresh, late_is_error=False, fail=options.fail_on_data_loss)
        for queue, place in first.items():
            places[queue] = extents[queue].high if place is None else place
            if place is not None and place > extents[queue].low:
                behind[queue] = place
        found = [
            QueueRange(queue, places[queue], extent.high)
            for queue, extent in extents.items()
            if places[queue] < extent.high
        ]
        return found, lost, behind

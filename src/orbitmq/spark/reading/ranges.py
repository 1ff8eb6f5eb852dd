"""What the options of a batch read mean in a cluster as it is now: a range of offsets for each queue.

Rules of this file
1. Asked once for a read; nothing is retried here.
"""

from __future__ import annotations

from orbitmq.spark.options import ReadOptions
from orbitmq.spark.reading.cluster import cluster_of
from orbitmq.spark.reading.plan import QueueRange
from orbitmq.spark.reading.starting import check_queues, extents_of, resolve, topics_of


def ranges_of(options: ReadOptions) -> list[QueueRange]:
    """One for each queue, also for one in which there is nothing to read."""
    fail = options.fail_on_data_loss
    cluster = cluster_of(options.name_servers, options.pull_timeout_ms, options.connect)
    extents = extents_of(cluster, options.subscribed, topics_of(cluster, options.subscribed))
    check_queues(extents, options.subscribed, options.starting, options.ending)
    start = resolve(cluster, options.starting, extents, late_is_error=options.late_start_is_error, fail=fail)
    end = resolve(cluster, options.ending, extents, late_is_error=False, fail=fail)
    found: list[QueueRange] = []
    for queue, extent in extents.items():
        begin, stop = start[queue], end[queue]
        found.append(QueueRange(queue, extent.high if begin is None else begin, extent.high if stop is None else stop))
    return found

"""How far the archive of a stream is behind its topics.

Rules of this file
1. A queue that the archive has not entered yet counts from its oldest message on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orbitmq.client.addresses import parse_addresses
from orbitmq.limits.spark import REPLAY_TIMEOUT_MS
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.pipelines.archiving.reached import reached_of
from orbitmq.spark.reading.cluster import cluster_of
from orbitmq.spark.reading.offsets import Extent, Offsets

if TYPE_CHECKING:
    from orbitmq.spark.pipelines.archiving.settings import ArchiveSettings


def archive_lags(settings: ArchiveSettings) -> dict[tuple[str, str], int]:
    """Messages by topic, under the empty group; nothing of logs. Asks the cluster and reads the table's log."""
    if settings.store:
        return {}
    from orbitmq.spark.pipelines.archiving.delta_log import DeltaLog
    from orbitmq.spark.pipelines.archiving.storage import table_place
    from orbitmq.spark.pipelines.archiving.table import opened

    cluster = cluster_of(parse_addresses(settings.name_server or ""), REPLAY_TIMEOUT_MS, settings.connect)
    topics = settings.topic or cluster.matching(settings.topic_pattern or "")
    numbers = DeltaLog(table_place(settings.to)).applications(opened(settings.to).version())
    return behind(reached_of(numbers).queues, cluster.extents(topics))


def behind(reached: Offsets, extents: Mapping[MessageQueue, Extent]) -> dict[tuple[str, str], int]:
    """The same of offsets and bounds of queues. Pure."""
    found: Counter[tuple[str, str]] = Counter()
    for queue, extent in extents.items():
        at = max(reached.get(queue, extent.low), extent.low)
        found[queue.topic, ""] += max(extent.high - at, 0)
    return dict(found)

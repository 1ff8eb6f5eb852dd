"""Where reading begins and ends, in offsets, by what the options say and what the queues hold.

Rules of this file
1. Times are asked for once for all queues that need it.
2. A place that a queue does not have is a loss (`failOnDataLoss`); what the option names and the topic has not is an error in any case.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.client.pulling.pull_request import queue_name
from orbitmq.errors import ConfigurationError, RouteNotFoundError
from orbitmq.limits.spark import SPARK_TOPICS_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.options import EARLIEST, LATEST, Bound, ReadOptions, Subscribed
from orbitmq.spark.reading.cluster import Cluster, cluster_of
from orbitmq.spark.reading.fetching import loss_text, report
from orbitmq.spark.reading.offsets import Extent, Loss
from orbitmq.spark.reading.plan import QueueRange

Extents = dict[MessageQueue, Extent]


def topics_of(cluster: Cluster, subscribed: Subscribed) -> tuple[str, ...]:
    """The topics to read now. `RouteNotFoundError` when a pattern matches none, as of a topic that is not there."""
    if subscribed.pattern is None:
        return subscribed.topics
    topics = tuple(cluster.matching(subscribed.pattern))
    if not topics:
        raise RouteNotFoundError(
            f"no topic matches subscribePattern {subscribed.pattern!r}", remedy="see: orbitmq topic list"
        )
    if len(topics) > SPARK_TOPICS_MAX:
        raise ConfigurationError(
            f"subscribePattern {subscribed.pattern!r} matches {len(topics)} topics; at most {SPARK_TOPICS_MAX} are read together",
            remedy="read them by several queries",
        )
    return topics


def extents_of(cluster: Cluster, subscribed: Subscribed, topics: Iterable[str]) -> Extents:
    """Bounds of the queues to read. Of assigned queues those that are there."""
    found = cluster.extents(topics)
    wanted = subscribed.queues
    return found if wanted is None else {queue: extent for queue, extent in found.items() if queue in wanted}


def extents_now(cluster: Cluster, subscribed: Subscribed) -> Extents:
    """Bounds of the queues to read now. A topic that matched a pattern and was deleted meanwhile is none of them."""
    try:
        return extents_of(cluster, subscribed, topics_of(cluster, subscribed))
    except RouteNotFoundError:
        if subscribed.pattern is None:
            raise
        cluster.forget_routes()
        return extents_of(cluster, subscribed, topics_of(cluster, subscribed))


def check_queues(extents: Extents, subscribed: Subscribed, *bounds: Bound) -> None:
    """Raises for queues that options name and that are not there, or are not read."""
    for option, named in (
        ("assign", subscribed.queues or frozenset()),
        *((f"{side}Offsets", bound.queues) for side, bound in zip(("starting", "ending"), bounds, strict=False)),
    ):
        missing = sorted(named - extents.keys())
        if missing:
            raise ConfigurationError(
                f"option {option} names {queue_name(missing[0])}, which this read does not have",
                remedy="its queues are " + ", ".join(queue_name(queue) for queue in sorted(extents)[:20]),
            )


def resolve(
    cluster: Cluster, bound: Bound, extents: Extents, *, late_is_error: bool, fail: bool
) -> dict[MessageQueue, int | None]:
    """The offset of each queue; None where the bound is the end of the queue, whatever that is when it is looked at.

    late_is_error: whether a time after the last message of a queue is an error; else it is the queue's end.
    """
    times_ms: dict[MessageQueue, int] = {}
    for queue in extents:
        time_ms = bound.time_ms(queue)
        if time_ms is not None:
            times_ms[queue] = time_ms
    by_time = cluster.offsets_at(times_ms) if times_ms else {}
    places: dict[MessageQueue, int | None] = {}
    for queue, extent in extents.items():
        if queue in by_time:
            offset = max(by_time[queue], extent.low)
            if offset < extent.high:
                places[queue] = offset
                continue
            if late_is_error:
                raise ConfigurationError(
                    f"{queue_name(queue)} has no message stored at or after {times_ms[queue]}",
                    remedy="begin earlier, or set startingOffsetsByTimestampStrategy=latest",
                )
            places[queue] = None
            continue
        place = bound.place(queue)
        if place == LATEST:
            places[queue] = None
        elif place == EARLIEST:
            places[queue] = extent.low
        else:
            if not extent.low <= place <= extent.high:
                report(loss_text(Loss(queue, place, None, extent)), fail=fail)
            places[queue] = min(max(place, extent.low), extent.high)
    return places


def ranges_of(options: ReadOptions) -> list[QueueRange]:
    """What a batch read means in the cluster as it is now: a range for each queue, also for one in which there is nothing to read."""
    fail = options.fail_on_data_loss
    cluster = cluster_of(options.name_servers, options.pull_timeout_ms, options.connect)
    extents = extents_now(cluster, options.subscribed)
    check_queues(extents, options.subscribed, options.starting, options.ending)
    start = resolve(cluster, options.starting, extents, late_is_error=options.late_start_is_error, fail=fail)
    end = resolve(cluster, options.ending, extents, late_is_error=False, fail=fail)
    found: list[QueueRange] = []
    for queue, extent in extents.items():
        begin, stop = start[queue], end[queue]
        found.append(QueueRange(queue, extent.high if begin is None else begin, extent.high if stop is None else stop))
    return found

"""A stream: which offsets each micro-batch covers.

    initialOffset   places that are fixed: oldest messages, offsets, times
    latestOffset    the end of the next batch; waits a little when nothing is new
    partitions      what lies between two places
    commit          publishes how far the stream is, for people who watch lag

Rules of this file
1. One instance lives as long as the query, on the driver's side; others are made to be pickled. Both hold values, never a connection.
2. `latest` is resolved by the first batch, not by `initialOffset`, which Spark asks again at every start until a batch is committed:
   the queues *enter* with the first batch, which has no rows for them, and Spark's own offset log remembers where. So a crash at any
   moment neither skips nor repeats a message.
3. The ends of all queues are asked for together. While nothing is new the call waits, because Spark calls again at once; a batch is
   never held up by an answer that was kept.
4. What is only for watching, published offsets and the latest ones in reports, never ends a query.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from orbitmq.errors import OrbitError, RouteNotFoundError
from orbitmq.limits.spark import (
    SPARK_BACK_OFF_MS,
    SPARK_BACK_OFF_MS_MAX,
    SPARK_FIRST_LOOK_MS,
    SPARK_IDLE_WAIT_MS,
)
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.carrying import Carried
from orbitmq.spark.reading.batch_reader import planned, rows_of
from orbitmq.spark.reading.cluster import Cluster, cluster_of
from orbitmq.spark.reading.fetching import Fetch, loss_text, report
from orbitmq.spark.reading.offsets import (
    Loss,
    Offsets,
    advance,
    behind,
    check_topics,
    first_there,
    from_checkpoint,
    losses,
    to_checkpoint,
    to_json,
)
from orbitmq.spark.reading.plan import partitions, ranges
from orbitmq.spark.reading.retrying import RetryClock, Retrying
from orbitmq.spark.reading.starting import Extents, check_queues, extents_now, resolve

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

BEHIND_LATEST: Final = "behindLatest"
"""What Kafka's source says in its metrics; a source in Python has none, but its latest offsets are its own."""

log = logging.getLogger("orbitmq.spark")


def behind_latest(position: Offsets, extents: Extents) -> dict[str, Any]:
    """The figures, and `first`: oldest messages of the queues that count from there on, if there are such."""
    first = first_there(position, extents)
    return {**behind(position, extents)._asdict(), **({"first": to_json(first)} if first else {})}


class StreamReader(Carried, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, fetch: Fetch, clock: RetryClock | None = None) -> None:
        self.options = fetch.options
        self.fetch = fetch
        self._clock = clock or RetryClock()
        self._initial: Offsets | None = None
        self._first_queues: frozenset[MessageQueue] = frozenset()
        self._ceiling: Extents | None = None
        self._position: Offsets | None = None
        self._newest: tuple[Extents, int] | None = None
        self._was_there = False
        self._ended_before: dict[MessageQueue, int] = {}
        """When a queue was first seen to end before the place of the stream."""
        self._advanced_ms: int | None = None
        self._published: Offsets = {}
        self._warned: set[Loss] = set()

    # --- Spark asks

    def initialOffset(self) -> dict[str, Any]:
        """Where the stream begins, of the queues whose beginning is an offset; the same at every call of this instance."""
        if self._initial is None:
            self._initial = self._patiently("beginning", self._resolve_initial)
        return to_checkpoint(self._initial)

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing that arrives from now on is read by this run."""
        self._ceiling = self._patiently("looking for what is there", self._extents)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self.options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """The end of the batch that begins at `start`; `start` itself when nothing is new within about a second.

        The limit is shared by backlog. `DataLostError` when what `start` points to is not there, unless failOnDataLoss=false.
        """
        begin = from_checkpoint(self.initialOffset() if start is None else start)
        self._was_there = self._was_there or bool(begin)
        # trigger(once=True) wants all there is, whatever the options say, as with Kafka's source
        rows = self.options.max_rows if limit is None else getattr(limit, "max_rows", None)
        waited_ms, pause_ms = 0, SPARK_FIRST_LOOK_MS
        while True:
            end = self._patiently("looking for new messages", lambda: self._end(begin, rows))
            if end != begin or self._ceiling is not None or waited_ms >= SPARK_IDLE_WAIT_MS:
                break
            self._clock.sleep_ms(pause_ms)
            waited_ms += pause_ms
            pause_ms = min(2 * pause_ms, max(self.options.refresh_ms, SPARK_FIRST_LOOK_MS))
        if end != begin:
            self._advanced_ms = self._clock.now_ms()
        self._position = end
        return to_checkpoint(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the queues, not older than about offsetRefreshMs, and beside the topics BEHIND_LATEST: how far the stream is behind
        them at the end of its batch, and from where on, where that is not its own place. None when they cannot be had at present.
        """
        try:
            newest = self._newest
            if newest is None or self._clock.now_ms() - newest[1] > self.options.refresh_ms:
                self._extents()
        except OrbitError as error:
            log.warning("the latest offsets are not reported: %s", error)
        if self._newest is None:
            return None
        extents = self._newest[0]
        latest = to_json({queue: extent.high for queue, extent in extents.items()})
        if self._position is None or BEHIND_LATEST in latest:  # a topic may have that name
            return dict(latest)
        return {**latest, BEHIND_LATEST: behind_latest(self._position, extents)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What lies between; the same for the same offsets, so that a batch that is run again is the same batch."""
        options = self.options
        found = ranges(from_checkpoint(start), from_checkpoint(end))
        parts = partitions(found, min_partitions=options.min_partitions, max_rows=options.max_partition_rows)
        return planned(self.fetch, parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self.fetch, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Publishes what a batch has finished under the group. Spark says so when it begins the next batch but one."""
        there = {} if self._newest is None else self._newest[0]  # who cannot be told of one queue would be told of none
        changed = {
            queue: offset
            for queue, offset in from_checkpoint(end).items()
            if queue in there and self._published.get(queue) != offset
        }
        try:
            self._cluster().publish(self.options.group, changed)
            self._published.update(changed)
        except OrbitError as error:
            log.warning("the offsets of group %s are not published: %s", self.options.group, error)

    def stop(self) -> None:
        """Connections are the process's; another reader may go on with them."""

    # --- looking

    def _resolve_initial(self) -> Offsets:
        extents = self._extents()
        self._first_queues = frozenset(extents)
        return {queue: place for queue, place in self._places(extents).items() if place is not None}

    def _places(self, extents: Extents) -> dict[Any, int | None]:
        """Where each queue begins at the first start; None for those that begin at their end."""
        options = self.options
        check_queues(extents, options.subscribed, options.starting)
        return resolve(
            self._cluster(),
            options.starting,
            extents,
            late_is_error=options.late_start_is_error,
            fail=options.fail_on_data_loss,
        )

    def _end(self, begin: Offsets, rows: int | None) -> Offsets:
        """The end of a batch by what the queues hold now."""
        extents, lost = self._looked(begin)
        self._check_topics(begin, extents)
        for loss in lost:
            self._report(loss)
        entering = {queue: extent for queue, extent in extents.items() if queue not in begin}
        entries: Offsets = {}
        if entering:
            # The options speak of queues that were there when the stream was started; a later one is read from its oldest message on.
            named = {queue: extent for queue, extent in extents.items() if queue in self._first_queues}
            places = self._places(named) if begin == self._initial and entering.keys() & named.keys() else {}
            for queue, extent in entering.items():
                place = places.get(queue, extent.low)
                entries[queue] = extent.high if place is None else place
        end = advance(begin, extents, entries, rows)
        return begin if self._too_few(begin, end) else end

    def _too_few(self, begin: Offsets, end: Offsets) -> bool:
        """Whether the batch waits for more rows (minOffsetsPerTrigger)."""
        wanted = self.options.min_rows
        if wanted is None or self._ceiling is not None or self._advanced_ms is None or end.keys() != begin.keys():
            return False
        rows = sum(max(offset - begin[queue], 0) for queue, offset in end.items())
        waited_ms = self._clock.now_ms() - self._advanced_ms
        return 0 < rows < wanted and waited_ms < self.options.max_delay_ms

    def _check_topics(self, begin: Offsets, extents: Extents) -> None:
        """A topic that matches the pattern and is gone is one of this stream all the same."""
        subscribed = self.options.subscribed
        topics = {queue.topic for queue in extents} or set(subscribed.topics)
        if subscribed.pattern is not None:
            matches = re.compile(subscribed.pattern).fullmatch
            topics |= {queue.topic for queue in begin if matches(queue.topic)}
        check_topics(begin, topics)

    def _looked(self, begin: Offsets) -> tuple[Extents, list[Loss]]:
        """What the queues hold, and what of it is lost.

        A queue that ends before the stream's place is looked at again for `retryTimeoutMs`: a slave that lags may have answered in its
        master's stead, and a loss would end the query, or have the whole queue read again.
        """
        extents = self._extents() if self._ceiling is None else self._ceiling
        pause_ms = SPARK_BACK_OFF_MS
        while True:
            lost = losses(begin, extents)
            now_ms = self._clock.now_ms()
            self._ended_before = {
                loss.queue: self._ended_before.get(loss.queue, now_ms) for loss in lost if loss.ends_before
            }
            since_ms = max(self._ended_before.values(), default=None)
            left_ms = 0 if since_ms is None else since_ms + self.options.retry_timeout_ms - now_ms
            if left_ms <= 0:
                break
            self._clock.sleep_ms(min(pause_ms, left_ms))
            pause_ms = min(2 * pause_ms, SPARK_BACK_OFF_MS_MAX)
            self._cluster().forget_routes()
            extents = self._extents()
        if self._ceiling is not None:
            self._ceiling = extents
        return extents, lost

    def _report(self, loss: Loss) -> None:
        if loss in self._warned:
            return
        if not self.options.fail_on_data_loss:
            self._warned.add(loss)
        report(loss_text(loss), fail=self.options.fail_on_data_loss, may_return=loss.present is None)

    def _extents(self) -> Extents:
        found = extents_now(self._cluster(), self.options.subscribed)
        self._newest = (found, self._clock.now_ms())
        return found

    def _cluster(self) -> Cluster:
        return cluster_of(self.options.name_servers, self.options.pull_timeout_ms, self.options.connect)

    def _patiently(self, doing: str, action: Callable[[], T]) -> T:
        options = self.options
        what = options.subscribed.pattern or ", ".join(options.subscribed.topics)

        def attempt() -> T:
            try:
                return action()
            except OrbitError:
                self._cluster().forget_routes()
                raise

        # then a name server that knows no such topic has just been started
        seen = self._newest is not None or self._was_there
        return Retrying(options.retry_timeout_ms, self._clock, also=(RouteNotFoundError,) if seen else ()).run(
            f"{doing} in topic {what} (name server {';'.join(options.name_servers)})", attempt
        )

"""How far online consumer groups are behind: messages and ages, per group and topic.

Source: RocketMQ 5, consumer lag metrics: the maximum offset less the committed one, over the read queues; a queue without a
committed offset counts no lag; groups that are offline are not listed.

Rules of this file
1. A walk over all groups is one generator; whoever drives it lets other work through between two steps.
2. The oldest of several messages is the one with the lowest log position: the log is in order of store times.
3. Groups that broadcast keep their offsets themselves and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from orbitmq.broker.broker import Broker
from orbitmq.protocol.names import RETRY_PREFIX, is_system_group
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, Metric, Sample
from orbitmq.telemetry.store_times import StoreTimes


class Lag(msgspec.Struct, gc=False):
    """One group on one topic. The positions are those of the oldest message not committed and not pulled."""

    group: str
    topic: str
    is_system: bool
    behind: int = 0
    in_flight: int = 0
    ready: int = 0
    uncommitted_at: int | None = None
    unpulled_at: int | None = None

    def labels(self) -> tuple[str, ...]:
        is_retry = self.topic.startswith(RETRY_PREFIX)
        return (self.group, self.topic, _flag(is_retry), _flag(self.is_system))


class ConsumerLag:
    """The lags of one broker as of the last walk."""

    def __init__(self, broker: Broker, times: StoreTimes) -> None:
        self._broker = broker
        self._times = times
        self._lags: list[Lag] = []

    def walk(self) -> Iterator[None]:
        """Look at every online group; a step is one topic of one group. Costs about 2 us a message queue."""
        broker = self._broker
        self._lags = lags = []
        for group in broker.clients.consumers():
            if group.is_broadcasting:
                continue
            for topic in sorted(group.subscriptions):
                lag = self._look(group.name, topic)
                if lag is not None:
                    lags.append(lag)
                yield

    def _look(self, group: str, topic: str) -> Lag | None:
        broker, store = self._broker, self._broker.store
        config = broker.topics.get(topic)
        if config is None:
            return None
        lag = Lag(group, topic, broker.topics.is_system(topic) or is_system_group(group))
        for queue_id in range(config.read_queue_nums):
            committed = broker.offsets.query(group, topic, queue_id)
            queue = store.queues.get(topic, queue_id)
            if committed is None or queue is None:
                continue
            end = queue.max_offset
            pulled = max(committed, min(broker.offsets.pull_offset(group, topic, queue_id), end))
            if committed >= end:
                continue
            lag.behind += end - committed
            lag.in_flight += min(pulled, end) - committed
            lag.ready += max(end - pulled, 0)
            first = queue.unit(max(committed, queue.min_offset))
            if first is not None and (lag.uncommitted_at is None or first[0] < lag.uncommitted_at):
                lag.uncommitted_at = first[0]
            unpulled = queue.unit(max(pulled, queue.min_offset))
            if unpulled is not None and (lag.unpulled_at is None or unpulled[0] < lag.unpulled_at):
                lag.unpulled_at = unpulled[0]
        for position in (lag.uncommitted_at, lag.unpulled_at):
            if position is not None:
                self._times.want(position)
        return lag

    def families(self) -> Iterator[Family]:
        """The metrics of the last walk."""
        lags = self._lags
        now_ms = self._broker.clock.now_ms()
        yield Family(catalogue.LAG_MESSAGES, (Sample(lag.labels(), lag.behind) for lag in lags))
        yield Family(catalogue.INFLIGHT, (Sample(lag.labels(), lag.in_flight) for lag in lags))
        yield Family(catalogue.READY, (Sample(lag.labels(), lag.ready) for lag in lags))
        yield self._ages(catalogue.LAG_LATENCY, [(lag, lag.uncommitted_at) for lag in lags], now_ms)
        yield self._ages(catalogue.QUEUEING_LATENCY, [(lag, lag.unpulled_at) for lag in lags], now_ms)

    def _ages(self, metric: Metric, positions: list[tuple[Lag, int | None]], now_ms: int) -> Family:
        """Ages of the messages at the positions; 0 where there is none, no sample where it could not be read."""
        samples = []
        for lag, position in positions:
            if position is None:
                samples.append(Sample(lag.labels(), 0))
            elif (stored_ms := self._times.get(position)) is not None:
                samples.append(Sample(lag.labels(), max(now_ms - stored_ms, 0)))
        return Family(metric, samples)


def _flag(value: bool) -> str:
    return "true" if value else "false"

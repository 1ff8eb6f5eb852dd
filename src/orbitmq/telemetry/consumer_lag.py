"""How far consumer groups are behind: messages and ages, per group and topic.

Source: RocketMQ 5, consumer lag metrics: the maximum offset less the committed one, over the read queues; a queue without a
committed offset counts no lag, unless the group has no members and the first message of the queue is there: its service died before it
came to that queue, and begins it with that message. Where a group pops, the lag is what is popped and not settled, and what no pop has
reached; its retry topic is a series of its own under the name of the topic. RocketMQ lists groups with members only; here every group
with an offset is, because a service that died is behind as well.

Rules of this file
1. A walk over all groups is one generator; whoever drives it lets other work through between two steps.
2. The oldest of several messages is the one with the lowest log position: the log is in order of store times.
3. Groups that broadcast keep their offsets themselves and are left out. So are, without members, those of the broker itself and of
   tools, which never have any; what the broker does under them other metrics tell.
4. A broker that copies another's log tells of groups with members there alone: the other one tells the rest.
5. Groups with members come first, however many offsets others left behind; the work for the rest is bounded, and what it leaves
   out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from orbitmq.broker.broker import Broker
from orbitmq.broker.offsets import SEPARATOR
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.limits.server import LAG_QUEUES_WITHOUT_MEMBERS_MAX
from orbitmq.protocol.names import RETRY_PREFIX, is_system_group, is_users_group, retry_topic
from orbitmq.protocol.pop_receipts import RETRY_SOURCES, pop_retry_topic
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, Metric, Sample, one
from orbitmq.telemetry.store_times import StoreTimes


class Lag(msgspec.Struct, gc=False):
    """One group on one topic. The positions are those of the oldest message not committed and not pulled."""

    group: str
    topic: str
    """Of a retry topic of POP, the topic that its messages were popped of."""
    is_retry: bool
    is_system: bool
    is_online: bool
    """Whether the group has members."""
    behind: int = 0
    in_flight: int = 0
    ready: int = 0
    uncommitted_at: int | None = None
    unpulled_at: int | None = None

    def labels(self) -> tuple[str, ...]:
        return (self.group, self.topic, _flag(self.is_retry), _flag(self.is_system), _flag(self.is_online))


class ConsumerLag:
    """The lags of one broker as of the last walk."""

    def __init__(self, broker: Broker, times: StoreTimes) -> None:
        self._broker = broker
        self._times = times
        self._lags: list[Lag] = []
        self._queue_count = 0
        self.left_out = 0
        """Pairs of group and topic at which the last walk did not look: it had seen enough queues of groups without members."""

    def walk(self) -> Iterator[None]:
        """Look at every group; a step is one topic of one group. Costs about 2 us a message queue."""
        broker = self._broker
        self._lags = []
        self.left_out = 0
        looked_at: set[tuple[str, str]] = set()
        for group in broker.clients.consumers():
            for topic in sorted(group.subscriptions):
                looked_at.add((group.name, topic))
                if not group.is_broadcasting:
                    self._look(group.name, topic, is_online=True)
                yield
        if broker.store.is_copy:
            return
        self._queue_count = 0
        keys = broker.offsets.recorded_keys()
        for number, key in enumerate(keys):
            if self._queue_count >= LAG_QUEUES_WITHOUT_MEMBERS_MAX:
                self.left_out = len(keys) - number
                return
            topic, _, name = key.partition(SEPARATOR)
            topic = _popped_of(topic, name)
            if (name, topic) not in looked_at and is_users_group(name):
                looked_at.add((name, topic))
                self._look_at_offsets(name, topic)
            yield

    def _look_at_offsets(self, name: str, topic: str) -> None:
        """Add the lags of a group on a topic that is in none of its members' subscriptions. Where members subscribe to others, the
        group has done with this one; where they subscribe to nothing, they take queues by hand."""
        group = self._broker.clients.consumer(name)
        if group is None or not (group.is_broadcasting or group.subscriptions):
            self._look(name, topic, is_online=group is not None)

    def _look(self, group: str, topic: str, *, is_online: bool) -> None:
        """Add the lags of a group on a topic, and on its retry topics of POP."""
        is_system = self._broker.topics.is_system(topic) or is_system_group(group)
        retries = [pop_retry_topic(group, topic, source) for source in RETRY_SOURCES]
        self._add_topics(Lag(group, topic, topic.startswith(RETRY_PREFIX), is_system, is_online), [topic])
        self._add_topics(Lag(group, topic, True, is_system, is_online), retries)

    def _add_topics(self, lag: Lag, topics: list[str]) -> None:
        """Add the lag on those of the topics that exist; none where none does."""
        configs = [config for topic in topics if (config := self._broker.topics.get(topic)) is not None]
        for config in configs:
            self._queue_count += config.read_queue_nums
            for queue_id in range(config.read_queue_nums):
                self._add(lag, PopQueue(config.topic_name, lag.group, queue_id))
        for position in (lag.uncommitted_at, lag.unpulled_at):
            if position is not None:
                self._times.want(position)
        if configs:
            self._lags.append(lag)

    def _add(self, lag: Lag, key: PopQueue) -> None:
        """Add the lag of one queue."""
        broker, (topic, group, queue_id) = self._broker, key
        committed = broker.offsets.query(group, topic, queue_id)
        queue = broker.store.queues.get(topic, queue_id)
        if committed is None and queue is not None and (topic != lag.topic or not (lag.is_online or queue.min_offset)):
            # What came back to POP is for this group alone; of the topic itself a member begins with the first message where that is there.
            committed = queue.min_offset
        if committed is None or queue is None:
            return
        end = queue.max_offset
        pulled = max(committed, min(broker.offsets.pull_offset(group, topic, queue_id), end))
        taken, oldest = pulled - committed, committed
        popped = broker.rooms.pops.in_flight.queues.get(key)
        if popped is not None:
            pulled = max(popped.next_offset, committed)
            taken, oldest = popped.count, pulled if (first := popped.first) is None else first
        ready = max(end - pulled, 0)
        if ready or taken > 0:
            lag.behind += taken + ready
            lag.in_flight += taken
            lag.ready += ready
            lag.uncommitted_at = _lower(lag.uncommitted_at, queue.unit(max(oldest, queue.min_offset)))
            lag.unpulled_at = _lower(lag.unpulled_at, queue.unit(max(pulled, queue.min_offset)))

    def families(self) -> Iterator[Family]:
        """The metrics of the last walk."""
        lags = self._lags
        now_ms = self._broker.clock.now_ms()
        yield one(catalogue.LAG_LEFT_OUT, self.left_out)
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


def _lower(position: int | None, unit: tuple[int, int, int] | None) -> int | None:
    """The lower one of a position and that of a unit."""
    if unit is None:
        return position
    return unit[0] if position is None else min(position, unit[0])


def _popped_of(topic: str, group: str) -> str:
    """The topic that a group popped what lies in a retry topic of; any other topic as it is."""
    if not topic.startswith(RETRY_PREFIX):
        return topic
    rest = topic.removeprefix(retry_topic(group))
    return rest[1:] if rest[:1] in ("_", "+") else topic


def _flag(value: bool) -> str:
    return "true" if value else "false"

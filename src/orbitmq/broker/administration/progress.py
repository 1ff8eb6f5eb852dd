"""How far consumer groups have come: 208 and 317 in offsets, 303 in time; and 314, 308 about their offsets.

Rules of this file
1. A group's queues are the read queues of the topic. An offset that is missing counts as 0.
2. Unlike RocketMQ, 308 only answers: the offsets of the groups that it names are not deleted.

Source: RocketMQ remoting, consumer inspection and offset administration; broker, admin requests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import datetime
from operator import itemgetter

from orbitmq.broker.clients import ClientRegistry
from orbitmq.broker.counting.statistics import Statistics
from orbitmq.broker.counting.traffic import MINUTE
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.refusal import Refusal, group_missing, topic_missing
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import Clock
from orbitmq.limits.broker import CONSUME_STATS_QUEUES_MAX
from orbitmq.protocol.names import retry_topic
from orbitmq.protocol.remoting.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    MessageQueue,
    OffsetProgress,
    QueueTimeSpan,
    TopicConfig,
)
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.store import MessageStore

AHEAD = (1 << 63) - 1
"""What 308 reports for a queue on which the compared group lags behind all others."""


class ProgressProcessor:
    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientRegistry,
        store: MessageStore,
        statistics: Statistics,
        clock: Clock,
        *,
        address: str,
    ) -> None:
        """`address` is where clients reach this broker, `ip:port`."""
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._store = store
        self._statistics = statistics
        self._clock = clock
        self._address = address

    # --- in offsets -------------------------------------------------------------------------------------------------

    def of_group(self, command: Command, peer: Peer) -> Command:
        """Per message queue: where the log ends, where the group stands, and when what it consumed last was stored."""
        group, topic = command.text("consumerGroup"), command.text("topic")
        if listed := _listed(command):
            names: Iterable[str] = listed
        else:
            names = [topic, retry_topic(group)] if topic else self._offsets.topics_of(group)
            online = self._clients.consumer(group)
            if online is not None:
                names = [name for name in names if name in online.subscriptions]
        stats = ConsumeStats()
        for name in dict.fromkeys(names):
            config = self._topics.get(name)
            if config is not None:
                stats.offset_table.update(self._queues(group, config))
                stats.consume_tps += self._rate(group, name)
        return response(command, ResponseCode.SUCCESS, None, None, stats.encode())

    def topics_of_group(self, command: Command) -> list[str]:
        """The topics that `of_group` tells of beyond those that the request names."""
        if command.text("topic") or _listed(command):
            return []
        return self._offsets.topics_of(command.text("consumerGroup"))

    def of_all(self, command: Command, peer: Peer) -> Command:
        """The same for every group with offsets, one entry per topic (317); with `isOrder` only ordered topics.

        Topics that an online group does not subscribe to any more are left out.
        """
        only_ordered = command.boolean("isOrder")
        body = ConsumeStatsList(broker_addr=self._address)
        queue_count = 0
        for group, pairs in itertools.groupby(self._offsets.pairs(), itemgetter(0)):
            online = self._clients.consumer(group)
            entries: list[ConsumeStats] = []
            for _, topic in pairs:
                config = self._topics.get(topic)
                if config is None or (only_ordered and not config.order):
                    continue
                if online is not None and online.subscriptions and topic not in online.subscriptions:
                    continue
                queue_count += config.read_queue_nums
                if queue_count > CONSUME_STATS_QUEUES_MAX:
                    raise Refusal(
                        ResponseCode.SYSTEM_ERROR,
                        f"the groups of this broker have offsets on more than {CONSUME_STATS_QUEUES_MAX} message queues; "
                        "ask for one group at a time",
                    )
                stats = ConsumeStats(offset_table=self._queues(group, config), consume_tps=self._rate(group, topic))
                for one in stats.offset_table.values():
                    body.total_diff += one.broker_offset - one.consumer_offset
                    body.total_inflight_diff += one.pull_offset - one.consumer_offset
                entries.append(stats)
            if entries:
                body.consume_stats_list.append({group: entries})
        return response(command, ResponseCode.SUCCESS, None, None, body.encode())

    def _queues(self, group: str, config: TopicConfig) -> dict[MessageQueue, OffsetProgress]:
        topic = config.topic_name
        return {
            self._queue(topic, queue_id): self._progress(group, topic, queue_id)
            for queue_id in range(config.read_queue_nums)
        }

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetProgress:
        end = self._store.max_offset(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id) or 0
        last_ms = self._store.store_time_at(topic, queue_id, consumed - 1) if consumed > 0 else 0
        return OffsetProgress(
            broker_offset=end,
            consumer_offset=consumed,
            pull_offset=max(consumed, self._offsets.pull_offset(group, topic, queue_id)),
            last_timestamp=max(last_ms, 0),
        )

    def _rate(self, group: str, topic: str) -> float:
        """Messages a second that the group got from the topic over the last minute."""
        counter = self._statistics.groups.get(f"{topic}@{group}")
        if counter is None:
            return 0.0
        gained = counter.within(MINUTE, self._clock.monotonic_ns())
        return gained.count / gained.seconds

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self._settings.broker_name, queue_id=queue_id)

    # --- in time ----------------------------------------------------------------------------------------------------

    def time_spans(self, command: Command, peer: Peer) -> Command:
        """Per queue the store times of the first and last message and of what was consumed last, and how long the next
        one has been waiting (303)."""
        topic, group = command.text("topic"), command.text("group")
        config = self._topics.get(topic)
        if config is None:
            raise topic_missing(topic)
        now_ms = self._clock.now_ms()
        spans = [self._time_span(group, topic, queue_id, now_ms) for queue_id in range(config.read_queue_nums)]
        return response(
            command, ResponseCode.SUCCESS, None, None, ConsumeTimeSpans(consume_time_span_set=spans).encode()
        )

    def _time_span(self, group: str, topic: str, queue_id: int, now_ms: int) -> QueueTimeSpan:
        store = self._store
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        first_ms = store.store_time_at(topic, queue_id, low)
        last_ms = store.store_time_at(topic, queue_id, high - 1)
        consumed = self._offsets.query(group, topic, queue_id) or 0
        consumed_ms = store.store_time_at(topic, queue_id, consumed - 1) if consumed > 0 else first_ms
        waiting_ms = store.store_time_at(topic, queue_id, max(consumed, low)) if consumed < high else -1
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first_ms,
            max_time_stamp=last_ms,
            consume_time_stamp=consumed_ms,
            delay_time=now_ms - waiting_ms if waiting_ms >= 0 else 0,
            min_time_stamp_str=_instant(first_ms),
            max_time_stamp_str=_instant(last_ms),
            consume_time_stamp_str=_instant(consumed_ms),
        )

    # --- comparing and copying --------------------------------------------------------------------------------------

    def correction(self, command: Command, peer: Peer) -> Command:
        """The smallest offset of all groups but some, per queue of a topic (308); where the compared group lags behind it,
        `AHEAD`. Offsets of messages that are gone do not count."""
        topic, compared = command.text("topic"), command.text("compareGroup")
        left_out = {name for name in command.text("filterGroups").split(",") if name}
        smallest: dict[int, int] = {}
        for group in self._offsets.groups_of(topic):
            if group in left_out:
                continue
            for queue_id, offset in self._offsets.queues(group, topic).items():
                if offset >= self._store.min_offset(topic, queue_id):
                    smallest[queue_id] = min(smallest.get(queue_id, offset), offset)
        for queue_id, offset in self._offsets.queues(compared, topic).items():
            if smallest.get(queue_id, AHEAD) > offset:
                smallest[queue_id] = AHEAD
        body = CorrectionOffsets(correction_offsets=dict(sorted(smallest.items())))
        return response(command, ResponseCode.SUCCESS, None, None, body.encode())

    def topics_cloned(self, command: Command) -> list[str]:
        """The topics whose offsets `clone` copies; those of a request that names none are all of the source."""
        topic = command.text("topic")
        return [topic] if topic.strip() else self._offsets.topics_of(command.text("srcGroup"))

    def clone(self, command: Command, peer: Peer) -> Command:
        """Give one group the offsets of another (314): of one topic, or of all when none is named. Where a topic is missing nothing
        is changed."""
        source, target, names = command.text("srcGroup"), command.text("destGroup"), self.topics_cloned(command)
        if self._groups.get(target) is None:
            raise group_missing(target)
        for name in names:
            if self._topics.get(name) is None:
                raise topic_missing(name)
        for name in names:
            for queue_id, offset in dict(self._offsets.queues(source, name)).items():
                self._offsets.commit(target, name, queue_id, offset)
        return response(command, ResponseCode.SUCCESS)


def _listed(command: Command) -> list[str]:
    return [name for name in command.text("topicList").split(";") if name]


def _instant(time_ms: int) -> str | None:
    """A time as RocketMQ's tools print it, in the machine's zone; None for none."""
    if time_ms < 0:
        return None
    return f"{datetime.fromtimestamp(time_ms // 1000):%Y-%m-%d#%H:%M:%S}:{time_ms % 1000:03d}"

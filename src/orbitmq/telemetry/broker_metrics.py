"""Metrics of a broker: what went through it, what its clients and groups are, how its requests end.

Rules of this file
1. Everything is read from counters and tables that the broker keeps anyway.
2. Retry and dead-letter topics do not count as messages in or out, as in RocketMQ.
3. Tables are copied before the first sample is given: the scrape goes on in slices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from orbitmq.broker.broker import Broker
from orbitmq.broker.clients import ConsumerGroup, GroupMember
from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group
from orbitmq.protocol.remoting.bodies import ConsumeType
from orbitmq.protocol.remoting.versions import version_name
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import OTHERS, Family, Metric, Sample, by_label, one

DELAY, NORMAL = "delay", "normal"
QUANTILES = (0.5, 0.99, 0.999)
NOT_COUNTED = (RETRY_PREFIX, DLQ_PREFIX)


class BrokerMetrics:
    """The collector of one broker."""

    def __init__(self, broker: Broker, waiting: Callable[[], int]) -> None:
        """`waiting()`: requests that were read and wait to be handled."""
        self._broker = broker
        self._waiting = waiting

    def __call__(self) -> Iterator[Family]:
        yield from self._traffic_in()
        yield from self._traffic_out()
        yield from self._clients()
        yield from self._tables()
        yield from self._requests()
        yield from self._once()

    # --- traffic ----------------------------------------------------------------------------------------------------

    def _traffic_in(self) -> Iterator[Family]:
        """Delayed messages are counted apart; others have the type that their topic declares."""
        statistics = self._broker.statistics
        taken = [
            ((topic, kind or self._type_of(topic), self._is_system(topic)), sizes.buckets())
            for kind, table in (("", statistics.prompt_sizes), (DELAY, statistics.delayed_sizes))
            for topic, sizes in table.entries()
            if not topic.startswith(NOT_COUNTED)
        ]
        yield Family(catalogue.MESSAGES_IN, [Sample(labels, buckets.count) for labels, buckets in taken])
        yield Family(catalogue.THROUGHPUT_IN, [Sample(labels, buckets.total) for labels, buckets in taken])
        yield Family(catalogue.MESSAGE_SIZE, [Sample(labels, buckets) for labels, buckets in taken])

    def _traffic_out(self) -> Iterator[Family]:
        statistics = self._broker.statistics
        delivered = [
            ((topic, group, self._is_system(topic, group)), counter)
            for name, counter in list(statistics.groups)
            for topic, group in [_split(name)]
            if not topic.startswith(NOT_COUNTED)
        ]
        yield Family(catalogue.MESSAGES_OUT, [Sample(labels, counter.count) for labels, counter in delivered])
        yield Family(catalogue.THROUGHPUT_OUT, [Sample(labels, counter.size) for labels, counter in delivered])
        dead = []
        for name, counter in list(statistics.dead_letters):
            topic, group = _split(name)
            dead.append(Sample((group, topic, self._is_system(topic, group)), counter.count))
        yield Family(catalogue.SEND_TO_DLQ, dead)

    def _type_of(self, topic: str) -> str:
        config = self._broker.topics.get(topic)
        declared = config.attributes.get(MESSAGE_TYPE, "") if config is not None and config.attributes else ""
        return declared.lower() if declared in ("FIFO", "TRANSACTION", "PRIORITY") else NORMAL

    def _is_system(self, topic: str, group: str = "") -> str:
        return "true" if self._broker.topics.is_system(topic) or is_system_group(group) else "false"

    # --- clients ----------------------------------------------------------------------------------------------------

    def _clients(self) -> Iterator[Family]:
        clients = self._broker.clients
        producers: Counter[tuple[str, ...]] = Counter()
        for name in clients.producer_groups():
            producers.update(_kind(member) for member in clients.producer(name))
        yield _counted(catalogue.PRODUCER_CONNECTIONS, producers)
        consumers: Counter[tuple[str, ...]] = Counter()
        for group in clients.consumers():
            tail = (_mode(group), self._is_system("", group.name))
            consumers.update((group.name, *_kind(member), *tail) for member in group.members.values())
        yield _counted(catalogue.CONSUMER_CONNECTIONS, consumers)
        yield one(catalogue.EXPIRED_CLIENTS, clients.expired_count)

    # --- the broker itself ------------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[Family]:
        broker = self._broker
        yield one(catalogue.BROKER_PERMISSION, broker.settings.broker_permission)
        yield one(catalogue.TOPIC_NUMBER, len(broker.topics))
        yield one(catalogue.GROUP_NUMBER, len(broker.groups))
        yield one(catalogue.OFFSETS_NOT_KEPT, broker.offsets.refused_count)
        for metric, times in (
            (catalogue.TOPIC_CREATE_TIME, broker.core.change_times.topics),
            (catalogue.GROUP_CREATE_TIME, broker.core.change_times.groups),
        ):
            yield Family(metric, [Sample(labels, histogram.buckets()) for labels, histogram in sorted(times.items())])

    def _requests(self) -> Iterator[Family]:
        broker, statistics = self._broker, self._broker.statistics
        yield one(catalogue.BUSY, statistics.busy_count)
        gate = broker.core.facilities.gate
        if gate is not None:
            yield by_label(catalogue.ACCESS_DENIED, list(gate.denials.items()))
        yield one(catalogue.PUT_FAILURES, statistics.put_failed_count)
        now_ns = broker.clock.monotonic_ns()
        latency = [(str(share), statistics.put_latency.percentile_ms(share, now_ns) / 1_000) for share in QUANTILES]
        yield by_label(catalogue.PUT_LATENCY, latency)
        yield one(catalogue.DELAY_CLAMPED, broker.rooms.admission.clamped_count)
        yield by_label(catalogue.PULLS, [("found", statistics.found_count), ("not_found", statistics.missed_count)])
        held, unanswered = len(broker.rooms.pulls.held), broker.rooms.sends.unanswered_count
        yield by_label(catalogue.PROCESSOR_WATERMARK, [("send", self._waiting() + unanswered), ("pull", held)])
        yield one(catalogue.UNANSWERED_SENDS, unanswered)
        yield one(catalogue.HELD_PULLS, held)
        yield one(catalogue.PULLS_NOT_HELD, broker.rooms.pulls.held.refused_count)

    def _once(self) -> Iterator[Family]:
        sends = self._broker.rooms.admission.idempotence
        if sends is None:
            return
        memory = sends.memory
        yield one(catalogue.ONCE_SCOPES, memory.scope_count)
        yield one(catalogue.ONCE_KEYS, memory.key_count)
        yield one(catalogue.ONCE_BYTES, memory.used_bytes)
        yield one(catalogue.ONCE_BYTES_MAX, memory.bounds.memory_bytes)
        yield one(catalogue.ONCE_FULLEST, memory.fullest[1])
        yield one(catalogue.ONCE_REPEATS, sends.repeat_count)
        yield by_label(catalogue.ONCE_REFUSED, [("stale_epoch", sends.stale_count), ("full", sends.full_count)])
        yield one(catalogue.ONCE_FORGOTTEN, memory.forgotten_count)


def _split(name: str) -> tuple[str, str]:
    """Topic and group of a counter; those that share one counter have neither."""
    topic, separator, group = name.partition("@")
    return (topic, group) if separator else (OTHERS, OTHERS)


def _kind(member: GroupMember) -> tuple[str, str, str]:
    language = member.language.value.lower() if member.language is not None else "unknown"
    return language, version_name(member.version).lower(), member.protocol


def _mode(group: ConsumerGroup) -> str:
    return "pull" if group.consume_type is ConsumeType.CONSUME_ACTIVELY else "push"


def _counted(metric: Metric, counts: Counter[tuple[str, ...]]) -> Family:
    return Family(metric, [Sample(labels, count) for labels, count in sorted(counts.items())])

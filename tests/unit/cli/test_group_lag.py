"""Lag, time behind, owners; members that subscribe differently."""

from __future__ import annotations

from orbitmq.cli.groups.group_lag import group_lag
from orbitmq.cli.groups.group_members import subscriptions_of, usual_subscription
from orbitmq.protocol.remoting.bodies import (
    ConsumerRunningInfo,
    MessageQueue,
    OffsetProgress,
    ProcessQueueInfo,
    SubscriptionData,
)

NOW = 1_700_000_000_000
Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in (0, 1))


def at(broker: int, consumer: int) -> OffsetProgress:
    return OffsetProgress(broker_offset=broker, consumer_offset=consumer)


def info(*queues: MessageQueue, **subscriptions: str) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        mq_table={queue: ProcessQueueInfo() for queue in queues},
        subscription_set=[SubscriptionData(topic=topic, sub_string=text) for topic, text in subscriptions.items()],
    )


def test_a_queue_with_lag_is_behind_by_the_age_of_its_next_message() -> None:
    found = group_lag("g", NOW, {Q0: at(10, 7), Q1: at(5, 5)}, {Q0: NOW - 4_000}, {"c1": info(Q0), "c2": None})
    assert [(queue.lag, queue.behind_ms, queue.owner) for queue in found.queues] == [(3, 4_000, "c1"), (0, 0, None)]
    assert (found.lag, found.behind_ms, found.members) == (3, 4_000, 2)


def test_what_cannot_be_known_is_empty_not_zero() -> None:
    found = group_lag("g", NOW, {Q0: at(10, 7)}, {}, {})
    assert (found.queues[0].behind_ms, found.behind_ms) == (None, None)


def test_an_offset_beyond_the_end_is_no_negative_lag() -> None:
    assert group_lag("g", NOW, {Q0: at(3, 9)}, {}, {}).lag == 0


def test_a_clock_behind_the_brokers_is_no_negative_time() -> None:
    assert group_lag("g", NOW, {Q0: at(2, 1)}, {Q0: NOW + 50}, {}).behind_ms == 0


def test_a_group_without_offsets_is_not_behind() -> None:
    assert group_lag("g", NOW, {}, {}, {}).behind_ms == 0


def test_members_that_subscribe_alike_are_alike_whatever_the_order_of_tags() -> None:
    found = subscriptions_of("g", {"a": info(orders="x || y", **{"%RETRY%g": "*"}), "b": info(orders="y||x")})
    assert found["a"] == found["b"] == {"orders": "x || y"}


def test_the_odd_one_out_differs_from_what_most_subscribe_to() -> None:
    members = {"a": info(orders="x"), "b": info(orders="y"), "c": info(orders="y"), "d": None}
    found = subscriptions_of("g", members)
    assert usual_subscription(found) == {"orders": "y"}
    assert found["d"] is None
    assert usual_subscription({}) == {}

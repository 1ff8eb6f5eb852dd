"""Settings that are sent back to clients."""

from __future__ import annotations

import pytest

from orbitmq.protocol.grpc.merged_settings import (
    RETRY_DELAYS_S,
    ClientRules,
    consumer_settings,
    producer_settings,
    retry_delay_ms,
)
from orbitmq.protocol.grpc.messages import (
    ClientType,
    CustomizedBackoff,
    Duration,
    ExponentialBackoff,
    Metric,
    Publishing,
    Resource,
    RetryPolicy,
    Settings,
    Subscription,
)
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig
from orbitmq.protocol.remoting.bodies.groups import CustomizedRetryPolicy, ExponentialRetryPolicy, GroupRetryPolicy

LATER = b"\x9a\x06\x05later"


def test_a_producer_gets_what_the_server_decides_and_keeps_the_rest() -> None:
    sent = Settings(
        client_type=ClientType.PRODUCER,
        request_timeout=Duration(seconds=3),
        publishing=Publishing(topics=[Resource(name="Orders")], max_body_size=1),
        backoff_policy=RetryPolicy(max_attempts=9, customized_backoff=CustomizedBackoff(next=[Duration(seconds=1)])),
        metric=Metric(on=True),
        client_properties={"a": "b"},
    )
    sent = Settings.FromString(sent.SerializeToString() + LATER)
    before = sent.SerializeToString(deterministic=True)  # type: ignore[call-arg]
    merged = producer_settings(sent)
    backoff = ExponentialBackoff(initial=Duration(nanos=10_000_000), max=Duration(seconds=1), multiplier=2)
    assert merged.backoff_policy == RetryPolicy(max_attempts=3, exponential_backoff=backoff)
    assert merged.publishing.validate_message_type
    assert merged.publishing.max_body_size == 4_194_304
    assert [topic.name for topic in merged.publishing.topics] == ["Orders"]
    assert merged.HasField("metric")
    assert not merged.metric.on
    assert (merged.client_type, merged.request_timeout.seconds) == (ClientType.PRODUCER, 3)
    assert dict(merged.client_properties) == {"a": "b"}
    assert LATER in merged.SerializeToString()
    assert sent.SerializeToString(deterministic=True) == before  # type: ignore[call-arg]


def test_a_consumer_gets_what_its_group_is() -> None:
    sent = Settings(subscription=Subscription(group=Resource(name="g"), fifo=False, receive_batch_size=1))
    config = SubscriptionGroupConfig(group_name="g", consume_message_orderly=True, retry_max_times=4)
    merged = consumer_settings(sent, config)
    assert merged.subscription.fifo
    assert (merged.subscription.receive_batch_size, merged.subscription.long_polling_timeout.seconds) == (32, 20)
    assert merged.backoff_policy.max_attempts == 5
    assert [delay.seconds for delay in merged.backoff_policy.customized_backoff.next] == list(RETRY_DELAYS_S)
    assert (len(RETRY_DELAYS_S), RETRY_DELAYS_S[-1]) == (18, 7200)
    assert merged.subscription.group.name == "g"


def test_a_group_with_a_policy_of_its_own() -> None:
    customized = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[1500, 2000]))
    merged = consumer_settings(Settings(), SubscriptionGroupConfig(group_retry_policy=customized))
    assert list(merged.backoff_policy.customized_backoff.next) == [
        Duration(seconds=1, nanos=500_000_000),
        Duration(seconds=2),
    ]
    growing = GroupRetryPolicy(type="EXPONENTIAL", exponential_retry_policy=ExponentialRetryPolicy())
    merged = consumer_settings(Settings(), SubscriptionGroupConfig(group_retry_policy=growing))
    backoff = ExponentialBackoff(initial=Duration(seconds=5), max=Duration(seconds=7200), multiplier=2)
    assert merged.backoff_policy == RetryPolicy(max_attempts=17, exponential_backoff=backoff)


def test_numbers_that_nobody_means_make_settings_all_the_same() -> None:
    odd = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[-1]))
    config = SubscriptionGroupConfig(retry_max_times=(1 << 31) - 1, group_retry_policy=odd)
    merged = consumer_settings(Settings(), config)
    assert merged.backoff_policy.max_attempts == (1 << 31) - 1
    assert list(merged.backoff_policy.customized_backoff.next) == [Duration()]
    assert consumer_settings(Settings(), SubscriptionGroupConfig(retry_max_times=-1)).backoff_policy.max_attempts == 1


def test_what_a_consumer_of_an_unknown_group_says_counts_and_defaults_stand_below() -> None:
    policy = RetryPolicy(max_attempts=2, customized_backoff=CustomizedBackoff(next=[Duration(seconds=9)]))
    merged = consumer_settings(Settings(backoff_policy=policy, subscription=Subscription(fifo=True)), None)
    assert merged.backoff_policy == policy
    assert merged.subscription.fifo
    assert merged.subscription.receive_batch_size == 32
    assert consumer_settings(Settings(), None).backoff_policy.max_attempts == 17


def test_what_a_server_has_its_clients_do_is_its_own_choice() -> None:
    rules = ClientRules(
        body_bytes_max=7, validates_types=False, producer_attempts=1, backoff_initial_ms=20, backoff_max_ms=2_500,
        backoff_multiplier=3, receive_batch_max=8, polling_ms=1_500,
    )  # fmt: skip
    merged = producer_settings(Settings(), rules)
    backoff = ExponentialBackoff(
        initial=Duration(nanos=20_000_000), max=Duration(seconds=2, nanos=500_000_000), multiplier=3
    )
    assert merged.backoff_policy == RetryPolicy(max_attempts=1, exponential_backoff=backoff)
    assert (merged.publishing.validate_message_type, merged.publishing.max_body_size) == (False, 7)
    subscription = consumer_settings(Settings(), None, rules).subscription
    assert subscription.receive_batch_size == 8
    assert subscription.long_polling_timeout == Duration(seconds=1, nanos=500_000_000)


def test_how_long_a_message_waits_for_its_next_attempt() -> None:
    plain = SubscriptionGroupConfig()
    assert [retry_delay_ms(plain, before) for before in (0, 1, 17, 18, 10**9)] == [
        1_000,
        5_000,
        7_200_000,
        7_200_000,
        7_200_000,
    ]
    customized = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[1500, 2000]))
    assert retry_delay_ms(SubscriptionGroupConfig(group_retry_policy=customized), 5) == 2_000


@pytest.mark.parametrize(
    ("policy", "delays_ms"),
    [
        (ExponentialRetryPolicy(), [5_000, 10_000, 7_200_000]),
        (ExponentialRetryPolicy(multiplier=1), [5_000, 5_000, 5_000]),
        (ExponentialRetryPolicy(initial=0), [0, 0, 0]),
        (ExponentialRetryPolicy(multiplier=(1 << 63) - 1), [5_000, 7_200_000, 7_200_000]),
        (ExponentialRetryPolicy(initial=-1, max=-1), [0, 0, 0]),
    ],
)
def test_a_delay_that_grows_ends_at_the_longest(policy: ExponentialRetryPolicy, delays_ms: list[int]) -> None:
    growing = GroupRetryPolicy(type="EXPONENTIAL", exponential_retry_policy=policy)
    config = SubscriptionGroupConfig(group_retry_policy=growing)
    assert [retry_delay_ms(config, before) for before in (0, 1, 2_000_000_000)] == delays_ms

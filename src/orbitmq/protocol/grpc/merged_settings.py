"""Settings of a client as the server sends them back: the client's own, and above them what the server decides.

Rules of this file
1. Fields that nobody here knows survive. What came is not changed.
2. The configuration of a group counts above what a consumer says; where a group has none, the defaults stand below it.

Source: RocketMQ gRPC, telemetry; client quirks: a producer needs an exponential backoff, a consumer a policy that is not empty.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.limits.pop import POP_MESSAGES_MAX
from orbitmq.limits.wire import BODY_BYTES_MAX
from orbitmq.protocol.filtering.java_numbers import INT_MAX
from orbitmq.protocol.grpc.messages import CustomizedBackoff, Duration, ExponentialBackoff, RetryPolicy, Settings
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig

RETRY_DELAYS_S: Final = (1, 5, 10, 30, *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)))
"""Seconds to wait after each attempt, where a group names no others."""


class ClientRules(NamedTuple):
    """What a server has its clients do. `polling_ms`: how long a receive waits."""

    body_bytes_max: int = BODY_BYTES_MAX
    validates_types: bool = True
    producer_attempts: int = 3
    backoff_initial_ms: int = 10
    backoff_max_ms: int = 1_000
    backoff_multiplier: int = 2
    receive_batch_max: int = POP_MESSAGES_MAX
    polling_ms: int = 20_000


AS_ROCKETMQ: Final = ClientRules()


def producer_settings(sent: Settings, rules: ClientRules = AS_ROCKETMQ) -> Settings:
    """Settings of a producer."""
    settings = _copy(sent)
    settings.backoff_policy.CopyFrom(
        RetryPolicy(
            max_attempts=rules.producer_attempts,
            exponential_backoff=ExponentialBackoff(
                initial=duration_of(rules.backoff_initial_ms),
                max=duration_of(rules.backoff_max_ms),
                multiplier=rules.backoff_multiplier,
            ),
        )
    )
    settings.publishing.validate_message_type = rules.validates_types
    settings.publishing.max_body_size = rules.body_bytes_max
    return settings


def consumer_settings(
    sent: Settings, group: SubscriptionGroupConfig | None, rules: ClientRules = AS_ROCKETMQ
) -> Settings:
    """Settings of a consumer; None for a group without a configuration."""
    settings = _copy(sent)
    subscription = settings.subscription
    config = group or SubscriptionGroupConfig()
    if group is not None or not settings.HasField("backoff_policy"):
        settings.backoff_policy.CopyFrom(retry_policy(config))
    if group is not None or not subscription.HasField("fifo"):
        subscription.fifo = config.consume_message_orderly
    if group is not None or not subscription.HasField("receive_batch_size"):
        subscription.receive_batch_size = rules.receive_batch_max
    if group is not None or not subscription.HasField("long_polling_timeout"):
        subscription.long_polling_timeout.CopyFrom(duration_of(rules.polling_ms))
    return settings


def attempts_of(config: SubscriptionGroupConfig) -> int:
    """How often a message is delivered to a group, the first time included."""
    return min(max(config.retry_max_times, 0), INT_MAX - 1) + 1


def retry_policy(config: SubscriptionGroupConfig) -> RetryPolicy:
    """How often and when messages of a group are tried again."""
    attempts = attempts_of(config)
    policy = config.group_retry_policy
    growing = policy.exponential_retry_policy
    if policy.type == "EXPONENTIAL" and growing is not None:
        backoff = ExponentialBackoff(
            initial=duration_of(growing.initial), max=duration_of(growing.max), multiplier=growing.multiplier
        )
        return RetryPolicy(max_attempts=attempts, exponential_backoff=backoff)
    own = policy.customized_retry_policy.next if policy.customized_retry_policy is not None else []
    delays = [duration_of(delay_ms) for delay_ms in own or [1000 * delay_s for delay_s in RETRY_DELAYS_S]]
    return RetryPolicy(max_attempts=attempts, customized_backoff=CustomizedBackoff(next=delays))


def retry_delay_ms(config: SubscriptionGroupConfig, attempts_before: int) -> int:
    """How long a message waits for its next attempt, when so many have failed before the last one."""
    policy = retry_policy(config)
    if not policy.HasField("exponential_backoff"):
        delays = policy.customized_backoff.next
        return milliseconds_of(delays[min(attempts_before, len(delays) - 1)])
    growing = policy.exponential_backoff
    delay_ms, longest_ms = milliseconds_of(growing.initial), milliseconds_of(growing.max)
    while attempts_before > 0 and 0 < delay_ms < longest_ms and growing.multiplier > 1:
        delay_ms = int(delay_ms * growing.multiplier)
        attempts_before -= 1
    return min(delay_ms, longest_ms)


def part_count(settings: Settings) -> int:
    """How many things stand in settings that may be repeated, each of which may have come in two bytes."""
    return (
        len(settings.publishing.topics)
        + len(settings.subscription.subscriptions)
        + len(settings.backoff_policy.customized_backoff.next)
        + len(settings.access_point.addresses)
        + len(settings.metric.endpoints.addresses)
        + len(settings.client_properties)
    )


def duration_of(duration_ms: int) -> Duration:
    """A duration that is not negative."""
    seconds, rest_ms = divmod(max(duration_ms, 0), 1000)
    return Duration(seconds=seconds, nanos=rest_ms * 1_000_000)


def milliseconds_of(duration: Duration) -> int:
    """Whole milliseconds of a duration as it came, which may be negative."""
    return duration.seconds * 1000 + duration.nanos // 1_000_000


def _copy(sent: Settings) -> Settings:
    """What came, with the metric of clients switched off: nobody takes it here."""
    settings = Settings()
    settings.CopyFrom(sent)
    settings.metric.on = False
    settings.metric.ClearField("endpoints")
    return settings

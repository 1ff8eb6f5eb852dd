"""Settings are checked when made; client ids are unique."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.client.consuming.allocation import AllocateCircle
from orbitmq.client.consuming.subscription import subscribe
from orbitmq.client.identity import client_id, local_ip
from orbitmq.client.options import ClientOptions, ConsumeFrom, ConsumerOptions, ProducerOptions
from orbitmq.errors import ConfigurationError, OrbitError


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClientOptions(heartbeat_ms=0),
        lambda: ClientOptions(heartbeat_ms=120_000),
        lambda: ClientOptions(instance_name="a@b"),
        lambda: ProducerOptions(retries_count=-1),
        lambda: ProducerOptions(send_timeout_ms=0),
        lambda: ProducerOptions(max_message_bytes=17_000_000),
        lambda: ConsumerOptions(pull_messages_count=1025),
        lambda: ConsumerOptions(queue_messages_max=True),
        lambda: ConsumerOptions(consume_from=ConsumeFrom.TIMESTAMP),
        lambda: ConsumerOptions(from_timestamp_ms=1),
        lambda: ConsumerOptions(suspend_ms=5),
        lambda: ConsumerOptions(suspend_ms=30_001),
        lambda: ConsumerOptions(batch_messages_count=0),
        lambda: ConsumerOptions(batch_messages_count=1025),
        lambda: ConsumerOptions(topic_messages_max=0),
        lambda: ConsumerOptions(topic_bytes_max=0),
        lambda: ConsumerOptions(messages_max=0),
        lambda: ConsumerOptions(offsets_folder="x"),
        lambda: ConsumerOptions(strategy="circle"),  # type: ignore[arg-type]
        lambda: ConsumerOptions(strategy=AllocateCircle),
    ],
)
def test_settings_out_of_range_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError):
        make()


def test_defaults_pass() -> None:
    ClientOptions()
    ProducerOptions()
    ConsumerOptions(consume_from=ConsumeFrom.TIMESTAMP, from_timestamp_ms=1)


def test_client_ids() -> None:
    assert client_id("10.0.0.1", "x", "u") == "10.0.0.1@x@u"
    assert client_id("10.0.0.1", None, None) != client_id("10.0.0.1", None, None)
    assert local_ip()


def test_subscriptions() -> None:
    everything = subscribe("T", " * ", 5)
    assert everything.body().sub_string == "*"
    some = subscribe("T", "b || a", 5).body()
    assert (some.tags_set, some.code_set, some.sub_version) == (["a", "b"], [97, 98], 5)
    for topic, expression in (("T", "||"), ("T", " || "), ("bad topic", "*")):
        with pytest.raises(OrbitError):
            subscribe(topic, expression, 0)

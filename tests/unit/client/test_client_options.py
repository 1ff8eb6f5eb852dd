"""Settings are checked when made; client ids are unique."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from orbitmq.client.consuming.allocation import AllocateCircle
from orbitmq.client.consuming.subscription import subscribe
from orbitmq.client.identity import client_id, local_ip
from orbitmq.client.options import ClientOptions, ConsumeFrom, ConsumerOptions, ProducerOptions
from orbitmq.client.pulling.lite_options import LiteConsumerOptions
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


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: ClientOptions(trace="yes"), "ClientOptions.trace='yes'"),  # type: ignore[arg-type]
        (lambda: ClientOptions(trace_topic=None), "ClientOptions.trace_topic=None"),  # type: ignore[arg-type]
        (lambda: ClientOptions(instance_name=7), "ClientOptions.instance_name=7"),  # type: ignore[arg-type]
        (lambda: ClientOptions(unit_name=b"u"), "ClientOptions.unit_name=b'u'"),  # type: ignore[arg-type]
        (lambda: ProducerOptions(idempotent="no"), "ProducerOptions.idempotent='no'"),  # type: ignore[arg-type]
        (lambda: ProducerOptions(avoid_slow_brokers=1), "avoid_slow_brokers=1"),  # type: ignore[arg-type]
        (lambda: ProducerOptions(retry_not_stored_ok=None), "retry_not_stored_ok=None"),  # type: ignore[arg-type]
        (lambda: ProducerOptions(codec="zstd"), "must be one of Codec.NONE, Codec.ZLIB"),  # type: ignore[arg-type]
        (lambda: ProducerOptions(send_timeout_ms=1.5), "send_timeout_ms=1.5"),  # type: ignore[arg-type]
        (lambda: ConsumerOptions(broadcasting="no"), "ConsumerOptions.broadcasting='no'"),  # type: ignore[arg-type]
        (lambda: ConsumerOptions(orderly=0), "ConsumerOptions.orderly=0"),  # type: ignore[arg-type]
        (lambda: ConsumerOptions(consume_from="FIRST"), "must be one of ConsumeFrom.LAST"),  # type: ignore[arg-type]
        (lambda: ConsumerOptions(offsets_folder=1, broadcasting=True), "offsets_folder=1"),  # type: ignore[arg-type]
        (lambda: ConsumerOptions(consume_from=ConsumeFrom.TIMESTAMP, from_timestamp_ms=-1), "from_timestamp_ms=-1"),
        (lambda: ConsumerOptions(broadcasting=True, max_retries_count=3), "retries none"),
        (lambda: LiteConsumerOptions(auto_commit="off"), "LiteConsumerOptions.auto_commit='off'"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_kind_is_refused_by_the_name_of_its_field(make: Callable[[], object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(named)):
        make()


def test_every_switch_and_text_is_checked() -> None:
    """A field that is added without a check would take an object of no kind at all."""
    for options in (ClientOptions, ProducerOptions, ConsumerOptions, LiteConsumerOptions):
        for name in options.__struct_fields__:
            with pytest.raises(ConfigurationError):
                options(**{name: object()})


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
    dear = subscribe("T", "*", 5, sql="price > 10").body()
    assert (dear.expression_type, dear.sub_string, dear.tags_set, dear.code_set) == ("SQL92", "price > 10", [], [])
    for topic, expression in (("T", "||"), ("T", " || "), ("bad topic", "*")):
        with pytest.raises(OrbitError):
            subscribe(topic, expression, 0)

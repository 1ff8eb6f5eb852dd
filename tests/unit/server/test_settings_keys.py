"""The table of keys: complete, consistent with the settings objects, and true to its own rules."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.settings import BrokerSettings
from orbitmq.errors import ConfigurationError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.protocol.java_properties import parse_properties
from orbitmq.replication.settings import ReplicationSettings
from orbitmq.server.configuration.access_settings import AccessSettings
from orbitmq.server.configuration.keys import (
    Key,
    KeyStatus,
    KeyTable,
    Touches,
    ValueKind,
    broker_keys,
    environment_name,
    nameserver_keys,
    proxy_keys,
    shared_keys,
)
from orbitmq.server.configuration.settings import (
    GrpcSettings,
    ListenerSettings,
    Overrides,
    Role,
    ServerSettings,
    WatchSettings,
    load_settings,
    present_value,
)
from orbitmq.server.configuration.tls_settings import TlsSettings
from orbitmq.server.configuration.values import parse, to_text
from orbitmq.store.settings import StoreSettings

VECTORS = Path(__file__).parents[2] / "vectors" / "configuration"
EVERY_KEY = [pytest.param(key, id=key.key) for key in shared_keys()]
EVERY_KEY += [
    pytest.param(key, id=f"proxy-{key.key}") for key in proxy_keys() if shared_keys().find(key.key) is not key
]


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("broker-5.3.3.properties", broker_keys()),
        ("nameserver-5.3.3.properties", nameserver_keys()),
        ("proxy-5.5.0.properties", proxy_keys()),
    ],
)
def test_every_key_that_a_real_server_reports_is_classified(name: str, table: KeyTable) -> None:
    reported = [entry.key for entry in parse_properties((VECTORS / name).read_text(encoding="ascii"))]
    assert len(reported) > 35
    assert [key for key in reported if table.find(key) is None] == []


@pytest.mark.parametrize("key", EVERY_KEY)
def test_a_row_is_whole(key: Key) -> None:
    assert re.fullmatch(r"[A-Za-z0-9.]+", key.key)
    assert key.reason[0].isupper()
    assert key.reason.endswith(".")
    assert (key.status is KeyStatus.USED) == bool(key.field)
    assert (key.status is KeyStatus.NOT_YET) == bool(key.accepts)
    assert (key.kind is ValueKind.CHOICE) == bool(key.choices)
    if key.kind is ValueKind.INT:
        assert key.low is not None
        assert key.high is not None
    if key.runtime and key in list(broker_keys()):
        assert key.field.startswith("store."), "the store reads its settings when it needs them, the broker copies"


def test_no_key_that_could_break_a_promise_is_merely_warned_about() -> None:
    merely_warned = [key for key in shared_keys() if key.status is KeyStatus.NO_EFFECT and key.touches.value]
    assert merely_warned == []


def test_keys_that_sound_like_a_promise_are_marked_so() -> None:
    sounds = re.compile(r"acl|auth|tls|flushDisk|replica|inSync|readUnCommitted|Role|timer(Max|Precision|Roll)")
    for key in shared_keys():
        if sounds.search(key.key) and key.status is not KeyStatus.NO_EFFECT:
            assert key.touches is not Touches.NOTHING, key.key


@pytest.mark.parametrize("key", [pytest.param(key, id=key.key) for key in shared_keys() if key.field])
def test_a_used_key_has_a_field_whose_default_is_allowed(key: Key) -> None:
    settings = ServerSettings(data=Path("data"))
    value = present_value(settings, key)
    if value in (None, "", ()):
        return
    assert parse(key, to_text(value), "default") == value


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        ("broker", BrokerSettings),
        ("store", StoreSettings),
        ("nameserver", NameServerConfig),
        ("listener", ListenerSettings),
        ("watch", WatchSettings),
        ("grpc", GrpcSettings),
        ("messaging", MessagingSettings),
        ("replication", ReplicationSettings),
        ("tls", TlsSettings),
        ("access", AccessSettings),
    ],
)
def test_every_field_has_a_key(section: str, settings: type[msgspec.Struct]) -> None:
    from_other_parts = {"bind_address", "listen_port", "server_channel_max_idle_time_seconds", "server_socket_backlog"}
    elsewhere = {"store": {"confirms_tail", "needs_sound"}, "nameserver": from_other_parts}.get(section, set())
    keys = [*broker_keys(), *proxy_keys(), *nameserver_keys()]
    with_key = {key.field.partition(".")[2] for key in keys if key.field.startswith(section + ".")}
    assert set(settings.__struct_fields__) - elsewhere == with_key


NEWER = [key for key in broker_keys() if key.since]


def _harmless(key: Key) -> str:
    if key.accepts:
        return key.accepts[0]
    return "true" if key.status is KeyStatus.USED and key.kind is ValueKind.BOOL else "1"


def test_a_broker_conf_of_a_later_release_starts_with_its_harmless_values(tmp_path: Path) -> None:
    """Every key that 5.4 and 5.5 brought, those that ask for something unbuilt at their defaults."""
    assert {key.since for key in NEWER} == {"5.4", "5.5"}
    assert len(NEWER) > 80
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key.key} = {_harmless(key)}\n" for key in NEWER))
    settings = load_settings(roles=[Role.BROKER], config=file, overrides=Overrides(data=tmp_path / "data"))
    assert len(settings.warnings) == sum(key.status is KeyStatus.NO_EFFECT for key in NEWER)


@pytest.mark.parametrize("key", ["timerRocksDBEnable", "transRocksDBEnable", "indexRocksDBEnable"])
def test_engines_of_later_releases_stop_the_start(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigurationError, match="RocksDB is not used"):
        load_settings(roles=[Role.BROKER], flags=[f"{key}=true"], overrides=Overrides(data=tmp_path))


def test_no_two_keys_share_an_environment_variable() -> None:
    names = [environment_name(key.key) for key in shared_keys()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("flushDiskType", "ORBITMQ_FLUSH_DISK_TYPE"),
        ("brokerIP1", "ORBITMQ_BROKER_IP1"),
        ("checkCRCOnRecover", "ORBITMQ_CHECK_CRC_ON_RECOVER"),
        ("tls.server.mode", "ORBITMQ_TLS_SERVER_MODE"),
    ],
)
def test_environment_names(key: str, variable: str) -> None:
    assert environment_name(key) == variable
    found = shared_keys().find_environment(variable)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("mappedFileSizCommitLog", "mappedFileSizeCommitLog"),
        ("flushdisktype", "flushDiskType"),
        ("flush_disk_type", "flushDiskType"),
        ("brokerIp1", "brokerIP1"),
        ("nameServerAddr", "namesrvAddr"),
        ("qqqqqq", None),
    ],
)
def test_nearest(wrong: str, right: str | None) -> None:
    assert shared_keys().nearest(wrong) == right


def test_the_whole_configuration_of_a_real_broker_is_judged_key_by_key() -> None:
    """Read as a file, what a Java 5.3.3 broker reports stops only for the promises it was really given."""
    stops = set()
    for entry in parse_properties((VECTORS / "broker-5.3.3.properties").read_text(encoding="ascii")):
        key = broker_keys().find(entry.key)
        assert key is not None
        if key.status is KeyStatus.NOT_YET and not key.asks_for_nothing(entry.value):
            stops.add(entry.key)
    # That broker was started with SQL filters on; the rest is what is built, or RocketMQ's defaults.
    assert stops == set()


OTHER_DEFAULTS = {
    "maxDelayTimeMills": "timers go as far as anybody wants",
    "maxMessageSize": "what the broker takes, which is the same",
    "tlsCertPath": "none is looked for unless named",
    "tlsKeyPath": "none is looked for unless named",
}


def test_a_proxy_of_rocketmq_is_set_as_this_one_where_nothing_is_said() -> None:
    settings = ServerSettings(data=Path("data"))
    stops, differ = set(), set()
    for entry in parse_properties((VECTORS / "proxy-5.5.0.properties").read_text(encoding="ascii")):
        key = proxy_keys().find(entry.key)
        assert key is not None
        if key.status is KeyStatus.NOT_YET and not key.asks_for_nothing(entry.value):
            stops.add(key.key)
        if key.status is KeyStatus.USED and to_text(present_value(settings, key)) != entry.value:
            differ.add(key.key)
    assert stops == {"proxyMode"}, "RocketMQ's runs beside its brokers"
    assert differ == set(OTHER_DEFAULTS)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("metricsLabel", "region:north, zone:a b,empty:", (("region", "north"), ("zone", "a b"), ("empty", ""))),
        ("metricsLabel", "", ()),
        ("logLevel", "warning; store=debug;server.http=ERROR", ("WARNING", "store=DEBUG", "server.http=ERROR")),
    ],
)
def test_labels_and_levels_are_read(name: str, text: str, value: object) -> None:
    key = broker_keys().find(name)
    assert key is not None
    assert parse(key, text, "here") == value
    assert parse(key, to_text(value), "here") == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metricsLabel", "region"), ("metricsLabel", "topic:x"), ("metricsLabel", "cluster:x"), ("metricsLabel", "a-b:x"),
        ("metricsLabel", "__a:x"), ("metricsLabel", "a:1,a:2"), ("metricsLabel", "9:x"), ("logLevel", "LOUD"),
        ("logLevel", "store=x"), ("logLevel", "Store=INFO"), ("logLevel", "=INFO"), ("logLevel", "a..b=INFO"),
    ],
)  # fmt: skip
def test_wrong_labels_and_levels_are_refused(name: str, text: str) -> None:
    key = broker_keys().find(name)
    assert key is not None
    with pytest.raises(ConfigurationError, match=f"here: {name}"):
        parse(key, text, "here")

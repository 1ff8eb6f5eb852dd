"""The file of RocketMQ's proxy: its keys, and what stands in two files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.limits.server import PROXY_FILE_BYTES_MAX
from orbitmq.server.configuration.proxy_file import FILE, check_switches
from orbitmq.server.configuration.settings import Overrides, Role, ServerSettings, load_settings

OFF = {"authenticationEnabled": False, "authorizationEnabled": False, "aclEnable": False}


def test_without_a_file_nothing_is_compared(tmp_path: Path) -> None:
    check_switches(tmp_path / FILE, {**OFF, "authenticationEnabled": True})


@pytest.mark.parametrize("value", [True, "true", " True "])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("authenticationEnabled", "authenticationEnabled"),
        ("authorizationEnabled", "authorizationEnabled"),
        ("enableACL", "aclEnable"),
    ],
)
def test_each_switch_has_to_be_the_same(tmp_path: Path, theirs: str, ours: str, value: object) -> None:
    file = tmp_path / FILE
    file.write_text(json.dumps({"rocketMQClusterName": "DefaultCluster", theirs: value}))
    check_switches(tmp_path / FILE, {**OFF, ours: True})
    with pytest.raises(ConfigurationError, match=f"{theirs} is true, and {ours} of the broker is false"):
        check_switches(tmp_path / FILE, OFF)


@pytest.mark.parametrize("content", [{}, {"enableACL": None}, {"enableACL": False}, {"enableACL": "false"}])
def test_a_switch_that_is_not_named_is_off(tmp_path: Path, content: dict[str, object]) -> None:
    (tmp_path / FILE).write_text(json.dumps(content))
    check_switches(tmp_path / FILE, OFF)
    with pytest.raises(ConfigurationError, match="enableACL is false, and aclEnable of the broker is true"):
        check_switches(tmp_path / FILE, {**OFF, "aclEnable": True})


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff{}", b'{"enableACL": 1}', b'{"enableACL": []}' + b" " * PROXY_FILE_BYTES_MAX]
)
def test_a_file_that_cannot_be_understood_stops_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ConfigurationError, match=FILE):
        check_switches(tmp_path / FILE, OFF)


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        check_switches(tmp_path / FILE, OFF)


# --- its keys ---------------------------------------------------------------------------------------------------------


def loaded(tmp_path: Path, of_proxy: object, of_broker: str = "", *flags: str, named: bool = True) -> ServerSettings:
    """Settings of a broker with both files; `named`: the file of the proxy is given, and does not only lie there."""
    file, config = tmp_path / FILE, tmp_path / "broker.conf"
    file.write_text(json.dumps(of_proxy))
    config.write_text(of_broker)
    return load_settings(
        roles=[Role.BROKER], config=config, proxy_config=file if named else None, flags=flags,
        overrides=Overrides(data=tmp_path / "data"),
    )  # fmt: skip


def test_its_keys_are_settings_of_the_port(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        {
            "grpcServerPort": 18_081, "grpcClientIdleTimeMills": "60000", "enableProxyAutoRenew": False, "maxDelayTimeMills": 86_400_000,
            "maxMessageGroupSize": 32, "proxyMode": "local", "namesrvAddr": None,
        },
    )  # fmt: skip
    assert (settings.grpc.port, settings.grpc.idle_ms) == (18_081, 60_000)
    assert settings.grpc_port_asked_for
    messaging = settings.messaging
    assert (messaging.renews, messaging.delay_ms_max, messaging.message_group_bytes_end) == (False, 86_400_000, 32)
    assert settings.warnings == ()


def test_they_may_stand_among_those_of_the_broker(tmp_path: Path) -> None:
    settings = loaded(tmp_path, {}, "userPropertyMaxNum=7\n", "grpcClientConsumerMaxLongPollingTimeoutMillis=9000")
    assert (settings.messaging.user_properties_max, settings.messaging.polling_ms_max) == (7, 9_000)


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"grpcServerPort": 18_081}, "", "grpcServerPort=18082").grpc.port == 18_082


def test_the_size_of_a_body_has_a_value_for_each_kind_of_client(tmp_path: Path) -> None:
    settings = loaded(tmp_path, {"maxMessageSize": 1_000}, "maxMessageSize=2000\n")
    assert (settings.messaging.body_bytes_max, settings.store.max_message_size) == (1_000, 2_000)
    assert settings.messaging.body_bytes_max_of(settings.store) == 1_000


@pytest.mark.parametrize(
    ("of_proxy", "of_broker"),
    [
        ({"namesrvAddr": "a:1"}, "namesrvAddr=b:1\n"),
        ({"tlsCertPath": "/a.pem"}, "tls.server.certPath=/b.pem\n"),
        ({"grpcServerPort": 1}, "grpcServerPort=2\n"),
        ({"initAuthenticationUser": "a"}, "initAuthenticationUser=b\n"),
    ],
)
def test_one_setting_has_one_value_in_both_files(tmp_path: Path, of_proxy: dict[str, str], of_broker: str) -> None:
    with pytest.raises(ConfigurationError, match="one value counts for every port"):
        loaded(tmp_path, of_proxy, of_broker)


def test_what_both_files_say_may_stand_in_both(tmp_path: Path) -> None:
    settings = loaded(tmp_path, {"namesrvAddr": "a:1", "channelExpiredTimeout": 60_000}, "namesrvAddr = a:1\n")
    assert settings.broker.namesrv_addr == ("a:1",)
    assert settings.broker.channel_expired_timeout_ms == 60_000


@pytest.mark.parametrize("mode", ["CLUSTER", "cluster"])
def test_a_proxy_that_stands_alone_is_refused_by_name(tmp_path: Path, mode: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"A stand-alone proxy is not served: the broker itself serves .*set it to 'LOCAL'"
    ):
        loaded(tmp_path, {"proxyMode": mode})
    with pytest.raises(ConfigurationError, match="A stand-alone proxy"):
        loaded(tmp_path, {}, f"proxyMode={mode}\n")


@pytest.mark.parametrize(
    ("of_proxy", "words"),
    [
        ({"grpcServerPorts": 1}, "unknown key 'grpcServerPorts'.*did you mean grpcServerPort"),
        ({"flushDiskType": "SYNC_FLUSH"}, "unknown key"),
        ({"grpcServerPort": [1]}, "no value of any setting"),
        ({"grpcServerPort": 1.5}, "no value of any setting"),
        ({"grpcServerPort": 65_536}, "0 to 65535"),
        ({"maxUserPropertySize": 32_768}, "1 to 32767"),
        ({"grpcClientConsumerMinLongPollingTimeoutMillis": 20_001}, "is above grpcClientConsumerMaxLongPollingTimeoutMillis"),
        ({"minInvisibleTimeMillsForRecv": 43_200_000, "maxInvisibleTimeMills": 10_000}, "is above maxInvisibleTimeMills"),
        ({"maxInvisibleTimeMills": 59_999}, "defaultInvisibleTimeMills = 60000 is above maxInvisibleTimeMills"),
        ({"renewAheadTimeMillis": 60_001}, "1 to 60000"),
        ({"renewAheadTimeMillis": 30_000, "defaultInvisibleTimeMills": 20_000}, "is above defaultInvisibleTimeMills"),
        ({"grpcClientProducerBackoffInitialMillis": 1_001}, "is above grpcClientProducerBackoffMaxMillis"),
        ({"useDelayLevel": True}, "promises what is not built yet"),
        ({"authenticationEnabled": True}, "authenticationEnabled of the broker is false"),
    ],
)  # fmt: skip
def test_what_is_wrong_stops_the_start(tmp_path: Path, of_proxy: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){words}"):
        loaded(tmp_path, of_proxy)


def test_a_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"does not exist.*--proxy-config"):
        load_settings(roles=[Role.BROKER], proxy_config=tmp_path / FILE)


def test_a_file_that_only_lies_there_is_not_read_and_said_so(tmp_path: Path) -> None:
    settings = loaded(tmp_path, {"grpcServerPort": 18_081, "rocketMQClusterName": "C"}, named=False)
    assert settings.grpc.port == 8_081
    (warning,) = settings.warnings
    assert "is not read, so grpcServerPort there has no effect" in warning
    assert loaded(tmp_path, {"rocketMQClusterName": "DefaultCluster"}, named=False).warnings == ()

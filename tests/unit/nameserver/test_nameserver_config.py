"""Settings of a name server and changes by request."""

from __future__ import annotations

import pytest

from orbitmq.errors import ConfigurationError, ProtectedKeyError
from orbitmq.nameserver.config import KEYS, NameServerConfig


def test_keys_are_rocketmqs() -> None:
    assert KEYS["orderMessageEnable"] == "order_message_enable"
    assert KEYS["scanNotActiveBrokerInterval"] == "scan_not_active_broker_interval"
    assert KEYS["kvConfigPath"] == "kv_config_path"


def test_every_key_has_a_text() -> None:
    texts = NameServerConfig().texts()
    assert texts.keys() == KEYS.keys()
    assert texts["orderMessageEnable"] == "false"
    assert texts["scanNotActiveBrokerInterval"] == "5000"


def test_change_by_name() -> None:
    before = NameServerConfig()
    after, ignored = before.changed(
        {"orderMessageEnable": " TRUE ", "waitSecondsForService": "7", "serverWorkerThreads": "9"}
    )
    assert after.order_message_enable
    assert after.wait_seconds_for_service == 7
    assert ignored == ["serverWorkerThreads"]
    assert not before.order_message_enable


@pytest.mark.parametrize(
    "key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "enableTopicList"]
)
def test_protected_keys(key: str) -> None:
    config = NameServerConfig(config_black_list="configBlackList; enableTopicList ;")
    with pytest.raises(ProtectedKeyError, match=key):
        config.changed({key: "x"})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("orderMessageEnable", "yes"),
        ("waitSecondsForService", "1.5"),
        ("waitSecondsForService", "-1"),
        ("waitSecondsForService", str(2**31)),
        ("listenPort", "1"),
    ],
)
def test_values_that_are_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        NameServerConfig().changed({key: text})


def test_naming_a_start_setting_with_its_own_value_is_fine() -> None:
    assert NameServerConfig().changed({"listenPort": "9876"}) == (NameServerConfig(), [])

"""Switches of access that stand in two files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.limits.server import PROXY_FILE_BYTES_MAX
from orbitmq.server.proxy_switches import FILE, check_proxy_switches

OFF = {"authenticationEnabled": False, "authorizationEnabled": False, "aclEnable": False}


def test_without_a_file_nothing_is_compared(tmp_path: Path) -> None:
    check_proxy_switches(tmp_path, {**OFF, "authenticationEnabled": True})


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
    check_proxy_switches(tmp_path, {**OFF, ours: True})
    with pytest.raises(ConfigurationError, match=f"{theirs} is true, and {ours} of the broker is false"):
        check_proxy_switches(tmp_path, OFF)


@pytest.mark.parametrize("content", [{}, {"enableACL": None}, {"enableACL": False}, {"enableACL": "false"}])
def test_a_switch_that_is_not_named_is_off(tmp_path: Path, content: dict[str, object]) -> None:
    (tmp_path / FILE).write_text(json.dumps(content))
    check_proxy_switches(tmp_path, OFF)
    with pytest.raises(ConfigurationError, match="enableACL is false, and aclEnable of the broker is true"):
        check_proxy_switches(tmp_path, {**OFF, "aclEnable": True})


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff{}", b'{"enableACL": 1}', b'{"enableACL": []}' + b" " * PROXY_FILE_BYTES_MAX]
)
def test_a_file_that_cannot_be_understood_stops_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ConfigurationError, match=FILE):
        check_proxy_switches(tmp_path, OFF)


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        check_proxy_switches(tmp_path, OFF)

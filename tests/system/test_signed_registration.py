"""A name server that takes changes from known users only, and brokers with and without credentials."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.signing import Credentials

from .server_process import ServedProcess, free_ports, until

INNER = Credentials("inner", "inner-secret")
KNOWN = {"innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inner-secret"})}
WRONG = {"innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "hush-hush"})}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    folder = tmp_path_factory.mktemp("names")
    server = ServedProcess(
        folder,
        command="nameserver",
        options=("--data", folder / "data"),
        settings={"nameserverAuthenticationEnabled": "true", "httpEnable": "false", **KNOWN},
    )
    yield server
    server.stop()


def listed(names: ServedProcess) -> bytes:
    answer = names.client(names.name_port).call(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert answer.code == ResponseCode.SUCCESS
    return bytes(answer.body)


def readiness(server: ServedProcess) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    connection.request("GET", "/readyz")
    return connection.getresponse().read().decode()


def broker(folder: Path, names: ServedProcess, settings: dict[str, str]) -> ServedProcess:
    name = folder.name
    return ServedProcess(
        folder,
        command="broker",
        ports=(names.name_port, free_ports()[1]),
        settings={"namesrvAddr": f"127.0.0.1:{names.name_port}", "brokerName": name, **settings},
    )


def test_a_broker_with_credentials_is_listed_and_leaves(names: ServedProcess, tmp_path: Path) -> None:
    server = broker(tmp_path / "known", names, KNOWN)
    until(lambda: b'"known"' in listed(names))
    assert json.loads(readiness(server))["status"] == "ready"
    server.stop()
    until(lambda: b'"known"' not in listed(names))


@pytest.mark.parametrize(("name", "settings"), [("nobody", {}), ("impostor", WRONG)])
def test_a_broker_without_says_why_it_is_not(
    names: ServedProcess, tmp_path: Path, name: str, settings: dict[str, str]
) -> None:
    server = broker(tmp_path / name, names, settings)
    until(lambda: "registration at name server" in server.log())
    assert "innerClientAuthenticationCredentials" in server.log()
    assert "hush-hush" not in server.log()
    facts = json.loads(readiness(server))
    assert [reason["reason"] for reason in facts["reasons"]] == ["not_registered"]
    assert "innerClientAuthenticationCredentials" in facts["reasons"][0]["text"]
    assert f'"{name}"'.encode() not in listed(names)
    server.stop()


def test_whoever_can_connect_may_ask_and_not_change(names: ServedProcess) -> None:
    client = names.client(names.name_port)
    fields = {"namespace": "N", "key": "k", "value": "v"}
    refused = client.call(RequestCode.PUT_KV_CONFIG, fields)
    assert refused.code == ResponseCode.NO_PERMISSION
    assert "AccessKey" in (refused.remark or "")
    signed = client.call(RequestCode.PUT_KV_CONFIG, INNER.signed(fields))
    assert signed.code == ResponseCode.SUCCESS
    asked = client.call(RequestCode.GET_KV_CONFIG, {"namespace": "N", "key": "k"})
    assert asked.fields["value"] == "v"

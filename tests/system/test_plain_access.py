"""A server with the access control of RocketMQ 4: who is let in, behind a load balancer too, and what a change of its files does."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.callers import signed as signed_by
from tests.system.server_process import RawClient, ServedProcess, until
from tests.system.test_closed_door import SERVED, WAYS, knocks
from tests.system.test_secrets import leaks

from orbitmq.access.plain.gate import EXCEPTION
from orbitmq.access.users import User
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, encode
from orbitmq.protocol.signing import Credentials

ADMIN = Credentials("key-of-the-admin", "secret-of-the-admin")
UNKNOWN: dict[str, Callable[[Command], Command]] = {
    "No accessKey is configured": lambda command: command,
    "No acl config for nobody": lambda command: signed_by(command, User("nobody", "secret-of-nobody")),
    f"Check signature failed for accessKey={ADMIN.access_key}": (
        lambda command: signed_by(command, User(ADMIN.access_key, "secret-of-somebody"))
    ),
}
"""What is answered to whom."""

CLIENT_BEHIND = "203.0.113.7"
FILE = f"""
globalWhiteRemoteAddresses: [{CLIENT_BEHIND}]
accounts:
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    directory = tmp_path_factory.mktemp("plain")
    (directory / "accounts").mkdir()
    (directory / "accounts" / "plain_acl.yml").write_text(FILE)
    settings = {
        "aclEnable": "true",
        "aclConfigPath": directory / "accounts",
        "proxyProtocolAddresses": "127.0.0.0/8",
        "tls.test.mode.enable": "true",
    }
    server = ServedProcess(directory, settings=settings)
    yield server
    server.kill()


def ask(
    server: ServedProcess, code: RequestCode, *, client_address: str = "", signed: bool = False, **fields: str
) -> str:
    """What a new connection is told, behind the name of the exception; empty for success. `client_address`: it comes through a load
    balancer, which says so."""
    with RawClient(server.port) as client:
        if client_address:
            client.write(f"PROXY TCP4 {client_address} 127.0.0.1 4711 10911\r\n".encode())
        answer = client.call(code, ADMIN.signed(fields) if signed else fields)
        assert not answer.code or (answer.remark or "").startswith(EXCEPTION), answer.remark
        return (answer.remark or "").removeprefix(EXCEPTION) if answer.code else ""


def test_a_white_list_is_about_clients_and_not_about_the_load_balancer_before_them(server: ServedProcess) -> None:
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    assert ask(server, code) == "No accessKey is configured"
    assert ask(server, code, signed=True) == ""
    assert ask(server, code, client_address=CLIENT_BEHIND) == ""
    assert ask(server, code, client_address="203.0.113.8") == "No accessKey is configured"
    change = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    assert ask(server, change, globalWhiteAddrs="*") == "No accessKey is configured"
    assert ask(server, change, signed=True, globalWhiteAddrs="127.0.0.1") == ""
    assert ask(server, code) == ""
    assert ask(server, code, client_address=CLIENT_BEHIND) == "No accessKey is configured"


@WAYS
def test_nobody_comes_through(server: ServedProcess, way: Callable[[ServedProcess], RawClient]) -> None:
    asked = 0
    for what, answer in knocks(server, way, UNKNOWN):
        assert answer.code == ResponseCode.SYSTEM_ERROR, (what, answer.remark)
        text = (answer.remark or "").partition(EXCEPTION)[2]
        assert text, (what, answer.remark)
        assert what.endswith(text), (what, answer.remark)
        asked += 1
    assert asked > len(SERVED)


def metrics(server: ServedProcess, password: str = "") -> tuple[int, bytes]:
    """What the HTTP port answers to who shows the admin's name with a password, or nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    shown = base64.b64encode(f"{ADMIN.access_key}:{password}".encode()).decode()
    connection.request("GET", "/metrics", headers={"Authorization": f"Basic {shown}"} if password else {})
    answer = connection.getresponse()
    status, content = answer.status, answer.read()
    connection.close()
    return status, content


def test_the_http_port_asks_for_an_account_and_knows_the_white_list(server: ServedProcess) -> None:
    change = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    for white, statuses in (("127.0.0.1", [200, 200, 200]), (CLIENT_BEHIND, [401, 401, 200])):
        assert ask(server, change, signed=True, globalWhiteAddrs=white) == ""
        assert [metrics(server, password)[0] for password in ("", "wrong", ADMIN.secret_key)] == statuses


def test_no_secret_is_where_it_does_not_belong(server: ServedProcess) -> None:
    """Everything but the files of accounts, and the one request that tells secrets on purpose."""
    marked = Credentials("key-of-somebody", "Marked-secret-4kP7")
    created = {"accessKey": marked.access_key, "secretKey": marked.secret_key}
    put = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    left = {}
    with RawClient(server.port) as client:
        for code, fields in (
            (put, created),
            (put, {**created, "accessKey": "short"}),
            (RequestCode.DELETE_ACL_CONFIG, created),
            (RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {}),
            (RequestCode.GET_BROKER_CONFIG, {}),
            (RequestCode.GET_BROKER_RUNTIME_INFO, {}),
        ):
            for how, signed in (("right", ADMIN.signed(fields)), ("wrong", marked.signed(fields))):
                left[f"{code.name} {how} {len(left)}"] = encode(client.call(code, signed))
    _, left["metrics"] = metrics(server, ADMIN.secret_key)
    assert b"orbitmq_access_denied_total{" in left["metrics"]
    left |= {
        str(path): path.read_bytes()
        for path in server.directory.rglob("*")
        if path.is_file() and path.parent.name != "accounts"
    }
    assert marked.access_key in server.log()
    assert leaks(left, [ADMIN.secret_key, marked.secret_key]) == []


def test_a_file_that_changes_is_in_force_soon_and_one_that_is_wrong_never(server: ServedProcess) -> None:
    path = server.directory / "accounts" / "plain_acl.yml"
    code, stranger = RequestCode.GET_BROKER_RUNTIME_INFO, "198.51.100.1"
    path.write_text(FILE.replace(CLIENT_BEHIND, stranger))
    until(lambda: ask(server, code, client_address=stranger) == "", what="accounts that were changed")
    path.write_text("accounts: [secret-of-the-admin")
    until(lambda: "the accounts in use stay" in server.log(), what="a line about a file that is wrong")
    assert ask(server, code, client_address=stranger) == ""
    assert ask(server, code, client_address=CLIENT_BEHIND) == "No accessKey is configured"
    assert ADMIN.secret_key not in server.log()


@pytest.mark.parametrize(
    ("text", "said"), [(None, "there are no accounts"), ("accounts: [secret-of-somebody", "it is not YAML")]
)
def test_accounts_that_cannot_be_used_stop_the_start(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "data" / "conf").mkdir(parents=True)
        (tmp_path / "data" / "conf" / "plain_acl.yml").write_text(text)
    server = ServedProcess(tmp_path, settings={"aclEnable": "true"}, awaited=False)
    assert server.exit_code() != 0
    assert said in server.log()
    assert "secret-of" not in server.log()
    server.kill()

"""The closed door of a real broker: every request that it serves, on its main port, on the second one, and through TLS.

Each of those who may not call does so from an address of its own for every few requests: what one address fails is slowed otherwise.
"""

from __future__ import annotations

import itertools
import json
import ssl
from collections.abc import Callable, Iterator, Mapping

import pytest
from tests.callers import sample, signed

from orbitmq.access.users import User
from orbitmq.limits.access import FAILURES_UNSLOWED_MAX
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.requests import REQUESTS, NamedBy, RequestServer

from .server_process import RawClient, ServedProcess

ROOT, INNER = User("root", "marked-root"), User("inner", "marked-inner")
ANN, OFF, STRANGER = User("ann", "marked-ann"), User("off", "marked-off"), User("stranger", "marked-stranger")
SERVED = [row for row in REQUESTS.values() if RequestServer.BROKER in row.served_by]
UNKNOWN: dict[str, Callable[[Command], Command]] = {
    "without credentials": lambda command: command,
    "as somebody who does not exist": lambda command: signed(command, STRANGER),
    "as somebody who is disabled": lambda command: signed(command, OFF),
    "with a wrong signature": lambda command: signed(command, ROOT, "wrong"),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": ROOT.name, "password": ROOT.password}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER.name, "secretKey": INNER.password}),
        "tls.test.mode.enable": "true",
    }
    server = ServedProcess(tmp_path_factory.mktemp("closed"), settings=settings)
    with RawClient(server.port) as root:
        for user, status in ((ANN, "enable"), (OFF, "disable")):
            body = json.dumps({"username": user.name, "password": user.password, "userStatus": status}).encode()
            call(root, RequestCode.AUTH_CREATE_USER, {"username": user.name}, body)
    yield server
    server.stop()


def call(client: RawClient, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> Command:
    """A request of the super user that succeeds."""
    command = signed(Command(code, fields=fields, body=body), ROOT)
    answer = client.call(code, command.fields, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


ADDRESSES = itertools.count(2)


def main_port(server: ServedProcess) -> RawClient:
    return _from_own_address(server.port)


def second_port(server: ServedProcess) -> RawClient:
    return _from_own_address(server.port - 2)


def through_tls(server: ServedProcess) -> RawClient:
    client = _from_own_address(server.port)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client.socket = context.wrap_socket(client.socket)
    return client


def _from_own_address(port: int) -> RawClient:
    number = next(ADDRESSES)
    return RawClient(port, source=f"127.0.{number >> 8}.{number & 255}")


WAYS = pytest.mark.parametrize("way", [main_port, second_port, through_tls], ids=["main", "second", "tls"])


def knocks(
    server: ServedProcess,
    way: Callable[[ServedProcess], RawClient],
    strangers: Mapping[str, Callable[[Command], Command]],
) -> Iterator[tuple[str, Command]]:
    """Send each request in each of these ways: which it was, and its answer. What the second port serves nobody is not among them."""
    questions = list(itertools.product(SERVED, strangers.items()))
    for first in range(0, len(questions), FAILURES_UNSLOWED_MAX):
        with way(server) as client:
            for row, (how, made) in questions[first : first + FAILURES_UNSLOWED_MAX]:
                command = made(sample(row))
                answer = client.call(row.code, command.fields, bytes(command.body))
                if way is second_port and row.waits:
                    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, (row.code, how, answer.remark)
                else:
                    yield f"{row.code.name} {how}", answer


@WAYS
def test_nobody_comes_through(served: ServedProcess, way: Callable[[ServedProcess], RawClient]) -> None:
    asked = 0
    for what, answer in knocks(served, way, UNKNOWN):
        assert answer.code == ResponseCode.NO_PERMISSION, (what, answer.remark)
        asked += 1
    assert asked > len(SERVED)


def test_who_has_no_policies_may_do_nothing_that_needs_one(served: ServedProcess) -> None:
    with main_port(served) as client:
        for row in SERVED:
            command = signed(sample(row), ANN)
            answer = client.call(row.code, command.fields, bytes(command.body))
            if any(need.named_by is NamedBy.RECORD for need in row.needs):
                # Where there is no such record its handler says so; the request fails nevertheless.
                assert answer.code != ResponseCode.SUCCESS, row.code
            elif row.needs:
                assert answer.code == ResponseCode.NO_PERMISSION, (row.code, answer.remark)


def test_a_change_is_in_force_with_the_next_request_on_a_connection_that_is_there(served: ServedProcess) -> None:
    with main_port(served) as root, main_port(served) as ann:
        command = signed(sample(REQUESTS[RequestCode.GET_TOPIC_CONFIG]), ANN)

        def asked() -> int:
            return ann.call(command.code, command.fields).code

        topic = {"topic": "orders", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        call(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
        assert asked() == ResponseCode.NO_PERMISSION
        entry = {"resource": "Topic:orders", "actions": ["Get"], "decision": "Allow"}
        body = json.dumps({"subject": "User:ann", "policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()
        call(root, RequestCode.AUTH_CREATE_ACL, {"subject": "User:ann"}, body)
        assert asked() == ResponseCode.SUCCESS
        call(root, RequestCode.AUTH_DELETE_ACL, {"subject": "User:ann"})
        assert asked() == ResponseCode.NO_PERMISSION


def test_no_secret_is_in_the_log(served: ServedProcess) -> None:
    assert "marked-" not in served.log()

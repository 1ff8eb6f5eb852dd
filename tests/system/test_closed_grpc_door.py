"""The closed door of a real broker for clients of RocketMQ 5: every call that it serves, plain and through TLS."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.callers import authorization, signed
from tests.worlds.grpc_client import Client

from orbitmq.access.users import User
from orbitmq.limits.access import FAILURES_UNSLOWED_MAX
from orbitmq.protocol.grpc import messages
from orbitmq.protocol.grpc.message_prefix import MessageCutter, with_prefix
from orbitmq.protocol.grpc.messages import ClientType, Code, Resource
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc, Shape
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

from .server_process import RawClient, ServedProcess

ROOT, INNER = User("root", "marked-root"), User("inner", "marked-inner")
ANN, OFF, STRANGER = User("ann", "marked-ann"), User("off", "marked-off"), User("stranger", "marked-stranger")

TOPIC, GROUP = Resource(name="orders"), Resource(name="shop")
BOTH = {"topic": TOPIC, "group": GROUP}
PRODUCER = messages.Settings(client_type=ClientType.PRODUCER, publishing=messages.Publishing(topics=[TOPIC]))
SENT = messages.Message(
    topic=TOPIC, body=b"x", system_properties=messages.SystemProperties(message_id="id", message_type=1)
)
CALLS: Mapping[Rpc, Any] = {
    Rpc.QUERY_ROUTE: messages.QueryRouteRequest(topic=TOPIC),
    Rpc.HEARTBEAT: messages.HeartbeatRequest(group=GROUP, client_type=ClientType.PUSH_CONSUMER),
    Rpc.SEND_MESSAGE: messages.SendMessageRequest(messages=[SENT]),
    Rpc.QUERY_ASSIGNMENT: messages.QueryAssignmentRequest(**BOTH),
    Rpc.RECEIVE_MESSAGE: messages.ReceiveMessageRequest(group=GROUP, message_queue=messages.MessageQueue(topic=TOPIC)),
    Rpc.ACK_MESSAGE: messages.AckMessageRequest(**BOTH),
    Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE: messages.ForwardMessageToDeadLetterQueueRequest(**BOTH),
    Rpc.END_TRANSACTION: messages.EndTransactionRequest(topic=TOPIC, transaction_id="id", resolution=1),
    Rpc.TELEMETRY: messages.TelemetryCommand(settings=PRODUCER),
    Rpc.NOTIFY_CLIENT_TERMINATION: messages.NotifyClientTerminationRequest(group=GROUP),
    Rpc.CHANGE_INVISIBLE_DURATION: messages.ChangeInvisibleDurationRequest(**BOTH),
    Rpc.RECALL_MESSAGE: messages.RecallMessageRequest(topic=TOPIC),
    Rpc.SYNC_LITE_SUBSCRIPTION: messages.SyncLiteSubscriptionRequest(**BOTH),
}

UNKNOWN: dict[str, Mapping[bytes, bytes]] = {
    "without credentials": {},
    "with empty credentials": authorization(User("", "")),
    "as somebody who does not exist": authorization(STRANGER),
    "as somebody who is disabled": authorization(OFF),
    "with a wrong signature": authorization(ROOT, "wrong"),
    "with the beginning of a right signature": {
        **authorization(ROOT),
        b"authorization": authorization(ROOT)[b"authorization"][:-2],
    },
    "without the date": {b"authorization": authorization(ROOT)[b"authorization"]},
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
    for user, status in ((ANN, "enable"), (OFF, "disable")):
        body = {"username": user.name, "password": user.password, "userStatus": status}
        change(server, RequestCode.AUTH_CREATE_USER, {"username": user.name}, body)
    change(
        server,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {"topic": "orders", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"},
    )
    yield server
    server.stop()


def change(server: ServedProcess, code: RequestCode, fields: dict[str, str], body: object = None) -> None:
    """A request of the super user that succeeds."""
    data = b"" if body is None else json.dumps(body).encode()
    command = signed(Command(code, fields=fields, body=data), ROOT)
    with RawClient(server.port) as root:
        answer = root.call(code, command.fields, data)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def allow(server: ServedProcess, *entries: tuple[str, str]) -> None:
    """What ann may, and nothing else."""
    listed = [{"resource": resource, "actions": [action], "decision": "Allow"} for resource, action in entries]
    policies = [{"policyType": "Custom", "entries": listed}]
    change(server, RequestCode.AUTH_CREATE_ACL, {"subject": "User:ann"}, {"subject": "User:ann", "policies": policies})


def forbid(server: ServedProcess) -> None:
    change(server, RequestCode.AUTH_DELETE_ACL, {"subject": "User:ann"})


ADDRESSES = itertools.count(2)


@asynccontextmanager
async def calling(server: ServedProcess, *, tls: bool = False) -> AsyncIterator[Client]:
    """A connection from an address of its own."""
    number, context = next(ADDRESSES), None
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
    source = (f"127.1.{number >> 8}.{number & 255}", 0)
    client = Client(*await asyncio.open_connection("127.0.0.1", server.grpc_port, ssl=context, local_addr=source))
    try:
        async with asyncio.timeout(60):
            yield client
    finally:
        client.writer.close()


def statuses(client: Client, stream_id: int, rpc: Rpc) -> list[Any]:
    """Those in the answers of a call so far."""
    kind = messages.TelemetryCommand if rpc is Rpc.TELEMETRY else getattr(messages, f"{rpc}Response")
    items = MessageCutter(1 << 24, is_single=False).feed(client.answers.get(stream_id, b""))
    return [item.status for item in map(kind.FromString, items) if item.HasField("status")]


async def told(client: Client, rpc: Rpc, fields: Mapping[bytes, bytes], message: Any = None) -> Any:
    """The status that a call is answered with, which then has ended in order."""
    data = (CALLS[rpc] if message is None else message).SerializeToString()
    stream_id = client.call(rpc, data, fields)
    assert await client.ended(stream_id) == {"grpc-status": "0"}, (rpc, client.trailers[stream_id])
    (status,) = statuses(client, stream_id, rpc)
    return status


def test_every_call_that_is_served_is_tried() -> None:
    assert set(CALLS) == {rpc for rpc, row in RPCS.items() if row.is_served}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_nobody_comes_through(served: ServedProcess, tls: bool) -> None:
    questions = list(itertools.product(CALLS, UNKNOWN.items()))
    for first in range(0, len(questions), FAILURES_UNSLOWED_MAX):
        async with calling(served, tls=tls) as client:
            for rpc, (how, fields) in questions[first : first + FAILURES_UNSLOWED_MAX]:
                status = await told(client, rpc, fields)
                assert status.code == Code.UNAUTHORIZED, (rpc, how, status.message)
                assert "marked-" not in status.message


async def test_a_stranger_is_not_told_what_is_wrong_with_its_bytes(served: ServedProcess) -> None:
    async with calling(served) as client:
        stream_id = client.call(Rpc.SEND_MESSAGE, b"\xff\xff", authorization(STRANGER))
        assert await client.ended(stream_id) == {"grpc-status": "0"}
        stream_id = client.call(Rpc.SEND_MESSAGE, b"\xff\xff", authorization(ROOT))
        assert (await client.ended(stream_id))["grpc-status"] == "13"


async def test_who_has_no_policies_may_do_nothing(served: ServedProcess) -> None:
    async with calling(served) as client:
        for rpc in CALLS:
            status = await told(client, rpc, authorization(ANN))
            assert status.code == Code.UNAUTHORIZED, (rpc, status.message)
            assert "User:ann has no permission to access" in status.message


async def test_a_super_user_may_do_everything(served: ServedProcess) -> None:
    async with calling(served, tls=True) as client:
        for rpc in (rpc for rpc, row in RPCS.items() if row.is_served and row.shape is Shape.UNARY):
            status = await told(client, rpc, authorization(ROOT))
            assert status.code != Code.UNAUTHORIZED, (rpc, status.message)
        assert (await told(client, Rpc.SEND_MESSAGE, authorization(ROOT))).code == Code.OK


async def test_a_change_is_in_force_with_the_next_call_and_the_next_message_of_a_stream(served: ServedProcess) -> None:
    async with calling(served) as client:
        allow(served, ("Topic:orders", "Pub"))
        signature = authorization(ANN)
        assert (await told(client, Rpc.SEND_MESSAGE, signature)).code == Code.OK
        stream_id = client.begin(Rpc.TELEMETRY, signature)
        settings = with_prefix(CALLS[Rpc.TELEMETRY].SerializeToString())
        client.send(stream_id, settings)
        await client.until(lambda: len(statuses(client, stream_id, Rpc.TELEMETRY)) == 1)
        forbid(served)
        assert (await told(client, Rpc.SEND_MESSAGE, signature)).code == Code.UNAUTHORIZED
        client.send(stream_id, settings)
        assert await client.ended(stream_id) == {"grpc-status": "0"}
        codes = [status.code for status in statuses(client, stream_id, Rpc.TELEMETRY)]
        assert codes == [Code.OK, Code.UNAUTHORIZED]


async def test_who_fails_too_often_waits_with_everything_on_its_connection(served: ServedProcess) -> None:
    async with calling(served) as client:
        for _ in range(FAILURES_UNSLOWED_MAX):
            await told(client, Rpc.HEARTBEAT, {})
        begun = time.monotonic()
        late = client.call(Rpc.HEARTBEAT, b"", {})
        behind = client.call(Rpc.SEND_MESSAGE, CALLS[Rpc.SEND_MESSAGE].SerializeToString(), authorization(ROOT))
        await client.ended(behind)
        assert time.monotonic() - begun > 0.09
        assert statuses(client, late, Rpc.HEARTBEAT)[0].code == Code.UNAUTHORIZED
        assert statuses(client, behind, Rpc.SEND_MESSAGE)[0].code == Code.OK
        assert (await told(client, Rpc.SEND_MESSAGE, authorization(ROOT))).code == Code.OK


async def test_a_flood_of_strangers_is_not_read_and_ends(served: ServedProcess) -> None:
    """The planted front (`test_front`) answers them all at once."""
    async with calling(served) as client:
        for _ in range(200):
            client.call(Rpc.HEARTBEAT, b"", authorization(STRANGER))
        await client.closed()
        assert len(client.trailers) < 200
    async with calling(served) as client:
        assert (await told(client, Rpc.SEND_MESSAGE, authorization(ROOT))).code == Code.OK


def no_secret(what: Callable[[], str]) -> None:
    text = what()
    for user in (ROOT, INNER, ANN, OFF, STRANGER):
        assert user.password not in text
        assert authorization(user)[b"authorization"].decode().rpartition("=")[2] not in text.lower()


async def test_no_secret_and_no_signature_is_in_the_log(served: ServedProcess) -> None:
    async with calling(served) as client:
        for fields in UNKNOWN.values():
            assert (await told(client, Rpc.SEND_MESSAGE, fields)).code == Code.UNAUTHORIZED
    assert "a request (SendMessage) from" in served.log()
    no_secret(served.log)

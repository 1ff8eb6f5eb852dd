"""Secrets stay where they belong: after a run with marked ones, everything that a server and its tools leave is searched for them.

Everything is: files outside the table of users, lines of the log, metrics, answers, output of commands, and what the system shows of the
process.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from tests.callers import authorization
from tests.worlds.certificates import Authority
from tests.worlds.grpc_client import Client

from orbitmq.access.users import User
from orbitmq.protocol.grpc.messages import Message, Resource, SendMessageRequest, Settings, TelemetryCommand
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import encode, request
from orbitmq.protocol.signing import Credentials

from .server_process import ServedProcess, clean_environment, send_fields

ROOT, INNER, APP = "Marked-root-7fK2", "Marked-inner-9xQ4", "Marked-app-3mZ8"
CHANGED, REFUSED, TYPED, TOKEN = "Marked-changed-5vB1", "Marked-refused-6wN0", "Marked-typed-2cH5", "Marked-token-8pL3"
KEY_PASSWORD, CONTEXT = "Marked-key-4rT6", "Marked-context-1dS9"
SECRETS = (ROOT, INNER, APP, CHANGED, REFUSED, TYPED, TOKEN, KEY_PASSWORD, CONTEXT)
NAMES = ("root", "inner", "app", "typo")
CALLERS = {
    "right": authorization(User("app", CHANGED)),
    "wrong": authorization(User("app", APP)),
    "super": authorization(User("root", ROOT)),
    "lent": authorization(User("app", CHANGED)) | {b"x-mq-session-token": TOKEN.encode()},
    "secret as name": authorization(User(REFUSED, REFUSED)),
    "secret as signature": {b"authorization": f"MQv2-HMAC-SHA1 Credential=app, Signature={TYPED}".encode()},
    "secret as field": {b"authorization": TYPED.encode(), b"x-mq-date-time": TYPED.encode()},
    "nobody": {},
}
"""Header fields of gRPC calls."""
SIGNATURES = [
    fields[b"authorization"].decode().rpartition("=")[2] for fields in CALLERS.values() if b"x-mq-date-time" in fields
]
ALLOWED = {"data/config/orbitmq-access.json", "broker.conf", "home/.config/orbitmq/contexts.toml"}
"""Where secrets belong."""


def leaks(left: Mapping[str, bytes], secrets: Iterable[str]) -> list[str]:
    """Where something has a secret: as it is, in base64 as in the HTTP header, or in hexadecimal digits."""
    found = []
    for secret in secrets:
        forms = {secret.encode(), secret.encode().hex().encode(), base64.b64encode(secret.encode()).rstrip(b"=")}
        forms |= {base64.b64encode(f"{name}:{secret}".encode()).rstrip(b"=") for name in NAMES}
        found += [f"{secret} in {where}" for where, content in left.items() if any(form in content for form in forms)]
    return found


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but those where secrets belong."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in ALLOWED:
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def shown_of(pid: int) -> dict[str, bytes]:
    """What everybody on the machine may see of a process."""
    return {f"/proc/{name}": Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "comm", "environ")}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What is left of the run, by where it is."""
    folder = tmp_path_factory.mktemp("secrets")
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    pair = authority.issue("server", password=KEY_PASSWORD)
    settings = {
        "tls.server.certPath": pair.cert,
        "tls.server.keyPath": pair.key,
        "tls.server.keyPassword": KEY_PASSWORD,
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "nameserverAuthenticationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": INNER}),
        "logLevel": "DEBUG",
    }
    config = folder / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    config.chmod(0o600)
    server = ServedProcess(folder, options=("--config", config))
    found = {f"request {name}": content for name, content in asked(server).items()}
    found |= {f"call {name}": content for name, content in asyncio.run(called(server)).items()}
    found |= {f"http {name}": content for name, content in watched(server).items()}
    found |= {f"command {name}": content for name, content in commanded(server, folder / "home").items()}
    found |= shown_of(server.pid)
    server.stop()
    again = ServedProcess(folder, options=("--config", config), ports=(server.name_port, server.port))
    again.stop()
    return found | files(folder)


def asked(server: ServedProcess) -> dict[str, bytes]:
    """Requests about users and configuration, right ones and wrong ones; the whole frames of the answers."""
    root, answers = Credentials("root", ROOT), {}

    def ask(
        name: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"", *, who: Credentials | None = root
    ) -> int:
        client = server.client(server.name_port if name.startswith("names") else server.port)
        answer = client.call(code, fields or {} if who is None else who.signed(fields or {}, body), body)
        answers[name] = encode(answer)
        return answer.code

    def user(name: str, password: str, **more: str) -> bytes:
        return json.dumps({"username": name, "password": password, **more}).encode()

    named = {"username": "app"}
    assert not ask("create", RequestCode.AUTH_CREATE_USER, named, user("app", APP, userType="Normal"))
    ask("create again", RequestCode.AUTH_CREATE_USER, named, user("app", REFUSED))
    ask("create badly", RequestCode.AUTH_CREATE_USER, {"username": "typo"}, user("typo", REFUSED, userType="Nobody"))
    ask("create half", RequestCode.AUTH_CREATE_USER, {"username": "typo"}, user("typo", REFUSED)[:-1])
    ask("create long", RequestCode.AUTH_CREATE_USER, {"username": "typo"}, user("typo", REFUSED * 1_000))
    ask("secret as name", RequestCode.AUTH_GET_USER, {"username": REFUSED + "\n"}, who=None)
    assert not ask("update", RequestCode.AUTH_UPDATE_USER, named, user("app", CHANGED))
    ask("signed wrongly", RequestCode.SEND_MESSAGE_V2, send_fields(), b"x", who=Credentials("app", APP))
    ask("lent", RequestCode.SEND_MESSAGE_V2, send_fields(), b"x", who=Credentials("app", CHANGED, TOKEN))
    ask("not allowed", RequestCode.GET_ALL_TOPIC_CONFIG, who=Credentials("app", CHANGED))
    ask("configuration", RequestCode.GET_BROKER_CONFIG)
    ask("runtime", RequestCode.GET_BROKER_RUNTIME_INFO)
    change = f"innerClientAuthenticationCredentials={REFUSED}\ninitAuthenticationUser={REFUSED}\nsecretOfMine={REFUSED}"
    assert ask("change", RequestCode.UPDATE_BROKER_CONFIG, body=change.encode())
    ask("names configuration", RequestCode.GET_NAMESRV_CONFIG)
    ask("names change", RequestCode.UPDATE_NAMESRV_CONFIG, body=change.encode())
    torn = server.client()
    torn.write(encode(request(RequestCode.SEND_MESSAGE_V2, {"AccessKey": "app", "x": CHANGED}))[:-9])
    torn.close()
    return answers


async def called(server: ServedProcess) -> dict[str, bytes]:
    """gRPC calls, right ones and wrong ones: all that is answered to them. Whoever gives a secret for a name is told that name."""
    answers = {}
    send = SendMessageRequest(messages=[Message(topic=Resource(name="orders"))])
    settings = TelemetryCommand(settings=Settings())
    for name, fields in CALLERS.items():
        client = Client(*await asyncio.open_connection("127.0.0.1", server.grpc_port))
        for rpc, data in (
            (Rpc.SEND_MESSAGE, send.SerializeToString()),
            (Rpc.TELEMETRY, settings.SerializeToString()),
            (Rpc.HEARTBEAT, b"\xff"),
        ):
            stream_id = client.call(rpc, data, fields)
            async with asyncio.timeout(60):
                await client.ended(stream_id)
            said = client.heads[stream_id], client.trailers[stream_id], client.answers.get(stream_id, b"")
            if name != "secret as name":
                answers[f"{name} {rpc}"] = repr(said).encode()
        client.writer.close()
    return answers


def watched(server: ServedProcess) -> dict[str, bytes]:
    answers = {}
    headers = {
        "right": f"root:{ROOT}".encode(),
        "wrong": f"root:{TYPED}".encode(),
        "odd": f"root {TYPED}".encode(),
    }
    for name, content in headers.items():
        for path in ("/metrics", "/readyz", "/healthz", "/no-such-thing"):
            connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
            connection.request("GET", path, headers={"Authorization": f"Basic {base64.b64encode(content).decode()}"})
            answer = connection.getresponse()
            answers[f"{name} {path}"] = bytes(str(answer.headers), "utf-8") + answer.read()
            if name != "right" and path == "/metrics":
                assert answer.status == 401
    return answers


def commanded(server: ServedProcess, home: Path) -> dict[str, bytes]:
    """Commands as users of two contexts, one whose secret is right and one whose is not."""
    home.mkdir()
    environment = clean_environment() | {"HOME": str(home), "XDG_CONFIG_HOME": ""}
    printed = {}

    def command(*words: str, typed: str = "", **more: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "orbitmq.cli.main", *words],
            input=typed.encode(),
            capture_output=True,
            env=environment | more,
            timeout=120,
            check=False,
        )
        printed[" ".join(words)] = done.stdout + done.stderr

    where = f"127.0.0.1:{server.name_port}"
    command("context", "add", "right", where, "--access-key", "root", typed=f"{ROOT}\n")
    command("context", "add", "wrong", where, "--access-key", "root", typed=f"{CONTEXT}\n")
    for context in ("right", "wrong"):
        # a wrong answer waits, for as long as a call does where nothing is said
        command("--context", context, "broker", "config", "get", "broker-a", "--timeout-ms", "60000")
    command("context", "list")
    command("context", "show", "right")
    command("broker", "list", ORBITMQ_NAMESRV=where, ORBITMQ_ACCESS_KEY="root", ORBITMQ_SECRET_KEY=CONTEXT)
    command("doctor", "--data", str(server.data), "--nameserver-port", str(server.name_port), "--broker-port",
            str(server.port), "--http-port", str(server.http_port))  # fmt: skip
    return printed


def test_no_secret_is_where_it_does_not_belong(left: dict[str, bytes]) -> None:
    """An answer to a super user has passwords on purpose; this run asks for none."""
    assert leaks(left, SECRETS) == []
    assert leaks({where: content.lower() for where, content in left.items()}, filter(None, SIGNATURES)) == []


def test_the_run_did_what_it_was_to_do(left: dict[str, bytes]) -> None:
    """A run that ends early leaks nothing either."""
    assert b"rocketmq_" in left["http right /metrics"]
    assert b"orbitmq_access_denied_total{" in left["http right /metrics"]
    assert b"******" in left["request configuration"]
    assert b"check signature failed" in left["request signed wrongly"]
    assert b"is refused" in left["log"]
    assert b"check signature failed" in left["call wrong SendMessage"]
    assert b"has no permission" in left["call right SendMessage"]
    assert b"username cannot be null" in left["call nobody Telemetry"]
    assert left["data/config/topics.json"]
    assert b"brokerName" in left["command --context right broker config get broker-a --timeout-ms 60000"]
    assert b"check signature failed" in left["command --context wrong broker config get broker-a --timeout-ms 60000"]


@pytest.mark.parametrize("form", ["plain", "base64", "hex", "header"])
def test_a_planted_leak_is_found(left: dict[str, bytes], form: str) -> None:
    content = {
        "plain": APP.encode(),
        "base64": base64.b64encode(APP.encode()),
        "hex": APP.encode().hex().encode(),
        "header": base64.b64encode(f"app:{APP}".encode()),
    }[form]
    planted = {**left, "log": left["log"] + b"a line with " + content + b" in it\n"}
    assert leaks(planted, SECRETS) == [f"{APP} in log"]

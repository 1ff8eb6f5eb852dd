"""A real server that speaks TLS, judged by OpenSSL's own client."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.worlds.certificates import Authority, Pair

import orbitmq.sync
from orbitmq.client import ClientOptions, connect
from orbitmq.errors import OrbitError
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.server.encryption.tls import REFUSAL

from .server_process import ClosedByServer, RawClient, ServedProcess, clean_environment, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def of_server(pair: Pair, **more: str) -> dict[str, str]:
    return {"tls.server.certPath": str(pair.cert), "tls.server.keyPath": str(pair.key), **more}


@pytest.fixture(scope="module")
def served(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """Nothing but TLS, and only for clients with a certificate of the same authority."""
    settings = of_server(
        authority.issue("server", password="of the key"),
        **{
            "tls.server.mode": "enforcing",
            "tls.server.keyPassword": "of the key",
            "tls.server.need.client.auth": "require",
            "tls.server.trustCertPath": str(authority.file),
            "tls.client.trustCertPath": str(authority.file),
        },
    )
    own = authority.issue("broker")
    settings |= {"tls.client.certPath": str(own.cert), "tls.client.keyPath": str(own.key)}
    server = ServedProcess(tmp_path_factory.mktemp("served"), settings=settings)
    yield server
    server.stop()


def trusting(authority: Authority, own: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if own is not None:
        context.load_cert_chain(own.cert, own.key)
    return context


def tls_client(port: int, context: ssl.SSLContext) -> RawClient:
    client = RawClient(port)
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    return client


def s_client(port: int, *options: object) -> str:
    """What `openssl s_client` says about a connection that it opens and closes."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    words = [program, "s_client", "-connect", f"127.0.0.1:{port}", *map(str, options)]
    done = subprocess.run(words, input=b"", capture_output=True, timeout=120, check=False)
    return (done.stdout + done.stderr).decode(errors="replace")


@pytest.mark.parametrize("port", ["broker", "second port", "name server", "http"])
def test_openssl_judges_versions_and_client_certificates(
    served: ServedProcess, authority: Authority, port: str
) -> None:
    number = {
        "broker": served.port,
        "second port": served.port - 2,
        "name server": served.name_port,
        "http": served.http_port,
    }[port]
    own = authority.issue("client")
    identity = ("-cert", own.cert, "-key", own.key, "-CAfile", authority.file)
    for version, wanted in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
        said = s_client(number, version, *identity)
        assert "Verify return code: 0 (ok)" in said, said
        assert f"{wanted}, Cipher is" in said, said
    assert "Cipher is (NONE)" in s_client(number, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", *identity)
    assert "certificate required" in s_client(number, "-tls1_3", "-ign_eof", "-CAfile", authority.file)
    assert "alert handshake failure" in s_client(number, "-tls1_2", "-CAfile", authority.file)


def test_a_stranger_certificate_opens_nothing(served: ServedProcess, authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").issue("client")
    with pytest.raises((ssl.SSLError, ClosedByServer, ConnectionError)):
        tls_client(served.port, trusting(authority, stranger)).call(RequestCode.GET_ALL_TOPIC_CONFIG)


def test_the_broker_registers_over_tls_and_answers(served: ServedProcess, authority: Authority) -> None:
    context = trusting(authority, authority.issue("client"))
    with tls_client(served.name_port, context) as client:
        assert client.call(RequestCode.GET_BROKER_CLUSTER_INFO).body.find(b"broker-a") > 0
    with tls_client(served.port, context) as client:
        configuration = client.call(RequestCode.GET_BROKER_CONFIG)
        assert b"tls.server.mode=enforcing" in configuration.body
        assert b"of the key" not in configuration.body
    assert "of the key" not in served.log()


def test_plain_bytes_are_closed_at_every_port(served: ServedProcess) -> None:
    for port in (served.port, served.port - 2, served.name_port, served.http_port):
        with RawClient(port) as client, pytest.raises(ClosedByServer):
            client.call(RequestCode.GET_ALL_TOPIC_CONFIG)


async def test_our_client_speaks_tls(served: ServedProcess, authority: Authority) -> None:
    own = authority.issue("client")
    address = f"127.0.0.1:{served.name_port}"
    async with connect(address, options=ClientOptions(tls=trusting(authority, own))) as mq:
        receipt = await mq.send("encrypted", b"body" * 5_000)
        stored = await mq.admin.message_by_id(receipt.message_id, "encrypted")
        assert stored is not None
        assert stored.body == b"body" * 5_000
    for options, said in [
        (ClientOptions(tls=True), "its certificate is refused"),
        (ClientOptions(), "takes nothing but TLS"),
        (ClientOptions(tls=trusting(authority)), "ask for a certificate|handshake failed|lost"),
    ]:
        async with connect(address, options=options) as stranger:
            with pytest.raises(OrbitError, match=said):
                await stranger.send("encrypted", b"body")


def test_so_does_its_synchronous_twin(served: ServedProcess, authority: Authority) -> None:
    options = orbitmq.ClientOptions(tls=trusting(authority, authority.issue("client")))
    with orbitmq.sync.connect(f"127.0.0.1:{served.name_port}", options=options) as mq:
        assert mq.send("encrypted", b"body").message_id


def test_commands_speak_tls(served: ServedProcess, authority: Authority, tmp_path: Path) -> None:
    """By options, by variables, by a context; and what a shell completes."""
    own = authority.issue("operator", password="of the operator")
    (tmp_path / "password").write_text("of the operator\n")
    settings = {
        "tls-trusted": authority.file,
        "tls-certificate": own.cert,
        "tls-key": own.key,
        "tls-password-file": tmp_path / "password",
    }
    options = ["--tls", *(word for name, value in settings.items() for word in (f"--{name}", str(value)))]
    variables = {f"ORBITMQ_{name.upper().replace('-', '_')}": str(value) for name, value in settings.items()}
    home = {**clean_environment(), "XDG_CONFIG_HOME": str(tmp_path), "COLUMNS": "200"}
    server = f"127.0.0.1:{served.name_port}"

    def run(*words: str, code: int = 0, **more: str) -> str:
        line = [sys.executable, "-m", "orbitmq", *words]
        done = subprocess.run(line, capture_output=True, text=True, env={**home, **more}, timeout=180, check=False)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        assert "of the operator" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    run("send", "by-command", "body", "-n", server, *options)
    assert "by-command" in run("topic", "list", ORBITMQ_NAMESRV=server, ORBITMQ_TLS="true", **variables)
    run("context", "add", "here", server, *options)
    assert "body" in run("tail", "by-command", "--from-beginning", "--count", "1")
    completion = {"_ORBITMQ_COMPLETE": "bash_complete", "COMP_WORDS": "orbitmq topic show by-", "COMP_CWORD": "3"}
    until(lambda: "by-command" in run(**completion), what="a completed topic", limit_s=180)
    assert "takes nothing but TLS" in run("topic", "list", "--no-tls", code=3)
    assert "certificate is refused" in run("topic", "list", "-n", server, "--tls", code=3)


def test_a_replaced_pair_serves_without_dropping_anybody(authority: Authority, tmp_path: Path) -> None:
    pair, new = authority.issue("before"), authority.issue("after")
    server = ServedProcess(tmp_path / "server", command="nameserver", settings=of_server(pair))
    context = trusting(authority)

    def served_name() -> object:
        with tls_client(server.name_port, context) as fresh:
            shown = fresh.socket.getpeercert()  # type: ignore[attr-defined]
            return dict(field[0] for field in shown["subject"])["commonName"]

    with tls_client(server.name_port, context) as old, RawClient(server.name_port) as plain:
        assert served_name() == "before"
        new.cert.replace(pair.cert)
        until(lambda: "cannot be used" in server.log(), what="a line about half a pair")
        assert served_name() == "before"
        new.key.replace(pair.key)
        until(lambda: served_name() == "after", what="the new certificate")
        for client in (old, plain):
            assert client.call(RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.SUCCESS
    server.stop()


def test_test_mode_keeps_its_certificate(tmp_path: Path) -> None:
    made = tmp_path / "server" / "data" / "tls" / "test-certificate.pem"
    contents = []
    for _ in range(2):
        server = ServedProcess(tmp_path / "server", settings={"tls.test.mode.enable": "true"})
        contents.append(made.read_bytes())
        context = ssl.create_default_context(cafile=str(made))
        for port in (server.port, server.name_port, server.http_port):
            tls_client(port, context).close()
        with RawClient(server.port) as plain:
            assert plain.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == ResponseCode.SUCCESS
        server.stop()
    assert contents[0] == contents[1]


def test_the_doctor_asks_over_tls(tmp_path: Path) -> None:
    server = ServedProcess(
        tmp_path / "server", settings={"tls.test.mode.enable": "true", "tls.server.mode": "enforcing"}
    )
    ports = ("--nameserver-port", server.name_port, "--broker-port", server.port, "--http-port", server.http_port)
    ports += ("--grpc-port", server.grpc_port)
    line = [sys.executable, "-m", "orbitmq", "doctor", "--data", tmp_path, "--json", *ports]
    done = subprocess.run(
        [*map(str, line)], capture_output=True, text=True, env=clean_environment(), timeout=180, check=False
    )
    found = {row["check"]: row["found"] for row in json.loads(done.stdout)}
    assert "in use by a server that answers" in found["name server port"]
    assert "in use by a server that answers" in found["broker port"]
    assert "speaks HTTP/2 over TLS" in found["grpc port"]
    assert "the server there is ready" in found["http port"]
    assert "expires in" in found["certificate"]
    server.stop()


def test_without_a_certificate_tls_is_refused_in_its_own_words(tmp_path: Path) -> None:
    server = ServedProcess(
        tmp_path / "server", command="nameserver", settings={"proxyProtocolAddresses": "127.0.0.0/8"}
    )
    with RawClient(server.name_port) as client:
        client.write(bytes.fromhex("1603010200010001fc0303") + bytes(500))
        assert client.socket.recv(100) == REFUSAL
    assert "handshake failure" in s_client(server.name_port)
    until(lambda: "tls.test.mode.enable" in server.log(), what="a line that says what to do")
    with RawClient(server.name_port) as client:
        client.write(b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 9876\r\nnot a frame")
        assert client.is_ended()
    until(lambda: "203.0.113.7:4711" in server.log(), what="a line about the client behind the balancer")
    server.stop()


@pytest.mark.parametrize("wrong", ["tls.server.certPath", "tls.server.keyPath"])
def test_a_file_that_cannot_be_read_stops_the_start(authority: Authority, tmp_path: Path, wrong: str) -> None:
    settings = of_server(authority.issue("server")) | {wrong: str(tmp_path / "missing")}
    server = ServedProcess(tmp_path / "server", command="nameserver", settings=settings, awaited=False)
    assert server.exit_code() != 0
    assert wrong in server.log()
    server.kill()

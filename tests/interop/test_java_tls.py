"""The Java broker as the control of what `openssl` and our own client say about a server that asks for certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import BrokerUnderTest, JvmProfile, Kind
from rig.toolchain import BROKER_VERSION, java_build
from tests.system.test_tls import s_client, trusting
from tests.worlds.certificates import Authority

import orbitmq

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=[Kind.ORBITMQ, Kind.JAVA], ids=["orbitmq", "java"])
def encrypted(
    request: pytest.FixtureRequest,
    available: Callable[[Callable[[], Any]], None],
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BrokerUnderTest]:
    """A server that asks for certificates, ours or Java's: both read the same file."""
    available(lambda: java_build(BROKER_VERSION))
    folder, pair = tmp_path_factory.mktemp("encrypted"), authority.issue("server")
    settings = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": pair.cert,
        "tls.server.keyPath": pair.key,
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": authority.file,
    }
    file = folder / "tls.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", f"-Dtls.config.file={file}")
        own = {"tls.config.file": str(file)} if request.param is Kind.ORBITMQ else {}
        broker = BrokerUnderTest(request.param, folder, settings=own, profile=JvmProfile.TLS)
        with broker:
            yield broker


def test_openssl_judges_it(encrypted: BrokerUnderTest, authority: Authority) -> None:
    own = authority.issue("client")
    identity = ("-cert", own.cert, "-key", own.key, "-CAfile", authority.file)
    for port in (encrypted.broker_port, encrypted.nameserver_port):
        for version, name in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
            said = s_client(port, version, *identity)
            assert "Verify return code: 0 (ok)" in said, said
            assert f"{name}, Cipher is" in said, said
        assert "Cipher is (NONE)" in s_client(port, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", *identity)
        assert "alert" in s_client(port, "-tls1_2", "-CAfile", authority.file), "it wants a certificate"
        assert "alert" in s_client(port, "-tls1_3", "-ign_eof", "-CAfile", authority.file)


async def test_our_client_speaks_tls_with_it(encrypted: BrokerUnderTest, authority: Authority, tmp_path: Path) -> None:
    def options(tls: Any) -> orbitmq.ClientOptions:
        return orbitmq.ClientOptions(tls=tls, connect_timeout_ms=30_000, request_timeout_ms=30_000)

    body = bytes(range(256)) * 100
    own = trusting(authority, authority.issue("reader"))
    async with orbitmq.connect(encrypted.name_server, options=options(own)) as mq:
        await mq.admin.create_topic("encrypted", queues_count=1)
        for _ in range(20):
            await mq.send("encrypted", body)
        received = 0
        first = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
        async with mq.consumer("readers", "encrypted", options=first) as consumer:
            async for message in consumer:
                assert message.body == body
                await message.ack()
                received += 1
                if received == 20:
                    break
    stranger = trusting(authority, Authority(tmp_path, "stranger").issue("stranger"))
    for tls, said in ((True, "certificate is refused"), (trusting(authority), None), (stranger, None)):
        async with orbitmq.connect(encrypted.name_server, options=options(tls)) as mq:
            with pytest.raises(orbitmq.OrbitError, match=said):
                await mq.send("encrypted", body)

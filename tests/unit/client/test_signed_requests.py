"""A client with credentials signs everything that it asks, and answers unsigned; one without adds nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scripted_cluster import NAME_SERVER, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client.message import Message
from orbitmq.client.options import ClientOptions, ConsumeFrom, ConsumerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.signing import Credentials, signature

Run = Callable[[Callable[[], object]], None]
FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)


def asked(cluster: Cluster) -> list[Command]:
    return [command for server in (cluster.name_server, *cluster.brokers.values()) for command in server.log]


def use(run: Run, cluster: Cluster, credentials: Credentials | None) -> list[Command]:
    """What the servers were asked by a client that does a little of everything."""

    async def test() -> None:
        options = ClientOptions(credentials=credentials)
        async with Client(NAME_SERVER, options=options, clock=ManualClock(), dial=cluster.dial) as client:
            await client.send("T", b"plain", key="k")
            await client.send("T", b"later", delay_level=3)
            await client.send_batch("T", [Message(b"one"), Message(b"two")])
            async with client.consumer("g", "T", options=FIRST) as consumer:
                got = 0
                async for message in consumer:
                    await message.ack()
                    got += 1
                    if got == 3:
                        break

    run(test)
    return asked(cluster)


def test_every_request_is_signed_for_its_fields_and_its_body(run: Run, cluster: Cluster) -> None:
    commands = use(run, cluster, Credentials("ops", "hush", "lent"))
    codes = {command.code for command in commands}
    wanted = (
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.HEART_BEAT,
    )
    assert codes >= {*wanted, RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.UNREGISTER_CLIENT}
    for command in commands:
        assert command.fields["AccessKey"] == "ops"
        assert command.fields["SecurityToken"] == "lent"
        assert command.fields["Signature"] == signature("hush", command.fields, command.body), command.code
        assert "hush" not in str(command)


def test_without_credentials_nothing_is_added(run: Run, cluster: Cluster) -> None:
    for command in use(run, cluster, None):
        assert not command.fields.keys() & {"AccessKey", "Signature", "SecurityToken"}


@pytest.mark.parametrize("secret", ["", " hush", "hu\nsh", None, 7])
def test_a_secret_that_is_none_is_refused_without_being_shown(secret: object) -> None:
    with pytest.raises(ConfigurationError, match="secret_key must be text") as caught:
        Credentials("ops", secret)  # type: ignore[arg-type]
    assert "hu" not in str(caught.value)


def test_options_do_not_print_the_secret() -> None:
    with pytest.raises(ConfigurationError, match=r"an orbitmq\.Credentials, or None$"):
        ClientOptions(credentials=("ops", "hush"))  # type: ignore[arg-type]
    options = ClientOptions(credentials=Credentials("ops", "hush"))
    assert "ops" in repr(options)
    assert "hush" not in repr(options)

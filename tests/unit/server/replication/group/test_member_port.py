"""Who connects to the port for members: strangers, others' members, and what breaks the protocol cost a connection and one line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.worlds.group_in_process import GroupInProcess

from orbitmq.protocol.replication.member_frames import (
    GREETING_BYTES,
    GROUP_MAGIC,
    HELLO_KIND,
    LINK_VERSION,
    MemberHello,
    encode_frame,
    read_greeting,
)
from orbitmq.replication import replica_steps as steps
from orbitmq.server.connections.addresses import endpoint
from orbitmq.server.replication.group.member_messages import encode

HELLO = MemberHello(LINK_VERSION, "DefaultCluster", "trio", "b", "a", "b" * 32, "b-life", 1)
SESSION = ("b-life", 1)


@pytest.fixture
async def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GroupInProcess]:
    made = GroupInProcess(tmp_path, monkeypatch)
    yield made
    await made.end()


class Caller:
    """A raw connection to the port for members of "a"."""

    def __init__(self, group: GroupInProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.group, self.reader, self.writer = group, reader, writer
        self.nonce = b""

    @classmethod
    async def of(cls, group: GroupInProcess) -> Caller:
        return cls(group, *await asyncio.open_connection("127.0.0.1", group.ports["a"] + 1))

    async def say(self, hello: MemberHello = HELLO, secret: str = "") -> None:
        self.writer.write(GROUP_MAGIC)
        self.nonce = read_greeting(await self.reader.readexactly(GREETING_BYTES))
        self.writer.write(encode_frame(HELLO_KIND, hello.proved(self.nonce, secret) if secret else hello))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def is_closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(), 5) == b""
        except ConnectionError:
            return True

    async def is_taken(self) -> None:
        """Until the port knows it as the connection of a member."""
        own = endpoint(*self.writer.get_extra_info("sockname"))
        port = self.group.member("a").port
        await self.group.until(lambda: any(one.member and one.address == own for one in port.connections), "taken")


async def test_what_is_no_member_is_let_go_with_one_line(
    group: GroupInProcess, caplog: pytest.LogCaptureFixture
) -> None:
    await group.start("a")
    port = group.member("a").port
    caplog.set_level(logging.WARNING)
    for said, why in (
        (HELLO._replace(version=1), "speaks version 1"),
        (HELLO._replace(cluster="other"), "of group trio in other"),
        (HELLO._replace(group="duo"), "of group duo"),
        (HELLO._replace(to="c"), "looks for member 'c'"),
        (HELLO._replace(sender="a"), "calls itself 'a'"),
        (HELLO._replace(sender=""), "calls itself ''"),
    ):
        caplog.clear()
        caller = await Caller.of(group)
        await caller.say(said)
        assert await caller.is_closed()
        lines = [one.getMessage() for one in caplog.records if "is let go" in one.getMessage()]
        assert len(lines) == 1
        assert why in lines[0]
    caplog.clear()
    again = await Caller.of(group)
    await again.say(said)
    assert await again.is_closed()
    assert not caplog.text, "who comes again and again is told once a minute"
    stranger = await Caller.of(group)
    stranger.send(b"GET / HTTP/1.1\r\n\r\n")
    assert await stranger.is_closed()
    assert "it speaks another protocol" in caplog.text
    early = await Caller.of(group)
    early.send(GROUP_MAGIC + encode(steps.Hello("b", 1, SESSION)))
    await early.reader.readexactly(GREETING_BYTES)
    assert await early.is_closed()
    assert "before it was known who sends it" in caplog.text
    assert port.refused == 9
    await group.until(lambda: not port.connections, "all of them gone")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (encode(steps.Hello("c", 1, SESSION)), "sent a message of 'c'"),
        (encode_frame(HELLO_KIND, HELLO), "a second hello"),
        (b"\x7f\xff\xff\xff\0\0\0\0", "announces"),
        (encode(steps.Hello("b", 1, SESSION))[:-1] + b"\x09", "checksum"),
        (encode_frame(99, steps.Hello("b", 1, SESSION)), "kind 99"),
    ],
)
async def test_a_member_that_breaks_the_protocol_is_let_go(
    group: GroupInProcess, caplog: pytest.LogCaptureFixture, data: bytes, why: str
) -> None:
    await group.start("a")
    caller = await Caller.of(group)
    await caller.say()
    await caller.is_taken()
    caller.send(data)
    assert await caller.is_closed()
    assert why in caplog.text
    assert "member b at 127.0.0.1:" in caplog.text


async def test_a_name_has_one_store_while_its_member_is_connected(
    group: GroupInProcess, caplog: pytest.LogCaptureFixture
) -> None:
    await group.start("a")
    first, second = await Caller.of(group), await Caller.of(group)
    await first.say()
    await first.is_taken()
    await second.say(HELLO._replace(store="c" * 32))
    assert await second.is_closed()
    assert "two members have one replicaName" in caplog.text
    again = await Caller.of(group)
    await again.say(HELLO._replace(claim="b-next-life"))
    assert await first.is_closed(), "the same member has begun anew"
    await again.is_taken()


async def test_a_crowd_of_clients_keeps_no_member_out(group: GroupInProcess) -> None:
    await group.start("a")
    room = group.running["a"].room
    others, room.open_count = room.open_count, room.open_max
    caller = await Caller.of(group)
    await caller.say()
    await caller.is_taken()
    room.open_count = others
    caller.writer.close()


async def test_with_credentials_only_who_knows_the_secret_comes_in(group: GroupInProcess) -> None:
    secret = '{"accessKey":"inner","secretKey":"of the group"}'
    await group.start("a", innerClientAuthenticationCredentials=secret)
    unnamed, wrong, right = [await Caller.of(group) for _ in range(3)]
    await unnamed.say()
    assert await unnamed.is_closed()
    await wrong.say(secret="of another")
    assert await wrong.is_closed()
    await right.say(secret="of the group")
    await right.is_taken()


async def test_positions_that_cannot_be_end_a_stream(group: GroupInProcess, caplog: pytest.LogCaptureFixture) -> None:
    await group.start("a")
    await group.until(lambda: group.leader == "a", "a leader")
    group.contents.put("trio", group.view().add_learner("b"))
    driver = group.member("a").driver
    assert driver is not None
    await group.until(lambda: "b" in driver.replica.others, "a learner")
    end, epoch = group.member("a").store.log.written_end, driver.replica.epoch
    caller = await Caller.of(group)
    await caller.say()
    for number, position in ((1, end + 1), (2, 5)):
        session = ("b-life", number)
        caller.send(encode(steps.Hello("b", epoch, session)) + encode(steps.Follow("b", epoch, session, position)))
    assert await caller.is_closed()
    assert "it has the log up to 5, where no record of ours begins" in caplog.text
    assert group.member("a").links.senders["b"].stream is None
    caller = await Caller.of(group)
    await caller.say()
    session = ("b-life", 3)
    caller.send(encode(steps.Hello("b", epoch, session)) + encode(steps.Follow("b", epoch, session, end)))
    await group.until(lambda: group.member("a").links.senders["b"].stream is not None, "a stream")
    report, port = encode(steps.Report("b", epoch, session, end + 100)), group.member("a").port
    received = port.received_bytes + len(report)
    caller.send(report)
    await group.until(lambda: port.received_bytes >= received, "the report heard")
    assert driver.replica.counting.end_of("b") is None, "what was never sent is not counted"
    await caller.is_taken()

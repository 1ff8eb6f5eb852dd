"""Asking a master for its tables over real sockets: one of RocketMQ that answers, one that does not, and one of ours."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.broker.conftest import Rig
from tests.worlds.little_store import SMALL, LittleStore

from orbitmq.broker.copied_tables import CopiedTables, MastersTable
from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, encode, response
from orbitmq.server.connections.outbound import PLAIN
from orbitmq.server.replication.master_tables import MasterTables
from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq.led import LedByRocketMQ

Table = MastersTable
RUNTIME = RequestCode.GET_BROKER_RUNTIME_INFO

GOOD = {
    RUNTIME: b'{"table":{"commitLogMaxOffset":"100","bootTimestamp":"1"}}',
    Table.OFFSETS.value: b'{"offsetTable":{"orders@readers":{0:5}}}',
    Table.DELAY_LEVELS.value: b'{"offsetTable":{1:0}}',
    Table.TIMERS.value: bytes(56),
    Table.TOPICS.value: b'{"topicConfigTable":{"orders":{"readQueueNums":3}},"dataVersion":{"counter":1}}',
    Table.GROUPS.value: b'{"subscriptionGroupTable":{"readers":{"groupName":"readers"}},"dataVersion":{"counter":1}}',
    Table.REQUEST_MODES.value: b'{"messageRequestModeMap":{}}',
}


class FakeMaster:
    """Answers requests by their codes: with a body, with an error for a number, by closing the connection for None."""

    def __init__(self, answers: dict[RequestCode, bytes | int | None]) -> None:
        self.answers = answers
        self.asked: list[int] = []

    async def __aenter__(self) -> FakeMaster:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection()
        while data := await reader.read(65_536):
            for command in connection.receive_data(data):
                self.asked.append(command.code)
                answer = self.answers.get(RequestCode(command.code), int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
                if answer is None:
                    writer.close()
                    return
                writer.write(encode(_answered(command, answer)))
        writer.close()


def _answered(command: Command, answer: bytes | int) -> Command:
    if isinstance(answer, int):
        return response(command, answer, "the master says no")
    return response(command, ResponseCode.SUCCESS, None, None, answer)


class Slave:
    """A broker and its tables, which are asked for when the test says so."""

    def __init__(self, root: Path, master: Callable[[], str]) -> None:
        self.rig = Rig(root / "broker", BrokerSettings(), SMALL)
        self.little = LittleStore(root / "little")
        self.little.release.detach()
        self.little.timers.detach()
        self.log_end = 100
        self.changes = self.deliveries = 0
        broker, little = self.rig.broker, self.little
        modes, led = broker.rooms.assignment.modes, LedByRocketMQ(OsFiles(), little.root)
        copied = CopiedTables(
            broker.topics, broker.groups, broker.offsets, modes, little.release, little.timers, led, little.clock,
            little.precision_ms,
        )  # fmt: skip
        self.tables = MasterTables(
            copied,
            little.clock,
            PLAIN,
            master=master,
            follows=lambda: True,
            log_end=lambda: self.log_end,
            changed=self._changed,
            delivered=self._delivered,
        )

    def _changed(self) -> None:
        self.changes += 1

    def _delivered(self) -> None:
        self.deliveries += 1

    def knows(self) -> tuple[bool, bool, bool]:
        """Topic, group, offset."""
        broker = self.rig.broker
        return (
            broker.topics.get("orders") is not None,
            broker.groups.known("readers") is not None,
            bool(broker.offsets.queues("readers", "orders")),
        )

    async def ask(self) -> None:
        await self.tables.ask()
        self.tables.bring_in()

    async def __aenter__(self) -> Slave:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tables.stop()
        self.rig.close()
        self.little.kill()


async def test_a_master_of_rocketmq_is_asked_for_everything(tmp_path: Path) -> None:
    async with FakeMaster(dict(GOOD)) as master, Slave(tmp_path, lambda: master.address) as slave:
        await slave.ask()
        assert slave.knows() == (True, True, True)
        assert slave.changes
        assert master.asked[0] == RUNTIME
        assert master.asked.index(Table.OFFSETS.value) < len(master.asked) - 1 - master.asked[::-1].index(RUNTIME)


async def test_progress_waits_for_the_log_and_is_not_asked_for_meanwhile(tmp_path: Path) -> None:
    async with FakeMaster(dict(GOOD)) as master, Slave(tmp_path, lambda: master.address) as slave:
        slave.log_end = 99
        await slave.ask()
        assert slave.knows() == (True, True, False)
        master.answers[RUNTIME] = b'{"table":{"commitLogMaxOffset":"5000"}}'
        await slave.ask()
        slave.log_end = 100
        slave.tables.bring_in()
        assert slave.knows() == (True, True, True)


async def test_delivered_messages_are_saved(tmp_path: Path) -> None:
    async with FakeMaster(dict(GOOD)) as master, Slave(tmp_path, lambda: master.address) as slave:
        slave.little.send(level=1)
        await slave.ask()
        assert slave.deliveries == 0
        master.answers[Table.DELAY_LEVELS.value] = b'{"offsetTable":{1:1}}'
        await slave.ask()
        assert slave.deliveries == 1


async def test_a_master_of_ours_is_not_asked(tmp_path: Path) -> None:
    runtime = json.dumps({"table": {"commitLogMaxOffset": "100", "orbitmqDeadLetters": "0"}}).encode()
    async with FakeMaster({**GOOD, RUNTIME: runtime}) as master, Slave(tmp_path, lambda: master.address) as slave:
        await slave.ask()
        assert master.asked == [RUNTIME]
        assert slave.knows() == (False, False, False)


@pytest.mark.parametrize("answer", [b"{", b"\xff" * 100, b"[" * 100_000, int(ResponseCode.SYSTEM_ERROR)])
@pytest.mark.parametrize("table", list(MastersTable))
async def test_one_table_that_fails_stops_no_other_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, table: MastersTable, answer: bytes | int
) -> None:
    caplog.set_level(logging.INFO)
    wrong: dict[RequestCode, bytes | int | None] = {**GOOD, table.value: answer}
    async with FakeMaster(wrong) as master, Slave(tmp_path, lambda: master.address) as slave:
        await slave.ask()
        await slave.ask()
        expected = tuple(one is not table for one in (Table.TOPICS, Table.GROUPS, Table.OFFSETS))
        assert slave.knows() == expected
        assert caplog.text.count("of the master are not copied") == 1
        master.answers[table.value] = GOOD[table.value]
        await slave.ask()
        assert slave.knows() == (True, True, True)
        assert caplog.text.count("are copied again") == 1


async def test_a_master_of_rocketmq_4_has_no_request_modes_and_no_timers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = {code: body for code, body in GOOD.items() if code not in (Table.TIMERS.value, Table.REQUEST_MODES.value)}
    async with FakeMaster(dict(old)) as master, Slave(tmp_path, lambda: master.address) as slave:
        await slave.ask()
        assert slave.knows() == (True, True, True)
        assert "not copied" not in caplog.text


@pytest.mark.parametrize("runtime", [None, b"{", b'{"table":{}}', int(ResponseCode.SYSTEM_ERROR)])
async def test_without_knowing_where_the_log_ends_nothing_is_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, runtime: bytes | int | None
) -> None:
    async with FakeMaster({**GOOD, RUNTIME: runtime}) as master, Slave(tmp_path, lambda: master.address) as slave:
        await slave.ask()
        await slave.ask()
        assert slave.knows() == (False, False, False)
        assert caplog.text.count("not copied") == 1
        master.answers[RUNTIME] = GOOD[RUNTIME]
        slave.little.clock.advance(60_000)
        await slave.ask()
        assert slave.knows() == (True, True, True)


async def test_an_address_that_is_none_or_unknown_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = ""
    async with Slave(tmp_path, lambda: address) as slave:
        await slave.ask()
        await slave.ask()
        assert caplog.text.count("no name server says where the master") == 1
        address = "nonsense"
        await slave.ask()
        address = "127.0.0.1:1"
        await slave.ask()
        assert slave.knows() == (False, False, False)


async def test_with_another_master_its_progress_counts(tmp_path: Path) -> None:
    async with FakeMaster(dict(GOOD)) as first, FakeMaster(dict(GOOD)) as second:
        address = first.address
        async with Slave(tmp_path, lambda: address) as slave:
            first.answers[RUNTIME] = b'{"table":{"commitLogMaxOffset":"5000"}}'
            await slave.ask()
            assert slave.knows() == (True, True, False)
            address = second.address
            await slave.ask()
            assert slave.knows() == (True, True, True)

"""A slave begins anew by a command: its store is put aside, and it copies its master; and two copies of one slave's directory."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import RawClient, ServedProcess, free_ports, until
from test_pair import Pair, bodies, promote, send, sent_until_copied

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.replication_bodies import PromoteRequest, ReseedAnswer, ReseedRequest
from orbitmq.replication.kept_state import REPLICATION_FILE
from orbitmq.server.configuration.settings import Overrides, Role, load_settings
from orbitmq.server.lifecycle import ServerProcess


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.end()


def reseed(server: ServedProcess, **wanted: bool) -> Command:
    with RawClient(server.port) as client:
        return client.call(RequestCode.RESEED_SLAVE, {}, ReseedRequest(**wanted).encode())


def files_below(directory: Path) -> bytes:
    return b"".join(path.read_bytes().rstrip(b"\0") for path in sorted(directory.rglob("commitlog/0*")))


def test_a_slave_begins_anew_in_the_running_process(pair: Pair) -> None:
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
        answer = reseed(pair.slave)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        told = ReseedAnswer.decode(answer.body)
        assert told.restarts
        until(lambda: "the store was put aside" in pair.slave.log(), 30, what="the store put aside")
        until(lambda: pair.slave.log().count("following the master at") == 2, 30, what="the slave following anew")
        sent_until_copied(client, b"second")
        assert b"first" in files_below(pair.slave.data / told.aside)
        assert b"second" not in files_below(pair.slave.data / told.aside)
    until(lambda: b"second" in bodies(pair.slave), 30, what="the slave having everything")
    assert b"first" in bodies(pair.slave)
    assert "another store had this id" not in pair.slave.log(), "its master knows it again"
    pair.slave.stop()
    pair.start_slave()
    assert pair.slave.log().count("the store was put aside") == 1


def test_a_master_does_not_begin_anew_and_neither_does_a_slave_without_one(pair: Pair) -> None:
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
    answer = reseed(pair.master)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "this broker leads" in (answer.remark or "")
    pair.master.kill()
    answer = reseed(pair.slave, although_parted=True)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "cannot be asked" in (answer.remark or "")
    assert b"first" in files_below(pair.slave.data)


def test_what_a_slave_has_and_its_master_has_not_is_put_aside_only_where_somebody_says_so(pair: Pair) -> None:
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"both")
        pair.slave.kill()
        until(lambda: "is let go" in pair.master.log(), what="the end of the slave's connection")
        assert send(client, b"only at the old master") == ResponseCode.SLAVE_NOT_AVAILABLE
    pair.master.stop()
    new = pair.start_master("slave")
    with new.client() as client:
        assert send(client, b"only at the new master") == ResponseCode.SLAVE_NOT_AVAILABLE
    old = ServedProcess(
        pair.directory / "master",
        command="broker",
        settings={**pair.slave_settings, "brokerId": 2, "namesrvAddr": f"127.0.0.1:{new.name_port}"},
    )
    pair.processes.append(old)
    until(lambda: "has parted from ours" in old.log(), 30, what="the refusal")
    answer = reseed(old)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "has parted from ours" in (answer.remark or "")
    assert "although they have parted" in (answer.remark or "")
    answer = reseed(old, although_parted=True)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    until(lambda: "following the master at" in old.log(), 30, what="the old master following")
    until(lambda: b"only at the new master" in bodies(old), 30, what="the old master being a copy of the new one")
    assert b"only at the old master" not in bodies(old)
    assert b"only at the old master" in files_below(old.data / ReseedAnswer.decode(answer.body).aside)


def test_of_two_copies_of_one_directory_one_follows_and_both_logs_say_why(pair: Pair) -> None:
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
        pair.slave.stop()
        shutil.copytree(pair.slave.data, pair.directory / "twin" / "data")
        first = pair.start_slave()
        sent_until_copied(client, b"second")
        twin = ServedProcess(
            pair.directory / "twin",
            command="broker",
            settings={**pair.slave_settings, "namesrvAddr": f"127.0.0.1:{pair.master.name_port}"},
        )
        pair.processes.append(twin)
        until(lambda: "another process follows as slave 1" in first.log(), 30, what="why it is driven out")
        assert pair.master.log().count("a slave is refused: another process follows as slave 1") == 1
        sent_until_copied(client, b"third")
        assert "another process" not in twin.log()
        refused = reseed(first)
        assert (refused.code, "stop one of them" in (refused.remark or "")) == (ResponseCode.NO_PERMISSION, True)
        twin.kill()
        until(lambda: first.log().count("following the master at") == 3, 30, what="the other one following again")
        sent_until_copied(client, b"fourth")


def test_a_slave_that_began_with_nothing_leads_when_it_has_what_its_master_had(pair: Pair) -> None:
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
    pair.slave.stop()
    file = pair.slave.data / "config" / REPLICATION_FILE
    kept = json.loads(file.read_text())
    assert kept["seedingUntil"] > 0
    file.write_text(json.dumps({**kept, "seedingUntil": 1 << 40}))
    pair.start_slave()
    pair.master.kill()
    until(lambda: pair.slave.runtime()["orbitmqReplicaConnected"] == "false", what="the end of the connection")
    refused = promote(pair.slave)
    assert (refused.code, "began with nothing" in (refused.remark or "")) == (ResponseCode.NO_PERMISSION, True)
    assert promote(pair.slave, although_behind=True).code == ResponseCode.SUCCESS


def led_by_its_slave(pair: Pair, **kept: object) -> ServedProcess:
    """The master is lost, and the slave, which has one message and `kept` in its file, is started as one."""
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
    pair.slave.stop()
    pair.master.kill()
    file = pair.slave.data / "config" / REPLICATION_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), **kept}))
    return pair.start_master("slave")


def test_a_slave_that_was_to_begin_anew_and_leads_instead_keeps_what_it_has(pair: Pair) -> None:
    """Killed between the answer and the end of its process."""
    new = led_by_its_slave(pair, aside="aside/20261128T082000123Z", asideEnd=1)
    assert bodies(new)[-1] == b"first"
    assert "the store is not put aside" in new.log()
    assert "aside" not in json.loads((new.data / "config" / REPLICATION_FILE).read_text())


def test_a_promotion_takes_back_that_a_slave_is_to_begin_anew(pair: Pair) -> None:
    """Its process does not begin again by itself, so that the answer is older than the loss of the master."""
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
    pair.slave.stop()
    asyncio.run(asyncio.wait_for(_embedded_slave(pair), 60))
    again = ServedProcess(
        pair.directory / "slave",
        command="broker",
        settings={**pair.slave_settings, "namesrvAddr": f"127.0.0.1:{pair.master.name_port}"},
    )
    pair.processes.append(again)
    assert bodies(again)[-1] == b"at the new master"
    assert not (again.data / "aside").exists()


async def _embedded_slave(pair: Pair) -> None:
    flags = [f"{name}={value}" for name, value in pair.slave_settings.items()]
    flags += [f"namesrvAddr=127.0.0.1:{pair.master.name_port}", "grpcServerPort=0", "httpEnable=false"]
    port = free_ports()[1]
    overrides = Overrides(data=pair.slave.data, host="127.0.0.1", broker_port=port)
    process = ServerProcess(load_settings(roles=[Role.BROKER], flags=flags, overrides=overrides), second_port=False)
    await process.start()
    try:
        answer = await asyncio.to_thread(call, port, RequestCode.RESEED_SLAVE, ReseedRequest().encode())
        assert not ReseedAnswer.decode(bytes(answer.body)).restarts, answer.remark
        pair.master.kill()
        code = ResponseCode.NO_PERMISSION
        while code == ResponseCode.NO_PERMISSION:  # until it knows that its master is gone
            code = (await asyncio.to_thread(call, port, RequestCode.PROMOTE_SLAVE, PromoteRequest().encode())).code
        assert code == ResponseCode.SUCCESS
        with RawClient(port) as client:
            assert await asyncio.to_thread(send, client, b"at the new master") == ResponseCode.SUCCESS
    finally:
        await process.stop()


def call(port: int, code: int, body: bytes) -> Command:
    with RawClient(port) as client:
        return client.call(code, {}, body)


def test_a_slave_whose_master_is_lost_right_after_it_began_anew_does_not_lead_with_nothing(pair: Pair) -> None:
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
    with RawClient(pair.slave.port) as client:
        answer = client.call(RequestCode.RESEED_SLAVE, {}, ReseedRequest().encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        wanted = PromoteRequest(although_master_lives=True, although_behind=True)
        try:
            refused = client.call(RequestCode.PROMOTE_SLAVE, {}, wanted.encode())
        except OSError as error:
            print(f"the process was gone before it could be made master: {error}")
        else:
            assert "begins anew just now" in (refused.remark or "")
    pair.master.send_signal(signal.SIGKILL)
    until(lambda: "the store was put aside" in pair.slave.log(), 30, what="the store put aside")
    until(lambda: b"first" in files_below(pair.slave.data / ReseedAnswer.decode(answer.body).aside), 30)
    until(lambda: _refuses_as_begun_anew(pair.slave), 30, what="the refusal")
    assert "this broker is the master" not in pair.slave.log()


def _refuses_as_begun_anew(slave: ServedProcess) -> bool:
    try:
        refused = promote(slave)
    except OSError:
        return False  # its port is not open again
    assert refused.code == ResponseCode.NO_PERMISSION, "it leads"
    return "began with nothing" in (refused.remark or "")


def test_a_slave_that_has_not_copied_all_and_is_started_as_a_master_says_so(pair: Pair) -> None:
    new = led_by_its_slave(pair, seedingUntil=1 << 40)
    assert len(new.log_lines("this broker leads, began with nothing")) == 1
    assert f"lacks what its master had, up to {1 << 40}" in new.runtime()["orbitmqReplicaTrouble"]
    file = new.data / "config" / REPLICATION_FILE
    until(lambda: file.exists() and "seedingUntil" not in file.read_text(), 30, what="it being the one that counts")

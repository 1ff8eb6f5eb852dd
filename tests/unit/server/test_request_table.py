"""What the servers answer is what the table of requests says, code by code."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.broker import merged
from orbitmq.clock import SystemClock
from orbitmq.nameserver.server import SERVED_CODES
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.requests import REQUESTS, RequestServer
from orbitmq.server.configuration.settings import Overrides, Role, load_settings
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.store.files import OsFiles


def codes_of(server: RequestServer) -> set[int]:
    return {int(code) for code, row in REQUESTS.items() if server in row.served_by}


async def test_a_broker_with_every_room_answers_what_the_table_says(tmp_path: Path) -> None:
    settings = load_settings(
        roles=[Role.NAMESERVER, Role.BROKER],
        flags=["grpcServerPort=0"],
        overrides=Overrides(data=tmp_path, host="127.0.0.1", nameserver_port=0, broker_port=0),
    )
    process = ServerProcess(settings, SystemClock(), OsFiles(), second_port=False)
    await process.start()
    try:
        assert process.broker is not None
        handlers = merged(room.handlers() for room in process.broker.broker.rooms.all)
        assert set(handlers) == codes_of(RequestServer.BROKER)
    finally:
        await process.stop()


def test_a_name_server_answers_what_the_table_says() -> None:
    assert codes_of(RequestServer.NAME_SERVER) == SERVED_CODES


def test_no_room_can_serve_what_the_table_does_not_know_as_served() -> None:
    with pytest.raises(ValueError, match=r"no broker serves 513 \(UPDATE_AND_CREATE_STATIC_TOPIC\)"):
        merged([{RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: lambda request, peer: None}])
